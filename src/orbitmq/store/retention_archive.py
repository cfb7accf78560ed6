"""How far the log is archived: what retention asks before a file goes.

An archiver commits what it has stored elsewhere to an ordinary consumer group (``archiveGroup``). The first message
of a queue that the group has not committed bounds what may go; the smallest bound of all queues is where the
archived part of the log ends. That is looked for only when a file is about to go, and no further than needed: a
bound that was found holds until the log has to be looked at beyond it, and the queue that gave it is asked first.
"""

from __future__ import annotations

import dataclasses
import logging
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from orbitmq.protocol.names import DLQ_PREFIX, LMQ_PREFIX, RETRY_PREFIX, is_system_topic
from orbitmq.store.consume_queue import FILLER_SIZE

if TYPE_CHECKING:
    from orbitmq.store.message_store import MessageStore
    from orbitmq.store.queue_table import Queue

logger = logging.getLogger(__name__)

Committed = Callable[[str, str, int], int]
"""What a group has committed for a topic and a queue id; -1 if nothing."""

QUEUES_PER_ROUND = 10_000
"""Looked at in one round, which takes some tens of milliseconds. The next round goes on with the others."""
OPENING = 10
"""What a queue counts that has to be opened first, which reads its files."""
MOST_NAMED = 20


@dataclasses.dataclass(frozen=True, slots=True)
class NotArchived:
    """Messages of a queue that are in the log and not in an archive: from an offset up to another."""

    topic: str
    queue_id: int
    start: int
    end: int

    def __str__(self) -> str:
        return f"{self.start} to {self.end - 1} of queue {self.queue_id} of {self.topic!r}"


class ArchivedLog:
    """The archived part of a store's log. Everything is archived, where nothing has to be."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self.committed: Committed = lambda _group, _topic, _queue_id: -1
        """Given by the broker, whose table of offsets it is. Until then nothing is archived."""
        self.is_own: Callable[[str], bool] = is_system_topic
        """Whether a topic is the broker's own. Given by the broker, which knows its names."""
        self._asked = ("", "")
        """The settings for which the rest holds."""
        self._position = 0
        """Everything before it is archived."""
        self._bounding: tuple[str, int] | None = None
        """The queue that has the first message which is not."""
        self._left: list[tuple[str, int]] = []
        """Queues that are still to be looked at."""
        self._lowest = 0
        self._lowest_of: tuple[str, int] | None = None

    @property
    def is_wanted(self) -> bool:
        return bool(self._store.config.archive_group)

    def wants(self, topic: str) -> bool:
        """Whether messages of a topic have to be archived."""
        if self.is_own(topic) or topic.startswith(RETRY_PREFIX):
            return False
        pattern = self._store.config.archive_topics
        if pattern:
            return re.fullmatch(pattern, topic) is not None
        return not topic.startswith((DLQ_PREFIX, LMQ_PREFIX))

    def reaches(self, end: int) -> bool:
        """Whether all of the log before ``end`` is known to be archived."""
        config = self._store.config
        if not config.archive_group:
            return True
        if self._asked != (asked := (config.archive_group, config.archive_topics)):
            self._asked, self._position, self._bounding, self._left = asked, 0, None, []
        if end <= self._position:
            return True
        if self._bounding is not None:
            bound = self._bound(*self._bounding)
            if bound is not None and bound < end:
                return False
        self._look(end)
        return end <= self._position

    def reason(self) -> str:
        """What the end of the archived part comes from, in words."""
        if self._bounding is None:
            return "queues are still being looked at"
        topic, queue_id = self._bounding
        group = self._store.config.archive_group
        return f"{group} has not archived all of queue {queue_id} of {topic!r}"

    def _look(self, end: int) -> None:
        """Look at queues until all are seen, one has a message before ``end``, or it is enough for this round."""
        store = self._store
        if not self._left:
            # What comes from here on lies behind it, whichever queue it belongs to.
            self._lowest, self._lowest_of = store.dispatcher.position, None
            names = [name for name in store.queues.names() if self.wants(name)]
            self._left = [(name, queue_id) for name in names for queue_id in store.queues.queue_ids(name)]
        effort = 0
        while self._left:
            if effort >= QUEUES_PER_ROUND:
                self._bounding = None
                return
            name, queue_id = of = self._left[-1]
            topic = store.queues.topics.get(name)
            effort += 1 if topic is not None and queue_id in topic.queues else OPENING
            bound = self._bound(name, queue_id)
            if bound is not None and bound < self._lowest:
                self._lowest, self._lowest_of = bound, of
                if bound < end:
                    self._bounding = of
                    self._left = []
                    return
            self._left.pop()
        self._position, self._bounding = self._lowest, self._lowest_of

    def _bound(self, topic: str, queue_id: int) -> int | None:
        """Where the first message of a queue lies that is not archived; None if all are, or there is no queue."""
        queue = self._store.queues.find(topic, queue_id)
        return None if queue is None else _place(queue, self._first(queue))

    def _first(self, queue: Queue) -> int:
        """The first offset that is not archived."""
        committed = self.committed(self._store.config.archive_group, queue.topic, queue.queue_id)
        # A queue that is shorter than what was archived is another one of the same name.
        return queue.min_offset if committed > queue.max_offset else max(committed, queue.min_offset)

    def not_archived(self, end: int) -> list[NotArchived]:
        """What of the log before ``end`` is not archived."""
        found = []
        for name in filter(self.wants, self._store.queues.names()):
            for queue_id in self._store.queues.queue_ids(name):
                queue = self._store.queues.get(name, queue_id)
                first = self._first(queue)
                place = _place(queue, first)
                if place is not None and place < end:
                    found.append(NotArchived(name, queue_id, first, _first_behind(queue, first, end)))
        return found

    def tell_lost(self, path: str, end: int) -> None:
        """Say which messages go with a file that ends at ``end``."""
        lost = self.not_archived(end)
        named = ", ".join(map(str, lost[:MOST_NAMED]))
        more = f" and of {len(lost) - MOST_NAMED} more queues" if len(lost) > MOST_NAMED else ""
        logger.error(
            "the disk is full, and %s goes with messages that %s has not archived: the offsets %s%s",
            path,
            self._store.config.archive_group,
            named,
            more,
        )


def _place(queue: Queue, offset: int) -> int | None:
    """Where the first message from an offset on lies in the log; None if there is none."""
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
    """The first offset of a queue from ``low`` on whose message lies at ``log_offset`` or behind it."""
    high = queue.max_offset
    while low < high:
        middle = (low + high) // 2
        place = _place(queue, middle)
        if place is None or place >= log_offset:
            high = middle
        else:
            low = middle + 1
    return low
