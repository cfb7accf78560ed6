"""Plain records of the log into queues and index by the thousand, where there is the compiled kernel.

It sees what ``scan`` sees and enters what ``Dispatcher.dispatch_seen`` enters, but only of records that are whole
and have nothing special about them. At the first that is anything else it ends, and whoever walks takes that one,
and perhaps some behind it, by the plain path. Damage, torn records and where a queue's numbering starts anew are
not known here.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import orbitmq.kernel
from orbitmq.store.consume_queue import ConsumeQueue
from orbitmq.store.dispatch import MULTI_DISPATCH

if TYPE_CHECKING:
    from orbitmq.kernel import _native
    from orbitmq.store.disk import Buffer
    from orbitmq.store.dispatch import Dispatcher
    from orbitmq.store.log_files import LogFiles
    from orbitmq.store.scan import Seen

WINDOW = 32 << 20
"""Bytes of the log for one run: what its records make for queues and index is some megabytes, and even with
thousands of queues each gets several records at once."""

FEW = 2
"""A run of fewer records costs as much as taking them one by one."""
MOST_ALONE = 256


@dataclasses.dataclass(slots=True)
class Run:
    """What was taken from some place on."""

    end: int
    """Where in the log it ends."""
    records: int = 0
    newest: int = 0
    """When the last record with a time was stored; 0 if there is none."""


class LogRuns:
    """Takes the records of a log into queues from one offset on, and into the index from another."""

    def __init__(
        self,
        runs: type[_native.LogRuns],
        files: LogFiles,
        dispatcher: Dispatcher,
        *,
        queued_from: int,
        indexed_from: int,
        check_crc: bool,
    ) -> None:
        self._files = files
        self._dispatcher = dispatcher
        self._queued_from = queued_from
        self._indexed_from = indexed_from
        self._check_crc = check_crc
        self._runs = runs(
            is_indexing=dispatcher.index is not None,
            delays=tuple(dispatcher.delays.values()),
            avoided=MULTI_DISPATCH if dispatcher.has_light_queues else None,
        )
        self._lanes: set[tuple[bytes, int]] = set()
        self.alone = 1
        """So many records should be taken one by one now. Where few are plain, this grows."""

    @classmethod
    def of(
        cls, files: LogFiles, dispatcher: Dispatcher, *, queued_from: int, indexed_from: int, check_crc: bool
    ) -> LogRuns | None:
        """None if the kernel is not there."""
        runs = orbitmq.kernel.LogRuns
        if runs is None:
            return None
        return cls(runs, files, dispatcher, queued_from=queued_from, indexed_from=indexed_from, check_crc=check_crc)

    def take(self, offset: int, end: int | None = None, step: int | None = None) -> Run:
        """Take what is plain from here to ``end`` or the end of a log file at most, and begins in so many bytes."""
        files, size = self._files, self._files.file_size
        base = offset - offset % size
        run = Run(offset)
        if base not in files:
            return run
        buffer: Buffer | memoryview = files.mapped(base).buffer
        if end is not None and end - base < size:
            # What is behind it is not there for whoever takes: a record may be half of one still.
            size = end - base
            buffer = memoryview(buffer)[:size]
        position, limit = offset - base, 0
        stop = size if step is None else min(position + step, size)
        while position >= limit and limit < stop:
            limit = min(position + WINDOW, stop)
            taken = self._runs.take(
                *(buffer, position, limit, base, self._queued_from, self._indexed_from, self._check_crc),
                self._dispatcher.on_arrival is not None,
            )
            position, records, newest, last, *_ = taken
            run.records += records
            run.newest = newest or run.newest
            if records:
                self._dispatcher.enter_walked(taken, is_queued=last >= self._queued_from)
        run.end = base + position
        self.alone = 1 if run.records >= FEW else min(2 * self.alone, MOST_ALONE)
        return run

    def learn(self, seen: Seen) -> None:
        """A record was taken by the plain path: from now on those of its queue can be taken here."""
        key = seen.topic, seen.queue_id
        # Two spellings of a topic that is not ASCII may lead to one queue.
        if key in self._lanes or not seen.topic.isascii():
            return
        name = seen.topic.decode("ascii")
        topic = self._dispatcher.table.topics.get(name)
        queue = None if topic is None else topic.queues.get(seen.queue_id)
        if topic is not None and isinstance(queue, ConsumeQueue):
            self._lanes.add(key)
            self._runs.add_lane(name, topic.field, seen.queue_id, 0, queue, False)
