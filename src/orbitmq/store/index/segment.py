"""One file of the key index, mapped on demand, and the blocking part of a sync."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from orbitmq.store.errors import FlushFailedError

if TYPE_CHECKING:
    from orbitmq.platform.disk import Disk, MappedFile
    from orbitmq.store.index.format import IndexHeader
    from orbitmq.store.index.index_file import IndexFile


@dataclasses.dataclass(slots=True, eq=False)
class IndexSegment:
    """One file of the index, mapped or not."""

    name: str
    path: str
    header: IndexHeader
    file: IndexFile | None = None
    dirty: bool = False
    syncing: bool = False
    used_at: int = 0

    def unmap(self) -> None:
        """Release the map; the next use maps the file again."""
        if self.file is not None:
            self.file.close()
            self.file = None


@dataclasses.dataclass(slots=True)
class IndexSync:
    """The blocking part of a sync: ``run`` it in a worker thread, then pass it to ``KeyIndex.end_sync``."""

    parts: list[IndexSegment]
    files: list[MappedFile]
    disk: Disk
    directory: str | None
    end_timestamp: int
    completed: bool = False

    def run(self) -> None:
        """Sync the files. Touches nothing that the index changes in the meantime."""
        try:
            for file in self.files:
                file.sync()
            if self.directory is not None:
                self.disk.sync_dir(self.directory)
        except OSError as error:
            raise FlushFailedError(
                f"cannot sync the index: {error.strerror or error}; check the disk, the next start after a "
                "crash builds this part of the index again"
            ) from error
        self.completed = True
