"""Results of native calls, as named tuples. The extension fills these types, and the Python twins return them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orbitmq.native.python.queue_state import QueueState

Queue = TypeVar("Queue", bound="QueueState")

MissingGrant: TypeAlias = tuple[bytes, bytes, int, bytes, bytes]
"""A right that no request was verified by so far: what to remember it by, user, request code, topic, group."""


class Gathered(NamedTuple):
    """Records of one queue for one answer."""

    record_count: int
    size: int
    last: int
    """Offset of the last record in the log."""
    stop: int
    """Offset behind the last record."""
    records: bytes | None
    """The records, if they are scattered and small enough to be copied; None: a slice of the log will do."""


class QueueShare(NamedTuple):
    """One queue's part of a batch, reported for queues without a counter."""

    topic: str
    queue_id: int
    first: int
    """Queue offset of the first record."""
    units: bytes
    """Consume queue units of all records."""
    size: int
    """Bytes of the records."""
    requests: int


class Entered(NamedTuple, Generic[Queue]):
    """Effects of a batch on its queues, which have their units already."""

    shares: Sequence[QueueShare]
    dirtied: Sequence[Queue]
    """Queues that had nothing to write before."""
    full: Sequence[Queue]
    """Queues whose write buffer is to be written now."""
    arrived: Sequence[tuple[Queue, int]]
    """If arrivals have listeners: queues that got records, with the tags code of the last."""
    message_count: int
    """Messages that were counted natively, and their bytes."""
    size: int


class Served(NamedTuple):
    """One connection's part of a batch of sends."""

    size: int
    """Bytes of the frames that were served."""
    message_count: int
    answers: bytes


class Stored(NamedTuple):
    """A batch of sends in the log."""

    position: int
    """New write position in the log file."""
    entered: Entered[Any]
    hashes: bytes
    """Per index key a hash of 32 bits, and in ``offsets`` the offset of its record in 64."""
    offsets: bytes
    last: int
    """Offset of the last record."""
    halves: list[tuple[str, int]]
    """Topics of half messages, with the number of these."""


class Delivered(NamedTuple):
    """A batch of deferred messages, appended to their real queues."""

    message_count: int
    source_size: int
    """Bytes of the records that were deferred."""
    position: int
    entered: Entered[Any]
    hashes: bytes
    offsets: bytes
    last: int


class AckedRange(NamedTuple):
    """Acknowledged messages of one pop, in one queue and group."""

    topic: str
    queue_id: int
    group: str
    pop_time: int
    message_count: int
    ack_count: int
    """Acknowledgements that named these messages: one of a batch names several."""


class Acknowledged(NamedTuple):
    """A batch of acknowledgements in the log."""

    size: int
    """Bytes of the frames that were served."""
    request_count: int
    record_count: int
    position: int
    answers: bytes
    entered: Entered[Any]
    hashes: bytes
    offsets: bytes
    last: int
    ranges: list[AckedRange]


class Popped(NamedTuple):
    """One pop whose check points are in the log."""

    size: int
    """Bytes of its frame."""
    record_count: int
    position: int
    answer: bytes
    entered: Entered[Any]
    hashes: bytes
    offsets: bytes
    last: int
    names: tuple[str, str]
    """Group and topic, as given with the route."""
    rest: int
    """Messages of the topic that were left."""
    queues: list[tuple[int, int, int, int]]
    """Queue id, next offset, number of messages and their bytes, of each queue that gave some."""


class Pulled(NamedTuple):
    """One pull that was answered."""

    queue: tuple[str, str, int]
    """Group, topic and queue id, as given with the route."""
    next_offset: int
    message_count: int
    size: int
    commit_offset: int
    """Consumer offset that the pull commits; -1 if it commits none."""
    answer: bytes


class Replayed(NamedTuple):
    """A batch of records of the log that were dispatched to queues and index."""

    position: int
    """Position in the log file behind the last record."""
    record_count: int
    newest: int
    """Store timestamp of the last record that has one."""
    last: int
    """Offset of the last record."""
    store_timestamp: int
    """Store timestamp of the last record."""
    entered: Entered[Any]
    hashes: bytes
    """Per index key its hash, and the offset and store timestamp of its record."""
    offsets: bytes
    timestamps: bytes


class OffsetsServed(NamedTuple):
    """A batch of commits and queries of consumer offsets."""

    size: int
    """Bytes of the frames that were served."""
    request_count: int
    commit_count: int
    is_changed: bool
    """An offset has another value now."""
    answers: bytes
