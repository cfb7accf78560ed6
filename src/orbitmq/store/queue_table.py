"""All consume queues of a store, by topic and queue id, opened when touched."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from orbitmq.protocol.names import LMQ_PREFIX, RETRY_PREFIX, SCHEDULE_TOPIC
from orbitmq.protocol.record import MAX_TOPIC_SIZE_V1, topic_field
from orbitmq.store.batch_queue import FILLER as BATCH_FILLER
from orbitmq.store.batch_queue import BatchConsumeQueue
from orbitmq.store.consume_queue import FILLER, ConsumeQueue
from orbitmq.store.errors import AppendRefusedError, PutStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from orbitmq.store.config import StoreConfig
    from orbitmq.store.disk import Disk

Queue = ConsumeQueue | BatchConsumeQueue

MAX_RETRY_TOPIC_SIZE = 255


class Topic:
    """What the store keeps of a topic."""

    __slots__ = ("field", "is_batch", "is_schedule", "name", "on_disk", "queues", "version_2")

    def __init__(self, name: str, *, is_batch: bool, auto_version: bool) -> None:
        encoded = name.encode("utf-8", "replace")
        self.name = name
        # Characters, not bytes, decide on the version in RocketMQ; a topic that is longer in bytes than a
        # version 1 record can say is refused before it comes here.
        self.version_2 = auto_version and len(name) > MAX_TOPIC_SIZE_V1
        self.field = topic_field(encoded, version_2=self.version_2)
        self.is_schedule = name == SCHEDULE_TOPIC
        self.is_batch = is_batch
        self.queues: dict[int, Queue] = {}
        self.on_disk: set[int] = set()
        """Queue ids that have a directory and were not touched yet."""


class QueueTable:
    """Topics and their queues. A queue nobody touched costs a directory entry on disk and nothing here."""

    def __init__(self, disk: Disk, config: StoreConfig) -> None:
        self._disk = disk
        self._config = config
        self.root = self._plain_root = config.path("consumequeue")
        self._batch_root = config.path("batchconsumequeue")
        self.topics: dict[str, Topic] = {}
        self._unlisted: dict[str, bool] = {}
        """Topics found on disk whose queues were not listed yet, and whether they are batch topics."""
        self.batch_topics: set[str] = set()
        self.removals = 0
        """How often queues were removed: who keeps some has to ask for them again."""
        self.open_queue: Callable[[Queue], None] = lambda _queue: None
        """Given by the owner: makes a queue that has files ready for use."""

    def load(self) -> None:
        """Find the topics on disk."""
        for root, is_batch in ((self._plain_root, False), (self._batch_root, True)):
            for name in self._disk.list(root):
                self._unlisted[name] = is_batch
                if is_batch:
                    self.batch_topics.add(name)

    def topic(self, name: str) -> Topic:
        """The topic of this name, made if new. Refuses names that no record can carry."""
        topic = self.topics.get(name)
        if topic is None:
            self._check(name)
            is_batch = self._unlisted.pop(name, name in self.batch_topics)
            topic = Topic(name, is_batch=is_batch, auto_version=self._config.auto_message_version_on_topic_len)
            directory = os.path.join(self._batch_root if is_batch else self._plain_root, name)
            topic.on_disk.update(int(entry) for entry in self._disk.list(directory) if entry.isdigit())
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
        """A queue, made if new."""
        topic = self.topic(name)
        queue = topic.queues.get(queue_id)
        if queue is None:
            if queue_id < 0:
                raise AppendRefusedError(PutStatus.MESSAGE_ILLEGAL, f"queue id {queue_id} is negative")
            config = self._config
            root = self._batch_root if topic.is_batch else self._plain_root
            directory = os.path.join(root, name, str(queue_id))
            if topic.is_batch:
                size = config.mapper_file_size_batch_consume_queue
                queue = BatchConsumeQueue(self._disk, directory, name, queue_id, size)
            else:
                queue = ConsumeQueue(self._disk, directory, name, queue_id, config.mapped_file_size_consume_queue)
            if queue_id in topic.on_disk:
                self.open_queue(queue)
                topic.on_disk.discard(queue_id)
            topic.queues[queue_id] = queue
        return queue

    def find(self, name: str, queue_id: int) -> Queue | None:
        """A queue if there is one; never makes one."""
        topic = self.topics.get(name)
        if topic is None:
            if name not in self._unlisted:
                return None
            topic = self.topic(name)
        queue = topic.queues.get(queue_id)
        if queue is None and queue_id in topic.on_disk:
            queue = self.get(name, queue_id)
        return queue

    def names(self) -> list[str]:
        """Every topic that has a queue."""
        return sorted(self.topics.keys() | self._unlisted.keys())

    def queue_ids(self, name: str) -> list[int]:
        """The queues of a topic, touched or not."""
        if name not in self.topics and name not in self._unlisted:
            return []
        topic = self.topic(name)
        return sorted(topic.queues.keys() | topic.on_disk)

    def all(self) -> Iterator[Queue]:
        """Every queue, opening those that were not touched yet."""
        for name in self.names():
            for queue_id in self.queue_ids(name):
                yield self.get(name, queue_id)

    def opened(self) -> Iterator[Queue]:
        """The queues that were touched."""
        for topic in self.topics.values():
            yield from topic.queues.values()

    @property
    def is_empty_on_disk(self) -> bool:
        return not self._unlisted and not any(topic.on_disk for topic in self.topics.values())

    def count_lmq(self) -> int:
        return sum(name.startswith(LMQ_PREFIX) for name in self.topics.keys() | self._unlisted.keys())

    def remove_topic(self, name: str) -> None:
        """Delete the queues of a topic, so that its numbering starts again."""
        self.removals += 1
        for queue_id in self.queue_ids(name):
            queue = self.get(name, queue_id)
            queue.destroy()
            self._disk.remove(queue.directory)
        topic = self.topics.pop(name, None)
        if topic is not None:
            self._disk.remove(os.path.join(self._batch_root if topic.is_batch else self._plain_root, name))
            for queue in topic.queues.values():
                queue.is_queued = True  # nothing of it may be written any more

    @staticmethod
    def write_out(queues: Iterable[Queue]) -> None:
        """Put the tails of queues into their files."""
        for queue in queues:
            queue.write_out(BATCH_FILLER if queue.is_batch else FILLER)
