"""Trace of one message, from the records in the trace topic."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from orbitmq.client.config import ClientConfig, name_server_list, unique_instance_name
from orbitmq.client.instance.instance import ClientInstance
from orbitmq.client.query.by_key import ALWAYS, query_by_key
from orbitmq.client.trace.encoding import (
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

    from orbitmq.client.message import ReceivedMessage
    from orbitmq.client.trace.encoding import TraceRecord
    from orbitmq.remoting import ClientTls

MAX_TRACE_MESSAGES = 64
"""Maximum of trace messages per broker, as in RocketMQ's tools."""


@dataclasses.dataclass(slots=True)
class Attempt:
    """One handler call with the message. The record of its begin or of its end may be missing."""

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
        """When it began, or 0 if unknown."""
        if self.begun is not None:
            return self.begun.timestamp
        assert self.ended is not None
        return max(self.ended.timestamp - self.ended.cost_ms, 0)

    @property
    def retry_times(self) -> int | None:
        return None if self.begun is None else self.begun.retry_times


@dataclasses.dataclass(frozen=True, slots=True)
class TraceEvent:
    """A trace record and the address of its client: from the record, or else as the broker saw it."""

    record: Published | TransactionEnded | Recalled
    client_host: str


@dataclasses.dataclass(slots=True)
class MessageTrace:
    """All trace records of one message, each kind in order of time."""

    message_id: str
    published: list[TraceEvent] = dataclasses.field(default_factory=list)
    ended: list[TraceEvent] = dataclasses.field(default_factory=list)
    """Ends of the transaction, reported by producers."""
    recalled: list[TraceEvent] = dataclasses.field(default_factory=list)
    attempts: list[Attempt] = dataclasses.field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.published or self.ended or self.recalled or self.attempts)

    def groups(self) -> dict[str, list[Attempt]]:
        """Attempts by consumer group, in the order of their first attempts."""
        found: dict[str, list[Attempt]] = {}
        for attempt in self.attempts:
            found.setdefault(attempt.group, []).append(attempt)
        return found


async def trace_message(
    name_servers: str | Iterable[str] | None,
    message_id: str,
    *,
    topic: str = "",
    most: int = MAX_TRACE_MESSAGES,
    begin_ms: int = 0,
    end_ms: int = ALWAYS,
    tls: ClientTls | None = None,
) -> MessageTrace:
    """The trace of the message with this id, as in the sender's receipt.

    ``topic`` is the trace topic, if it is not RocketMQ's default. Raises OrbitMQError, RemotingError.
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
    """Assemble the trace of one message from trace messages, which contain records of others as well."""
    trace = MessageTrace(message_id)
    attempts: dict[str, Attempt] = {}
    seen: set[TraceRecord] = set()
    for message in messages:
        for record in decode_trace(message.body.decode("utf-8", "replace")):
            # A trace message may be stored twice after a retry.
            if record.message_id == message_id and record not in seen:
                seen.add(record)
                _add(trace, attempts, record, message.born_host)
    trace.attempts = sorted(attempts.values(), key=lambda attempt: attempt.began_ms)
    for events in (trace.published, trace.ended, trace.recalled):
        events.sort(key=lambda one: one.record.timestamp)
    return trace


def _add(trace: MessageTrace, attempts: dict[str, Attempt], record: TraceRecord, host: str) -> None:
    if isinstance(record, ConsumeBegun):
        attempt = attempts.setdefault(record.request_id, Attempt(record.request_id, record.client_host or host))
        attempt.begun = record
    elif isinstance(record, ConsumeEnded):
        attempts.setdefault(record.request_id, Attempt(record.request_id, host)).ended = record
    elif isinstance(record, Published):
        trace.published.append(TraceEvent(record, record.client_host or host))
    elif isinstance(record, TransactionEnded):
        trace.ended.append(TraceEvent(record, host))
    else:
        trace.recalled.append(TraceEvent(record, host))
