"""Reading the log by the thousand: every record and its CRC checked, fields as columns.

``scan`` asks one record after the other and costs microseconds for each. Here only the chain of sizes and the CRCs
are followed in a loop; everything else is done for a chunk of records at once. At the first record that is not
whole ``scan`` is asked, so both always agree on what is damage and where the log goes on behind it.
"""

from __future__ import annotations

import bisect
import dataclasses
import struct
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from orbitmq.protocol.crc import MASK, crc32
from orbitmq.protocol.record import (
    BLANK_SIZE,
    CRC_PROPERTY,
    CRC_PROPERTY_SIZE,
    HEADS,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    MAX_PROPERTIES_SIZE,
    MAX_TOPIC_SIZE_V1,
    MAX_TOPIC_SIZE_V2,
    MIN_RECORD_SIZE,
    crc_property_of,
)
from orbitmq.store.scan import Damage, LogView, Seen, walk_past_damage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orbitmq.store.log_files import LogFiles

Ints: TypeAlias = npt.NDArray[np.int64]
Flags: TypeAlias = npt.NDArray[np.bool_]

CHUNK = 32768
"""Records taken together: some 15 MB of columns and strings."""

_START = struct.Struct(">iI")
_BYTE = np.dtype(np.uint8)


def _head_type(born: int, store: int) -> np.dtype[np.void]:
    return np.dtype(
        [
            ("size", ">i4"), ("magic", ">u4"), ("crc", ">u4"), ("queue_id", ">i4"), ("flag", ">i4"),
            ("queue_offset", ">i8"), ("offset", ">i8"), ("sys_flag", ">i4"), ("born_timestamp", ">i8"),
            ("born_host", f"V{born}"), ("store_timestamp", ">i8"), ("store_host", f"V{store}"),
            ("reconsume_times", ">i4"), ("prepared", ">i8"), ("body_size", ">i4"),
        ]
    )  # fmt: skip


_HEAD_TYPES = tuple(_head_type(born, store) for born, store in ((8, 8), (20, 8), (8, 20), (20, 20)))
assert all(kind.itemsize == head.size for kind, head in zip(_HEAD_TYPES, HEADS, strict=True))
_CRC_START = np.frombuffer(CRC_PROPERTY + b"\x01", _BYTE)


@dataclasses.dataclass(slots=True)
class Chunk:
    """Records that follow each other in one log file."""

    view: LogView
    position: Ints
    """Where the records begin in their file."""
    size: Ints
    crc: Ints
    queue_id: Ints
    queue_offset: Ints
    sys_flag: Ints
    store_timestamp: Ints
    body_at: Ints
    body_size: Ints
    topic_at: Ints
    properties_at: Ints
    is_whole: bool = True
    """Whether the bodies match their CRCs; a record for which they do not is in a chunk of its own."""

    def __len__(self) -> int:
        return len(self.position)

    @property
    def offset(self) -> Ints:
        return self.position + self.view.base

    @property
    def end(self) -> int:
        """The physical offset after the last record."""
        return self.view.base + int(self.position[-1] + self.size[-1])

    def topics(self) -> list[bytes]:
        buffer = self.view.buffer
        ends = (self.properties_at - 2).tolist()
        return [bytes(buffer[start:end]) for start, end in zip(self.topic_at.tolist(), ends, strict=True)]

    def properties(self) -> list[bytes]:
        buffer = self.view.buffer
        ends = (self.position + self.size).tolist()
        return [bytes(buffer[start:end]) for start, end in zip(self.properties_at.tolist(), ends, strict=True)]

    def failed_property_crcs(self) -> list[int]:
        """Which records carry the ``__CRC32#`` property and are not what it was made of."""
        ends = self.position + self.size
        at = np.flatnonzero(ends - self.properties_at >= CRC_PROPERTY_SIZE)
        data = np.frombuffer(self.view.buffer, _BYTE)
        starts = ends[at] - CRC_PROPERTY_SIZE
        carries = (data[starts[:, None] + np.arange(len(_CRC_START))] == _CRC_START).all(axis=1)
        view = self.view.view
        failed = []
        for number in at[carries].tolist():
            end = int(ends[number])
            cut = end - CRC_PROPERTY_SIZE
            if view[cut:end] != crc_property_of(view[int(self.position[number]) : cut]):
                failed.append(number)
        return failed

    def cut(self, count: int) -> Chunk:
        """The first records of the chunk."""
        columns = {
            field.name: getattr(self, field.name)[:count]
            for field in dataclasses.fields(self)
            if field.name not in {"view", "is_whole"}
        }
        return dataclasses.replace(self, **columns)


def scan_log(
    files: LogFiles,
    *,
    check_property_crc: bool = False,
    torn_from: int | None = None,
    search_unwritten: bool = False,
) -> Iterator[Chunk | Damage]:
    """Everything from the start of the log to its end, which is a ``Damage`` of size 0 or the last file.

    The options are those of ``walk_past_damage``.
    """
    bases = files.bases
    newest: int | None = None
    at = files.start
    number = 0
    while number < len(bases):
        base = bases[number]
        view = LogView(base, files.mapped(base).buffer)
        at = max(at, base)
        while at - base < view.size:
            chunk = _whole_records(view, at - base, torn_from)
            if chunk is None:
                break
            yield chunk
            newest, at = base + int(chunk.position[-1]), chunk.end
        if at - base >= view.size or _is_blank(view, at - base):
            number += 1
            continue
        steps = walk_past_damage(
            files,
            # From the last whole record on, whose time tells old bytes behind damage from new ones.
            at if newest is None else newest,
            check_property_crc=check_property_crc,
            torn_from=torn_from,
            search_unwritten=search_unwritten,
        )
        for step in steps:
            if step.offset < at:
                continue
            if isinstance(step, Damage):
                yield step
                if not step.size:
                    return
                continue
            yield _alone(files, step)
            if step.body_is_intact:
                newest, at = step.offset, step.offset + step.size
                break
        else:
            return
        number = bisect.bisect_right(bases, at) - 1


def _alone(files: LogFiles, seen: Seen) -> Chunk:
    base = seen.offset - seen.offset % files.file_size
    view = LogView(base, files.mapped(base).buffer)
    columns = _columns(view, np.array([seen.offset - base], np.int64))
    return dataclasses.replace(columns, is_whole=seen.body_is_intact)


def _is_blank(view: LogView, position: int) -> bool:
    return view.size - position >= BLANK_SIZE and _START.unpack_from(view.buffer, position)[1] == MAGIC_BLANK


def _whole_records(view: LogView, position: int, torn_from: int | None) -> Chunk | None:
    """The whole records from here on, at most ``CHUNK``; None if there is none."""
    buffer, last = view.buffer, view.size - MIN_RECORD_SIZE
    positions: list[int] = []
    append, unpack = positions.append, _START.unpack_from
    while position <= last and len(positions) < CHUNK:
        size, magic = unpack(buffer, position)
        if (magic != MAGIC_V1 and magic != MAGIC_V2) or size < MIN_RECORD_SIZE:  # noqa: PLR1714 (twice as fast)
            break
        append(position)
        position += size
    if position > view.size:
        positions.pop()
    if not positions:
        return None
    chunk = _columns(view, np.array(positions, np.int64))
    count = _first_false(_is_consistent(chunk))
    bodies = zip(chunk.body_at[:count].tolist(), (chunk.body_at + chunk.body_size)[:count].tolist(), strict=True)
    data = view.view
    crcs = np.array([crc32(data[start:end]) for start, end in bodies], np.int64) & MASK
    count = _first_false(crcs == chunk.crc[:count])
    if torn_from is not None:
        for number in np.flatnonzero(chunk.store_timestamp[:count] >= torn_from).tolist():
            seen = view.look(int(chunk.position[number]), check_crc=False)
            if isinstance(seen, Seen) and view.is_torn(seen):
                count = number
                break
    if count == len(chunk):
        return chunk
    return chunk.cut(count) if count else None


def _first_false(flags: Flags) -> int:
    return len(flags) if bool(flags.all()) else int(np.argmin(flags))


def _columns(view: LogView, position: Ints) -> Chunk:
    """The fields of the records at these positions, whatever they are; only sizes were looked at before."""
    data = np.frombuffer(view.buffer, _BYTE)
    plain = _HEAD_TYPES[0]
    heads = _heads(data, position, plain)
    sys_flag = heads["sys_flag"].astype(np.int64)
    size = heads["size"].astype(np.int64)
    store_timestamp = heads["store_timestamp"].astype(np.int64)
    body_size = heads["body_size"].astype(np.int64)
    body_at = position + plain.itemsize
    hosts = sys_flag >> 4 & 3
    for kind in range(1, 4):
        these = np.flatnonzero((hosts == kind) & (position + _HEAD_TYPES[kind].itemsize <= view.size))
        if len(these):
            longer = _heads(data, position[these], _HEAD_TYPES[kind])
            store_timestamp[these] = longer["store_timestamp"]
            body_size[these] = longer["body_size"]
            body_at[these] = position[these] + _HEAD_TYPES[kind].itemsize
    version_2 = heads["magic"] == MAGIC_V2
    # Sizes may be anything here, so that places are kept inside the file; the check comes after.
    top = view.size - 1
    topic_at = body_at + np.clip(body_size, 0, size) + 1 + version_2
    topic_size = data[np.clip(topic_at - 1, 0, top)].astype(np.int64)
    topic_size[version_2] |= data[np.clip(topic_at[version_2] - 2, 0, top)].astype(np.int64) << 8
    return Chunk(
        view=view,
        position=position,
        size=size,
        crc=heads["crc"].astype(np.int64),
        queue_id=heads["queue_id"].astype(np.int64),
        queue_offset=heads["queue_offset"].astype(np.int64),
        sys_flag=sys_flag,
        store_timestamp=store_timestamp,
        body_at=body_at,
        body_size=body_size,
        topic_at=topic_at,
        properties_at=topic_at + topic_size + 2,
    )


def _heads(data: npt.NDArray[np.uint8], position: Ints, kind: np.dtype[np.void]) -> npt.NDArray[np.void]:
    windows = np.lib.stride_tricks.sliding_window_view(data, kind.itemsize)
    return windows[position].view(kind)[:, 0]


def _is_consistent(chunk: Chunk) -> Flags:
    """What ``LogView.look`` asks of a record, of each."""
    view = chunk.view
    data = np.frombuffer(view.buffer, _BYTE)
    end = chunk.position + chunk.size
    named = _long_at(data, chunk.position)
    topic_size = chunk.properties_at - 2 - chunk.topic_at
    version_2 = chunk.topic_at - chunk.body_at - chunk.body_size == 2
    places = np.clip(chunk.properties_at, 2, view.size)
    properties_size = data[places - 2].astype(np.int64) << 8 | data[places - 1]
    result: Flags = (
        (named == chunk.offset)
        & (chunk.body_size >= 0)
        & (chunk.topic_at <= end)
        & (topic_size <= np.where(version_2, MAX_TOPIC_SIZE_V2, MAX_TOPIC_SIZE_V1))
        & (chunk.properties_at + properties_size == end)
        & (properties_size <= MAX_PROPERTIES_SIZE)
    )
    return result


def _long_at(data: npt.NDArray[np.uint8], position: Ints) -> Ints:
    """The physical offset that each record names."""
    windows = np.lib.stride_tricks.sliding_window_view(data, 8)
    return windows[position + 28].view(np.dtype(">i8"))[:, 0].astype(np.int64)
