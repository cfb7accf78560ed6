"""The op queue: which half messages were ended, so that after a restart nobody is asked about them again.

An op message names many half messages, those of a few seconds. What waits to be written is lost if the broker is
killed: then producers are asked once more about transactions that they have ended, as in RocketMQ.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from typing import TYPE_CHECKING

from orbitmq.protocol import property_names as names
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.names import TRANSACTION_OP_TOPIC
from orbitmq.protocol.properties import find
from orbitmq.protocol.record import decode_record
from orbitmq.store import StoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from orbitmq.broker.config import BrokerConfig
    from orbitmq.broker.stats import BrokerStats
    from orbitmq.store import Clock, MessageStore

log = logging.getLogger("orbitmq.broker")

MOST_WAITING = 20_000
"""Ended half messages that wait to be written, of a queue: so many only if the store takes nothing."""

RETRY_SECONDS = 1.0

PROPERTIES = b"WAIT\x01true\x02TAGS\x01d\x02"
_TAGS = names.TAGS.encode()
_REMOVED = b"d"
_MOST_DIGITS = 18


@dataclasses.dataclass(slots=True)
class _Batch:
    last_write_ms: int
    offsets: list[int] = dataclasses.field(default_factory=list)
    size: int = 0


class OpQueue:
    """Writes op messages in batches, and knows which of them are needed no more.

    Each is written after a flush of what it stands on: a power cut that took a committed message and left its op
    message would lose it. ``flushed`` is done when the log up to an offset is on the disk.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        stats: BrokerStats,
        clock: Clock,
        flushed: Callable[[int], Awaitable[None]],
    ) -> None:
        self._config = config
        self._store = store
        self._stats = stats
        self._clock = clock
        self._flushed = flushed
        self._batches: dict[int, _Batch] = {}
        """By the id of the half queue, which is that of its op queue."""
        self._highest: dict[int, dict[int, int]] = {}
        """By queue id and the offset of an op message, the highest half message that it names."""
        self._first: dict[int, int] = {}
        """By queue id, the first op message that is still needed."""
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None
        self._complaint = ""
        self._is_stopped = False

    # Writing

    def has_room(self, queue_id: int) -> bool:
        """Whether one more end can be taken."""
        batch = self._batches.get(queue_id)
        return batch is None or len(batch.offsets) < MOST_WAITING

    def add(self, queue_id: int, offsets: list[int]) -> None:
        """Half messages of a queue were ended."""
        batch = self._batches.get(queue_id)
        if batch is None:
            batch = self._batches[queue_id] = _Batch(self._clock.now_ms())
        batch.offsets += offsets
        batch.size += sum([len(b"%d," % offset) for offset in offsets])
        if self._writing is not None or self._complaint or self._is_stopped:
            return
        if batch.size > self._config.transaction_op_msg_max_size:
            self._begin()
        elif self._timer is None:
            self._begin_later(batch)

    def _begin_later(self, batch: _Batch) -> None:
        waited = self._clock.now_ms() - batch.last_write_ms
        seconds = max(self._config.transaction_op_batch_interval - waited, 0) / 1000
        self._timer = asyncio.get_running_loop().call_later(seconds, self._begin)

    def _begin(self) -> asyncio.Task[None]:
        self._forget_timer()
        if self._writing is None:
            self._writing = asyncio.get_running_loop().create_task(self._write_all())
            self._writing.add_done_callback(self._done)
        return self._writing

    def _done(self, writing: asyncio.Task[None]) -> None:
        self._writing = None
        if writing.cancelled() or writing.exception() is not None or self._is_stopped:
            return
        if self._complaint:
            self._timer = asyncio.get_running_loop().call_later(RETRY_SECONDS, self._begin)
            return
        for batch in self._batches.values():
            if batch.size > self._config.transaction_op_msg_max_size:
                self._begin()
            elif batch.offsets and self._timer is None:
                self._begin_later(batch)

    def _forget_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def write(self) -> None:
        """Write all that waits now; what the store refuses waits on."""
        if self._writing is not None:
            # It began before some of that was there.
            await asyncio.gather(self._writing, return_exceptions=True)
        await asyncio.gather(self._begin(), return_exceptions=True)

    async def stop(self) -> None:
        """Write what waits, and try no more."""
        self._is_stopped = True
        await self.write()
        self._forget_timer()

    async def _write_all(self) -> None:
        """Write what waits now, once what it stands on is on the disk."""
        waiting = [(queue_id, batch, len(batch.offsets)) for queue_id, batch in self._batches.items()]
        try:
            await self._flushed(self._store.log.end)
            for queue_id, batch, count in waiting:
                left = count
                while left > 0:
                    left -= self._write_one(queue_id, batch, left)
                    # What comes meanwhile stands behind these and waits for the next time.
                    await asyncio.sleep(0)
        except (StoreError, OSError) as error:
            if str(error) != self._complaint:
                self._complaint = str(error)
                log.warning("ends of transactions wait to be written: %s", error)
        else:
            self._complaint = ""

    def _write_one(self, queue_id: int, batch: _Batch, most_offsets: int) -> int:
        """Write one op message of so many half messages at most; says how many those are. Raises StoreError."""
        most = min(self._config.transaction_op_msg_max_size, self._store.config.max_message_size - _MOST_DIGITS)
        body = bytearray()
        count = 0
        for offset in batch.offsets:
            body += b"%d," % offset
            count += 1
            if len(body) >= most or count >= most_offsets:
                break
        now = self._clock.now_ms()
        appended = self._store.append(
            TRANSACTION_OP_TOPIC, queue_id, bytes(body), PROPERTIES, born_timestamp=now,
            born_host=self._store.log.store_host,
        )  # fmt: skip
        self._stats.put(TRANSACTION_OP_TOPIC, queue_id, 1, appended.size)
        self.note(queue_id, appended.queue_offset, max(batch.offsets[:count]))
        del batch.offsets[:count]
        batch.size -= len(body)
        batch.last_write_ms = now
        return count

    # What is written

    def begin_at(self, queue_id: int, op_offset: int) -> None:
        """Op messages before this one are needed no more."""
        self._first[queue_id] = op_offset

    def note(self, queue_id: int, op_offset: int, highest: int) -> None:
        """There is an op message that names half messages up to this one."""
        self._highest.setdefault(queue_id, {})[op_offset] = highest

    def first_needed(self, queue_id: int, half_offset: int) -> int:
        """The first op message that names a half message at or after this one, or of which nobody knows."""
        highest = self._highest.get(queue_id, {})
        first = self._first.get(queue_id, 0)
        while highest.get(first, half_offset) < half_offset:
            del highest[first]
            first += 1
        self._first[queue_id] = first
        return first


def ended_by(record: memoryview | None) -> list[int]:
    """The half messages that an op message names: one in old stores, many in others."""
    try:
        found = None if record is None else decode_record(record)
    except ProtocolError:
        found = None
    if found is None or find(found.properties, _TAGS) != _REMOVED:
        return []
    texts = found.body.split(b",")
    return [int(text) for text in texts if text.isdigit() and len(text) <= _MOST_DIGITS]
