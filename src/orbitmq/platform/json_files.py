"""Files under ``config/``: format, loading, and atomic replacement with a ``.bak``.

A table is replaced as a whole. The new contents are first written and synced under another name; then the old file
becomes ``.bak`` and the new one takes its place. So at every moment, and after a crash at any moment, the file or
its ``.bak`` is complete, and a full disk refuses before anything is touched. RocketMQ moves the old file away
before it writes the new one; the result on disk is the same.

Loading reads the file, or its ``.bak`` if the file is missing, empty or unreadable. In the last two cases the file
is removed, as in RocketMQ, because the next replacement would otherwise make it the ``.bak``; but only after the
``.bak`` was read, so the last copy that could be read, or repaired, stays. With neither file the table is new. An
unreadable file without a readable ``.bak`` is a ``StoreDamagedError`` and nothing is touched.
"""

from __future__ import annotations

import dataclasses
import logging
import os
from typing import TYPE_CHECKING, Generic, TypeVar

from orbitmq.platform.errors import DiskFaultError, StoreDamagedError
from orbitmq.protocol.bodies import Body
from orbitmq.protocol.errors import ProtocolError

if TYPE_CHECKING:
    from orbitmq.platform.disk import Disk

log = logging.getLogger("orbitmq.store")

BodyT = TypeVar("BodyT", bound=Body)


@dataclasses.dataclass(frozen=True, slots=True)
class ConfigFile(Generic[BodyT]):
    """A file of the ``config`` directory and the type of its table."""

    name: str
    shape: type[BodyT]
    pretty: bool = True
    """Tables are pretty; the two metrics files are compact and standard JSON."""

    def load(self, disk: Disk, directory: str, *, read_only: bool = False) -> BodyT:
        """Read the table; with ``read_only`` a useless file is ignored but not removed."""
        path = os.path.join(directory, self.name)
        try:
            table, complaint = self._read(disk, path)
            if table is not None:
                return table
            backup, backup_complaint = self._read(disk, path + ".bak")
            if backup is not None:
                log.warning(
                    "config: using %s.bak, because %s is %s", path, self.name, complaint or "missing or empty"
                )
                if not read_only and disk.stat(path) is not None:
                    disk.remove(path)
                    disk.sync_dir(directory)
                return backup
        except OSError as error:
            raise DiskFaultError(f"cannot read {path}: {error}") from error
        damage = backup_complaint or complaint
        if damage is not None:
            raise StoreDamagedError(
                f"{path} cannot be read and neither can a .bak beside it ({damage});"
                " restore one of them, or remove both to start with an empty table"
            )
        return self.shape()

    def persist(self, disk: Disk, directory: str, table: BodyT) -> None:
        """Replace the table. When this returns, it is durable."""
        self.replace(disk, directory, self.encode(table))

    def replace(self, disk: Disk, directory: str, data: bytes) -> None:
        """``persist`` for an encoded table, for a worker thread: encoding has to be done where the table may
        change."""
        path = os.path.join(directory, self.name)
        try:
            disk.write(path + ".tmp", data)
            disk.sync(path + ".tmp")
            present = disk.stat(path)
            # An empty file does not count: it must not replace a ``.bak`` with contents.
            if present is not None and present.size > 0:
                disk.rename(path, path + ".bak")
            disk.rename(path + ".tmp", path)
            disk.sync_dir(directory)
        except OSError as error:
            raise DiskFaultError(f"cannot write {path}: {error}") from error

    def encode(self, table: BodyT) -> bytes:
        """The bytes of the file."""
        return table.encode(pretty=self.pretty, browser_compatible=not self.pretty)

    def _read(self, disk: Disk, path: str) -> tuple[BodyT | None, str | None]:
        """The table, or what is wrong with the file; neither if it is missing or empty."""
        found = disk.stat(path)
        if found is None or found.size == 0:
            return None, None
        try:
            return self.shape.decode(disk.read(path)), None
        except ProtocolError as error:
            return None, f"{os.path.basename(path)}: {error}"
