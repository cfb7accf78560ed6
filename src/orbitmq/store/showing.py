"""Records that are shown some time after they were appended, as those are that have to be on the disk first."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from orbitmq.store.log_runs import LogRuns
from orbitmq.store.scan import Seen, walk

if TYPE_CHECKING:
    from orbitmq.store.dispatch import Dispatcher
    from orbitmq.store.log_files import LogFiles

STEP = 1 << 20
"""Bytes of the log that the kernel takes at once: it sees some thousand records of it in a millisecond."""


class Showing:
    """Lets queues and index follow the log from the dispatcher's position on."""

    def __init__(self, files: LogFiles, dispatcher: Dispatcher) -> None:
        self._files = files
        self._dispatcher = dispatcher
        self._runs: LogRuns | None = None
        self._removals = -1

    def catch_up(self, end: int, most: int) -> int:
        """Dispatch what the log holds up to ``end``, but of more than ``most`` records not all; returns how many.

        Bytes that are no record end it, without an error: the rest of a replica's record has not come yet.
        """
        dispatcher, count = self._dispatcher, 0
        try:
            while count < most and dispatcher.position < end:
                taken, is_over = self._step(end, most - count)
                count += taken
                if is_over:
                    break
        except OSError as error:
            dispatcher.note_fault("read", error)
        return count

    def _step(self, end: int, most: int) -> tuple[int, bool]:
        """Dispatch some records; how many, and whether there are no more."""
        dispatcher, runs, count = self._dispatcher, self._known_runs(), 0
        if runs is not None:
            stop = min(end, dispatcher.position + STEP)
            run = runs.take(dispatcher.position, end, STEP)
            dispatcher.position, count = run.end, run.records
            if run.end >= stop:
                return count, False
            most = runs.alone
        found = 0
        for seen in itertools.islice(walk(self._files, dispatcher.position, end, check_crc=False), most):
            if not isinstance(seen, Seen) or seen.offset + seen.size > end:
                return count + found, True
            dispatcher.dispatch_seen(seen)
            dispatcher.position = seen.offset + seen.size
            found += 1
            if runs is not None:
                runs.learn(seen)
        if found < most and not end % self._files.file_size:
            # Past the blank. While only a part of a blank has come, its beginning is where to look again.
            dispatcher.position = max(dispatcher.position, end)
        return count + found, found < most

    def _known_runs(self) -> LogRuns | None:
        """The kernel's, with the queues that it knows; without any after some were removed."""
        removals = self._dispatcher.table.removals
        if self._removals != removals:
            self._removals = removals
            self._runs = LogRuns.of(self._files, self._dispatcher, queued_from=0, indexed_from=0, check_crc=False)
        return self._runs
