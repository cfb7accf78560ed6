"""Archive barrier: how far the log is archived, which limits retention.

An archiver commits its progress to an ordinary consumer group (``archiveGroup``). The first message of a queue that
the group has not committed is a bound; the smallest bound of all queues is the end of the archived part of the log.
It is computed only when a file is about to be removed, and no further than necessary: a bound stays valid until the
check has to go beyond it, and the queue that gave it is checked first.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from orbitmq.protocol.names import DLQ_PREFIX, LMQ_PREFIX, RETRY_PREFIX, is_system_topic
from orbitmq.store.consumequeue.consume_queue import FILLER_SIZE
from orbitmq.store.retention.topic_pattern import topic_pattern

if TYPE_CHECKING:
    from orbitmq.store.consumequeue.table import Queue
    from orbitmq.store.message_store import MessageStore

logger = logging.getLogger(__name__)

Committed = Callable[[str, str, int], int]
"""Callback: the offset that a group has committed for a topic and a queue id; -1 if none."""

QUEUES_PER_ROUND = 10_000
"""Queues checked in one round, in some tens of milliseconds. The next round continues."""
OPENING = 10
"""Cost of a queue that must be opened first, which reads its files, in checked queues."""
MAX_NAMED = 20


@dataclasses.dataclass(frozen=True, slots=True)
class NotArchived:
    """Messages of a queue that are in the log and not archived: from an offset up to another."""

    topic: str
    queue_id: int
    start: int
    end: int

    def __str__(self) -> str:
        return f"{self.start} to {self.end - 1} of queue {self.queue_id} of {self.topic!r}"


class ArchivedLog:
    """The archived part of a store's log. Without ``archiveGroup`` everything counts as archived."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self.committed: Committed = lambda _group, _topic, _queue_id: -1
        """Set by the broker, which has the offset table. Until then nothing counts as archived."""
        self.is_own: Callable[[str], bool] = is_system_topic
        """Callback: is a topic internal? Set by the broker."""
        self._settings = ("", "")
        """The settings for which the cached state below is valid."""
        self._position = 0
        """Everything before this offset is archived."""
        self._bounding: tuple[str, int] | None = None
        """The queue with the first message that is not archived."""
        self._names: list[str] = []
        """Topics still to be checked."""
        self._left: list[tuple[str, int]] = []
        """Queues of the current topic still to be checked."""
        self._lowest = 0
        self._lowest_of: tuple[str, int] | None = None

    @property
    def is_wanted(self) -> bool:
        return bool(self._store.config.archive_group)

    def wants(self, topic: str) -> bool:
        """True if messages of a topic must be archived."""
        if self.is_own(topic) or topic.startswith(RETRY_PREFIX):
            return False
        pattern = self._store.config.archive_topics
        if pattern:
            return topic_pattern(pattern).matches(topic)
        return not topic.startswith((DLQ_PREFIX, LMQ_PREFIX))

    def reaches(self, end: int) -> bool:
        """True if all of the log before ``end`` is known to be archived."""
        config = self._store.config
        if not config.archive_group:
            return True
        if self._settings != (settings := (config.archive_group, config.archive_topics)):
            self._settings, self._position, self._bounding, self._names, self._left = settings, 0, None, [], []
        if end <= self._position:
            return True
        if self._bounding is not None:
            bound = self._bound(*self._bounding)
            if bound is not None and bound < end:
                return False
        self._look(end)
        return end <= self._position

    def reason(self) -> str:
        """The reason for the end of the archived part, for messages to people."""
        if self._bounding is None:
            return "queues are still being looked at"
        topic, queue_id = self._bounding
        group = self._store.config.archive_group
        return f"{group} has not archived all of queue {queue_id} of {topic!r}"

    def _look(self, end: int) -> None:
        """Check queues until all are done, one has an unarchived message before ``end``, or the round's limit is
        reached."""
        store = self._store
        if not self._left and not self._names:
            # Later records lie behind it, whichever queue they belong to.
            self._lowest, self._lowest_of = store.dispatcher.position, None
            self._names = list(store.queues.names())
        pattern = store.config.archive_topics
        cost = topic_pattern(pattern).cost if pattern else 1
        effort = 0
        while self._left or self._names:
            if effort >= QUEUES_PER_ROUND:
                self._bounding = None
                return
            if not self._left:
                topic_name = self._names.pop()
                effort += cost
                if self.wants(topic_name):
                    self._left = [(topic_name, queue_id) for queue_id in store.queues.queue_ids(topic_name)]
                continue
            name, queue_id = of = self._left[-1]
            topic = store.queues.topics.get(name)
            effort += 1 if topic is not None and queue_id in topic.queues else OPENING
            bound = self._bound(name, queue_id)
            if bound is not None and bound < self._lowest:
                self._lowest, self._lowest_of = bound, of
                if bound < end:
                    self._bounding = of
                    self._names, self._left = [], []
                    return
            self._left.pop()
        self._position, self._bounding = self._lowest, self._lowest_of

    def _bound(self, topic: str, queue_id: int) -> int | None:
        """Log offset of the first unarchived message of a queue; None if there is none or no queue."""
        queue = self._store.queues.find(topic, queue_id)
        return None if queue is None else _place(queue, self._first(queue))

    def _first(self, queue: Queue) -> int:
        """The first unarchived queue offset."""
        committed = self.committed(self._store.config.archive_group, queue.topic, queue.queue_id)
        # A queue that is shorter than what was archived was recreated under the same name.
        return queue.min_offset if committed > queue.max_offset else max(committed, queue.min_offset)

    def not_archived(self, end: int) -> list[NotArchived]:
        """Unarchived messages in the log before ``end``."""
        found = []
        for name in filter(self.wants, self._store.queues.names()):
            for queue_id in self._store.queues.queue_ids(name):
                queue = self._store.queues.get(name, queue_id)
                first = self._first(queue)
                place = _place(queue, first)
                if place is not None and place < end:
                    found.append(NotArchived(name, queue_id, first, _first_behind(queue, first, end)))
        return found

    def log_lost(self, path: str, end: int) -> None:
        """Log the messages that are lost with a file that ends at ``end``."""
        lost = self.not_archived(end)
        named = ", ".join(map(str, lost[:MAX_NAMED]))
        more = f" and of {len(lost) - MAX_NAMED} more queues" if len(lost) > MAX_NAMED else ""
        logger.error(
            "retention: the disk is full, %s is removed with messages that %s has not archived: the offsets %s%s",
            path,
            self._store.config.archive_group,
            named,
            more,
        )


def _place(queue: Queue, offset: int) -> int | None:
    """Log offset of the first message from a queue offset on; None if there is none."""
    end = queue.max_offset
    while offset < end:
        unit = queue.unit(offset)
        if unit is None:
            return None
        if unit[1] != FILLER_SIZE:
            return unit[0]
        offset += 1
    return None


def _first_behind(queue: Queue, low: int, log_offset: int) -> int:
    """The first queue offset from ``low`` on whose message is at or behind ``log_offset``."""
    high = queue.max_offset
    while low < high:
        middle = (low + high) // 2
        place = _place(queue, middle)
        if place is None or place >= log_offset:
            high = middle
        else:
            low = middle + 1
    return low
