"""Runs of messages that the compiled kernel stores: how they get their place, and how the store hears of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orbitmq.kernel._native import SendRuns, Taken
    from orbitmq.store.appending import Gate
    from orbitmq.store.clock import Clock
    from orbitmq.store.commit_log import CommitLog
    from orbitmq.store.dispatch import Dispatcher


class RunAppender:
    """Lets a kernel store what comes, where records can be read as soon as they are stored.

    ``is_possible`` is False for a store whose records need more than the kernel does for them.
    """

    def __init__(
        self, log: CommitLog, dispatcher: Dispatcher, clock: Clock, gate: Gate, *, is_possible: bool
    ) -> None:
        self.is_possible = is_possible
        self._log = log
        self._dispatcher = dispatcher
        self._clock = clock
        self._gate = gate

    def append(self, kernel: SendRuns, data: bytes, born_host: bytes) -> Taken | None:
        """Store the sends that data begins with; None if nothing can be stored in this way now."""
        log, dispatcher = self._log, self._dispatcher
        start = log.end
        if self._gate.reason is not None or dispatcher.fault is not None or dispatcher.position != start:
            return None
        now = self._clock.now_ms()
        taken = kernel.take(data, *log.writable_part(), now, born_host)
        _, count, position, _, runs, hashes, offsets, last, _ = taken
        if count:
            log.advance(position, now)
            for queue, _, _, first, units, stop, code, _ in runs:
                dispatcher.enter_run(queue, first, units, stop, code, now)
            dispatcher.index_hashed(start, last, now, count, hashes, offsets)
            dispatcher.position = log.end
        return taken
