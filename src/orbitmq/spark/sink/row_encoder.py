"""Encoding of Arrow batches as messages: checked bodies and properties in wire format, column by column.

Arrow's compute functions join the variable parts and lay the results side by side in memory, as in the body of a
batch request. The properties of each row begin with its id, which is zeros until the chunk is known (``chunker``).
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from orbitmq.client.errors import InvalidMessageError
from orbitmq.protocol.message import property_names as names
from orbitmq.protocol.message.compression import compress
from orbitmq.protocol.message.record import MAX_PROPERTIES_SIZE
from orbitmq.spark.sink.message_ids import ID_SIZE, MARK
from orbitmq.spark.sink.options import check_topic_of_rows

if TYPE_CHECKING:
    import numpy.typing as npt

    from orbitmq.spark.sink.columns import SinkColumns
    from orbitmq.spark.sink.options import SinkOptions

ID_START = names.UNIQUE_KEY.encode() + b"\x01"
NO_ID = b"0" * ID_SIZE
MARK_SIZE = len(MARK) + ID_SIZE + 2

_EMPTY = pa.scalar(b"", pa.binary())
_END = pa.scalar(b"\x02", pa.binary())
_BETWEEN = pa.scalar(b"\x01", pa.binary())
_TEXTS = pa.list_(pa.string())

_NOT_COPIED = names.RESERVED | {names.REDIRECT, names.INNER_NUM, names.INNER_BASE, names.TRANSACTION_ID, MARK}
"""Properties that say what happened to one message, or are set by a column. In a map of properties they are left
out, so that what was read from a topic can be written to another as it is."""


@dataclasses.dataclass(slots=True)
class Rows:
    """The rows of a batch, each as a body and properties."""

    first: int
    """The number of the first one among all rows of the task."""
    topics: list[str]
    topic_codes: npt.NDArray[np.int64] | None
    """For each row its place in ``topics``; None: there is one for all."""
    bodies: Any
    properties: Any
    """Both arrays of binary without nulls."""
    has_own_id: npt.NDArray[np.bool_] | None
    """None: no row has one."""
    is_delayed: npt.NDArray[np.bool_] | None
    """None: no row is."""
    sharding_keys: Any
    """An array of binary; None: no row has one."""
    queue_ids: npt.NDArray[np.int64] | None
    """-1: any queue."""
    brokers: Any
    """An array of text; None: no row says on which broker its queue is."""

    def __len__(self) -> int:
        return len(self.bodies)


class RowEncoder:
    """Encodes batches with these columns. Raises InvalidMessageError, which names row and column."""

    def __init__(self, columns: SinkColumns, options: SinkOptions) -> None:
        self._columns = columns
        self._options = options
        # A property that has a column is not taken from the map as well.
        kept = {name for name, column in ((names.TAGS, "tags"), (names.KEYS, "keys")) if column not in columns}
        dropped = _NOT_COPIED - kept | ({names.SHARDING_KEY} if "sharding_key" in columns else set())
        self._dropped = pa.array(sorted(name.encode() for name in dropped), pa.binary())

    def rows(self, batch: pa.RecordBatch, first: int) -> Rows:
        """The messages of a batch whose first row is number ``first`` of its task."""
        columns = self._columns
        at = _Place(first)
        topics, topic_codes = self._topics(batch, at)
        parts: list[Any] = []
        own = None
        if "unique_id" in columns:
            ids = _without_empty(_texts(batch, "unique_id", at))
            if ids.null_count < len(ids):
                own = np.asarray(ids.is_valid())
                parts += [pa.scalar(ID_START, pa.binary()), pc.fill_null(ids, NO_ID), _END]
        if own is None:
            parts.append(pa.scalar(ID_START + NO_ID + b"\x02", pa.binary()))
        if "tags" in columns:
            parts.append(_property(names.TAGS, _texts(batch, "tags", at)))
        if "keys" in columns:
            parts.append(_property(names.KEYS, _keys(batch, at)))
        sharding = None
        if "sharding_key" in columns:
            sharding = _without_empty(_texts(batch, "sharding_key", at))
            parts.append(_property(names.SHARDING_KEY, sharding))
        delays, is_delayed = _delays(batch, columns, at)
        parts += delays
        if "properties" in columns:
            given = batch.column("properties")
            parts.append(self._map(given, at))
            if sharding is None:
                sharding = _sharding_in(given)
        if sharding is not None and sharding.null_count == len(sharding):
            sharding = None
        if len(parts) == 1:
            # One value for all rows, which Arrow would return as one value.
            parts.append(pa.array(np.zeros(0), pa.binary()) if not len(batch) else _nothing(len(batch)))
        properties = pc.binary_join_element_wise(*parts, _EMPTY)
        _check_size(properties, MAX_PROPERTIES_SIZE - MARK_SIZE, at, "properties", "properties have")
        queue_ids, brokers = self._queues(batch, at)
        return Rows(
            first, topics, topic_codes, self._bodies(batch, at), properties, own, is_delayed, sharding, queue_ids,
            brokers,
        )  # fmt: skip

    def _bodies(self, batch: pa.RecordBatch, at: _Place) -> Any:
        name = self._columns.body
        bodies = _binary(batch.column(name))
        if bodies.null_count:
            at.refuse(_first(bodies.is_null()), name, "is null, and a message needs a body")
        sizes = _sizes(bodies)
        if len(sizes) and not sizes.min():
            at.refuse(int(sizes.argmin()), name, "is empty: a broker takes no message without a body")
        _check_size(bodies, self._options.max_message_size, at, name, "the body has", " (maxMessageSize)")
        kind = self._options.compress
        if kind is not None:
            bodies = pa.array([compress(body.as_buffer(), kind) for body in bodies], pa.binary())
        return bodies

    def _topics(self, batch: pa.RecordBatch, at: _Place) -> tuple[list[str], npt.NDArray[np.int64] | None]:
        if self._options.topic is not None:
            return [self._options.topic], None
        column = batch.column("topic")
        if column.null_count:
            at.refuse(_first(column.is_null()), "topic", "is null, and no option topic says where the row goes")
        encoded = column.dictionary_encode()
        codes = np.asarray(encoded.indices).astype(np.int64)
        topics = encoded.dictionary.to_pylist()
        for code, topic in enumerate(topics):
            try:
                check_topic_of_rows(topic)
            except InvalidMessageError as error:
                at.refuse(int(np.argmax(codes == code)), "topic", f"cannot be used: {error}")
        return topics, None if len(topics) <= 1 else codes

    def _queues(self, batch: pa.RecordBatch, at: _Place) -> tuple[npt.NDArray[np.int64] | None, Any]:
        if "queue_id" not in self._columns:
            return None, None
        column = batch.column("queue_id")
        if column.null_count == len(column):
            return None, None
        numbers = np.asarray(pc.fill_null(pc.cast(column, pa.int64()), -1))
        wrong = np.asarray(column.is_valid()) & (numbers < 0)
        if wrong.any():
            at.refuse(int(wrong.argmax()), "queue_id", f"is {numbers[wrong.argmax()]}: queues count from 0")
        return numbers, batch.column("broker") if "broker" in self._columns else None

    def _map(self, column: Any, at: _Place) -> Any:
        """The properties of a column of maps: all of them at once, then cut by row."""
        column, offsets = _listed(column)
        start, end = int(offsets[0]), int(offsets[-1])
        keys = _binary(column.keys.slice(start, end - start))
        values = _binary(column.items.slice(start, end - start))

        def row(entry: int) -> int:
            return int(np.searchsorted(offsets, start + entry, side="right")) - 1

        _check_free(keys, b"\x02", at, "properties", row)
        _check_free(keys, b"\x01", at, "properties", row)
        sizes = _sizes(keys)
        if len(sizes) and not sizes.min():
            at.refuse(row(int(sizes.argmin())), "properties", "has a property without a name")
        values = _without_empty(values)
        _check_free(values, b"\x02", at, "properties", row)
        entries = pc.binary_join_element_wise(keys, _BETWEEN, values, _END, _EMPTY)
        entries = pc.fill_null(pc.if_else(pc.is_in(keys, value_set=self._dropped), _EMPTY, entries), b"")
        ends = np.frombuffer(entries.buffers()[1], np.int32)[entries.offset : entries.offset + len(entries) + 1]
        cut = ends[offsets - start] if len(entries) else np.zeros(len(offsets), np.int32)
        buffers = [None, pa.py_buffer(np.ascontiguousarray(cut)), entries.buffers()[2] or pa.py_buffer(b"")]
        return pa.Array.from_buffers(pa.binary(), len(column), buffers)


class _Place:
    """The row and column of a mistake."""

    __slots__ = ("_first",)

    def __init__(self, first: int) -> None:
        self._first = first

    def refuse(self, row: int, column: str, why: str) -> NoReturn:
        raise InvalidMessageError(f"row {self._first + row} of its partition: the column {column} {why}")


def _delays(
    batch: pa.RecordBatch, columns: SinkColumns, at: _Place
) -> tuple[list[Any], npt.NDArray[np.bool_] | None]:
    """The properties that let messages arrive later, and which rows have one."""
    parts: list[Any] = []
    total: npt.NDArray[np.int64] | None = None
    last = ""
    for column in ("delay_level", "delay_seconds", "deliver_at"):
        if column not in columns:
            continue
        name, numbers = _delay_numbers(column, batch.column(column), at)
        is_set = np.asarray(numbers.is_valid())
        if not is_set.any():
            continue
        parts.append(_property(name, pc.cast(pc.cast(numbers, pa.string()), pa.binary())))
        total = is_set.astype(np.int64) if total is None else total + is_set
        if (total > 1).any():
            at.refuse(int(np.argmax(total > 1)), column, f"is set, and {last} too: a message waits for one thing")
        last = column
    return parts, None if total is None else total > 0


def _delay_numbers(column: str, given: Any, at: _Place) -> tuple[str, Any]:
    """The property of one kind of delay and its numbers, null where there is none."""
    if column == "deliver_at":
        millis = pc.cast(pc.cast(given, pa.timestamp("ms", tz="UTC"), safe=False), pa.int64())
        return names.TIMER_DELIVER_MS, millis
    if pa.types.is_floating(given.type):
        finite = np.asarray(pc.fill_null(pc.is_finite(given), True))
        if not finite.all():
            at.refuse(int(finite.argmin()), column, "is not a number")
        name, given = names.TIMER_DELAY_MS, pc.cast(pc.round(pc.multiply(given, 1000.0)), pa.int64())
    elif column == "delay_seconds":
        name, given = names.TIMER_DELAY_SEC, pc.cast(given, pa.int64())
    else:
        name, given = names.DELAY_LEVEL, pc.cast(given, pa.int64())
    negative = np.asarray(pc.fill_null(pc.less(given, 0), False))
    if negative.any():
        at.refuse(int(negative.argmax()), column, "is less than 0")
    return name, pc.if_else(pc.equal(given, 0), None, given)


def _keys(batch: pa.RecordBatch, at: _Place) -> Any:
    """The keys of each row in one text, with blanks between them."""
    column = batch.column("keys")
    if not pa.types.is_list(column.type) and not pa.types.is_large_list(column.type):
        return _texts(batch, "keys", at)
    values = column.flatten()
    if values.null_count or (len(values) and not _sizes(_binary(values)).min()):
        # Rare enough, as where the values of several columns are gathered and some are null.
        rows = [None if keys is None else [key for key in keys if key] for keys in column.to_pylist()]
        column = pa.array(rows, _TEXTS)
    elif column.type != _TEXTS:
        # Of array(...) the elements cannot be null, which is another type to Arrow, and one that it cannot join.
        column = column.cast(_TEXTS)
    joined = _binary(pc.binary_join(column, " "))
    _check_free(joined, b"\x02", at, "keys")
    return joined


def _sharding_in(column: Any) -> Any:
    """The sharding keys among properties, by which the client of an application would choose queues as well."""
    if not pc.any(pc.equal(column.keys, names.SHARDING_KEY)).as_py():
        return None
    return _without_empty(_binary(pc.map_lookup(column, names.SHARDING_KEY, "first")))


def _listed(column: Any) -> tuple[Any, npt.NDArray[np.int64]]:
    """A column of maps in which rows that are null have no entries, and where the entries of each begin."""
    offsets = np.asarray(column.offsets).astype(np.int64)
    if column.null_count and np.diff(offsets)[np.asarray(column.is_null())].any():
        column = pa.array(column.to_pylist(), column.type)
        offsets = np.asarray(column.offsets).astype(np.int64)
    return column, offsets


def _texts(batch: pa.RecordBatch, name: str, at: _Place) -> Any:
    values = _binary(batch.column(name))
    _check_free(values, b"\x02", at, name)
    return values


def _binary(column: Any) -> Any:
    return column if column.type == pa.binary() else column.cast(pa.binary())


def _property(name: str, values: Any) -> Any:
    """A property for each row; nothing for those without a value."""
    start = pa.scalar(name.encode() + b"\x01", pa.binary())
    return pc.fill_null(pc.binary_join_element_wise(start, _without_empty(values), _END, _EMPTY), b"")


def _without_empty(values: Any) -> Any:
    """Null for what is empty: no reader sees a property without a value."""
    sizes = _sizes(values)
    return values if not len(sizes) or sizes.min() > 0 else pc.if_else(pc.equal(sizes, 0), None, values)


def _nothing(count: int) -> Any:
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(bytes(4 * count + 4)), pa.py_buffer(b"")])


def _sizes(values: Any) -> npt.NDArray[np.int64]:
    """The lengths of values; 1 for those that are null, which are no shorter than those that are not."""
    return np.asarray(pc.fill_null(pc.binary_length(values), 1)).astype(np.int64)


def _check_size(values: Any, most: int, at: _Place, column: str, what: str, option: str = "") -> None:
    sizes = _sizes(values)
    if len(sizes) and sizes.max() > most:
        row = int(sizes.argmax())
        at.refuse(row, column, f"is too large: {what} {sizes[row]} bytes, and at most {most} are allowed{option}")


def _check_free(values: Any, wrong: bytes, at: _Place, column: str, row: Any = int) -> None:
    """Refuse values that contain what separates properties."""
    data = values.buffers()[2]
    # Looking through all bytes at once is nearly free; only where one is found it is worth asking where.
    if data is None or data.size == 0 or memoryview(data).tobytes().find(wrong) < 0:
        return
    found = np.asarray(pc.fill_null(pc.match_substring(values, wrong), False))
    if found.any():
        at.refuse(
            row(int(found.argmax())), column, f"contains the character {wrong[0]}, which separates properties"
        )


def _first(mask: Any) -> int:
    return int(np.argmax(np.asarray(mask)))
