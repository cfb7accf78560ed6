"""Encoding of trace records, in the text format of RocketMQ's clients.

Records end with the character 2, fields are separated by the character 1. Missing values are ``null``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

FIELD_END = "\x01"
RECORD_END = "\x02"
NOTHING = "null"


class MessageKind(enum.IntEnum):
    """Kind of message, with its number in records."""

    NORMAL = 0
    TRANSACTION_HALF = 1
    TRANSACTION_END = 2
    DELAY = 3
    ORDER = 4


class ConsumeOutcome(enum.IntEnum):
    """Outcome of a handler call, with its number in records."""

    SUCCESS = 0
    TIME_OUT = 1
    EXCEPTION = 2
    RETURNED_NOTHING = 3
    FAILED = 4


@dataclasses.dataclass(frozen=True, slots=True)
class Published:
    """A message was sent (``Pub``)."""

    timestamp: int
    region: str
    group: str
    topic: str
    message_id: str
    tags: str | None
    keys: str | None
    store_host: str
    body_length: int
    cost_ms: int
    kind: MessageKind
    offset_message_id: str | None
    succeeded: bool
    client_host: str | None = None
    """Address of the client, written by Go's clients."""

    def encode(self) -> str:
        return _record(
            *("Pub", self.timestamp, self.region, self.group, self.topic, self.message_id, self.tags, self.keys),
            *(self.store_host, self.body_length, self.cost_ms, int(self.kind), self.offset_message_id),
            self.succeeded,
        )


@dataclasses.dataclass(frozen=True, slots=True)
class ConsumeBegun:
    """A handler was called with a message (``SubBefore``)."""

    timestamp: int
    region: str
    group: str
    request_id: str
    """Id of the call, the same in its ``SubAfter`` record."""
    message_id: str
    retry_times: int
    keys: str | None
    client_host: str | None = None

    def encode(self) -> str:
        return _record(
            *("SubBefore", self.timestamp, self.region, self.group, self.request_id, self.message_id),
            *(self.retry_times, self.keys),
        )


@dataclasses.dataclass(frozen=True, slots=True)
class ConsumeEnded:
    """A handler call has ended or timed out (``SubAfter``)."""

    request_id: str
    message_id: str
    cost_ms: int
    succeeded: bool
    keys: str | None
    outcome: ConsumeOutcome
    timestamp: int
    """0 from clients that do not write it."""
    group: str | None

    def encode(self) -> str:
        return _record(
            *("SubAfter", self.request_id, self.message_id, self.cost_ms, self.succeeded, self.keys),
            *(int(self.outcome), self.timestamp, self.group),
        )


@dataclasses.dataclass(frozen=True, slots=True)
class TransactionEnded:
    """A producer has reported the state of a transaction (``EndTransaction``)."""

    timestamp: int
    region: str
    group: str
    topic: str
    message_id: str
    tags: str | None
    keys: str | None
    store_host: str
    kind: MessageKind
    transaction_id: str
    state: str
    """``COMMIT_MESSAGE``, ``ROLLBACK_MESSAGE`` or ``UNKNOW``."""
    from_check: bool
    """Whether it responded to a check of the broker."""

    def encode(self) -> str:
        return _record(
            *("EndTransaction", self.timestamp, self.region, self.group, self.topic, self.message_id, self.tags),
            *(self.keys, self.store_host, int(self.kind), self.transaction_id, self.state, self.from_check),
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Recalled:
    """A delayed message was recalled (``Recall``)."""

    timestamp: int
    region: str
    group: str
    topic: str
    message_id: str
    succeeded: bool

    def encode(self) -> str:
        return _record(
            *("Recall", self.timestamp, self.region, self.group, self.topic, self.message_id, self.succeeded)
        )


TraceRecord: TypeAlias = Published | ConsumeBegun | ConsumeEnded | TransactionEnded | Recalled


def decode_trace(text: str) -> list[TraceRecord]:
    """The records of a trace message. Malformed and unknown records are skipped."""
    return list(_decoded(text))


def _decoded(text: str) -> Iterator[TraceRecord]:
    for record in text.split(RECORD_END):
        kind, *fields = record.split(FIELD_END)
        decode = _DECODERS.get(kind)
        if decode is not None:
            # Any client can send to the trace topic.
            with contextlib.suppress(ValueError, IndexError):
                yield decode(fields)


def _published(fields: Sequence[str]) -> Published:
    # Old clients do not write the offset id; new Go clients add the client address.
    has_offset_id = len(fields) >= 13
    return Published(
        timestamp=int(fields[0]),
        region=fields[1],
        group=fields[2],
        topic=fields[3],
        message_id=fields[4],
        tags=_text(fields[5]),
        keys=_text(fields[6]),
        store_host=fields[7],
        body_length=int(fields[8]),
        cost_ms=int(fields[9]),
        kind=MessageKind(int(fields[10])),
        offset_message_id=_text(fields[11]) if has_offset_id else None,
        succeeded=_truth(fields[12 if has_offset_id else 11]),
        client_host=_text(fields[13]) if len(fields) > 13 else None,
    )


def _begun(fields: Sequence[str]) -> ConsumeBegun:
    return ConsumeBegun(
        timestamp=int(fields[0]),
        region=fields[1],
        group=fields[2],
        request_id=fields[3],
        message_id=fields[4],
        retry_times=int(fields[5]),
        keys=_text(fields[6]),
        client_host=_text(fields[7]) if len(fields) > 7 else None,
    )


def _ended(fields: Sequence[str]) -> ConsumeEnded:
    succeeded = _truth(fields[3])
    # C++ clients omit outcome, time and group.
    outcome = ConsumeOutcome.SUCCESS if succeeded else ConsumeOutcome.FAILED
    return ConsumeEnded(
        request_id=fields[0],
        message_id=fields[1],
        cost_ms=int(fields[2]),
        succeeded=succeeded,
        keys=_text(fields[4]) if len(fields) > 4 else None,
        outcome=ConsumeOutcome(int(fields[5])) if len(fields) > 5 else outcome,
        timestamp=int(fields[6]) if len(fields) > 6 else 0,
        group=_text(fields[7]) if len(fields) > 7 else None,
    )


def _transaction(fields: Sequence[str]) -> TransactionEnded:
    return TransactionEnded(
        timestamp=int(fields[0]),
        region=fields[1],
        group=fields[2],
        topic=fields[3],
        message_id=fields[4],
        tags=_text(fields[5]),
        keys=_text(fields[6]),
        store_host=fields[7],
        kind=MessageKind(int(fields[8])),
        transaction_id=fields[9],
        state=fields[10],
        from_check=_truth(fields[11]),
    )


def _recalled(fields: Sequence[str]) -> Recalled:
    return Recalled(
        timestamp=int(fields[0]),
        region=fields[1],
        group=fields[2],
        topic=fields[3],
        message_id=fields[4],
        succeeded=_truth(fields[5]),
    )


_DECODERS: dict[str, Callable[[Sequence[str]], TraceRecord]] = {
    "Pub": _published,
    "SubBefore": _begun,
    "SubAfter": _ended,
    "EndTransaction": _transaction,
    "Recall": _recalled,
}


def _record(*fields: str | int | bool | None) -> str:
    return FIELD_END.join(map(_written, fields)) + RECORD_END


def _written(value: str | int | bool | None) -> str:
    if value is None:
        return NOTHING
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _text(field: str) -> str | None:
    return None if field == NOTHING or not field else field


def _truth(field: str) -> bool:
    return field.lower() == "true"
