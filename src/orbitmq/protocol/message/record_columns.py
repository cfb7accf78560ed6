"""Many records of one buffer at once: each field of all of them as one column of numbers.

Taking records one by one costs microseconds for each; here a field costs nanoseconds, and one that is not requested
costs nothing. Bodies, topics and properties are not touched, only found.
"""

from __future__ import annotations

import functools
import struct
from typing import TYPE_CHECKING, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from orbitmq.protocol.message.crc import MASK, crc32
from orbitmq.protocol.message.record import (
    HEADS,
    MAGIC_V1,
    MAGIC_V2,
    MAX_PROPERTIES_SIZE,
    MAX_TOPIC_SIZE_V1,
    MAX_TOPIC_SIZE_V2,
    MIN_RECORD_SIZE,
    head_fields,
)

if TYPE_CHECKING:
    from orbitmq.protocol.message.record import Readable

Ints: TypeAlias = npt.NDArray[np.int64]
Flags: TypeAlias = npt.NDArray[np.bool_]
Bytes: TypeAlias = npt.NDArray[np.uint8]
Heads: TypeAlias = npt.NDArray[np.void]

_SIZE = struct.Struct(">i")


_HEAD_TYPES = tuple(np.dtype(head_fields(born, store)) for born, store in ((8, 8), (20, 8), (8, 20), (20, 20)))
assert all(kind.itemsize == head.size for kind, head in zip(_HEAD_TYPES, HEADS, strict=True))
_HEAD_SIZES = np.array([kind.itemsize for kind in _HEAD_TYPES], np.int64)


_RUN = 32
"""So many records of one size make it likely that more follow; to look costs as much as some thirty steps."""


def follow_sizes(buffer: Readable, position: int, most: int, before: int | None = None) -> Ints:
    """Where records begin if each has the size it says, from ``position`` on: at most so many, and all ``before``.

    The last one may say that it is longer than the buffer is. Nothing else is looked at.
    """
    runs: list[Ints] = []
    positions: list[int] = []
    append, unpack = positions.append, _SIZE.unpack_from
    last = len(buffer) - MIN_RECORD_SIZE
    if before is not None:
        last = min(last, before - 1)
    left = most
    alike = of_size = 0
    while left > 0 and position <= last:
        (size,) = unpack(buffer, position)
        if size < MIN_RECORD_SIZE:
            break
        append(position)
        position += size
        left -= 1
        if size != of_size:
            alike, of_size = 0, size
            continue
        alike += 1
        if alike >= _RUN:
            run = _run(buffer, position, size, min(left, (last - position) // size + 1))
            runs += [np.array(positions, np.int64), run]
            positions.clear()
            position += len(run) * size
            left -= len(run)
            alike = 0
    return np.concatenate([*runs, np.array(positions, np.int64)]) if runs else np.array(positions, np.int64)


def _run(buffer: Readable, position: int, size: int, most: int) -> Ints:
    """Where records begin, from ``position`` on, that follow each other and are all of this size."""
    count, step = 0, 2 * _RUN
    while count < most:
        step = min(step * 4, most - count)
        sizes: npt.NDArray[np.int32] = np.ndarray((step,), ">i4", buffer, position + count * size, (size,))
        other = sizes != size
        if bool(other.any()):
            count += int(np.argmax(other))
            break
        count += step
    return position + size * np.arange(count, dtype=np.int64)


class RecordColumns:
    """The fields of the records at some positions of a buffer, whatever lies there.

    Each position needs the bytes of the smallest record behind it. Numbers are those of the bytes, and places are
    where the sizes say; ``is_consistent`` tells which records these make sense for.
    """

    def __init__(self, buffer: Readable, position: Ints) -> None:
        self.buffer = buffer
        self.data: Bytes = np.frombuffer(buffer, np.uint8)
        self.position = position
        plain = _heads(self.data, position, 0)
        self.magic: npt.NDArray[np.uint32] = plain["magic"].astype(np.uint32)
        self.size: Ints = plain["size"].astype(np.int64)
        self.sys_flag: Ints = plain["sys_flag"].astype(np.int64)
        hosts = self.sys_flag >> 4 & 3
        self._parts: list[tuple[Ints | slice, Heads]] = [(slice(None), plain)]
        """Which records, and their fixed parts: one entry for each form that a fixed part has here."""
        self.body_at = position + _HEAD_SIZES[0]
        if bool(hosts.any()):
            hosts[position + _HEAD_SIZES[hosts] > len(self.data)] = 0
            self._parts = []
            for kind in range(4):
                these = np.flatnonzero(hosts == kind)
                if len(these):
                    self._parts.append((these, _heads(self.data, position[these], kind)))
            self.body_at = position + _HEAD_SIZES[hosts]
        self.body_size = self._numbers("body_size")
        self.topic_at, self.properties_at = self._find_fields()

    def _find_fields(self) -> tuple[Ints, Ints]:
        data, version_2 = self.data, self.magic == MAGIC_V2
        # Sizes may be anything here, so that places are kept inside the buffer; the check comes after.
        top = len(data) - 1
        topic_at = self.body_at + np.clip(self.body_size, 0, self.size) + 1 + version_2
        topic_size = data[np.clip(topic_at - 1, 0, top)].astype(np.int64)
        if bool(version_2.any()):
            topic_size[version_2] |= data[np.clip(topic_at[version_2] - 2, 0, top)].astype(np.int64) << 8
        return topic_at, topic_at + topic_size + 2

    def __len__(self) -> int:
        return len(self.position)

    def take(self, which: Flags | Ints | slice) -> Self:
        """These records alone."""
        return self._at(self.position[which])

    def _at(self, position: Ints) -> Self:
        return type(self)(self.buffer, position)

    # Fields that not everybody needs

    @functools.cached_property
    def crc(self) -> Ints:
        return self._numbers("crc")

    @functools.cached_property
    def queue_id(self) -> Ints:
        return self._numbers("queue_id")

    @functools.cached_property
    def flag(self) -> Ints:
        return self._numbers("flag")

    @functools.cached_property
    def queue_offset(self) -> Ints:
        return self._numbers("queue_offset")

    @functools.cached_property
    def physical_offset(self) -> Ints:
        return self._numbers("physical_offset")

    @functools.cached_property
    def born_timestamp(self) -> Ints:
        return self._numbers("born_timestamp")

    @functools.cached_property
    def store_timestamp(self) -> Ints:
        return self._numbers("store_timestamp")

    @functools.cached_property
    def reconsume_times(self) -> Ints:
        return self._numbers("reconsume_times")

    @functools.cached_property
    def ends(self) -> Ints:
        """Where the records end, which is where their properties do."""
        return self.position + self.size

    @functools.cached_property
    def topic_size(self) -> Ints:
        return self.properties_at - 2 - self.topic_at

    @functools.cached_property
    def properties_size(self) -> Ints:
        return self.ends - self.properties_at

    def host_parts(self, name: str) -> list[tuple[Ints | slice, Bytes]]:
        """Which records, and their ``born_host`` or ``store_host`` as rows of 8 or 20 bytes."""
        parts: list[tuple[Ints | slice, Bytes]] = []
        for which, heads in self._parts:
            hosts = np.ascontiguousarray(heads[name])
            parts.append((which, hosts.view(np.uint8).reshape(-1, hosts.itemsize)))
        return parts

    def _numbers(self, name: str) -> Ints:
        if len(self._parts) == 1:
            return self._parts[0][1][name].astype(np.int64)
        column = np.empty(len(self.position), np.int64)
        for which, heads in self._parts:
            column[which] = heads[name]
        return column

    # What makes a record of them

    def is_intact(self) -> Flags:
        """Which of these have bodies that match their CRCs; they have to be consistent."""
        view = memoryview(self.buffer)
        ends = (self.body_at + self.body_size).tolist()
        crcs = [crc32(view[start:end]) for start, end in zip(self.body_at.tolist(), ends, strict=True)]
        result: Flags = np.array(crcs, np.int64) & MASK == self.crc
        return result

    def is_consistent(self) -> Flags:
        """Which of these are records whose fields add up; neither CRCs nor offsets are looked at."""
        data, end, magic = self.data, self.ends, self.magic
        version_2 = magic == MAGIC_V2
        places = np.clip(self.properties_at, 2, len(data))
        properties_size = data[places - 2].astype(np.int64) << 8 | data[places - 1]
        result: Flags = (
            ((magic == MAGIC_V1) | version_2)
            & (self.size >= MIN_RECORD_SIZE)
            & (end <= len(data))
            & (self.size >= _HEAD_SIZES[self.sys_flag >> 4 & 3])
            & (self.body_size >= 0)
            & (self.topic_at <= end)
            & (self.topic_size <= np.where(version_2, MAX_TOPIC_SIZE_V2, MAX_TOPIC_SIZE_V1))
            & (self.properties_at + properties_size == end)
            & (properties_size <= MAX_PROPERTIES_SIZE)
        )
        return result


def _heads(data: Bytes, position: Ints, kind: int) -> Heads:
    """The fixed parts at these positions: a view of every byte's part as one item, of which these are copied."""
    head = _HEAD_TYPES[kind]
    everywhere: Heads = np.ndarray(
        (max(len(data) - head.itemsize + 1, 0),), np.dtype((np.void, head.itemsize)), data, 0, (1,)
    )
    return everywhere[position].view(head)
