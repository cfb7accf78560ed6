"""Trace dispatcher: sends trace records to the trace topic in the background.

Records are buffered until a batch is full or some seconds have passed, and sent by a separate producer. If the
buffer is full, records are dropped: tracing never delays messages.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import itertools
import logging
from typing import TYPE_CHECKING, Protocol

from orbitmq.client.errors import OrbitMQError
from orbitmq.client.message import Message
from orbitmq.protocol.names import TRACE_PRODUCER_GROUP_PREFIX, TRACE_TOPIC
from orbitmq.remoting import RemotingError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from orbitmq.client.config import ClientConfig
    from orbitmq.client.trace.encoding import TraceRecord

log = logging.getLogger("orbitmq.client")

PRODUCE, CONSUME = "PRODUCE", "CONSUME"

MAX_WAITING = 2048
MAX_CONTEXTS_PER_MESSAGE = 20
FLUSH_SECONDS = 5.0
SEND_SECONDS = 5.0
CLOSE_SECONDS = 5.0
MAX_BYTES = 128_000
"""Values of Java's clients."""

MAX_KEY_BYTES = 24_000
"""Keys are a property, and all properties of a message are limited to 32 KiB."""

MAX_GROUP_PREFIX = 200
"""A group name is limited to 255 characters, prefix and suffix included."""

INSTANCE_NAME = "PID_CLIENT_INNER_TRACE_PRODUCER"

_numbers = itertools.count(1)


def _credentials_of(config: ClientConfig) -> dict[str, str]:
    found = config.credentials
    if found is None:
        return {}
    return {
        "access_key": found.access_key,
        "secret_key": found.secret_key,
        "security_token": found.security_token,
    }


class TraceProducer(Protocol):
    """The producer that sends traces. Handed in, because producers have a dispatcher themselves."""

    async def start(self) -> object: ...

    async def close(self) -> None: ...

    async def send(self, message: Message) -> object: ...


@dataclasses.dataclass(frozen=True, slots=True)
class Context:
    """Trace records of one send or handler call."""

    topic: str
    records: Sequence[TraceRecord]


class TraceDispatcher:
    """Accepts records from any thread and sends them on the loop that started it."""

    def __init__(
        self, config: ClientConfig, group: str, kind: str, make_producer: Callable[..., TraceProducer]
    ) -> None:
        """``kind`` is ``PRODUCE`` or ``CONSUME``: the role of the members of ``group``."""
        self.topic = config.trace_topic or TRACE_TOPIC
        self.clock = config.clock
        self.lost = 0
        """Number of dropped contexts, because the buffer was full."""
        self._batch_size = min(config.trace_msg_batch_num, MAX_CONTEXTS_PER_MESSAGE)
        servers = config.name_servers
        self._producer = make_producer(
            servers,
            group=f"{TRACE_PRODUCER_GROUP_PREFIX}-{group[:MAX_GROUP_PREFIX]}-{kind}-{next(_numbers)}",
            instance_name=f"{INSTANCE_NAME}_{';'.join(servers)}",
            client_ip=config.client_ip,
            send_msg_timeout=SEND_SECONDS,
            max_message_size=MAX_BYTES,
            tls=config.tls,
            **_credentials_of(config),
            clock=config.clock,
            random=config.random,
        )
        self._buffer: collections.deque[Context] = collections.deque()
        self._has_logged_failure = False
        self._flushing: asyncio.Task[None] | None = None

    def traces(self, topic: str) -> bool:
        """True if messages of a topic are traced. Trace messages are not."""
        return not topic.startswith(self.topic)

    def add(self, topic: str, records: Sequence[TraceRecord]) -> None:
        """Add records of messages of a topic. Callable from any thread, never blocks."""
        if not records:
            return
        if len(self._buffer) >= MAX_WAITING:
            self.lost += 1
            return
        self._buffer.append(Context(topic, records))
        if len(self._buffer) == self._batch_size:
            self._loop.call_soon_threadsafe(self._is_batch_full.set)

    # Start and close

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._is_batch_full = asyncio.Event()
        await self._producer.start()
        self._flushing = self._loop.create_task(self._flush_for_ever())

    async def abandon(self) -> None:
        """Stop at once without sending. Does nothing if it was never started."""
        self._buffer.clear()
        if self._flushing is not None:
            await self.close()

    async def close(self) -> None:
        """Send the buffered records within a timeout and stop."""
        assert self._flushing is not None, "not started"
        self._flushing.cancel()
        await asyncio.gather(self._flushing, return_exceptions=True)
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._flush()
        except TimeoutError:
            log.warning("trace: dropped %d records at close, not sent in time", len(self._buffer))
        if self.lost:
            log.warning("trace: dropped %d records, the buffer was full", self.lost)
        await self._producer.close()

    async def _flush_for_ever(self) -> None:
        while True:
            try:
                async with asyncio.timeout(FLUSH_SECONDS):
                    await self._is_batch_full.wait()
            except TimeoutError:
                pass
            self._is_batch_full.clear()
            await self._flush()

    async def _flush(self) -> None:
        """Send all buffered records."""
        messages: list[Message] = []
        while self._buffer:
            count = min(self._batch_size, len(self._buffer))
            messages += self._messages([self._buffer.popleft() for _ in range(count)])
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
            if not self._has_logged_failure:
                log.warning("trace: sending to %s failed, records dropped: %s", self.topic, error)
            self._has_logged_failure = True
        else:
            self._has_logged_failure = False


def trace_messages(topic: str, records: Iterable[TraceRecord]) -> Iterator[Message]:
    """Trace messages with these records; their keys are the ids and keys of the traced messages."""
    texts: list[bytes] = []
    keys: dict[str, None] = {}
    size = key_size = 0
    for record in records:
        text = record.encode().encode("utf-8", "replace")
        found = keys_of(record)
        length = sum(len(key.encode("utf-8", "replace")) + 1 for key in found)
        if texts and (size + len(text) > MAX_BYTES or key_size + length > MAX_KEY_BYTES):
            yield Message(topic, b"".join(texts), keys=keys)
            texts, keys, size, key_size = [], {}, 0, 0
        texts.append(text)
        keys |= dict.fromkeys(found)
        size += len(text)
        key_size += length
    if texts:
        yield Message(topic, b"".join(texts), keys=keys)


def keys_of(record: TraceRecord) -> list[str]:
    """Keys of a record: the id of the traced message and its keys."""
    keys = getattr(record, "keys", None)
    found = [record.message_id]
    if keys:
        found += str(keys).split()
    return found
