"""Waiting messages one by one: deferred ones by their delivery time, and half messages of open transactions.

They are read from the brokers' own topics, so that it works on Apache's brokers as well. The read is bounded: it
begins with what was stored last.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from typing import TYPE_CHECKING

from orbitmq.admin.errors import AdminError, InvalidRequestError
from orbitmq.protocol.bodies import MessageQueue
from orbitmq.protocol.message import property_names as names
from orbitmq.protocol.names import (
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TRANSACTION_GROUP,
    TRANSACTION_HALF_TOPIC,
    TRANSACTION_OP_TOPIC,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from orbitmq.admin.cluster.brokers import Brokers
    from orbitmq.admin.cluster.topology import BrokerAddress
    from orbitmq.admin.group.lag import Lag
    from orbitmq.admin.message.messages import Messages
    from orbitmq.admin.session import AdminSession
    from orbitmq.client.message import ReceivedMessage

SCAN = 2000
"""Stored messages that are looked at on each broker."""
MAX_SCAN = 100_000
DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
_UNIT_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_LEVEL = re.compile(r"(\d{1,9})([smhd])")
_PAGE = 32


@dataclasses.dataclass(frozen=True, slots=True)
class WaitingMessage:
    """A message that is delivered later."""

    due_ms: int
    topic: str
    """Where it is delivered."""
    broker_name: str
    message_id: str
    offset_message_id: str
    tags: str | None
    keys: tuple[str, ...]
    body_size: int
    stored_ms: int
    delay_level: int
    """0 for a timed message."""


@dataclasses.dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A half message whose transaction is neither committed nor rolled back."""

    topic: str
    producer_group: str
    broker_name: str
    message_id: str
    offset_message_id: str
    keys: tuple[str, ...]
    born_ms: int
    stored_ms: int
    checks: int
    """How often the broker asked a producer for the outcome."""


@dataclasses.dataclass(frozen=True, slots=True)
class WaitingMessages:
    """Waiting messages, the next first. ``is_complete``: the read has looked at all that is stored."""

    messages: tuple[WaitingMessage, ...]
    is_complete: bool

    def by_time(self, now_ms: int) -> list[tuple[str, int]]:
        """Numbers of messages that are due within spans of time from now, by the span's name."""
        counts = dict.fromkeys((name for name, _ in SPANS), 0)
        for message in self.messages:
            left = message.due_ms - now_ms
            counts[next(name for name, bound in SPANS if left < bound)] += 1
        return list(counts.items())


SPANS: tuple[tuple[str, float], ...] = (
    ("1 min", 60_000),
    ("10 min", 600_000),
    ("1 h", 3_600_000),
    ("6 h", 21_600_000),
    ("24 h", 86_400_000),
    ("7 days", 604_800_000),
    ("later", float("inf")),
)


class Waiting:
    """Deferred messages and open transactions, one by one."""

    def __init__(self, session: AdminSession, brokers: Brokers, messages: Messages, lag: Lag) -> None:
        self._session = session
        self._brokers = brokers
        self._messages = messages
        self._lag = lag

    # Deferred messages

    async def deferred(self, *, cluster: str = "", broker: str = "", scan: int = SCAN) -> WaitingMessages:
        """Timed and delayed messages by their delivery time, of the newest ``scan`` messages on each broker.

        Recalled messages are left out. A message that the timer has moved on is there once.
        """
        _check(scan)
        now, is_complete = self._session.now_ms(), True
        found: dict[tuple[str, str], WaitingMessage] = {}
        for one in await self._brokers.targets(cluster, broker, for_change=False):
            timed, is_whole = await self._timed(one, scan, now)
            delayed, is_all = await self._delayed(one, scan)
            for message in (*timed, *delayed):
                found[message.broker_name, message.message_id] = message
            is_complete = is_complete and is_whole and is_all
        return WaitingMessages(tuple(sorted(found.values(), key=lambda one: one.due_ms)), is_complete)

    async def _timed(self, broker: BrokerAddress, scan: int, now: int) -> tuple[list[WaitingMessage], bool]:
        queue = MessageQueue(TIMER_TOPIC, broker.broker_name, 0)
        try:
            first, last = await self._messages.span(broker.address, queue, None, None)
        except AdminError:
            # A broker without a timer has no such topic.
            return [], True
        begin = max(first, last - scan)
        found: list[WaitingMessage] = []
        recalled: set[str] = set()
        async for message in self._range(broker.address, queue, begin, last):
            properties = message.properties
            due = _whole(properties.get(names.TIMER_OUT_MS))
            if marker := properties.get(names.TIMER_DELETE_UNIQUE_KEY):
                recalled.add(marker)
            elif due > now:
                found.append(_waiting(message, due, 0))
        kept = [
            one
            for one in found
            if one.message_id not in recalled and f"{one.topic}+{one.message_id}" not in recalled
        ]
        return kept, begin == first

    async def _delayed(self, broker: BrokerAddress, scan: int) -> tuple[list[WaitingMessage], bool]:
        runtime = await self._brokers.runtime(broker.address)
        levels = {level: span for level, span in runtime.delay_levels.items() if span[1] > span[0]}
        if not levels:
            return [], True
        delays = level_delays((await self._brokers.settings(broker.address)).get("messageDelayLevel", ""))
        found: list[WaitingMessage] = []
        left = scan
        for level, (at, end) in sorted(levels.items()):
            queue = MessageQueue(SCHEDULE_TOPIC, broker.broker_name, level - 1)
            delay = delays.get(level, 0)
            found += [
                _waiting(message, message.store_timestamp + delay, level)
                async for message in self._range(broker.address, queue, at, min(end, at + left))
            ]
            left -= min(end - at, left)
        return found, sum(end - at for at, end in levels.values()) <= scan

    # Transactions

    async def transactions(self, *, scan: int = SCAN) -> list[OpenTransaction]:
        """The half messages whose transactions are open, the oldest first, of the first ``scan`` on each broker."""
        _check(scan)
        brokers = {one.broker_name: one for one in await self._brokers.targets(for_change=False)}
        halves = await self._positions(TRANSACTION_HALF_TOPIC)
        ops = await self._positions(TRANSACTION_OP_TOPIC)
        found: dict[str, OpenTransaction] = {}
        for queue, (begin, end) in halves.items():
            broker = brokers.get(queue.broker_name)
            if broker is None or begin >= end:
                continue
            op_queue = MessageQueue(TRANSACTION_OP_TOPIC, queue.broker_name, queue.queue_id)
            ended = await self._ended(broker.address, op_queue, ops.get(op_queue, (0, 0)))
            async for message in self._range(broker.address, queue, begin, min(end, begin + scan)):
                if message.queue_offset not in ended:
                    # A checked half message is stored once more: the last one counts.
                    found[message.message_id] = _open(message)
                else:
                    found.pop(message.message_id, None)
        return sorted(found.values(), key=lambda one: one.born_ms)

    async def _positions(self, topic: str) -> dict[MessageQueue, tuple[int, int]]:
        """Progress of the transaction service in each queue, and the queue's end."""
        progress = await self._lag.of_group(TRANSACTION_GROUP, topic=topic, may_be_empty=True)
        return {
            MessageQueue(one.topic, one.broker_name, one.queue_id): (max(one.consumer_offset, 0), one.broker_offset)
            for one in progress.queues
        }

    async def _ended(self, address: str, queue: MessageQueue, span: tuple[int, int]) -> set[int]:
        """Offsets of half messages that were ended, as the op queue has them."""
        found: set[int] = set()
        async for message in self._range(address, queue, *span):
            found.update(int(part) for part in message.body.split(b",") if part.strip().isdigit())
        return found

    async def _range(
        self, address: str, queue: MessageQueue, begin: int, end: int
    ) -> AsyncIterator[ReceivedMessage]:
        at = begin
        while at < end:
            page = await self._messages.page(address, queue, at, min(_PAGE, end - at))
            for message in page.messages:
                if message.queue_offset < end:
                    yield message
            if page.next_offset <= at:
                return
            at = page.next_offset


def level_delays(text: str) -> dict[int, int]:
    """Milliseconds of each delay level, from the setting ``messageDelayLevel``."""
    parts = text.split() or DELAY_LEVELS.split()
    found = {}
    for level, part in zip(itertools.count(1), parts, strict=False):
        if (match := _LEVEL.fullmatch(part)) is not None:
            found[level] = int(match[1]) * _UNIT_MS[match[2]]
    return found


def _check(scan: int) -> None:
    if not 1 <= scan <= MAX_SCAN:
        raise InvalidRequestError(f"1 to {MAX_SCAN:,} stored messages are looked at, not {scan}")


def _whole(text: str | None) -> int:
    return int(text) if text is not None and text.isdecimal() and len(text) < 19 else 0


def _waiting(message: ReceivedMessage, due_ms: int, level: int) -> WaitingMessage:
    return WaitingMessage(
        due_ms,
        message.properties.get(names.REAL_TOPIC, message.topic),
        message.broker_name,
        message.message_id,
        message.offset_message_id,
        message.tags,
        tuple(message.keys),
        len(message.record.body),
        message.store_timestamp,
        level,
    )


def _open(message: ReceivedMessage) -> OpenTransaction:
    properties = message.properties
    return OpenTransaction(
        properties.get(names.REAL_TOPIC, message.topic),
        properties.get(names.PRODUCER_GROUP, ""),
        message.broker_name,
        message.message_id,
        message.offset_message_id,
        tuple(message.keys),
        message.born_timestamp,
        message.store_timestamp,
        _whole(properties.get(names.TRANSACTION_CHECK_TIMES)),
    )
