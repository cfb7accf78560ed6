"""Chunks of rows: the messages of one request to one queue, deterministic for the same rows."""

from __future__ import annotations

import dataclasses
import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from orbitmq.client.errors import InvalidMessageError
from orbitmq.protocol.bodies import MessageQueue
from orbitmq.protocol.java import hash_many
from orbitmq.protocol.message.batch import ITEM_SIZE, item_bounds
from orbitmq.protocol.message.compression import compressed_flag
from orbitmq.spark.sink.message_ids import ID_SIZE, MARK, made_id, made_ids
from orbitmq.spark.sink.row_encoder import ID_START, MARK_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy.typing as npt

    from orbitmq.spark.sink.message_ids import Origin
    from orbitmq.spark.sink.options import SinkOptions
    from orbitmq.spark.sink.row_encoder import Rows

    Numbers = npt.NDArray[np.int64]

MAX_ALONE = 64
"""Messages of a chunk whose messages are sent one by one."""

_HEAD = np.dtype([("size", ">i4"), ("magic", ">i4"), ("crc", ">i4"), ("flag", ">i4"), ("body_size", ">i4")])
_BEFORE_BODY = _HEAD.itemsize
_INT = struct.Struct(">i")
_SHORT = struct.Struct(">h")
_ID = np.dtype((np.void, ID_SIZE))


@dataclasses.dataclass(slots=True, frozen=True)
class Alone:
    """A message in a request of its own. ``mark`` identifies it if its id was not generated."""

    body: bytes
    properties: bytes
    unique_key: str
    mark: str | None


@dataclasses.dataclass(slots=True)
class Chunk:
    """One atomic write of a task, as far as brokers store a batch atomically."""

    number: int
    topic: str
    queue: MessageQueue | None
    """None: any queue will do."""
    rows: int
    size: int
    sys_flag: int
    body: bytes
    """A batch, if ``alone`` is empty."""
    unique_key: str
    """Of its last message. Logs are recovered up to the first damage, so where the last is, all of them are."""
    mark: str | None
    alone: list[Alone]
    is_delayed: bool


def keys_in(batch: bytes) -> list[bytes]:
    """The ids of the messages of a chunk's body."""
    _, body_ends = item_bounds(batch)
    size = 2 + len(ID_START)
    return [batch[end + size : batch.index(b"\x02", end + size)] for end in body_ends]


class Chunker:
    """Splits the rows of one task. ``queues`` returns the queues of a topic in the order of clients."""

    def __init__(
        self, origin: Origin, options: SinkOptions, queues: Callable[[str], Sequence[MessageQueue]]
    ) -> None:
        self._origin = origin
        self._queues = queues
        self._most_rows = options.batch_rows
        self._most_bytes = min(options.batch_bytes, options.max_message_size - MARK_SIZE)
        self._most_sent = options.max_message_size - MARK_SIZE
        self._sys_flag = 0 if options.compress is None else compressed_flag(0, options.compress)
        self._number = 0

    def chunks(self, rows: Rows) -> Iterator[Chunk]:
        """The chunks of these rows, which follow those of the rows before."""
        if not len(rows):
            return
        groups, order = self._grouped(rows)
        bodies, properties, own = rows.bodies, rows.properties, rows.has_own_id
        if order is not None:
            bodies, properties = bodies.take(pa.array(order)), properties.take(pa.array(order))
            own = None if own is None else own[order]
        items = _Items(bodies, properties, own)
        for group in groups:
            at = group.begin
            while at < group.end:
                end = min(group.end, at + self._most_rows)
                end = min(end, items.last_within(at, self._most_bytes))
                is_alone = group.is_delayed or items.starts[at + 1] - items.starts[at] > self._most_sent
                if is_alone:
                    end = min(group.end, at + MAX_ALONE) if group.is_delayed else at + 1
                yield self._chunk(group, items, at, max(end, at + 1), is_alone)
                at = max(end, at + 1)

    def _chunk(self, group: _Group, items: _Items, begin: int, end: int, is_alone: bool) -> Chunk:
        number, self._number = self._number, self._number + 1
        content = items.data(begin, end)
        digest = self._origin.digest(number, group.topic, group.queue, content.data)
        items.write_ids(digest, begin, end)
        alone = [items.alone(row, made_id(digest, row - begin)) for row in range(begin, end)] if is_alone else []
        last = items.alone(end - 1, made_id(digest, end - begin - 1))
        if is_alone:
            body = b""
        elif last.mark is None:
            body = items.data(begin, end).tobytes()
        else:
            body = items.data(begin, end - 1).tobytes() + _with_mark(last)
        return Chunk(
            number, group.topic, group.queue, end - begin, len(content), self._sys_flag, body, last.unique_key,
            last.mark, alone, group.is_delayed,
        )  # fmt: skip

    # Where rows go

    def _grouped(self, rows: Rows) -> tuple[list[_Group], Numbers | None]:
        """The rows that go to one place each, and the order of rows in which they lie together; None: as it is."""
        count = len(rows)
        codes = np.zeros(count, np.int64) if rows.topic_codes is None else rows.topic_codes
        pins = self._pins(rows)
        if pins is not None:
            codes = _folded(codes, pins.codes)
        if rows.is_delayed is not None:
            codes = _folded(codes, rows.is_delayed.astype(np.int64))
        if codes.min() == codes.max():
            return [self._group(rows, pins, 0, 0, count)], None
        _, firsts, inverse = np.unique(codes, return_index=True, return_inverse=True)
        # Groups in the order of their first rows, and rows in their own: nothing here depends on chance.
        rank = np.argsort(np.argsort(firsts))
        ranked = rank[inverse]
        order = np.argsort(ranked, kind="stable")
        ends = np.cumsum(np.bincount(ranked))
        firsts = np.sort(firsts)
        groups = [
            self._group(rows, pins, int(first), int(begin), int(end))
            for first, begin, end in zip(firsts, [0, *ends[:-1]], ends, strict=True)
        ]
        return groups, order

    def _group(self, rows: Rows, pins: _Pins | None, row: int, begin: int, end: int) -> _Group:
        """The group of the rows that go where this one goes."""
        topic = rows.topics[0 if rows.topic_codes is None else int(rows.topic_codes[row])]
        queue = None if pins is None else pins.queues[int(pins.codes[row])]
        return _Group(topic, queue, bool(rows.is_delayed is not None and rows.is_delayed[row]), begin, end)

    def _pins(self, rows: Rows) -> _Pins | None:
        """For each row the queue that it has to go to."""
        if rows.sharding_keys is None and rows.queue_ids is None:
            return None
        pins = _Pins(np.zeros(len(rows), np.int64), [None])
        places: dict[MessageQueue, int] = {}
        for code, topic in enumerate(rows.topics):
            here = np.arange(len(rows)) if rows.topic_codes is None else np.flatnonzero(rows.topic_codes == code)
            queues = list(self._queues(topic))
            chosen = np.full(len(here), -1)
            if rows.sharding_keys is not None:
                chosen = _by_hash(rows.sharding_keys.take(pa.array(here)), len(queues))
            if rows.queue_ids is not None:
                chosen = np.where(rows.queue_ids[here] >= 0, _by_number(rows, here, queues, topic), chosen)
            for index in np.unique(chosen[chosen >= 0]):
                queue = queues[int(index)]
                place = places.setdefault(queue, len(pins.queues))
                if place == len(pins.queues):
                    pins.queues.append(queue)
                pins.codes[here[chosen == index]] = place
        return pins


@dataclasses.dataclass(slots=True)
class _Group:
    topic: str
    queue: MessageQueue | None
    is_delayed: bool
    begin: int
    end: int


@dataclasses.dataclass(slots=True)
class _Pins:
    codes: Numbers
    """For each row its place in ``queues``, of which the first is None, for any."""
    queues: list[MessageQueue | None]


class _Items:
    """Rows in columns, as in a batch."""

    def __init__(self, bodies: Any, properties: Any, own: npt.NDArray[np.bool_] | None) -> None:
        body_sizes = np.asarray(pc.binary_length(bodies)).astype(np.int64)
        property_sizes = np.asarray(pc.binary_length(properties)).astype(np.int64)
        count = len(body_sizes)
        heads = np.zeros(count, _HEAD)
        heads["size"] = sizes = ITEM_SIZE + body_sizes + property_sizes
        heads["body_size"] = body_sizes
        joined = pc.binary_join_element_wise(
            _fixed(heads.tobytes(), count),
            bodies,
            _fixed(property_sizes.astype(">i2").tobytes(), count),
            properties,
            pa.scalar(b"", pa.binary()),
        )
        assert joined.offset == 0
        self.starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
        self._joined = np.frombuffer(joined.buffers()[2], np.uint8)
        self._properties_at = self.starts[:-1] + _BEFORE_BODY + body_sizes + 2
        self._own = own

    def last_within(self, begin: int, size: int) -> int:
        """The end of the rows from ``begin`` on that have at most so many bytes."""
        return int(np.searchsorted(self.starts, self.starts[begin] + size, side="right")) - 1

    def data(self, begin: int, end: int) -> npt.NDArray[np.uint8]:
        return self._joined[self.starts[begin] : self.starts[end]]

    def write_ids(self, digest: bytes, begin: int, end: int) -> None:
        """Put made ids in the places of rows that have none of their own."""
        at = self._properties_at[begin:end] + len(ID_START)
        ids = made_ids(digest, end - begin).view(_ID)[:, 0]
        if self._own is not None:
            made = ~self._own[begin:end]
            at, ids = at[made], ids[made]
        # Every place of the bytes as one where an id could be, so that each id is copied at once.
        places: npt.NDArray[np.void] = np.ndarray((len(self._joined) - ID_SIZE + 1,), _ID, self._joined, 0, (1,))
        places[at] = ids

    def alone(self, row: int, made: bytes) -> Alone:
        """One row by itself."""
        at = int(self._properties_at[row])
        body = self._joined[self.starts[row] + _BEFORE_BODY : at - 2].tobytes()
        properties = self._joined[at : self.starts[row + 1]].tobytes()
        unique_key = properties[len(ID_START) : properties.index(b"\x02")].decode("utf-8", "replace")
        if self._own is None or not self._own[row]:
            return Alone(body, properties, unique_key, None)
        mark = made.decode()
        return Alone(body, properties + f"{MARK}\x01{mark}\x02".encode(), unique_key, mark)


def _with_mark(message: Alone) -> bytes:
    """The item of a batch that is looked for, if its message has an id of its own."""
    size = ITEM_SIZE + len(message.body) + len(message.properties)
    return b"".join(
        (
            _INT.pack(size),
            bytes(12),
            _INT.pack(len(message.body)),
            message.body,
            _SHORT.pack(len(message.properties)),
            message.properties,
        )
    )


def _fixed(data: bytes, count: int) -> Any:
    """An array of binary with values of one size."""
    ends = np.arange(count + 1, dtype=np.int32) * (len(data) // count)
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(ends), pa.py_buffer(data)])


def _folded(codes: Numbers, more: Numbers) -> Numbers:
    """Codes of pairs."""
    return np.asarray(np.unique(codes * (int(more.max()) + 1) + more, return_inverse=True)[1])


def _by_hash(keys: Any, count: int) -> Numbers:
    """For each row the queue that Java's selector by hash gives to its sharding key; -1 if it has none."""
    encoded = keys.dictionary_encode()
    hashes = np.abs(hash_many(encoded.dictionary.to_pylist()).astype(np.int64)) % count
    codes = np.asarray(pc.fill_null(encoded.indices, -1)).astype(np.int64)
    return np.where(codes >= 0, hashes[codes] if len(hashes) else -1, -1)


def _by_number(rows: Rows, here: Numbers, queues: list[MessageQueue], topic: str) -> Numbers:
    """For each row the place of the queue that it names; -1 if it names none.

    One on a broker that has no route at present is put at the end of ``queues``: the broker may come back.
    """
    assert rows.queue_ids is not None
    numbers = rows.queue_ids[here]
    chosen = np.full(len(here), -1)
    brokers = None if rows.brokers is None else rows.brokers.take(pa.array(here)).to_pylist()
    places: dict[tuple[str | None, int], int] = {}
    for number, queue in enumerate(queues):
        places.setdefault((None, queue.queue_id), number)
        places[queue.broker_name, queue.queue_id] = number
    for at in np.flatnonzero(numbers >= 0):
        broker, wanted = None if brokers is None else brokers[at], int(numbers[at])
        place = places.get((broker, wanted))
        if place is None and broker is not None:
            place = places[broker, wanted] = len(queues)
            queues.append(MessageQueue(topic, broker, wanted))
        if place is None:
            raise InvalidMessageError(
                f"row {rows.first + int(here[at])} of its partition: the topic {topic!r} has no queue {wanted} "
                "that can be written"
            )
        chosen[at] = place
    return chosen
