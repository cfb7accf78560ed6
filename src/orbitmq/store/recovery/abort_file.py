"""Abort file: exists while a store is open, so that a start knows whether the last process closed it cleanly."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orbitmq.platform.disk import Disk
    from orbitmq.store.config import StoreConfig

ABORT_MARK = b"orbitmq"
"""Follows the process id (RocketMQ writes the id alone), so that recovery can tell whose file it is."""


class AbortFile:
    """The file ``abort`` of a store."""

    def __init__(self, disk: Disk, config: StoreConfig) -> None:
        self._disk = disk
        self._root = config.store_path_root_dir
        self._path = config.path("abort")

    @property
    def exists(self) -> bool:
        """The store is open, or was not closed cleanly."""
        return self._disk.stat(self._path) is not None

    @property
    def is_own(self) -> bool:
        """It is there, and OrbitMQ has written it."""
        return self.exists and self._disk.read(self._path).endswith(ABORT_MARK)

    @property
    def text(self) -> str:
        """Its beginning; empty if it does not exist."""
        return self._disk.pread(self._path, 0, 20).decode("ascii", "replace").strip() if self.exists else ""

    def create(self) -> None:
        """Must be durable before anything else of an open store changes."""
        self._disk.write(self._path, b"%d %s" % (os.getpid(), ABORT_MARK))
        self._disk.sync(self._path)
        self._disk.sync_dir(self._root)

    def remove(self) -> None:
        """The last step of a clean close."""
        self._disk.remove(self._path)
        self._disk.sync_dir(self._root)
