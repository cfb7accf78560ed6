"""Arrow arrays of byte ranges of a buffer, without a Python object for each element."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from orbitmq.protocol.java import decode_utf8
from orbitmq.spark.errors import SparkSourceError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orbitmq.protocol.message.record import Readable
    from orbitmq.protocol.message.record_columns import Bytes, Ints

_MAX_OFFSET = 2**31 - 1


class BatchTooLargeError(SparkSourceError):
    """The values of one column exceed the 2 GiB limit of a batch in Spark."""


def gathered(buffer: Readable | Bytes, start: Ints, end: Ints, kind: pa.DataType) -> pa.Array:
    """The bytes between each start and end, as binaries or strings; starts and ends ascend and do not overlap.

    The gaps between the ranges are made elements of an array over the buffer itself, and every second element is
    taken: all copying is Arrow's.
    """
    count = len(start)
    if not count:
        return pa.array([], kind)
    base = int(start[0])
    is_wide = int(end[-1]) - base > _MAX_OFFSET
    if is_wide and int((end - start).sum()) > _MAX_OFFSET:
        raise BatchTooLargeError(f"{count} messages have more than 2 GiB in one column")
    offsets = np.empty(2 * count, np.int64 if is_wide else np.int32)
    offsets[0::2] = start - base
    offsets[1::2] = end - base
    wide = pa.large_binary() if kind == pa.binary() else pa.large_string()
    ranges = pa.Array.from_buffers(
        wide if is_wide else kind, 2 * count - 1, [None, pa.py_buffer(offsets), pa.py_buffer(buffer).slice(base)]
    )
    taken = ranges.take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int32)))
    return taken.cast(kind) if is_wide else taken


def as_text(binaries: pa.Array) -> pa.Array:
    """Binaries as strings, with replacement characters for bytes that are not UTF-8, as in Java."""
    try:
        return binaries.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [None if data is None else decode_utf8(data) for data in binaries.to_pylist()]
        return pa.array(texts, pa.string())


def bytes_of(array: pa.Array) -> tuple[Bytes, Ints]:
    """The bytes of all elements of a binary or string array without nulls, and where each begins and ends there."""
    _, offsets_buffer, data = array.buffers()
    if not len(array) or data is None:
        return np.empty(0, np.uint8), np.zeros(len(array) + 1, np.int64)
    offsets = np.frombuffer(offsets_buffer, np.int32)[array.offset : array.offset + len(array) + 1].astype(np.int64)
    return np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]], offsets - offsets[0]


def joined(parts: Sequence[tuple[Ints | slice, pa.Array]]) -> pa.Array:
    """One array from parts with the indices of their elements."""
    if len(parts) == 1:
        return parts[0][1]
    order = np.concatenate([np.asarray(which) for which, _ in parts])
    inverse = np.empty(len(order), np.int64)
    inverse[order] = np.arange(len(order))
    if sum(array.nbytes for _, array in parts) > _MAX_OFFSET:
        raise BatchTooLargeError(f"{len(order)} messages have more than 2 GiB in one column")
    return pa.concat_arrays([array for _, array in parts]).take(pa.array(inverse))
