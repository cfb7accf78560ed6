"""Runs of messages that the compiled kernel stores: how they get their place, and how the store hears of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orbitmq.kernel._native import (
        Acknowledged,
        AckRuns,
        Delivered,
        Deliveries,
        Entered,
        Piece,
        SendRuns,
        Stored,
    )
    from orbitmq.store.appending import Gate
    from orbitmq.store.clock import Clock
    from orbitmq.store.commit_log import CommitLog
    from orbitmq.store.disk import Buffer
    from orbitmq.store.dispatch import Dispatcher


class RunAppender:
    """Lets a kernel store what comes.

    ``takes_sends`` is False for a store whose records need more than the kernel does for them. What is made of
    other messages it stores only where records can be read as soon as they are stored (``takes_all``). Elsewhere
    records are shown later, as those of the general path are.
    """

    def __init__(
        self,
        log: CommitLog,
        dispatcher: Dispatcher,
        clock: Clock,
        gate: Gate,
        *,
        takes_sends: bool,
        shows_at_once: bool,
    ) -> None:
        self.takes_sends = takes_sends
        self.takes_all = takes_sends and shows_at_once
        self.shows_at_once = shows_at_once
        self._log = log
        self._dispatcher = dispatcher
        self._clock = clock
        self._gate = gate

    def append(
        self, kernel: SendRuns, received: list[tuple[bytes, bytes]]
    ) -> tuple[int, list[Piece], Stored] | None:
        """Store the sends that each of the bytes begins with, which came with their sender's address.

        Returns how many they were together, and what the kernel says; None if nothing can be stored in this way
        now.
        """
        if self._is_closed:
            return None
        now = self._clock.now_ms()
        pieces, stored = kernel.take(received, *self._log.writable_part(), now, self._is_heard)
        position, entered, hashes, offsets, last, _ = stored
        count = pieces[0][1] if len(pieces) == 1 else sum([piece[1] for piece in pieces])
        self._note(count, position, entered, hashes, offsets, last, now)
        return count, pieces, stored

    def acknowledge(self, kernel: AckRuns, data: bytes) -> Acknowledged | None:
        """Store the acknowledgements that data begins with; None if nothing can be stored in this way now."""
        if self._is_closed:
            return None
        now = self._clock.now_ms()
        taken = kernel.take(data, *self._log.writable_part(), now, self._is_heard)
        _, count, position, _, entered, hashes, offsets, last, _ = taken
        self._note(count, position, entered, hashes, offsets, last, now)
        return taken

    def deliver(
        self,
        kernel: Deliveries,
        positions: bytes,
        timer_log: Buffer,
        timer_base: int,
        offset: int,
        first: int,
        most_bytes: int,
    ) -> Delivered | None:
        """Store messages that waited, whose units are at these positions; None if that is not possible now.

        The record of the first one is at ``offset``. No record before ``first`` is taken, nor more than it takes to
        reach so many bytes.
        """
        source = self._source(offset, first)
        if source is None:
            return None
        now = self._clock.now_ms()
        place = self._log.writable_part()
        delivered = kernel.deliver(
            positions, timer_log, timer_base, *source, most_bytes, *place, now, self._is_heard
        )
        count, _, position, entered, hashes, offsets, last = delivered
        self._note(count, position, entered, hashes, offsets, last, now)
        return delivered

    def deliver_units(self, kernel: Deliveries, units: bytes, offset: int, first: int) -> Delivered | None:
        """The same for the units of a queue; the record of the first one is at ``offset``."""
        source = self._source(offset, first)
        if source is None:
            return None
        now = self._clock.now_ms()
        delivered = kernel.deliver_units(units, *source, *self._log.writable_part(), now, self._is_heard)
        count, _, position, entered, hashes, offsets, last = delivered
        self._note(count, position, entered, hashes, offsets, last, now)
        return delivered

    def _source(self, offset: int, first: int) -> tuple[Buffer, int, int, int] | None:
        """The file that has the record at an offset, where that file begins, and between which offsets records are
        taken from it; None if nothing can be stored in this way now.
        """
        log = self._log
        buffer = None if self._is_closed else log.files.buffer_at(offset)
        return None if buffer is None else (buffer, offset - offset % log.file_size, first, log.committed)

    @property
    def _is_closed(self) -> bool:
        dispatcher = self._dispatcher
        return (
            self._gate.reason is not None
            or dispatcher.fault is not None
            or (self.shows_at_once and dispatcher.position != self._log.end)
        )

    @property
    def _is_heard(self) -> bool:
        return self._dispatcher.on_arrival is not None

    def _note(
        self, count: int, position: int, entered: Entered, hashes: bytes, offsets: bytes, last: int, now: int
    ) -> None:
        if not count:
            return
        log, dispatcher = self._log, self._dispatcher
        start = log.end
        log.advance(position, now)
        if not self.shows_at_once:
            return
        dispatcher.note_entered(entered, now)
        dispatcher.index_hashed(start, last, now, count, hashes, offsets)
        dispatcher.position = log.end
