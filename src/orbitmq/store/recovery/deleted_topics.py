"""Deleted topics: for each, the log offset before which its records are deleted.

The log retains records of a deleted topic until they expire, so everything that builds queues from the log
(recovery, rebuild) would restore them. The offsets are in a file of OrbitMQ's own under ``config/``, on disk before
a deletion is acknowledged; RocketMQ ignores the file. An entry is dropped once retention has removed the log before
it.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from orbitmq.platform.json_files import ConfigFile
from orbitmq.protocol.bodies import Body

if TYPE_CHECKING:
    from orbitmq.platform.disk import Disk

MAX_DELETED_TOPICS = 100_000
"""Maximum number of deleted topics with records still in the log. It limits the file to some 10 MB; further topics
can be deleted when retention has removed the oldest log files."""


@dataclasses.dataclass(slots=True)
class DeletedTopicsTable(Body):
    """By topic, the log offset before which its records are deleted."""

    end_offsets: dict[str, int] = dataclasses.field(default_factory=dict)


DELETED_TOPICS = ConfigFile("orbitmqDeletedTopics.json", DeletedTopicsTable)


class DeletedTopics:
    """Deleted topics of a store. ``ends`` is never replaced by another dict."""

    def __init__(self, disk: Disk, directory: str, *, read_only: bool = False) -> None:
        """``directory`` is the ``config`` directory of the store. Raises StoreError."""
        self._disk = disk
        self._directory = directory
        self.ends: dict[str, int] = DELETED_TOPICS.load(disk, directory, read_only=read_only).end_offsets

    @property
    def is_full(self) -> bool:
        return len(self.ends) >= MAX_DELETED_TOPICS

    def table(self) -> DeletedTopicsTable:
        return DeletedTopicsTable(self.ends)

    def persist(self) -> None:
        """Write the file. Blocks; raises DiskFaultError."""
        DELETED_TOPICS.persist(self._disk, self._directory, self.table())

    def follow_log(self, start: int, end: int) -> bool:
        """Drop topics whose records have expired; returns whether an offset beyond the end of the log was lowered.

        A crash may have lost a part of the log that a deletion covered. Offsets from its end on will be assigned to
        new records, which must not be hidden: the change must be on disk before the first of them.
        """
        for topic in [topic for topic, deleted in self.ends.items() if deleted <= start]:
            del self.ends[topic]
        beyond = [topic for topic, deleted in self.ends.items() if deleted > end]
        for topic in beyond:
            self.ends[topic] = end
        return bool(beyond)
