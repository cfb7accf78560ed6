"""Repairs consume queue units that point to no record of the queue, from the log.

A flipped bit or a truncated file makes units wrong while the log is whole. A reader that finds such a unit reports
it here and stops there: skipping it would lose the message for its consumer. The records lie in the log between
those of the good units around them, so only that part of the log is scanned. A unit whose record is not there
becomes a filler, which readers skip.

``collect`` only reads and may run in a worker thread; ``begin`` and ``finish`` run in the store's thread. A store
without a service repairs immediately, because it has no thread for that.
"""

from __future__ import annotations

import dataclasses
import logging
from typing import TYPE_CHECKING

from orbitmq.protocol.java import tags_code
from orbitmq.protocol.message.properties import index_fields
from orbitmq.protocol.names import LMQ_PREFIX
from orbitmq.store.commitlog.scanner import Blank, LogView, Seen
from orbitmq.store.consumequeue.consume_queue import FILLER, FILLER_SIZE, UNIT, UNIT_SIZE, ConsumeQueue

if TYPE_CHECKING:
    from orbitmq.native.buffer import Buffer
    from orbitmq.store.commitlog.mapped_files import LogFiles
    from orbitmq.store.consumequeue.table import Queue
    from orbitmq.store.dispatch.dispatcher import Dispatcher

logger = logging.getLogger(__name__)

MAX_PENDING = 1024
"""Ranges that wait to be repaired; readers of more report them again later."""
NEIGHBOURS = 64
"""Units examined in each direction to find a good one."""


@dataclasses.dataclass(slots=True)
class Repair:
    """A range of units of one queue, and the part of the log that holds their records."""

    queue: ConsumeQueue
    first: int
    stop: int
    start: int
    end: int
    parts: list[tuple[int, Buffer]]
    """Files of the log, by their first offset."""
    found: dict[int, tuple[int, int, int]] = dataclasses.field(default_factory=dict)
    """By queue offset: physical offset, size and tags code."""


class QueueRepairs:
    """Queue of pending repairs, with counters."""

    def __init__(self, files: LogFiles, dispatcher: Dispatcher) -> None:
        self._files = files
        self._dispatcher = dispatcher
        self._waiting: dict[tuple[str, int], tuple[ConsumeQueue, int, int]] = {}
        self.is_deferred = False
        """True if a background service calls ``begin``, ``collect`` and ``finish``."""
        self.repaired = 0
        """Units rewritten from the log."""
        self.lost = 0
        """Units whose records are not in the log: readers skip them."""

    def repair_index(self) -> None:
        """Add the records that the index lacks. Called before the index is queried.

        Not left to the next append: where none comes, as after a recovery, nothing else would retry.
        """
        if self._dispatcher.index_missing_from is not None:
            self._dispatcher.repair_index(self._files)

    def report(self, queue: Queue, first: int, stop: int) -> bool:
        """Report wrong units; False if they cannot be repaired and a reader should skip them."""
        if not isinstance(queue, ConsumeQueue):
            return False
        stop = min(stop, queue.tail_start)
        if first >= stop or queue.topic.startswith(LMQ_PREFIX):
            return False  # in memory, or of a queue whose records name others
        key = queue.topic, queue.queue_id
        known = self._waiting.get(key)
        if known is not None and known[0] is queue:
            self._waiting[key] = queue, min(first, known[1]), max(stop, known[2])
            return True
        if len(self._waiting) >= MAX_PENDING:
            return True
        logger.error(
            "consume queue %s/%d: units %d to %d point to no record of it, repairing them from the log",
            queue.topic, queue.queue_id, first, stop - 1,
        )  # fmt: skip
        self._waiting[key] = queue, first, stop
        return True

    @property
    def is_wanted(self) -> bool:
        return bool(self._waiting)

    def repair_all(self) -> None:
        """Run all pending repairs in one go."""
        while self._waiting:
            repair = self.begin()
            if repair is not None:
                self.collect(repair)
                self.finish(repair)

    def begin(self) -> Repair | None:
        """Start one repair; None if its queue is gone."""
        queue, first, stop = self._waiting.pop(next(iter(self._waiting)))
        topic = self._dispatcher.table.topics.get(queue.topic)
        if topic is None or topic.queues.get(queue.queue_id) is not queue:
            return None
        first, stop = max(first, queue.first), min(stop, queue.tail_start)
        if first >= stop:
            return None
        first, stop = self._with_empty(queue, first, stop)
        start = self._good_end_before(queue, first)
        end = self._good_start_behind(queue, stop)
        size = self._files.file_size
        parts = [
            (base, self._files.mapped(base).buffer)
            for base in self._files.bases
            if base + size > start and base < end
        ]
        return Repair(queue, first, stop, start, end, parts)

    @staticmethod
    def _with_empty(queue: ConsumeQueue, first: int, stop: int) -> tuple[int, int]:
        """Extend a range by adjacent missing units: a truncated file has many."""

        def is_empty(number: int) -> bool:
            unit = queue.unit(number)
            return unit is None or unit[1] <= 0

        while first > max(queue.first, queue.min_offset) and is_empty(first - 1):
            first -= 1
        while stop < queue.tail_start and is_empty(stop):
            stop += 1
        return first, stop

    def _good_end_before(self, queue: ConsumeQueue, number: int) -> int:
        for before in range(number - 1, max(queue.min_offset, number - 1 - NEIGHBOURS) - 1, -1):
            unit = queue.unit(before)
            if unit is not None and self._is_good(queue, before, unit):
                return unit[0] + unit[1]
        return self._files.start

    def _good_start_behind(self, queue: ConsumeQueue, number: int) -> int:
        for behind in range(number, min(queue.end, number + NEIGHBOURS)):
            unit = queue.unit(behind)
            if unit is not None and self._is_good(queue, behind, unit):
                return unit[0]
        return self._dispatcher.position

    def _is_good(self, queue: ConsumeQueue, number: int, unit: tuple[int, int, int]) -> bool:
        offset, size, _ = unit
        if size <= 0 or size == FILLER_SIZE or offset < 0:
            return False
        buffer = self._files.buffer_at(offset)
        base = offset - offset % self._files.file_size
        if buffer is None:
            return False
        seen = LogView(base, buffer).look(offset - base, check_crc=False)
        return (
            isinstance(seen, Seen)
            and (seen.size, seen.queue_id, seen.queue_offset) == (size, queue.queue_id, number)
            and seen.topic == queue.topic.encode("utf-8", "replace")
        )

    def collect(self, repair: Repair) -> None:
        """Find the records in the log. Blocks while it scans that part of the log."""
        topic = repair.queue.topic.encode("utf-8", "replace")
        wanted = repair.queue.queue_id, range(repair.first, repair.stop)
        for base, buffer in repair.parts:
            view = LogView(base, buffer)
            position = max(repair.start - base, 0)
            while position < view.size and base + position < repair.end:
                seen = view.look(position, check_crc=False)
                if isinstance(seen, Blank):
                    break
                if not isinstance(seen, Seen):
                    behind = view.next_record(position, 0, [(position, view.size)])
                    if behind is None:
                        break
                    position = behind
                    continue
                position += seen.size
                if seen.topic == topic and seen.queue_id == wanted[0] and seen.queue_offset in wanted[1]:
                    repair.found[seen.queue_offset] = seen.offset, seen.size, self.code_of(repair.queue, seen)

    def code_of(self, queue: Queue, seen: Seen) -> int:
        """The tags code that the unit of a record has."""
        tags, _, _ = index_fields(seen.properties)
        code = tags_code(tags) if tags else 0
        topic = self._dispatcher.table.topics.get(queue.topic)
        if topic is not None and topic.is_schedule:
            code = self._dispatcher.delivery_time(seen.properties, seen.store_timestamp, code)
        return code

    def finish(self, repair: Repair) -> None:
        """Write the units. Those without a record in the log become fillers."""
        queue, first, stop = repair.queue, repair.first, repair.stop
        stop = min(stop, queue.tail_start)
        if first < queue.first or first >= stop:
            return
        units = b"".join(
            [
                UNIT.pack(*repair.found[number]) if number in repair.found else FILLER
                for number in range(first, stop)
            ]
        )
        queue.overwrite(first, units)
        self._dispatcher.mark_unsynced(queue)
        lost = sum(number not in repair.found for number in range(first, stop))
        self.repaired += stop - first - lost
        self.lost += lost
        (logger.error if lost else logger.warning)(
            "consume queue %s/%d: units %d to %d repaired from the log, %d of them without a record",
            queue.topic, queue.queue_id, first, stop - 1, lost,
        )  # fmt: skip
        if self._dispatcher.on_arrival is not None:
            # Notify readers that wait behind the wrong units.
            code = UNIT.unpack(units[-UNIT_SIZE:])[2]
            self._dispatcher.on_arrival(queue, code, self._dispatcher.last_store_timestamp)
