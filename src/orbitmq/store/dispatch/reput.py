"""Delayed dispatch: enters records into queues that became visible after their append (SYNC_FLUSH, replicas)."""

from __future__ import annotations

import itertools
import logging
from typing import TYPE_CHECKING

from orbitmq.store.commitlog.scanner import Seen, walk
from orbitmq.store.dispatch.native_reput import NativeReput, ReputProgress

if TYPE_CHECKING:
    from orbitmq.store.commitlog.mapped_files import LogFiles
    from orbitmq.store.dispatch.dispatcher import Dispatcher

logger = logging.getLogger(__name__)

MAX_ATTEMPTS = 3
"""Attempts at a record that cannot be dispatched for an unknown reason, before it is skipped."""

STEP = 1 << 20
"""Bytes of the log per native call: some thousand records, in about a millisecond."""


class Reput:
    """Dispatches the records of the log from the dispatcher's position on to consume queues and index."""

    def __init__(self, files: LogFiles, dispatcher: Dispatcher) -> None:
        self._files = files
        self._dispatcher = dispatcher
        self._runs: NativeReput | None = None
        self._removals = -1
        self._failing = (-1, 0)
        """Offset of the record that failed last, and its attempts."""
        self.skipped = 0
        """Records that could not be dispatched: their queues lack them until the next rebuild."""

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
            run = self._take_natively(runs, end)
            dispatcher.position, count = run.end, run.records
            if run.end >= stop:
                return count, False
            most = runs.alone
        found = 0
        for seen in itertools.islice(walk(self._files, dispatcher.position, end, check_crc=False), most):
            if not isinstance(seen, Seen) or seen.offset + seen.size > end:
                return count + found, True
            self._dispatch(seen)
            dispatcher.position = seen.offset + seen.size
            found += 1
            if runs is not None:
                runs.learn(seen)
        if found < most and not end % self._files.file_size:
            # Past the blank. While only a part of a blank has come, its beginning is where to look again.
            dispatcher.position = max(dispatcher.position, end)
        return count + found, found < most

    def _take_natively(self, runs: NativeReput, end: int) -> ReputProgress:
        """Dispatch records natively; none if that failed here before: the Python path finds the record."""
        position = self._dispatcher.position
        if self._failing[0] >= position:
            return ReputProgress(position)
        try:
            return runs.take(position, end, STEP)
        except OSError:
            raise
        except Exception:
            logger.exception("reput: the native path failed at %d, going on record by record", position)
            self._failing = position + STEP, 0
            return ReputProgress(position)

    def _dispatch(self, seen: Seen) -> None:
        """Dispatch a record, or skip it after some attempts: one bad record must not hide all behind it."""
        try:
            self._dispatcher.dispatch_scanned(seen)
        except OSError:
            raise
        except Exception as error:
            offset, attempts = self._failing
            attempts = attempts + 1 if offset == seen.offset else 1
            self._failing = seen.offset, attempts
            if attempts < MAX_ATTEMPTS:
                raise
            self.skipped += 1
            logger.exception(
                "reput: skipped the record at %d of %r queue %d after %d attempts: %s",
                seen.offset, seen.topic, seen.queue_id, attempts, type(error).__name__,
            )  # fmt: skip

    def _known_runs(self) -> NativeReput | None:
        """The native reput with its routes; a new one, without routes, after queues were removed."""
        removals = self._dispatcher.table.removals
        if self._removals != removals:
            self._removals = removals
            self._runs = NativeReput.of(
                self._files, self._dispatcher, queued_from=0, indexed_from=0, check_crc=False
            )
        return self._runs
