"""The key index of a store: from a topic and a key to offsets in the commit log, over a sequence of index files.

Keys of appended records are queued (``add``) and put into the files in batches (``flush_pending``), which costs a
tenth of single puts; every query sees what was added before it.

Not here: reading the records themselves, deciding which records are indexed (all but rolled back transactions), and
threads. ``begin_sync`` returns the one part that blocks.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import operator
import re
import struct
from array import array
from typing import TYPE_CHECKING

from orbitmq.lazy_import import lazy_module
from orbitmq.protocol.java import decode_utf8, index_hash
from orbitmq.store.errors import DiskFaultError, FlushFailedError
from orbitmq.store.index.entries import hash_keys
from orbitmq.store.index.format import HEADER_SIZE, IndexHeader, check_size
from orbitmq.store.index.index_file import IndexFile
from orbitmq.store.index.pending import Hashed, next_round, unhashed_first
from orbitmq.store.index.segment import IndexSegment, IndexSync

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    import numpy.typing as npt

    from orbitmq.platform.clock import Clock
    from orbitmq.platform.disk import Disk
    from orbitmq.store.index.entries import Column, Ints
    from orbitmq.store.index.format import IndexEntry
    from orbitmq.store.index.pending import Pending, Property, Text
else:
    np = lazy_module("numpy")

TAG_TYPE = "T"
"""The index type of tags; all other types are keys."""

_NAME = re.compile(r"[0-9]{17}")

_NO_LIMIT = 1 << 63

_TIMESTAMP = struct.Struct("=q")


@dataclasses.dataclass(frozen=True, slots=True)
class IndexHits:
    """Result of a query, and the end of the index at that time."""

    offsets: list[int]
    last_update_timestamp: int
    last_update_offset: int


class KeyIndex:
    """The index files of one directory. For one thread."""

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        directory: str,
        *,
        slots: int = 5_000_000,
        entries: int = 20_000_000,
        max_results: int = 64,
        max_pending: int = 4096,
        max_mapped: int = 8,
    ) -> None:
        """``max_results`` limits a query (``maxMsgsNumBatch``), ``max_mapped`` the maps beside the newest file."""
        if slots < 1 or entries < 2 or max(slots, entries) > 0x7FFFFFFF:
            raise ValueError("an index file has at least 1 slot and 2 entries, and counts in 31 bits")
        if min(max_results, max_pending, max_mapped) < 1:
            raise ValueError("the limits of a key index are at least 1")
        self.max_pending = max_pending
        self.max_results = max_results
        self.flushed_timestamp = 0
        self._disk = disk
        self._clock = clock
        self._directory = directory
        self._slots = slots
        self._entries = entries
        self._max_mapped = max_mapped
        self._parts: list[IndexSegment] = []
        self._pending: list[Pending | Hashed] = []
        self._more_pending = 0
        """Records in hashed batches, beyond one each."""
        self._uses = 0
        self._names_changed = False
        self.sync_failed = False
        """True after any failed sync: the next start must not trust the files."""

    def load(
        self, clean: bool, checkpoint_index_timestamp: int, checkpoint_offset: int = 0, *, can_cut: bool = False
    ) -> list[str]:
        """Find the files on disk; returns the names of those deleted because they cannot be trusted.

        After an unclean exit these are the first file that ends after the checkpoint's index timestamp, or after
        the last record dispatched before the checkpoint if that is known (not 0), and all behind it; and a newest
        file that differs from one rebuilt from its entries. ``end_offset`` is then the offset from which records
        must be added again, and ``flushed_timestamp`` belongs into the checkpoint before that. ``can_cut``: the
        index was synced before the checkpoint named that record; then the first of these files is cut there instead
        of deleted.
        """
        self.forget()
        self._parts = self._find_parts()
        suspects: list[IndexSegment] = []
        if not clean:
            # Where the offset alone is proof, times are not compared: a clock may go back.
            until = _NO_LIMIT if can_cut and checkpoint_index_timestamp else checkpoint_index_timestamp
            suspects = self._distrusted(until, checkpoint_offset or _NO_LIMIT)
            # The newest first: interrupted anywhere, the remaining index has no gap.
            for part in reversed(suspects[1:]):
                self._delete(part)
            if suspects and not (
                can_cut
                and checkpoint_index_timestamp
                and self._cut(suspects[0], checkpoint_offset, checkpoint_index_timestamp)
            ):
                self._delete(suspects[0])
        for before, part in itertools.pairwise(self._parts):
            if part.header == IndexHeader():
                # Created, but the process ended before the first entry.
                part.header.inherit(before.header)
        self.flushed_timestamp = self._newest.end_timestamp
        return [part.name for part in suspects if part not in self._parts]

    def _find_parts(self) -> list[IndexSegment]:
        parts = []
        with self._disk_faults("read"):
            names = [name for name in self._disk.list(self._directory) if _NAME.fullmatch(name)]
            for name in names:
                path = f"{self._directory}/{name}"
                found = self._disk.stat(path)
                if found is None or found.is_dir:
                    continue
                if found.size == 0:
                    # A crash lost the size of a file that was never synced, and so of those behind it.
                    for lost in reversed(names[names.index(name) :]):
                        self._disk.remove(f"{self._directory}/{lost}")
                    break
                check_size(path, found.size, self._slots, self._entries)
                parts.append(IndexSegment(name, path, IndexHeader.decode(self._disk.pread(path, 0, HEADER_SIZE))))
        return parts

    def _distrusted(self, trusted_until: int, trusted_offset: int) -> list[IndexSegment]:
        parts = self._parts
        kept = 0
        for part in parts:
            # The offset separates what was stored in one millisecond, before and after the checkpoint.
            if part.header.end_timestamp > trusted_until or part.header.end_offset > trusted_offset:
                break
            kept += 1
        # A file that was synced and then written within the same millisecond ends in time but is only half on disk.
        # Only the newest can be: a full file is synced before the checkpoint passes its end.
        if kept and parts[kept - 1].header.next_entry != self._entries:
            with self._disk_faults("read"):
                if self._mapped(parts[kept - 1]).find_damage() is not None:
                    kept -= 1
        return parts[kept:]

    def _cut(self, part: IndexSegment, offset: int, end_timestamp: int) -> bool:
        """Cut a file after the entries of the record at ``offset``; False if nothing sound would remain."""
        if part.header.begin_offset > offset or part.header.next_entry <= 1:
            return False
        with self._disk_faults("repair"):
            file = self._mapped(part, writable=True)
            self._disk.zero(part.path, file.cut_after(offset, end_timestamp))
            file.mapped.sync()
            part.header = file.header
            return file.header.next_entry > 1 and file.find_damage() is None

    @property
    def end_offset(self) -> int:
        """Physical offset of the newest record in the files; records below it are not put again."""
        return self._newest.end_offset

    @property
    def _newest(self) -> IndexHeader:
        return self._parts[-1].header if self._parts else IndexHeader()

    @property
    def growing_file(self) -> IndexFile | None:
        """The file that receives entries, once it has any."""
        file = self._parts[-1].file if self._parts else None
        return file if file is not None and file.writable else None

    def add(
        self, topic: Text, offset: int, store_timestamp: int, uniq_key: Property, keys: Property, tags: Property
    ) -> None:
        """Queue the keys of the record at ``offset``; texts are the UTF-8 values of its properties.

        With ``max_pending`` records queued, these are put first. If the disk refuses that, this record is not
        queued.
        """
        pending = self._pending
        if len(pending) + self._more_pending >= self.max_pending:
            self.flush_pending()
        pending.append((topic, offset, store_timestamp, uniq_key, keys, tags))

    def add_many(self, records: Sequence[Pending]) -> None:
        """``add`` for many records, all or none."""
        if self.pending + len(records) > self.max_pending:
            self.flush_pending()
        self._pending += records

    def add_hashed(self, count: int, hashes: bytes, offsets: bytes, store_timestamp: int) -> None:
        """``add_many`` for records whose keys native code has hashed: an int32 and an int64 for each key."""
        self._await(count, hashes, offsets, _TIMESTAMP.pack(store_timestamp) * (len(hashes) // 4))

    def _await(self, count: int, hashes: bytes, offsets: bytes, timestamps: bytes) -> None:
        if len(self._pending) + self._more_pending + count > self.max_pending:
            self.flush_pending()
        if not hashes:
            return
        pending = self._pending
        last = pending[-1] if pending else None
        if not isinstance(last, Hashed):
            last = Hashed()
            pending.append(last)
            self._more_pending -= 1
        last.add(count, hashes, offsets, timestamps)
        self._more_pending += count

    @property
    def pending(self) -> int:
        """Number of records queued for the files."""
        return len(self._pending) + self._more_pending

    def flush_pending(self) -> None:
        """Put queued records into the files.

        Raises ``DiskFaultError`` if the disk has no room: the rest stays queued, whole records at a time.
        """
        pending = self._pending
        while pending:
            oldest = pending[0]
            if isinstance(oldest, Hashed):
                self._put(*oldest.columns())
                del pending[0]
                self._more_pending -= oldest.count - 1
                continue
            taken = next_round(unhashed_first(pending), self.end_offset, self._count_at_end)
            if taken.keys:
                hashes = array("i", hash_keys(taken.keys))
                self._put(hashes, taken.each(taken.offsets), taken.each(taken.timestamps))
            del pending[: len(taken.counts)]

    def add_hashes(self, hashes: npt.NDArray[np.int32], offsets: Ints, store_timestamp: int | Ints) -> None:
        """Put many keys given by hash, and for each its record and when that was stored.

        Queued records are put first. If the disk refuses anything, none of these is put.
        """
        self.flush_pending()
        stored_end = self.end_offset
        first = 0
        if len(offsets) and int(offsets[0]) <= stored_end:
            # Records that are already there, the last of them perhaps with only the first of its keys.
            first = int(np.searchsorted(offsets, stored_end))
            of_last = int(np.searchsorted(offsets, stored_end, side="right")) - first
            first += min(of_last, self._count_at_end(stored_end)) if of_last else 0
        if first < len(hashes):
            timestamps = (
                np.full(len(hashes), store_timestamp) if isinstance(store_timestamp, int) else store_timestamp
            )
            self._put(hashes[first:], offsets[first:], timestamps[first:])

    def add_columns(self, count: int, hashes: bytes, offsets: bytes, timestamps: bytes) -> None:
        """Add records found by a scan; for each key an int32 and two int64, native-endian.

        As with ``add_hashes``, the first of them may be there already.
        """
        if self._parts and array("q", offsets[:8])[0] <= self.end_offset:
            columns = np.frombuffer(offsets, np.int64), np.frombuffer(timestamps, np.int64)
            self.add_hashes(np.frombuffer(hashes, np.int32), *columns)
        elif count <= self.max_pending:
            self._await(count, hashes, offsets, timestamps)
        else:
            self.flush_pending()
            self._put(array("i", hashes), array("q", offsets), array("q", timestamps))

    def _put(self, hashes: Column, offsets: Column, timestamps: Column) -> None:
        file = self.growing_file
        if file is not None and file.ready >= len(hashes):
            self._parts[-1].dirty |= file.put(hashes, offsets, timestamps) > 0
            return
        # All space is reserved before the first byte is stored, so that a refusal leaves everything unchanged.
        start = 0
        for part, share in self._make_room(len(hashes)):
            file = part.file
            assert file is not None
            if part not in self._parts[-1:]:
                file.inherit(self._newest)
                self._parts.append(part)
            stop = start + share
            file.put(hashes[start:stop], offsets[start:stop], timestamps[start:stop])
            part.dirty |= share > 0
            start = stop
        assert start == len(hashes)

    def _make_room(self, count: int) -> list[tuple[IndexSegment, int]]:
        """Files with space for this many entries; all but perhaps the first are new."""
        shares: list[tuple[IndexSegment, int]] = []
        created: list[IndexSegment] = []
        try:
            with self._disk_faults("extend"):
                if self._parts:
                    newest = self._parts[-1]
                    shares.append((newest, self._mapped(newest, writable=True).reserve(count)))
                while (left := count - sum(share for _, share in shares)) > 0:
                    file = self._create(created)
                    shares.append((created[-1], file.reserve(left)))
        except BaseException:
            for part in created:
                part.unmap()
                with contextlib.suppress(OSError):
                    # An empty index file may remain, which is harmless.
                    self._disk.remove(part.path)
            raise
        return shares

    def _create(self, created: list[IndexSegment]) -> IndexFile:
        self._unmap_some()
        name = self._clock.stamp()
        before = (self._parts + created)[-1:]
        if before and name <= before[0].name:
            # Two files in one millisecond, or a clock that went back: names must sort like files.
            name = str(int(before[0].name) + 1).zfill(17)
        path = f"{self._directory}/{name}"
        file = IndexFile.create(self._disk, path, self._slots, self._entries)
        created.append(IndexSegment(name, path, file.header, file))
        self._names_changed = True
        return file

    def _count_at_end(self, offset: int) -> int:
        """Number of keys of the record at ``offset``, the newest one, that are in the files already."""
        total = 0
        with self._disk_faults("read"):
            for part in reversed(self._parts):
                count = self._mapped(part).count_at_end(offset)
                total += count
                if count < part.header.next_entry - 1:
                    break
        return total

    def query(
        self, topic: Text, key: Text, max_num: int, begin: int, end: int, index_type: str | None = None
    ) -> IndexHits:
        """Physical offsets of records with this key stored from ``begin`` to ``end`` (ms), newest first.

        They may include records with another key of the same hash: compare. ``index_type`` ``"T"`` queries a tag. A
        disk too full for queued records does not fail a query, which then answers without them.
        """
        with contextlib.suppress(DiskFaultError):
            self.flush_pending()
        separator = "#T#" if index_type == TAG_TYPE else "#"
        key_hash = index_hash(_decode(topic) + separator + _decode(key))
        max_num = min(max_num, self.max_results)
        offsets: list[int] = []
        with self._disk_faults("read"):
            for part in reversed(self._parts):
                if part.header.overlaps(begin, end):
                    offsets += self._mapped(part).lookup(key_hash, max_num - len(offsets), begin, end)
                if part.header.begin_timestamp < begin or len(offsets) >= max_num:
                    break
        return IndexHits(offsets, self._newest.end_timestamp, self._newest.end_offset)

    def files(self) -> Iterator[tuple[str, IndexFile]]:
        """Every file with its name, oldest first, for tools. A file stays mapped until the next one is
        requested."""
        self.flush_pending()
        for part in list(self._parts):
            with self._disk_faults("read"):
                file = self._mapped(part)
            yield part.name, file

    def entries(self) -> Iterator[tuple[str, IndexEntry]]:
        """Every entry with the name of its file, oldest first."""
        for name, file in self.files():
            for entry in file.entries():
                yield name, entry

    def begin_sync(self) -> IndexSync:
        """Collect the files to sync, one sync at a time; every begin needs its ``end_sync`` or ``give_up_sync``.

        Sync the commit log first: an index must not outlive the records it points to.
        """
        parts = [part for part in self._parts if part.dirty]
        files = []
        for part in parts:
            assert part.file is not None
            part.dirty = False
            part.syncing = True
            files.append(part.file.mapped)
        directory = self._directory if self._names_changed else None
        self._names_changed = False
        return IndexSync(parts, files, self._disk, directory, self._newest.end_timestamp)

    def end_sync(self, sync: IndexSync) -> None:
        """Record the result of a sync; ``flushed_timestamp`` advances if it succeeded."""
        for part in sync.parts:
            part.syncing = False
            part.dirty |= not sync.completed
        if not sync.completed:
            # The kernel may mark pages as clean after it has reported that they were not written; a later sync
            # would then succeed for nothing. So nothing counts as flushed any more, until the next start.
            self.sync_failed = True
            self._names_changed |= sync.directory is not None
        if not self.sync_failed:
            self.flushed_timestamp = sync.end_timestamp

    def give_up_sync(self, sync: IndexSync) -> None:
        """Undo a ``begin_sync`` that was not run."""
        for part in sync.parts:
            part.syncing = False
            part.dirty = True
        self._names_changed |= sync.directory is not None

    def sync(self) -> None:
        """Put queued records and make the index durable. Blocks."""
        self.flush_pending()
        self._run(self.begin_sync())

    def _run(self, sync: IndexSync) -> None:
        try:
            sync.run()
        finally:
            self.end_sync(sync)

    def delete_before(self, min_offset: int) -> list[str]:
        """Delete the files whose records are all before ``min_offset``, but never the newest file."""
        deleted: list[str] = []
        while len(self._parts) > 1:
            part = self._parts[0]
            if part.header.end_offset >= min_offset or part.syncing:
                break
            self._delete(part)
            deleted.append(part.name)
        return deleted

    def delete_from(self, log_end: int) -> list[str]:
        """Delete the files with entries at or after the end of a log that lost its tail; otherwise later records
        there would count as indexed. As after ``load``, add records again from ``end_offset``.
        """
        deleted: list[str] = []
        while self._parts and self._parts[-1].header.end_offset >= log_end:
            deleted.append(self._parts[-1].name)
            self._delete(self._parts[-1])
        self.flushed_timestamp = self._newest.end_timestamp
        return deleted

    def close(self) -> None:
        """Put queued records, sync and release the files.

        Raises ``FlushFailedError`` if any sync since ``load`` failed: the store must then be left as after a crash,
        with its ``abort`` file, so that the next start does not trust what may not be on disk.
        """
        try:
            self.sync()
        finally:
            self.forget()
        if self.sync_failed:
            raise FlushFailedError(
                "an earlier sync of the index failed; check the disk, the next start checks the index"
            )

    def destroy(self) -> None:
        """Delete all files and the queue: the index will be built from nothing."""
        self._pending.clear()
        self._more_pending = 0
        while self._parts:
            self._delete(self._parts[-1])
        self.flushed_timestamp = 0

    def forget(self) -> None:
        for part in self._parts:
            part.unmap()
        self._parts = []
        self._pending.clear()
        self._more_pending = 0

    def _delete(self, part: IndexSegment) -> None:
        with self._disk_faults("delete a file of"):
            self._disk.remove(part.path)
        part.unmap()
        self._parts.remove(part)

    def _mapped(self, part: IndexSegment, *, writable: bool = False) -> IndexFile:
        self._uses += 1
        part.used_at = self._uses
        file = part.file
        if file is None or (writable and not file.writable):
            part.unmap()
            self._unmap_some()
            file = IndexFile.open(self._disk, part.path, self._slots, self._entries, writable=writable)
            # Not the header on disk: load may have let an empty file inherit from the previous one.
            file.header = part.header
            part.file = file
        return file

    def _unmap_some(self) -> None:
        """Limit the number of maps; each takes 420 MB of address space and a descriptor."""
        mapped = [part for part in self._parts[:-1] if part.file and not part.syncing]
        mapped.sort(key=operator.attrgetter("used_at"))
        for part in mapped[: -self._max_mapped]:
            if part.dirty and part.file:
                # Only with tiny files, which fill faster than they are synced.
                part.dirty = False
                self._run(IndexSync([part], [part.file.mapped], self._disk, None, self.flushed_timestamp))
            part.unmap()

    @contextlib.contextmanager
    def _disk_faults(self, doing: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise DiskFaultError(
                f"cannot {doing} the index in {self._directory}: {error.strerror or error}; free space or repair "
                "the disk, the messages are safe in the commit log"
            ) from error


def _decode(text: Text) -> str:
    return decode_utf8(text) if isinstance(text, bytes) else text
