"""Delayed dispatch: enters records into queues that became visible after their append (SYNC_FLUSH, replicas)."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from orbitmq.store.commitlog.scanner import Seen, walk
from orbitmq.store.dispatch.native_reput import NativeReput

if TYPE_CHECKING:
    from orbitmq.store.commitlog.mapped_files import LogFiles
    from orbitmq.store.dispatch.dispatcher import Dispatcher

STEP = 1 << 20
"""Bytes of the log per native call: some thousand records, in about a millisecond."""


class Reput:
    """Dispatches the records of the log from the dispatcher's position on to consume queues and index."""

    def __init__(self, files: LogFiles, dispatcher: Dispatcher) -> None:
        self._files = files
        self._dispatcher = dispatcher
        self._runs: NativeReput | None = None
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
            dispatcher.record_fault("read", error)
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
            dispatcher.dispatch_scanned(seen)
            dispatcher.position = seen.offset + seen.size
            found += 1
            if runs is not None:
                runs.learn(seen)
        if found < most and not end % self._files.file_size:
            # Past the blank. While only a part of a blank has come, its beginning is where to look again.
            dispatcher.position = max(dispatcher.position, end)
        return count + found, found < most

    def _known_runs(self) -> NativeReput | None:
        """The native reput with its routes; a new one, without routes, after queues were removed."""
        removals = self._dispatcher.table.removals
        if self._removals != removals:
            self._removals = removals
            self._runs = NativeReput.of(
                self._files, self._dispatcher, queued_from=0, indexed_from=0, check_crc=False
            )
        return self._runs
