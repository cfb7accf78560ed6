"""Compares the key index with the log: an entry for every key of every record, a record for every entry.

Index files have their entries in log order, so both are read in parallel, a chunk at a time.
"""

from __future__ import annotations

import collections
import dataclasses
import os
from typing import TYPE_CHECKING

import numpy as np

from orbitmq.protocol.java import decode_utf8, index_hashes
from orbitmq.store.errors import StoreDamagedError
from orbitmq.store.index.format import ENTRY_SIZE, ENTRY_TYPE, HEADER_SIZE, MAX_TIME_DIFF, SLOT_SIZE, IndexHeader
from orbitmq.store.index.index_file import IndexFile
from orbitmq.store.tools.findings import Findings, Kind

if TYPE_CHECKING:
    from collections.abc import Generator

    IndexFields = tuple[bytes | None, bytes | None, bytes | None]

    from orbitmq.platform.disk import Disk
    from orbitmq.protocol.message.record_columns import Ints
    from orbitmq.store.background.checkpoint import Checkpoint
    from orbitmq.store.config import StoreConfig


_PIECE = 1 << 18
"""Entries read at a time."""

_ROUND = 8192
"""Keys hashed at a time: hashing pads them to the longest, so one long key must not widen all others."""


@dataclasses.dataclass(slots=True)
class Keys:
    """Keys of records, in index order."""

    texts: list[bytes]
    """``topic#key``, or ``topic#T#tag``."""
    offset: Ints
    store_timestamp: Ints
    tags_at: list[int]
    """Positions of those that are tags."""

    @classmethod
    def of(cls, topics: list[bytes], fields: list[IndexFields], offset: Ints, store_timestamp: Ints) -> Keys:
        """The keys of records with these topics, ``index_fields``, physical offsets and store times."""
        texts: list[bytes] = []
        tags_at: list[int] = []
        counts: list[int] = []
        append = texts.append
        total = 0
        for topic, (tags, keys, unique_key) in zip(topics, fields, strict=True):
            prefix = topic + b"#"
            if unique_key:
                append(prefix + unique_key)
            if keys:
                if b" " in keys:
                    texts.extend([prefix + key for key in keys.split(b" ") if key])
                else:
                    append(prefix + keys)
            if tags:
                tags_at.append(len(texts))
                append(prefix + b"T#" + tags)
            counts.append(len(texts) - total)
            total = len(texts)
        return cls(texts, np.repeat(offset, counts), np.repeat(store_timestamp, counts), tags_at)

    @classmethod
    def none(cls) -> Keys:
        return cls([], np.zeros(0, np.int64), np.zeros(0, np.int64), [])


@dataclasses.dataclass(slots=True)
class _Entries:
    """Entries of index files, oldest record first."""

    hash: Ints
    offset: Ints
    diff: Ints
    begin: Ints
    """Begin timestamp of each entry's file."""
    number: Ints
    file: Ints


class IndexCheck:
    """The index files of a store, read in parallel with the log."""

    def __init__(
        self, disk: Disk, config: StoreConfig, findings: Findings, checkpoint: Checkpoint, *, trusted: bool
    ) -> None:
        """Unless the index is ``trusted``, recovery will delete what the checkpoint does not cover."""
        self._disk = disk
        self._config = config
        self._findings = findings
        self.paths: list[str] = []
        self.entries = 0
        self.doubled = 0
        self.to_write = 0
        self.dropped_files: list[str] = []
        self.recovered_from: int | None = None
        """Recovery will put records from here on into the index again."""
        self._headers: list[IndexHeader] = []
        self._rest = _Entries(*(np.zeros(0, np.int64) for _ in range(6)))
        self._pieces = self._read_pieces()
        self._position = 0
        self._tags_from: int | None = None
        """The first record whose tag is in the index. RocketMQ before 5.5 did not index tags."""
        self._untagged = 0
        self._find(checkpoint, trusted)

    def _find(self, checkpoint: Checkpoint, trusted: bool) -> None:
        directory = self._config.path("index")
        for name in self._disk.list(directory):
            path = os.path.join(directory, name)
            stat = self._disk.stat(path)
            if len(name) == 17 and name.isdigit() and stat is not None and stat.size:
                self.paths.append(path)
                self._headers.append(IndexHeader.decode(self._disk.pread(path, 0, HEADER_SIZE)))
        if trusted:
            return
        limit = checkpoint.logics_physical_offset or sys_max()
        kept = 0
        for header in self._headers:
            if header.end_timestamp > checkpoint.index_msg_timestamp or header.end_offset > limit:
                break
            kept += 1
        self.dropped_files = self.paths[kept:]
        self.recovered_from = self._headers[kept - 1].end_offset if kept else 0

    # Reading the index in parallel with the log

    def _read_pieces(self) -> Generator[_Entries, None, None]:
        """All entries in chunks: those of one full file would take a gigabyte as columns."""
        slots, entries = self._config.max_hash_slot_num, self._config.max_index_num
        for number, path in enumerate(self.paths):
            try:
                file = IndexFile.open(self._disk, path, slots, entries, writable=False)
            except StoreDamagedError as error:
                self._findings.add(Kind.INDEX_FILE, str(error), path)
                continue
            try:
                damage = file.find_damage()
                if damage is not None:
                    self._report_header(number, damage)
                count = min(file.header.next_entry, entries) - 1
                self.entries += count
                begin = self._headers[number].begin_timestamp
                for start in range(1, count + 1, _PIECE):
                    size = min(_PIECE, count + 1 - start)
                    at = HEADER_SIZE + slots * SLOT_SIZE + start * ENTRY_SIZE
                    rows = np.frombuffer(file.mapped.buffer, ENTRY_TYPE, size, at)
                    yield _Entries(
                        rows["hash"].astype(np.int64),
                        rows["offset"].astype(np.int64),
                        rows["diff"].astype(np.int64),
                        np.full(size, begin, np.int64),
                        np.arange(start, start + size),
                        np.full(size, number, np.int64),
                    )
            finally:
                file.close()

    def _is_dropped(self, path: str) -> bool:
        return path in self.dropped_files

    def _take(self, end: int) -> _Entries:
        """The next entries, of records before ``end``."""
        while not len(self._rest.offset) or int(self._rest.offset[-1]) < end:
            piece = next(self._pieces, None)
            if piece is None:
                break
            self._rest = _join(self._rest, piece)
        cut = int(np.searchsorted(self._rest.offset, end))
        taken = _select(self._rest, slice(0, cut))
        self._rest = _select(self._rest, slice(cut, None))
        return taken

    def start_at(self, log_start: int) -> None:
        """Skip entries of expired records."""
        self._take(log_start)
        self._position = log_start

    def feed(self, keys: Keys, end: int, *, are_whole: bool) -> None:
        """Compare with all keys of the records up to ``end``. Those of damaged records may be missing."""
        self._position = end
        found = self._take(end)
        if not self.paths:
            self._note_missing(list(range(len(keys.texts))) if are_whole else [], keys)
            return
        hashes = _hashes(keys.texts)
        if keys.tags_at and self._tags_from is None:
            entries = set(zip(found.offset.tolist(), found.hash.tolist(), strict=True))
            tags = ((int(keys.offset[at]), int(hashes[at])) for at in keys.tags_at)
            self._tags_from = next((offset for offset, value in tags if (offset, value) in entries), None)
        if not (np.array_equal(keys.offset, found.offset) and np.array_equal(hashes, found.hash)):
            self._compare(keys, hashes.tolist(), found, are_whole)
        self._check_times(keys.offset, keys.store_timestamp, found)

    def _check_times(self, offsets: Ints, timestamps: Ints, found: _Entries) -> None:
        if not len(offsets) or not len(found.offset):
            return
        at = np.minimum(np.searchsorted(offsets, found.offset), len(offsets) - 1)
        is_known = offsets[at] == found.offset
        stored = timestamps[at]
        expected = np.where(found.begin > 0, (stored - found.begin) // 1000, 0)
        expected = np.clip(expected, 0, MAX_TIME_DIFF)
        is_first = found.number == 1
        for wrong in np.flatnonzero((found.diff != expected) & is_known & ~is_first).tolist():
            self._report_entry(
                found, wrong, f"is {found.diff[wrong]} s after its file's begin instead of {expected[wrong]}"
            )
        for first in np.flatnonzero(is_first & is_known).tolist():
            self._check_first(found, first, int(stored[first]))
        for last in np.flatnonzero((found.number == self._last_numbers(found)) & is_known).tolist():
            header = self._headers[int(found.file[last])]
            if header.end_timestamp != stored[last]:
                self._report_header(int(found.file[last]), "its end timestamp is not that of its last entry")

    def _last_numbers(self, found: _Entries) -> Ints:
        return np.array([header.next_entry - 1 for header in self._headers], np.int64)[found.file]

    def _check_first(self, found: _Entries, first: int, stored: int) -> None:
        """The first entry of a file counts its seconds from the end of the file before."""
        number = int(found.file[first])
        header = self._headers[number]
        if header.begin_timestamp != stored or header.begin_offset != found.offset[first]:
            self._report_header(number, "its begin is not that of its first entry")
        # A file without entries does not show where the previous one ended.
        used = [one.end_timestamp for one in self._headers[:number] if one.next_entry > 1]
        if used:
            before = used[-1]
            expected = min(max((stored - before) // 1000, 0), MAX_TIME_DIFF) if before > 0 else 0
            if found.diff[first] != expected:
                self._report_entry(
                    found, first, f"is {found.diff[first]} s after the file before instead of {expected}"
                )

    def _report_header(self, number: int, what: str) -> None:
        if not self._is_dropped(self.paths[number]):
            self._findings.add(Kind.INDEX_FILE, what, self.paths[number])

    def _compare(self, keys: Keys, hashes: list[int], found: _Entries, are_whole: bool) -> None:
        expected: dict[int, list[int]] = collections.defaultdict(list)
        for at, offset in enumerate(keys.offset.tolist()):
            expected[offset].append(at)
        actual: dict[int, list[int]] = collections.defaultdict(list)
        for at, offset in enumerate(found.offset.tolist()):
            actual[offset].append(at)
        lacking = []
        for offset, key_places in expected.items():
            entries = actual.pop(offset, [])
            left = collections.Counter(int(found.hash[at]) for at in entries)
            for at in key_places:
                if left[hashes[at]] > 0:
                    left[hashes[at]] -= 1
                else:
                    lacking.append(at)
            wanted = {hashes[at] for at in key_places}
            for at in entries:
                if int(found.hash[at]) not in wanted:
                    self._report_entry(found, at, "is of none of the record's keys")
            self.doubled += sum(count for value, count in left.items() if value in wanted)
        for entries in actual.values():
            for at in entries:
                self._report_entry(found, at, "leads to no record with a key")
        self._note_missing(lacking if are_whole else [], keys)

    def _report_entry(self, found: _Entries, at: int, what: str) -> None:
        path = self.paths[int(found.file[at])]
        if self._is_dropped(path):
            return
        offset = int(found.offset[at])
        message = f"entry {found.number[at]} (offset {offset}, hash {found.hash[at]}) {what}"
        self._findings.add(Kind.INDEX_WRONG, message, path, physical_offset=offset)

    def _note_missing(self, lacking: list[int], keys: Keys) -> None:
        tags = set(keys.tags_at)
        lost: list[int] = []
        for at in lacking:
            if self.recovered_from is not None and int(keys.offset[at]) >= self.recovered_from:
                self.to_write += 1
            elif at in tags and self.paths and (self._tags_from is None or keys.offset[at] < self._tags_from):
                self._untagged += 1
            else:
                lost.append(at)
        if not lost:
            return
        first, last = int(keys.offset[lost[0]]), int(keys.offset[lost[-1]])
        texts = ", ".join(decode_utf8(keys.texts[at]) for at in lost[:3]) + (" …" if len(lost) > 3 else "")
        where = f"of the record at offset {first}" if first == last else f"of records from offset {first} to {last}"
        self._findings.add(
            Kind.INDEX_MISSING,
            f"{len(lost)} key{'s' if len(lost) > 1 else ''} {where}: {texts}",
            self._config.path("index"),
            len(lost),
            physical_offset=first,
        )

    @property
    def lacks_tags(self) -> bool:
        """True if records from the start of the log on have tags that are not in the index."""
        return self._untagged > 0

    def close(self) -> None:
        """Release the current file."""
        self._pieces.close()

    def finish(self, log_end: int) -> None:
        """Report entries that point past the end of the log."""
        self.feed(Keys.none(), max(log_end, self._position), are_whole=True)
        found = self._take(sys_max())
        for at in range(len(found.offset)):
            self._report_entry(found, at, f"leads past the end of the log at {log_end}")


def sys_max() -> int:
    """An offset after every record."""
    return (1 << 63) - 1


def _hashes(texts: list[bytes]) -> Ints:
    parts = [index_hashes(texts[start : start + _ROUND]) for start in range(0, len(texts), _ROUND)]
    return np.concatenate(parts).astype(np.int64) if parts else np.zeros(0, np.int64)


def _select(entries: _Entries, which: Ints | slice) -> _Entries:
    return _Entries(*(getattr(entries, field.name)[which] for field in dataclasses.fields(_Entries)))


def _join(before: _Entries, after: _Entries) -> _Entries:
    columns = [field.name for field in dataclasses.fields(_Entries)]
    joined = _Entries(*(np.concatenate((getattr(before, name), getattr(after, name))) for name in columns))
    offsets = joined.offset
    if bool((np.diff(offsets) < 0).any()):
        return _select(joined, np.argsort(offsets, kind="stable"))
    return joined
