"""The way of one message, read from what clients have written down in the trace topic."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from orbitmq.client.config import ClientConfig, name_server_list, unique_instance_name
from orbitmq.client.instance import ClientInstance
from orbitmq.client.message_query import ALWAYS, query_by_key
from orbitmq.client.tracing_records import (
    ConsumeBegun,
    ConsumeEnded,
    Published,
    Recalled,
    TransactionEnded,
    decode_trace,
)
from orbitmq.protocol.names import TRACE_TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orbitmq.client.messages import ReceivedMessage
    from orbitmq.client.tracing_records import TraceRecord
    from orbitmq.remoting import ClientTls

MOST_MESSAGES = 64
"""Trace messages that are read of each broker, as many as RocketMQ's tools read."""


@dataclasses.dataclass(slots=True)
class Attempt:
    """One call of a handler with the message. Of some only the begin, or only the end, is known."""

    request_id: str
    client_host: str
    begun: ConsumeBegun | None = None
    ended: ConsumeEnded | None = None

    @property
    def group(self) -> str:
        if self.begun is not None:
            return self.begun.group
        return (self.ended.group if self.ended is not None else None) or ""

    @property
    def began_ms(self) -> int:
        """When it began, or 0 if nobody said."""
        if self.begun is not None:
            return self.begun.timestamp
        assert self.ended is not None
        return max(self.ended.timestamp - self.ended.cost_ms, 0)

    @property
    def retry_times(self) -> int | None:
        return None if self.begun is None else self.begun.retry_times


@dataclasses.dataclass(frozen=True, slots=True)
class Told:
    """What a client has said, and which one: its address as the broker saw it, unless it said it itself."""

    record: Published | TransactionEnded | Recalled
    client_host: str


@dataclasses.dataclass(slots=True)
class MessageTrace:
    """All that was written down of one message, each part in its order."""

    message_id: str
    published: list[Told] = dataclasses.field(default_factory=list)
    ended: list[Told] = dataclasses.field(default_factory=list)
    """What producers said about the transaction."""
    recalled: list[Told] = dataclasses.field(default_factory=list)
    attempts: list[Attempt] = dataclasses.field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.published or self.ended or self.recalled or self.attempts)

    def groups(self) -> dict[str, list[Attempt]]:
        """The attempts of each consumer group, in the order in which the groups began."""
        found: dict[str, list[Attempt]] = {}
        for attempt in self.attempts:
            found.setdefault(attempt.group, []).append(attempt)
        return found


async def trace_message(
    name_servers: str | Iterable[str] | None,
    message_id: str,
    *,
    topic: str = "",
    most: int = MOST_MESSAGES,
    begin_ms: int = 0,
    end_ms: int = ALWAYS,
    tls: ClientTls | None = None,
) -> MessageTrace:
    """What is known of the message with this id, the one that its sender got.

    ``topic`` is the trace topic, if it is another than RocketMQ's. Raises OrbitMQError, RemotingError.
    """
    config = ClientConfig(name_servers=name_server_list(name_servers), tls=tls)
    instance = ClientInstance.acquire(config, config.client_id(unique_instance_name()))
    try:
        found = await query_by_key(
            instance, topic or TRACE_TOPIC, message_id, most=most, begin_ms=begin_ms, end_ms=end_ms
        )
    finally:
        await instance.release()
    return assemble(message_id, found)


def assemble(message_id: str, messages: Iterable[ReceivedMessage]) -> MessageTrace:
    """The way of a message out of trace messages, which tell of others as well."""
    trace = MessageTrace(message_id)
    attempts: dict[str, Attempt] = {}
    seen: set[TraceRecord] = set()
    for message in messages:
        for record in decode_trace(message.body.decode("utf-8", "replace")):
            # A trace message that was sent twice because nobody confirmed it tells everything twice.
            if record.message_id == message_id and record not in seen:
                seen.add(record)
                _add(trace, attempts, record, message.born_host)
    trace.attempts = sorted(attempts.values(), key=lambda attempt: attempt.began_ms)
    for told in (trace.published, trace.ended, trace.recalled):
        told.sort(key=lambda one: one.record.timestamp)
    return trace


def _add(trace: MessageTrace, attempts: dict[str, Attempt], record: TraceRecord, host: str) -> None:
    if isinstance(record, ConsumeBegun):
        attempt = attempts.setdefault(record.request_id, Attempt(record.request_id, record.client_host or host))
        attempt.begun = record
    elif isinstance(record, ConsumeEnded):
        attempts.setdefault(record.request_id, Attempt(record.request_id, host)).ended = record
    elif isinstance(record, Published):
        trace.published.append(Told(record, record.client_host or host))
    elif isinstance(record, TransactionEnded):
        trace.ended.append(Told(record, host))
    else:
        trace.recalled.append(Told(record, host))
