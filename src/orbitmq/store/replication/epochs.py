"""Epochs (RocketMQ: EpochFileCache): which master wrote which part of the log, in the file ``epochFileCheckpoint``.

Every master appends the epoch of its election and the end of its log at that moment. Two logs with an equal entry
have equal bytes up to the earlier end of that entry, which is where a slave is cut off before it copies.
"""

from __future__ import annotations

import itertools
import os
import zlib
from typing import TYPE_CHECKING, NamedTuple

from orbitmq.platform.settings import INT32_MAX, INT64_MAX
from orbitmq.store.errors import DiskFaultError, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from orbitmq.platform.disk import Disk

MAX_ENTRIES = 1000
"""Entries of a master's handshake, as in RocketMQ; a file keeps the newest ones."""

MASK = 0x7FFFFFFF


class EpochError(StoreError):
    """An epoch that contradicts those that are known."""


class Epoch(NamedTuple):
    """The part of the log from ``start`` on, written by the master of this epoch."""

    epoch: int
    start: int


def encode(entries: Sequence[Epoch]) -> bytes:
    """The text of the file: number of entries, checksum of the rest, then one entry per line."""
    rest = "".join(f"{one.epoch}-{one.start}\n" for one in entries).encode()
    return b"%d\n%d\n%s" % (len(entries), zlib.crc32(rest) & MASK, rest)


def decode(data: bytes) -> list[Epoch]:
    """The entries of a file. Raises EpochError for a damaged one."""
    try:
        count_text, checksum_text, *lines = data.decode("ascii").split()
        count, checksum = int(count_text), int(checksum_text)
        entries = [Epoch(*map(int, line.split("-"))) for line in lines]
    except (ValueError, TypeError, UnicodeDecodeError) as error:
        raise EpochError(f"not an epoch file: {error}") from None
    rest = b"".join(b"%d-%d\n" % one for one in entries)
    if count != len(entries) or (checksum and checksum != zlib.crc32(rest) & MASK):
        raise EpochError("an epoch file with a wrong checksum or number of entries")
    check(entries)
    return entries


def check(entries: Iterable[Epoch]) -> None:
    """Raise EpochError unless both numbers grow from entry to entry."""
    entries = list(entries)
    if any(not (0 <= one.epoch <= INT32_MAX and 0 <= one.start <= INT64_MAX) for one in entries):
        raise EpochError("an epoch or an offset that is out of range")
    if any(a.epoch >= b.epoch or a.start >= b.start for a, b in itertools.pairwise(entries)):
        raise EpochError("epochs that do not grow")


class Epochs:
    """The entries of one log, oldest first. Epochs and offsets of neighbours grow strictly."""

    __slots__ = ("_entries",)

    def __init__(self, entries: Iterable[Epoch] = ()) -> None:
        self._entries = list(entries)
        check(self._entries)

    def __iter__(self) -> Iterator[Epoch]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def last(self) -> Epoch | None:
        return self._entries[-1] if self._entries else None

    @property
    def last_epoch(self) -> int:
        """The newest epoch; -1 without one, as RocketMQ's masters send it."""
        return self._entries[-1].epoch if self._entries else -1

    def append(self, epoch: int, start: int) -> bool:
        """Add the epoch that begins at ``start``; False if it is the newest one already.

        An epoch in which nothing was written is replaced: it begins where the next one does. Raises EpochError for
        an epoch or an offset before the newest ones.
        """
        last = self.last
        if last is not None:
            if (epoch, start) == last:
                return False
            if epoch <= last.epoch or start < last.start:
                raise EpochError(f"epoch {epoch} from offset {start} after epoch {last.epoch} from {last.start}")
            if start == last.start:
                self._entries.pop()
        self._entries.append(Epoch(epoch, start))
        del self._entries[:-MAX_ENTRIES]
        return True

    def at(self, offset: int) -> tuple[Epoch, int] | None:
        """The entry that has the byte at an offset, and where that entry ends (INT64_MAX: it goes on)."""
        end = INT64_MAX
        for entry in reversed(self._entries):
            if entry.start <= offset:
                return entry, end
            end = entry.start
        return None

    def cut(self, end: int) -> bool:
        """Drop the entries that begin at or behind the end of a log that was cut off; True if there were some."""
        before = len(self._entries)
        while self._entries and self._entries[-1].start >= end:
            self._entries.pop()
        return len(self._entries) != before

    def forget(self, start: int) -> bool:
        """Drop the entries whose part of the log was removed, because the log begins at ``start`` now."""
        before = len(self._entries)
        while len(self._entries) > 1 and self._entries[1].start <= start:
            del self._entries[0]
        return len(self._entries) != before


def common_end(mine: Epochs, my_end: int, masters: Epochs, master_end: int) -> int | None:
    """Where the logs of a slave and of its master begin to differ; None if they have no epoch in common.

    A slave without epochs has nothing that contradicts its master.
    """
    if not len(mine):
        return my_end
    ends = _ends(masters, master_end)
    for entry, end in reversed(_ends(mine, my_end).items()):
        if entry in ends:
            return min(end, my_end, ends[entry])
    first, masters_first = next(iter(mine)), next(iter(masters), None)
    if masters_first is not None and first.start == masters_first.start == 0:
        return 0  # both histories are complete: they differ from the first byte on
    return None


def _ends(epochs: Epochs, end: int) -> dict[Epoch, int]:
    entries = list(epochs)
    starts = [entry.start for entry in entries[1:]]
    return dict(zip(entries, [*starts, end], strict=True)) if entries else {}


class EpochFile:
    """The epochs of a store, kept in a file whose previous version stays beside it as ``.bak``."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self.path = path
        self.epochs = Epochs()

    def load(self, log_end: int) -> None:
        """Read the file, or its previous version if it is missing or damaged. Raises DiskFaultError, EpochError.

        Entries behind the end of the log are dropped: their bytes were lost in a crash.
        """
        entries: list[Epoch] = []
        try:
            found = [path for path in (self.path, self.path + ".bak") if self._disk.stat(path) is not None]
            for at, path in enumerate(found):
                try:
                    entries = decode(self._disk.read(path))
                    break
                except EpochError as error:
                    if at + 1 == len(found):
                        raise EpochError(
                            f"{path}: {error}; it tells which part of the log the other replicas have too. Remove "
                            "the store to have everything copied from the master"
                        ) from None
        except OSError as error:
            raise DiskFaultError(f"cannot read {self.path}: {error.strerror or error}") from error
        self.epochs = Epochs(entries)
        self.epochs.cut(log_end + 1)

    def append(self, epoch: int, start: int) -> None:
        """Add an epoch and make it durable. Raises DiskFaultError, EpochError: the epoch is not known then."""
        changed = Epochs(self.epochs)
        if changed.append(epoch, start):
            self._replace(changed)

    def cut(self, end: int) -> None:
        """Drop the epochs behind the end of a log that was cut off there, and make that durable."""
        changed = Epochs(self.epochs)
        if changed.cut(end):
            self._replace(changed)

    def forget(self, start: int) -> None:
        """Drop the epochs whose part of the log was removed. Raises DiskFaultError."""
        changed = Epochs(self.epochs)
        if changed.forget(start):
            self._replace(changed)

    def _replace(self, epochs: Epochs) -> None:
        """Take over other epochs, once they are on the disk: bytes of an epoch that is not there cannot be told
        from those of another one."""
        self._write(epochs)
        self.epochs = epochs

    def _write(self, epochs: Epochs) -> None:
        """Write the file: at any moment it, or its previous version, is whole on the disk."""
        disk, path = self._disk, self.path
        directory = os.path.dirname(path) or "."
        try:
            disk.write(path + ".new", encode(list(epochs)))
            disk.sync(path + ".new")
            if disk.stat(path) is not None:
                disk.rename(path, path + ".bak")
            disk.rename(path + ".new", path)
            disk.sync_dir(directory)
        except OSError as error:
            raise DiskFaultError(f"cannot write {path}: {error.strerror or error}") from error
