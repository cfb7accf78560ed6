"""Table of consume queues by topic and queue id; queues are opened at first use."""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING

from orbitmq.protocol.message.record import MAX_TOPIC_SIZE_V1, topic_field
from orbitmq.protocol.names import LMQ_PREFIX, RETRY_PREFIX, SCHEDULE_TOPIC
from orbitmq.store.consumequeue.batch_consume_queue import FILLER as BATCH_FILLER
from orbitmq.store.consumequeue.batch_consume_queue import BatchConsumeQueue
from orbitmq.store.consumequeue.consume_queue import FILLER, ConsumeQueue
from orbitmq.store.errors import AppendRefusedError, PutStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from orbitmq.platform.disk import Disk
    from orbitmq.store.config import StoreConfig

Queue = ConsumeQueue | BatchConsumeQueue

MAX_RETRY_TOPIC_SIZE = 255

MAX_TOPICS_SIZED = 100
MAX_QUEUES_SIZED = 20
"""Number of topics, and of queues of each, whose files are checked against the configured size."""


class Topic:
    """Store state of a topic."""

    __slots__ = ("field", "is_batch", "is_schedule", "name", "on_disk", "queues", "version_2")

    def __init__(self, name: str, *, is_batch: bool, auto_version: bool) -> None:
        encoded = name.encode("utf-8", "replace")
        self.name = name
        # RocketMQ chooses the version by characters, not bytes; a topic that is longer in bytes than a version 1
        # record can hold is refused before it comes here.
        self.version_2 = auto_version and len(name) > MAX_TOPIC_SIZE_V1
        self.field = topic_field(encoded, version_2=self.version_2)
        self.is_schedule = name == SCHEDULE_TOPIC
        self.is_batch = is_batch
        self.queues: dict[int, Queue] = {}
        self.on_disk: set[int] = set()
        """Queue ids that have a directory and are not opened yet."""


class QueueTable:
    """Topics and their queues. A queue that is never used costs a directory entry on disk and no memory."""

    def __init__(self, disk: Disk, config: StoreConfig) -> None:
        self.disk = disk
        self._config = config
        self.root = self._plain_root = config.path("consumequeue")
        self._batch_root = config.path("batchconsumequeue")
        self.topics: dict[str, Topic] = {}
        self._unlisted: dict[str, bool] = {}
        """Topics found on disk whose queues are not listed yet, and whether they are batch topics."""
        self.batch_topics: set[str] = set()
        self.resumes_at: dict[tuple[str, int], int] = {}
        """By topic and queue id, the offset at which numbering continued behind records lost with their log
        file."""
        self._sizes_fit: dict[str, bool] = {}
        self.removals = 0
        """Incremented when queues are removed; invalidates cached queues."""
        self.removal_listeners: list[Callable[[], None]] = []
        """Called before queues are removed: references to them become invalid."""
        self.open_queue: Callable[[Queue], None] = lambda _queue: None
        """Set by the owner: prepares a queue that has files for use."""

    def load(self) -> None:
        """Find the topics on disk."""
        for root, is_batch in ((self._plain_root, False), (self._batch_root, True)):
            for name in self.disk.list(root):
                self._unlisted[name] = is_batch
                if is_batch:
                    self.batch_topics.add(name)

    def topic(self, name: str) -> Topic:
        """The topic of this name; creates it. Refuses names that no record can carry."""
        topic = self.topics.get(name)
        if topic is None:
            self._check(name)
            is_batch = self._unlisted.pop(name, name in self.batch_topics)
            topic = Topic(name, is_batch=is_batch, auto_version=self._config.auto_message_version_on_topic_len)
            directory = os.path.join(self._batch_root if is_batch else self._plain_root, name)
            topic.on_disk.update(int(entry) for entry in self.disk.list(directory) if entry.isdigit())
            self.topics[name] = topic
        return topic

    def _check(self, name: str) -> None:
        size = len(name.encode("utf-8", "replace"))
        is_retry = name.startswith(RETRY_PREFIX)
        if not name or "/" in name or "\0" in name or name in {".", ".."}:
            raise AppendRefusedError(PutStatus.MESSAGE_ILLEGAL, f"{name!r} cannot be the name of a topic")
        if size > MAX_RETRY_TOPIC_SIZE or (size > MAX_TOPIC_SIZE_V1 and not is_retry):
            raise AppendRefusedError(
                PutStatus.MESSAGE_ILLEGAL, f"the name of topic {name[:40]}… has {size} bytes, 127 are allowed"
            )
        has_version_2 = self._config.auto_message_version_on_topic_len and len(name) > MAX_TOPIC_SIZE_V1
        if size > MAX_TOPIC_SIZE_V1 and not has_version_2:
            raise AppendRefusedError(
                PutStatus.MESSAGE_ILLEGAL, f"topic {name!r} is longer in bytes than its record version can say"
            )

    def get(self, name: str, queue_id: int) -> Queue:
        """A queue; creates it."""
        topic = self.topic(name)
        queue = topic.queues.get(queue_id)
        if queue is None:
            if queue_id < 0:
                raise AppendRefusedError(PutStatus.MESSAGE_ILLEGAL, f"queue id {queue_id} is negative")
            directory, is_batch, size = self.files_of(name, queue_id)
            if is_batch:
                queue = BatchConsumeQueue(self.disk, directory, name, queue_id, size)
            else:
                queue = ConsumeQueue(self.disk, directory, name, queue_id, size)
                queue.resumes_at = self.resumes_at.get((name, queue_id), -1)
            if queue_id in topic.on_disk:
                root = self._batch_root if is_batch else self._plain_root
                queue.may_be_short = functools.partial(self._has_file_of_size, root, size)
                self.open_queue(queue)
                topic.on_disk.discard(queue_id)
            topic.queues[queue_id] = queue
        return queue

    def files_of(self, name: str, queue_id: int) -> tuple[str, bool, int]:
        """Directory of a queue, whether it is a batch queue, and its file size."""
        is_batch, config = self.topic(name).is_batch, self._config
        directory = os.path.join(self._batch_root if is_batch else self._plain_root, name, str(queue_id))
        size = config.mapper_file_size_batch_consume_queue if is_batch else config.mapped_file_size_consume_queue
        return directory, is_batch, size

    def _has_file_of_size(self, root: str, size: int) -> bool:
        """True if any queue has a file of the configured size, so that a file of another size is damaged."""
        if root not in self._sizes_fit:
            self._sizes_fit[root] = any(
                stat is not None and stat.size == size
                for name in self.disk.list(root)[:MAX_TOPICS_SIZED]
                for queue_id in self.disk.list(os.path.join(root, name))[:MAX_QUEUES_SIZED]
                for file in self.disk.list(os.path.join(root, name, queue_id))
                for stat in [self.disk.stat(os.path.join(root, name, queue_id, file))]
            )
        return self._sizes_fit[root]

    def find(self, name: str, queue_id: int) -> Queue | None:
        """A queue if it exists; never creates one."""
        topic = self.topics.get(name)
        if topic is None:
            if name not in self._unlisted:
                return None
            topic = self.topic(name)
        queue = topic.queues.get(queue_id)
        if queue is None and queue_id in topic.on_disk:
            queue = self.get(name, queue_id)
        return queue

    def sum_of_ends(self, name: str, queue_ids: range) -> int:
        """The sum of the queue offsets after the newest messages of queues; those that do not exist have none."""
        total = 0
        topic = self.topics.get(name)
        find = functools.partial(self.find, name) if topic is None or topic.on_disk else topic.queues.get
        for queue_id in queue_ids:
            queue = find(queue_id)
            if queue is not None:
                total += max(queue.max_offset, 0)
        return total

    def names(self) -> list[str]:
        """Every topic that has a queue."""
        return sorted(self.topics.keys() | self._unlisted.keys())

    def queue_ids(self, name: str) -> list[int]:
        """Queue ids of a topic, opened or not."""
        if name not in self.topics and name not in self._unlisted:
            return []
        topic = self.topic(name)
        return sorted(topic.queues.keys() | topic.on_disk)

    def all(self) -> Iterator[Queue]:
        """Every queue; opens those that are not open yet."""
        for name in self.names():
            for queue_id in self.queue_ids(name):
                yield self.get(name, queue_id)

    def opened(self) -> Iterator[Queue]:
        """Queues that are open."""
        for topic in self.topics.values():
            yield from topic.queues.values()

    @property
    def is_empty_on_disk(self) -> bool:
        return not self._unlisted and not any(topic.on_disk for topic in self.topics.values())

    def count_lmq(self) -> int:
        return sum(name.startswith(LMQ_PREFIX) for name in self.topics.keys() | self._unlisted.keys())

    def remove_topic(self, name: str) -> None:
        """Delete the queues of a topic, so that numbering restarts."""
        self.removals += 1
        for listener in self.removal_listeners:
            listener()
        for queue_id in self.queue_ids(name):
            queue = self.get(name, queue_id)
            queue.destroy()
            self.disk.remove(queue.directory)
        topic = self.topics.pop(name, None)
        if topic is not None:
            root = self._batch_root if topic.is_batch else self._plain_root
            self.disk.remove(os.path.join(root, name))
            if topic.queues and self.disk.stat(root) is not None:
                self.disk.sync_dir(root)
            for queue in topic.queues.values():
                queue.is_queued = True  # no later flush may write it

    @staticmethod
    def write_out(queues: Iterable[Queue]) -> None:
        """Write the tails of queues to their files."""
        for queue in queues:
            queue.write_out(BATCH_FILLER if queue.is_batch else FILLER)
