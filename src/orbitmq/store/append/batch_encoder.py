"""Encodes a client's batch into log records, all at once.

One by one, a record costs several microseconds, most of them for calls. Here the heads are columns of numbers, and
bodies and properties are copied as they lie in the batch: an item stores the length of its body before it and the
length of its properties before those, exactly as a record does.
"""

from __future__ import annotations

import functools
import itertools
from typing import TYPE_CHECKING

from orbitmq.lazy_import import lazy_module
from orbitmq.protocol.message.crc import MASK, crc32
from orbitmq.protocol.message.flags import BORN_HOST_V6, STORE_HOST_V6
from orbitmq.protocol.message.properties import find
from orbitmq.protocol.message.record import MAGIC_V1, MAGIC_V2, head_fields
from orbitmq.store.append.batch_decoder import BODY_AT, BODY_SIZE_AT, FLAG_AT, pieces

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy as np
    import numpy.typing as npt

    from orbitmq.store.append.batch_decoder import BatchItems, Ints
else:
    np = lazy_module("numpy")

FEW = 8
"""Batches with fewer items are appended one by one, which is as fast for them."""


def encode_records(
    items: BatchItems,
    *,
    topic_field: bytes,
    version_2: bool,
    queue_id: int,
    queue_offset: int,
    physical_offset: int,
    sys_flag: int,
    born_timestamp: int,
    born_host: bytes,
    store_timestamp: int,
    store_host: bytes,
    reconsume_times: int,
) -> tuple[memoryview, Ints, Ints]:
    """The contiguous records of these items, their offsets and their sizes."""
    count = len(items)
    kind = _head_type(len(born_host), len(store_host))
    heads = np.zeros(count, kind)
    # A record takes over an item except its size, magic, CRC and flag.
    sizes = items.ends - items.starts - BODY_SIZE_AT + kind.itemsize + len(topic_field)
    offsets = physical_offset + np.cumsum(sizes) - sizes
    heads["size"] = sizes
    heads["magic"] = MAGIC_V2 if version_2 else MAGIC_V1
    heads["crc"] = np.fromiter(map(crc32, _bodies(items)), np.uint32, count) & np.uint32(MASK)
    heads["queue_id"] = queue_id
    heads["flag"] = pieces(np.frombuffer(items.batch, np.uint8), items.starts + FLAG_AT, 4).view(">i4")
    heads["queue_offset"] = queue_offset + np.arange(count)
    heads["physical_offset"] = offsets
    hosts = (BORN_HOST_V6 if len(born_host) == 20 else 0) | (STORE_HOST_V6 if len(store_host) == 20 else 0)
    heads["sys_flag"] = sys_flag & ~(BORN_HOST_V6 | STORE_HOST_V6) | hosts
    heads["born_timestamp"] = born_timestamp
    heads["born_host"] = np.void(born_host)
    heads["store_timestamp"] = store_timestamp
    heads["store_host"] = np.void(store_host)
    heads["reconsume_times"] = reconsume_times
    return (_joined_alike if items.is_alike else _joined)(items, heads, topic_field), offsets, sizes


def _bodies(items: BatchItems) -> Iterable[bytes]:
    if not items.is_alike:
        return _cut(items.batch, (items.starts + BODY_AT).tolist(), items.body_ends.tolist())
    bodies = np.ascontiguousarray(items.table[:, BODY_AT : int(items.body_ends[0])])
    if not bodies.shape[1]:
        return itertools.repeat(b"", len(items))
    lines: list[bytes] = bodies.view(f"V{bodies.shape[1]}")[:, 0].tolist()
    return lines


def _joined_alike(items: BatchItems, heads: npt.NDArray[np.void], topic_field: bytes) -> memoryview:
    """Records of items that are alike: copied as columns of bytes."""
    table, body_end = items.table, int(items.body_ends[0])
    head, topic = heads.dtype.itemsize, len(topic_field)
    body = head + body_end - BODY_SIZE_AT
    records = np.empty((len(items), body + topic + table.shape[1] - body_end), np.uint8)
    records[:, :head] = heads.view(np.uint8).reshape(-1, head)
    records[:, head:body] = table[:, BODY_SIZE_AT:body_end]
    records[:, body : body + topic] = np.frombuffer(topic_field, np.uint8)
    records[:, body + topic :] = table[:, body_end:]
    return records.reshape(-1).data


def _joined(items: BatchItems, heads: npt.NDArray[np.void], topic_field: bytes) -> memoryview:
    body_ends = items.body_ends.tolist()
    parts = zip(
        heads.view(f"V{heads.dtype.itemsize}").tolist(),
        _cut(items.batch, (items.starts + BODY_SIZE_AT).tolist(), body_ends),
        itertools.repeat(topic_field),
        _cut(items.batch, body_ends, items.ends.tolist()),
        strict=False,
    )
    return memoryview(b"".join(itertools.chain.from_iterable(parts)))


def _cut(data: bytes, starts: Iterable[int], ends: Iterable[int]) -> Iterable[bytes]:
    """The slices of ``data`` with these bounds, without a Python loop."""
    return map(data.__getitem__, map(slice, starts, ends))


@functools.cache
def _head_type(born: int, store: int) -> np.dtype[np.void]:
    """The fixed part of a record without the body size, which is in the item."""
    return np.dtype(head_fields(born, store)[:-1])


def properties_of_items(items: BatchItems) -> list[bytes]:
    """The properties of each item."""
    return list(_cut(items.batch, items.properties_starts.tolist(), items.ends.tolist()))


def values_in(batch: bytes, properties: Sequence[bytes], name: bytes) -> list[bytes | None]:
    """The value of one property in each of the ``properties`` of a batch."""
    start = name + b"\x01"
    places = batch.count(start)
    if not places:
        # One search of the whole batch is cheaper than one for each message.
        return [None] * len(properties)
    if places == len(properties) and all(map(bytes.startswith, properties, itertools.repeat(start))):
        # Every message begins with the property, and none has a second one that would take precedence.
        size = len(start)
        values = [each[size : each.find(b"\x02")] for each in properties]
        if all(values) and all(map(bytes.endswith, properties, itertools.repeat(b"\x02"))):
            return values  # type: ignore[return-value]
    marked = b"\x02" + start
    found: list[bytes | None] = []
    for each in properties:
        _, is_there, after = (b"\x02" + each).rpartition(marked)
        found.append((after.partition(b"\x02")[0] or find(each, name)) if is_there else None)
    return found


def units_of(offsets: Ints, sizes: Ints, codes: Sequence[int] | Ints) -> bytes:
    """Consume queue units for these records."""
    units = np.empty(len(offsets), np.dtype([("offset", ">i8"), ("size", ">i4"), ("code", ">i8")]))
    units["offset"] = offsets
    units["size"] = sizes
    units["code"] = codes
    return units.tobytes()
