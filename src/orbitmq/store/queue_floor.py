"""What the store knows of its queues from the last proper close: none may hold less than this.

RocketMQ finds out which queues exist by looking at their directories, so one that was deleted by accident starts
again at offset 0. This small file beside the store's own (RocketMQ ignores it) lets OrbitMQ see that a queue is
missing and write it again from the log, without reading every queue at every start.
"""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING

import orjson

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orbitmq.store.disk import Disk
    from orbitmq.store.queue_table import QueueTable

FILE_NAME = "orbitmq.queues"


@dataclasses.dataclass(slots=True)
class QueueFloor:
    """Ends of queues at the last proper close."""

    ends: dict[str, dict[int, int]]
    indexed_to: int = 0
    """The index holds every key of the log before this offset ..."""
    index_end: int = 0
    """... as long as it still ends with this record."""

    @classmethod
    def load(cls, disk: Disk, root: str) -> QueueFloor | None:
        """The floor of the last close; None if there is none or it is not readable: it is only a help."""
        path = os.path.join(root, FILE_NAME)
        if disk.stat(path) is None:
            return None
        try:
            data = orjson.loads(disk.read(path))
            ends = {
                str(topic): {int(queue_id): int(end) for queue_id, end in queues.items()}
                for topic, queues in data["queues"].items()
            }
            return cls(ends, int(data["indexedTo"]), int(data["indexEnd"]))
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError):
            return None

    def store(self, disk: Disk, root: str) -> None:
        """Replace the file in one step."""
        data = {
            "queues": {topic: {str(key): end for key, end in ends.items()} for topic, ends in self.ends.items()},
            "indexedTo": self.indexed_to,
            "indexEnd": self.index_end,
        }
        path = os.path.join(root, FILE_NAME)
        disk.write(path + ".new", orjson.dumps(data))
        disk.sync(path + ".new")
        disk.rename(path + ".new", path)
        disk.sync_dir(root)

    def update(self, table: QueueTable) -> None:
        """Take over the ends of the queues that were touched; the others did not change."""
        for topic in table.topics.values():
            known = self.ends.setdefault(topic.name, {})
            for queue_id, queue in topic.queues.items():
                known[queue_id] = queue.max_offset
            if not known:
                del self.ends[topic.name]

    def missing(self, table: QueueTable) -> Iterator[tuple[str, int]]:
        """Queues that should hold something and have no directory."""
        for topic, queues in self.ends.items():
            present = set(table.queue_ids(topic))
            for queue_id, end in queues.items():
                if end > 0 and queue_id not in present:
                    yield topic, queue_id
