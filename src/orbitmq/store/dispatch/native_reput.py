"""Native reput: dispatches whole, plain records of the log to consume queues and index, some thousand per call.

Reads what ``scan`` reads and enters what ``Dispatcher.dispatch_scanned`` enters. At the first record that is not
whole and plain it stops, and the caller dispatches that one, and perhaps some behind it, on the Python path.
Damaged and torn records and a queue whose numbering starts again are for the Python path only.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from orbitmq import native
from orbitmq.store.consumequeue.consume_queue import ConsumeQueue
from orbitmq.store.dispatch.dispatcher import MULTI_DISPATCH

if TYPE_CHECKING:
    from orbitmq.native.buffer import Buffer
    from orbitmq.store.commitlog.mapped_files import LogFiles
    from orbitmq.store.commitlog.scanner import Seen
    from orbitmq.store.dispatch.dispatcher import Dispatcher

WINDOW = 32 << 20
"""Bytes of the log per native call: what its records make for queues and index is some megabytes, and even with
thousands of queues each gets several records per call."""

MIN_BATCH = 2
"""A native call for fewer records costs as much as dispatching them one by one."""
MAX_ALONE = 256


@dataclasses.dataclass(slots=True)
class ReputProgress:
    """Records that were dispatched natively from one offset on."""

    end: int
    """Offset of the first record that was not dispatched."""
    records: int = 0
    newest: int = 0
    """Store timestamp of the last record that has one; 0 if there is none."""


class NativeReput:
    """Dispatches the records of a log to queues from one offset on, and to the index from another."""

    def __init__(
        self, files: LogFiles, dispatcher: Dispatcher, *, queued_from: int, indexed_from: int, check_crc: bool
    ) -> None:
        self._files = files
        self._dispatcher = dispatcher
        self._queued_from = queued_from
        self._indexed_from = indexed_from
        self._check_crc = check_crc
        self._replayer = native.load().log_replayer(
            is_indexing=dispatcher.index is not None,
            delays=tuple(dispatcher.delays.values()),
            avoided=MULTI_DISPATCH if dispatcher.has_lmqs else None,
        )
        self._routes: set[tuple[bytes, int]] = set()
        self.alone = 1
        """Records to dispatch on the Python path before the next native call. Grows while few records are plain."""

    @classmethod
    def of(
        cls, files: LogFiles, dispatcher: Dispatcher, *, queued_from: int, indexed_from: int, check_crc: bool
    ) -> NativeReput | None:
        """None without the native extension."""
        if not native.load().is_compiled:
            return None
        return cls(files, dispatcher, queued_from=queued_from, indexed_from=indexed_from, check_crc=check_crc)

    def take(self, offset: int, end: int | None = None, step: int | None = None) -> ReputProgress:
        """Dispatch plain records from ``offset`` on that begin within ``step`` bytes.

        Stops at ``end`` and at the end of the log file.
        """
        files, size = self._files, self._files.file_size
        base = offset - offset % size
        result = ReputProgress(offset)
        if base not in files:
            return result
        buffer: Buffer | memoryview = files.mapped(base).buffer
        if end is not None and end - base < size:
            # Bytes behind ``end`` are not valid yet: they may be a part of a record.
            size = end - base
            buffer = memoryview(buffer)[:size]
        position, limit = offset - base, 0
        stop = size if step is None else min(position + step, size)
        while position >= limit and limit < stop:
            limit = min(position + WINDOW, stop)
            replayed = self._replayer.replay(
                *(buffer, position, limit, base, self._queued_from, self._indexed_from, self._check_crc),
                self._dispatcher.on_arrival is not None,
            )
            position = replayed.position
            result.records += replayed.record_count
            result.newest = replayed.newest or result.newest
            if replayed.record_count:
                self._dispatcher.enter_replayed(replayed, is_queued=replayed.last >= self._queued_from)
        result.end = base + position
        self.alone = 1 if result.records >= MIN_BATCH else min(2 * self.alone, MAX_ALONE)
        return result

    def learn(self, seen: Seen) -> None:
        """Open a route for the queue of a record that the Python path dispatched."""
        key = seen.topic, seen.queue_id
        # Two spellings of a topic that is not ASCII may lead to one queue.
        if key in self._routes or not seen.topic.isascii():
            return
        name = seen.topic.decode("ascii")
        if seen.offset < self._dispatcher.deleted.get(name, 0):
            return
        topic = self._dispatcher.table.topics.get(name)
        queue = None if topic is None else topic.queues.get(seen.queue_id)
        if topic is not None and isinstance(queue, ConsumeQueue):
            self._routes.add(key)
            self._replayer.add_route(name, topic.field, seen.queue_id, 0, queue, False)
