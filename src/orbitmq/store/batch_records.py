"""A client's batch as records of the log, all of them at once.

One by one a record costs several microseconds, of which most is spent on calls. Here heads are columns of numbers,
and bodies and properties are copied as they lie in the batch: an item has the length of its body in front of it and
the length of its properties in front of those, exactly as a record does.
"""

from __future__ import annotations

import functools
import itertools
from typing import TYPE_CHECKING

from orbitmq.lazily import lazy_module
from orbitmq.protocol.crc import MASK, crc32
from orbitmq.protocol.flags import BORN_HOST_V6, STORE_HOST_V6
from orbitmq.protocol.properties import find
from orbitmq.protocol.record import MAGIC_V1, MAGIC_V2
from orbitmq.protocol.record_columns import head_fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy as np
    import numpy.typing as npt
else:
    np = lazy_module("numpy")

FEW = 8
"""Fewer items are appended one by one, which then is as fast."""

_FLAG_AT = 12
_BODY_SIZE_AT = 16
_BODY_AT = 20


def encode_records(
    batch: bytes,
    starts: Sequence[int],
    body_ends: Sequence[int],
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
) -> tuple[bytes, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The records of the items that begin and whose bodies end at these places, their offsets and their sizes."""
    begins = np.array(starts, np.int64)
    ends = np.append(begins[1:], len(batch))
    count = len(begins)
    kind = _head_type(len(born_host), len(store_host))
    heads = np.zeros(count, kind)
    # All of an item but size, magic, CRC and flag goes into the record.
    sizes = ends - begins - _BODY_SIZE_AT + kind.itemsize + len(topic_field)
    offsets = physical_offset + np.cumsum(sizes) - sizes
    heads["size"] = sizes
    heads["magic"] = MAGIC_V2 if version_2 else MAGIC_V1
    view = memoryview(batch)
    crcs = [crc32(view[start + _BODY_AT : end]) for start, end in zip(starts, body_ends, strict=True)]
    heads["crc"] = np.array(crcs, np.uint32) & np.uint32(MASK)
    heads["queue_id"] = queue_id
    flags_at = begins[:, None] + np.arange(_FLAG_AT, _BODY_SIZE_AT)
    heads["flag"] = np.frombuffer(batch, np.uint8)[flags_at].view(">i4")[:, 0]
    heads["queue_offset"] = queue_offset + np.arange(count)
    heads["physical_offset"] = offsets
    hosts = (BORN_HOST_V6 if len(born_host) == 20 else 0) | (STORE_HOST_V6 if len(store_host) == 20 else 0)
    heads["sys_flag"] = sys_flag & ~(BORN_HOST_V6 | STORE_HOST_V6) | hosts
    heads["born_timestamp"] = born_timestamp
    heads["born_host"] = np.void(born_host)
    heads["store_timestamp"] = store_timestamp
    heads["store_host"] = np.void(store_host)
    heads["reconsume_times"] = reconsume_times
    parts = zip(
        heads.view(f"V{kind.itemsize}").tolist(),
        _cut(batch, (begins + _BODY_SIZE_AT).tolist(), body_ends),
        itertools.repeat(topic_field),
        _cut(batch, body_ends, ends.tolist()),
        strict=False,
    )
    return b"".join(itertools.chain.from_iterable(parts)), offsets, sizes


def _cut(data: bytes, starts: Iterable[int], ends: Iterable[int]) -> Iterable[bytes]:
    """The slices of ``data`` with these bounds, made without a step of Python for each."""
    return map(data.__getitem__, map(slice, starts, ends))


@functools.cache
def _head_type(born: int, store: int) -> np.dtype[np.void]:
    """The fixed part of a record without the size of its body, which is in the item."""
    return np.dtype(head_fields(born, store)[:-1])


def properties_of_items(batch: bytes, starts: Sequence[int], body_ends: Sequence[int]) -> list[bytes]:
    """The properties of each item."""
    return list(_cut(batch, [end + 2 for end in body_ends], itertools.chain(starts[1:], (len(batch),))))


def values_in(batch: bytes, properties: Sequence[bytes], name: bytes) -> list[bytes | None]:
    """The value of one property in each of the ``properties`` of a batch."""
    start = name + b"\x01"
    places = batch.count(start)
    if not places:
        # A look at the whole costs less than one at each.
        return [None] * len(properties)
    if places == len(properties) and all(map(bytes.startswith, properties, itertools.repeat(start))):
        # Each begins with it, and there is no further one that would count instead.
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


def units_of(offsets: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64], codes: Sequence[int]) -> bytes:
    """The units of a consume queue that lead to these records."""
    units = np.empty(len(offsets), np.dtype([("offset", ">i8"), ("size", ">i4"), ("code", ">i8")]))
    units["offset"] = offsets
    units["size"] = sizes
    units["code"] = codes
    return units.tobytes()
