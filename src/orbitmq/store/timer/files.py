"""Timer files: log, wheel and checkpoint, opened, repaired and made durable together.

The truth is the timer's queue in the commit log. The files are derived from it up to the checkpoint: log, wheel and
checkpoint are made durable in this order, so an unclean exit leaves a log and a wheel with everything that the
checkpoint covers, and perhaps more. The surplus is removed when the files are opened and entered from the queue
once more: nothing is lost, and nothing is there twice.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from orbitmq.lazy_import import lazy_module
from orbitmq.store.errors import DiskFaultError, FlushFailedError
from orbitmq.store.timer.checkpoint import TimerCheckpoint
from orbitmq.store.timer.timer_log import DELETE, NO_UNIT, UNIT_SIZE, TimerLog
from orbitmq.store.timer.timer_wheel import Slot, TimerWheel

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    from orbitmq.platform.disk import Disk, MappedFile
    from orbitmq.store.config import StoreConfig
    from orbitmq.store.timer.timer_wheel import Pages
else:
    np = lazy_module("numpy")


_EMPTY = Slot(NO_UNIT, NO_UNIT, 0)


@dataclasses.dataclass(frozen=True, slots=True)
class Unsaved:
    """Changes that a save makes durable."""

    checkpoint: TimerCheckpoint
    log_files: list[MappedFile]
    wheel_pages: Pages


class TimerFiles:
    """The timer's files of one store."""

    def __init__(self, disk: Disk, config: StoreConfig) -> None:
        self._disk = disk
        self._precision_ms = config.timer_precision_ms
        self._path = config.path("config", "timercheck")
        self._is_first_save = True
        self.log = TimerLog(disk, config.path("timerlog"), config.mapped_file_size_timer_log)
        self.wheel = TimerWheel(disk, config.path("timerwheel"), config.timer_precision_ms)
        self.saved = TimerCheckpoint()
        """The checkpoint on disk."""
        self.is_damaged = False
        """True if the timer log ends before the position in the checkpoint."""
        self.failure: str | None = None
        """Why a sync failed. No later sync proves those bytes durable, so nothing is saved any more."""

    # Opening

    def open(self, place_of: Callable[[int], int]) -> None:
        """Load the files. Raises StoreError.

        ``place_of`` gives the position in the commit log of the record at an offset of the timer's queue, or the
        position where it would be: only records before it are older.
        """
        try:
            self._open(place_of)
        except OSError as error:
            raise DiskFaultError(
                f"the timer's files cannot be opened: {error.strerror or error}: {error.filename or 'unknown file'}"
            ) from error

    def _open(self, place_of: Callable[[int], int]) -> None:
        self.saved = saved = TimerCheckpoint.load(self._disk, self._path)
        if not saved.is_own:
            saved.slot_time_ms = saved.slot_position = 0
        log, wheel = self.log, self.wheel
        log.load()
        end = log.find_end(saved.log_end, place_of(saved.queue_offset))
        if saved.is_own:
            end = min(end, saved.log_end)
        # A whole unit behind the end belongs to a message that will be entered again.
        self.is_damaged = end + UNIT_SIZE <= saved.log_end and log.unit(end) is None and not log.is_full(end)
        has_wheel = wheel.load()
        is_sound = has_wheel and all(self._take_out(end, time, slot) for time, slot in wheel.reaching(end))
        if log.start < log.limit:
            log.cut(end)
        if is_sound:
            self._put_in(min(saved.log_end, end))
        elif has_wheel or end > log.start:
            wheel.clear_all()
            self._put_in(log.start)

    def _take_out(self, end: int, time_ms: int, slot: Slot) -> bool:
        """Remove the units from ``end`` on from a slot; False if they cannot be found."""
        position, count = slot.last, slot.waiting
        while position >= end:
            unit = self.log.unit(position)
            if unit is None or unit.due_ms // self._precision_ms != time_ms // self._precision_ms:
                return False
            position, count = unit.previous, count - unit.weight
        if position == NO_UNIT:
            self.wheel.clear(time_ms)
        else:
            self.wheel.put(time_ms, Slot(slot.first, position, count))
        return True

    def _put_in(self, start: int) -> None:
        """Put the units of the log from ``start`` on into the wheel, unless they are in it or delivered."""
        oldest = self.saved.read_time_ms // self._precision_ms
        for all_positions, units in self.log.columns(start):
            numbers = (units["written"] + units["delay"]) // self._precision_ms
            waiting = numbers >= oldest
            numbers, positions, magics = numbers[waiting], all_positions[waiting], units["magic"][waiting]
            if not len(numbers):
                continue
            order = np.argsort(numbers, kind="stable")
            begins = np.flatnonzero(np.diff(numbers[order], prepend=-1))
            for number, places, deletes in zip(
                numbers[order][begins].tolist(),
                np.split(positions[order], begins[1:]),
                np.split(magics[order] & DELETE, begins[1:]),
                strict=True,
            ):
                time = number * self._precision_ms
                slot = self.wheel.slot(time) or Slot(int(places[0]), NO_UNIT, 0)
                new = places > slot.last
                if new.any():
                    count = slot.waiting + int(np.where(deletes[new], -1, 1).sum())
                    self.wheel.put(time, Slot(slot.first, int(places[-1]), count))

    def close(self) -> None:
        self.log.close()

    # Entering

    def add(
        self, due_ms: int, magic: int, written_ms: int, offset: int, size: int, topic_hash: int
    ) -> None:  # fmt: skip
        """Add a message to the slot of its time. Raises StoreError with nothing changed."""
        first, last, waiting = self.wheel.slot(due_ms) or _EMPTY
        try:
            position = self.log.append(last, magic, written_ms, due_ms, offset, size, topic_hash)
        except OSError as error:
            raise DiskFaultError(f"the timer log cannot be written ({error.strerror}): free space") from error
        if first == NO_UNIT:
            first = position
        slot = tuple.__new__(Slot, (first, position, waiting + (-1 if magic & DELETE else 1)))
        self.wheel.put(due_ms, slot)

    # Making durable

    def take_unsaved(self, checkpoint: TimerCheckpoint) -> Unsaved:
        """Everything that is not on disk, with the progress to record. The log's end is recorded here."""
        checkpoint = dataclasses.replace(checkpoint, log_end=self.log.end)
        return Unsaved(checkpoint, self.log.take_unsynced(), self.wheel.take_unwritten())

    def save(self, unsaved: Unsaved) -> None:
        """Make it durable, in the order of derivation. Blocks; for a worker thread.

        Raises StoreError; after a FlushFailedError there is nothing more to save.
        """
        if self.failure is not None:
            raise FlushFailedError(self.failure)
        try:
            for file in unsaved.log_files:
                file.sync()
        except OSError as error:
            self.failure = (
                f"the disk failed to store the timer log ({error.strerror}): check it, then restart the broker"
            )
            raise FlushFailedError(self.failure) from error
        try:
            self.wheel.write(unsaved.wheel_pages)
            unsaved.checkpoint.store(self._disk, self._path, is_first=self._is_first_save)
        except OSError as error:
            raise DiskFaultError(f"the timer checkpoint cannot be written: {error.strerror or error}") from error
        self._is_first_save = False

    def on_saved(self, unsaved: Unsaved) -> None:
        self.saved = unsaved.checkpoint

    def give_back(self, unsaved: Unsaved) -> None:
        """Undo ``take_unsaved`` after a failed save."""
        self.log.give_back_unsynced(unsaved.log_files)
        self.wheel.give_back_unwritten(unsaved.wheel_pages)
