"""SlaveLog: the log of a slave, which takes over the bytes of its master's log and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.store.errors import StoreError

if TYPE_CHECKING:
    from orbitmq.store.message_store import MessageStore


class ReplicationError(StoreError):
    """The bytes of the master do not continue this log."""


class SlaveLog:
    """Appends parts of the master's log to a store."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    @property
    def end(self) -> int:
        return self._store.log.end

    @property
    def is_empty(self) -> bool:
        log = self._store.log
        return not len(log.files) and log.end == 0

    def accept(self, offset: int, data: memoryview) -> None:
        """Append a part that the master sent, or check the offset of a heartbeat, which is an empty part.

        Raises ReplicationError if the offset is not the end of this log, AppendRefusedError if the disk has no room
        or failed.
        """
        if offset != self.end:
            if not (self.is_empty and data):
                raise ReplicationError(
                    f"the master sent the log at {offset}, but the log of this slave ends at {self.end}"
                )
            self._begin_at(offset)
        if data:
            self._store.append_raw(data, offset)

    def _begin_at(self, offset: int) -> None:
        """Begin an empty log where the master begins to send: at the start of one of its files."""
        size = self._store.config.mapped_file_size_commit_log
        if offset % size:
            raise ReplicationError(
                f"the master sends its log from {offset}, where no file of {size} bytes begins: give this slave "
                "the mappedFileSizeCommitLog of its master"
            )
        self._store.begin_at(offset)
