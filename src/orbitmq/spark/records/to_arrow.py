"""Conversion of records to Arrow batches. Only the requested columns are decoded."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.hosts import host_text
from orbitmq.protocol.java import decode_utf8
from orbitmq.protocol.message import property_names as names
from orbitmq.protocol.message.compression import decompress
from orbitmq.protocol.message.flags import COMPRESSED
from orbitmq.spark.records.arrow_buffers import BatchTooLargeError, as_text, gathered, joined
from orbitmq.spark.schema.columns import TIMESTAMP, arrow_schema_of
from orbitmq.spark.schema.property_columns import PropertyItems, split_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    import numpy.typing as npt

    from orbitmq.protocol.message.record_columns import Bytes, Flags, Ints, RecordColumns

_log = logging.getLogger("orbitmq.spark")

BATCH_ROWS = 10_000
BATCH_BYTES = 4 << 20
"""The target size of an Arrow batch. Larger ones are not faster, and are in memory several times."""

_HEX = np.frombuffer(b"".join(b"%02X%02X" % (pair & 0xFF, pair >> 8) for pair in range(65536)), np.uint32)
"""The four digits of each two bytes, by the number that a little-endian machine reads in them."""

_MAX_MILLIS = 2**63 // 1000 - 1
_MAX_BYTES = 2**31 - 1


def to_arrow(
    records: RecordColumns, columns: Sequence[str], *, broker: str | None, topic: str | None = None
) -> pa.RecordBatch:
    """These columns of the records. ``topic`` is given where the column is not to say the records' own.

    Raises BatchTooLargeError if a column would take more than 2 GiB.
    """
    schema = arrow_schema_of(columns)
    if bool((np.diff(records.position) <= 0).any()):
        ascending, places = np.unique(records.position, return_inverse=True)
        records = type(records)(records.buffer, ascending)
        return to_arrow(records, columns, broker=broker, topic=topic).take(pa.array(places))
    building = _Building(records, broker, topic)
    return pa.RecordBatch.from_arrays([_COLUMNS[name](building) for name in columns], schema=schema)


def arrow_batches(
    records: RecordColumns, columns: Sequence[str], *, broker: str | None, topic: str | None = None
) -> Iterator[pa.RecordBatch]:
    """``to_arrow`` in as many batches as are needed: none without records, and one unless bodies are huge."""
    if not len(records):
        return
    try:
        yield to_arrow(records, columns, broker=broker, topic=topic)
    except BatchTooLargeError:
        if len(records) == 1:
            raise
        half = len(records) // 2
        for part in (slice(half), slice(half, None)):
            yield from arrow_batches(records.take(part), columns, broker=broker, topic=topic)


def only_topic_of(records: RecordColumns) -> str | None:
    """The topic if all of some records have the same."""
    size = int(records.topic_size[0])
    if size == 0 or bool((records.topic_size != size).any()):
        return None
    # Every place of the buffer as a text of that length: those where a topic begins are compared.
    places = (len(records.data) - size + 1,)
    topics: npt.NDArray[np.bytes_] = np.ndarray(places, f"S{size}", records.data, 0, (1,))[records.topic_at]
    if bool((topics != topics[0]).any()):
        return None
    start = int(records.topic_at[0])
    return decode_utf8(bytes(records.buffer[start : start + size]))


def topics_of(records: RecordColumns) -> pa.Array:
    """The topics."""
    if len(records) and (only := only_topic_of(records)) is not None:
        return _repeated(only, len(records))
    return as_text(gathered(records.buffer, records.topic_at, records.topic_at + records.topic_size, pa.binary()))


def tags_of(records: RecordColumns) -> pa.Array:
    """The tags, null where there are none."""
    return PropertyItems(records).column(names.TAGS)


def keys_of(records: RecordColumns) -> pa.Array:
    """The keys as lists, null where there are none."""
    return split_keys(PropertyItems(records).column(names.KEYS))


def has_key(records: RecordColumns, keys: Collection[str]) -> Flags:
    """Which records have one of these keys."""
    lists = keys_of(records)
    found = pc.is_in(lists.flatten(), value_set=pa.array(sorted(keys), pa.string()))
    mask = np.zeros(len(records), np.bool_)
    mask[pc.list_parent_indices(lists).filter(found).to_numpy(zero_copy_only=False)] = True
    return mask


def bodies_of(records: RecordColumns) -> pa.Array:
    """The decompressed bodies. A body that contradicts its sysFlag stays as it is stored."""
    end = records.body_at + records.body_size
    is_compressed = records.sys_flag & COMPRESSED != 0
    if not bool(is_compressed.any()):
        return gathered(records.buffer, records.body_at, end, pa.binary())
    plain, packed = np.flatnonzero(~is_compressed), np.flatnonzero(is_compressed)
    pairs = zip(records.body_at[packed].tolist(), end[packed].tolist(), strict=True)
    bodies = [bytes(records.buffer[start:stop]) for start, stop in pairs]
    size = 0
    failures: list[str] = []
    for number, sys_flag in enumerate(records.sys_flag[packed].tolist()):
        try:
            bodies[number] = decompress(bodies[number], sys_flag)
        except ProtocolError as error:
            failures.append(f"at queue offset {records.queue_offset[packed[number]]}: {error}")
        size += len(bodies[number])
        if size > _MAX_BYTES:
            raise BatchTooLargeError(f"{len(records)} messages have more than 2 GiB of bodies")
    if failures:
        # Their CRCs are right: producers sent them so, and the query must not fail.
        _log.warning(
            "records: decompression failed for %d bodies, which stay compressed; first: %s",
            len(failures),
            failures[0],
        )
    stored = gathered(records.buffer, records.body_at[plain], end[plain], pa.binary())
    return joined([(plain, stored), (packed, pa.array(bodies, pa.binary()))])


def _ids(records: RecordColumns) -> pa.Array:
    """The offset ids: store host and physical offset in hex."""
    offsets = records.physical_offset.astype(">i8").view(np.uint8).reshape(-1, 8)
    return joined(
        [
            (which, _hex(np.concatenate([hosts, offsets[which]], axis=1)))
            for which, hosts in records.host_parts("store_host")
        ]
    )


def _hex(rows: Bytes) -> pa.Array:
    count, width = rows.shape
    if count * 2 * width > _MAX_BYTES:
        raise BatchTooLargeError(f"{count} messages are too many for one batch")
    ends = np.arange(0, (count + 1) * 2 * width, 2 * width, dtype=np.int32)
    return pa.Array.from_buffers(
        pa.string(), count, [None, pa.py_buffer(ends), pa.py_buffer(_HEX[rows.view("<u2")])]
    )


def _hosts(records: RecordColumns, name: str) -> pa.Array:
    return joined([(which, _host_texts(hosts)) for which, hosts in records.host_parts(name)])


def _host_texts(hosts: Bytes) -> pa.Array:
    count, width = hosts.shape
    if width == 8:
        # Comparing numbers is three times as fast as comparing bytes.
        numbers = hosts.view("<u8")[:, 0]
        if count and bool((numbers == numbers[0]).all()):
            return _repeated(_host_or_none(hosts[0].tobytes()), count)
        encoded = pa.array(numbers).dictionary_encode()
        distinct = [int(host).to_bytes(8, "little") for host in encoded.dictionary.to_pylist()]
    else:
        encoded = pa.Array.from_buffers(pa.binary(width), count, [None, pa.py_buffer(hosts)]).dictionary_encode()
        distinct = encoded.dictionary.to_pylist()
    return pa.array([_host_or_none(host) for host in distinct], pa.string()).take(encoded.indices)


def _host_or_none(host: bytes) -> str | None:
    try:
        return host_text(host)
    except ProtocolError:
        return None


def _times(millis: Ints) -> pa.Array:
    """Milliseconds as Spark's timestamps; null if they are beyond its calendar."""
    beyond = (millis > _MAX_MILLIS) | (millis < -_MAX_MILLIS)
    return pa.array(millis * 1000, pa.int64(), mask=beyond if bool(beyond.any()) else None).cast(TIMESTAMP)


class _Building:
    """Values that several columns of a batch share."""

    __slots__ = ("_items", "broker", "records", "topic")

    def __init__(self, records: RecordColumns, broker: str | None, topic: str | None) -> None:
        self.records = records
        self.broker = broker
        self.topic = topic
        self._items: PropertyItems | None = None

    @property
    def items(self) -> PropertyItems:
        if self._items is None:
            self._items = PropertyItems(self.records)
        return self._items

    def constant(self, text: str | None) -> pa.Array:
        return _repeated(text, len(self.records))


def _repeated(text: str | None, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(text, pa.string()), count)


def _ints(numbers: Ints) -> pa.Array:
    return pa.array(numbers.astype(np.int32))


_COLUMNS: dict[str, Callable[[_Building], pa.Array]] = {
    "topic": lambda of: topics_of(of.records) if of.topic is None else of.constant(of.topic),
    "broker": lambda of: of.constant(of.broker),
    "queue_id": lambda of: _ints(of.records.queue_id),
    "queue_offset": lambda of: pa.array(of.records.queue_offset),
    "msg_id": lambda of: _ids(of.records),
    "unique_id": lambda of: of.items.column(names.UNIQUE_KEY),
    "tags": lambda of: of.items.column(names.TAGS),
    "keys": lambda of: split_keys(of.items.column(names.KEYS)),
    "body": lambda of: bodies_of(of.records),
    "properties": lambda of: of.items.maps(),
    "born_timestamp": lambda of: _times(of.records.born_timestamp),
    "store_timestamp": lambda of: _times(of.records.store_timestamp),
    "born_host": lambda of: _hosts(of.records, "born_host"),
    "store_host": lambda of: _hosts(of.records, "store_host"),
    "sys_flag": lambda of: _ints(of.records.sys_flag),
    "reconsume_times": lambda of: _ints(of.records.reconsume_times),
}
