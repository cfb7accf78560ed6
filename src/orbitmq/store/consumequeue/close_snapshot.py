"""Snapshot of queue bounds at the last clean close: no queue may hold less than this.

RocketMQ finds its queues by listing directories, so a queue deleted by accident starts again at offset 0. With this
small file (which RocketMQ ignores) OrbitMQ detects a missing queue and rebuilds it from the log, without reading
every queue at every start.
"""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING

import orjson

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orbitmq.platform.disk import Disk
    from orbitmq.store.consumequeue.table import Queue, QueueTable

FILE_NAME = "orbitmq.queues"


@dataclasses.dataclass(slots=True)
class CloseSnapshot:
    """Bounds of all queues at the last clean close."""

    ranges: dict[str, dict[int, tuple[int, int]]]
    """Smallest and next offset by topic and queue id."""
    indexed_to: int = 0
    """The index holds every key of the log before this offset ..."""
    index_end: int = 0
    """... as long as it still ends with this record."""
    log_end: int = 0
    """End of the log; 0 if written by an older version without it."""
    resumes_at: dict[tuple[str, int], int] = dataclasses.field(default_factory=dict)
    """Offsets at which queues continue since a part of the log was lost, until the next clean close."""

    @classmethod
    def load(cls, disk: Disk, root: str) -> CloseSnapshot | None:
        """The floor of the last close; None if there is none or it is not readable: it is only a help."""
        path = os.path.join(root, FILE_NAME)
        if disk.stat(path) is None:
            return None
        try:
            data = orjson.loads(disk.read(path))
            ranges = {
                str(topic): {int(queue_id): (int(low), int(high)) for queue_id, (low, high) in queues.items()}
                for topic, queues in data["queues"].items()
            }
            resumes_at = {
                (str(topic), int(queue_id)): int(end) for topic, queue_id, end in data.get("resumesAt", [])
            }
            log_end = int(data.get("logEnd", 0))
            return cls(ranges, int(data["indexedTo"]), int(data["indexEnd"]), log_end, resumes_at)
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError):
            return None

    def store(self, disk: Disk, root: str) -> None:
        """Replace the file atomically."""
        data = {
            "queues": {
                topic: {str(queue_id): held for queue_id, held in queues.items()}
                for topic, queues in self.ranges.items()
            },
            "indexedTo": self.indexed_to,
            "indexEnd": self.index_end,
            "logEnd": self.log_end,
            "resumesAt": [[topic, queue_id, end] for (topic, queue_id), end in self.resumes_at.items()],
        }
        path = os.path.join(root, FILE_NAME)
        disk.write(path + ".new", orjson.dumps(data))
        disk.sync(path + ".new")
        disk.rename(path + ".new", path)
        disk.sync_dir(root)

    def update(self, table: QueueTable) -> None:
        """Update the bounds of opened queues; the others did not change."""
        for topic in table.topics.values():
            known = self.ranges.setdefault(topic.name, {})
            for queue_id, queue in topic.queues.items():
                known[queue_id] = (queue.min_offset, queue.max_offset)
            if not known:
                del self.ranges[topic.name]

    def missing(self, table: QueueTable) -> Iterator[tuple[str, int]]:
        """Queues that should hold units but have no directory."""
        for topic, queues in self.ranges.items():
            present = set(table.queue_ids(topic))
            for queue_id, (low, high) in queues.items():
                if low < high and queue_id not in present:
                    yield topic, queue_id

    def is_above(self, queue: Queue, log_start: int) -> bool:
        """True if a queue holds fewer units than in the snapshot, for records that are still in the log."""
        low, high = self.ranges.get(queue.topic, {}).get(queue.queue_id, (0, 0))
        lacks_front = queue.first > low and queue.max_physical > log_start
        return low < high and (lacks_front or queue.max_offset < high)
