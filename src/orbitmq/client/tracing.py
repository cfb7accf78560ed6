"""Sends what is written down of messages on their way to the trace topic: beside the work, and never in its way.

Records wait until there are enough of them or some seconds have passed, and leave with a producer of their own. If
more come than leave, some are lost: a trace is for people, and no message waits for it.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import itertools
import logging
from typing import TYPE_CHECKING

from orbitmq.client.errors import OrbitMQError
from orbitmq.client.messages import Message
from orbitmq.client.producer import Producer
from orbitmq.protocol.names import TRACE_PRODUCER_GROUP_PREFIX, TRACE_TOPIC
from orbitmq.remoting import RemotingError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from orbitmq.client.config import ClientConfig
    from orbitmq.client.tracing_records import TraceRecord

log = logging.getLogger("orbitmq.client")

PRODUCE, CONSUME = "PRODUCE", "CONSUME"

MOST_WAITING = 2048
MOST_TOGETHER = 20
FLUSH_SECONDS = 5.0
SEND_SECONDS = 5.0
CLOSE_SECONDS = 5.0
MOST_BYTES = 128_000
"""These are the numbers of Java's clients."""

MOST_KEY_BYTES = 24_000
"""Keys of a message are a property, and all properties together have 32 KiB."""

MOST_OF_A_GROUP = 200
"""A group has up to 255 characters, and there is something before and behind it."""

INSTANCE_NAME = "PID_CLIENT_INNER_TRACE_PRODUCER"

_numbers = itertools.count(1)


@dataclasses.dataclass(frozen=True, slots=True)
class Context:
    """What was written down of one send, or one call of a handler."""

    topic: str
    records: Sequence[TraceRecord]


class TraceDispatcher:
    """Takes records from anywhere, also other threads, and sends them from the loop it was started on."""

    def __init__(self, config: ClientConfig, group: str, kind: str) -> None:
        """``kind`` says whether ``group`` is of a producer or of a consumer."""
        self.topic = config.trace_topic or TRACE_TOPIC
        self.lost = 0
        """How many contexts were dropped because too many waited."""
        self._together = min(config.trace_msg_batch_num, MOST_TOGETHER)
        servers = config.name_servers
        self._producer = Producer(
            servers,
            group=f"{TRACE_PRODUCER_GROUP_PREFIX}-{group[:MOST_OF_A_GROUP]}-{kind}-{next(_numbers)}",
            instance_name=f"{INSTANCE_NAME}_{';'.join(servers)}",
            client_ip=config.client_ip,
            send_msg_timeout=SEND_SECONDS,
            max_message_size=MOST_BYTES,
            tls=config.tls,
        )
        self._waiting: collections.deque[Context] = collections.deque()
        self._is_told_of_failure = False
        self._flushing: asyncio.Task[None] | None = None

    def traces(self, topic: str) -> bool:
        """Whether messages of a topic are traced: those of traces are not."""
        return not topic.startswith(self.topic)

    def add(self, topic: str, records: Sequence[TraceRecord]) -> None:
        """Have records of messages of a topic sent. Any thread may call this, and it never waits."""
        if not records:
            return
        if len(self._waiting) >= MOST_WAITING:
            self.lost += 1
            return
        self._waiting.append(Context(topic, records))
        if len(self._waiting) == self._together:
            self._loop.call_soon_threadsafe(self._enough.set)

    # Life

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._enough = asyncio.Event()
        await self._producer.start()
        self._flushing = self._loop.create_task(self._flush_for_ever())

    async def abandon(self) -> None:
        """Stop at once, and send nothing more. Harmless if it was never started."""
        self._waiting.clear()
        if self._flushing is not None:
            await self.close()

    async def close(self) -> None:
        """Send what waits, but not for ever. Nothing may be added any more."""
        assert self._flushing is not None, "not started"
        self._flushing.cancel()
        await asyncio.gather(self._flushing, return_exceptions=True)
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._flush()
        except TimeoutError:
            log.warning("%d traces were not sent in time and are lost", len(self._waiting))
        if self.lost:
            log.warning("%d traces were lost: more came than could be sent", self.lost)
        await self._producer.close()

    async def _flush_for_ever(self) -> None:
        while True:
            try:
                async with asyncio.timeout(FLUSH_SECONDS):
                    await self._enough.wait()
            except TimeoutError:
                pass
            self._enough.clear()
            await self._flush()

    async def _flush(self) -> None:
        """Send all that waits now."""
        messages: list[Message] = []
        while self._waiting:
            count = min(self._together, len(self._waiting))
            messages += self._messages([self._waiting.popleft() for _ in range(count)])
        await asyncio.gather(*map(self._send, messages))

    def _messages(self, contexts: Iterable[Context]) -> Iterator[Message]:
        by_topic: dict[str, list[TraceRecord]] = {}
        for context in contexts:
            by_topic.setdefault(context.topic, []).extend(context.records)
        for records in by_topic.values():
            yield from trace_messages(self.topic, records)

    async def _send(self, message: Message) -> None:
        try:
            await self._producer.send(message)
        except (OrbitMQError, RemotingError) as error:
            if not self._is_told_of_failure:
                log.warning("traces cannot be sent to %s and are lost: %s", self.topic, error)
            self._is_told_of_failure = True
        else:
            self._is_told_of_failure = False


def trace_messages(topic: str, records: Iterable[TraceRecord]) -> Iterator[Message]:
    """Messages with these records, found by the ids and the keys of what they tell of."""
    texts: list[bytes] = []
    keys: dict[str, None] = {}
    size = key_size = 0
    for record in records:
        text = record.encode().encode("utf-8", "replace")
        found = keys_of(record)
        length = sum(len(key.encode("utf-8", "replace")) + 1 for key in found)
        if texts and (size + len(text) > MOST_BYTES or key_size + length > MOST_KEY_BYTES):
            yield Message(topic, b"".join(texts), keys=keys)
            texts, keys, size, key_size = [], {}, 0, 0
        texts.append(text)
        keys |= dict.fromkeys(found)
        size += len(text)
        key_size += length
    if texts:
        yield Message(topic, b"".join(texts), keys=keys)


def keys_of(record: TraceRecord) -> list[str]:
    """By what a record is to be found: the id of the message and its keys."""
    keys = getattr(record, "keys", None)
    found = [record.message_id]
    if keys:
        found += str(keys).split()
    return found
