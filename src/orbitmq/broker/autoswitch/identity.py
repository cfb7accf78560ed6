"""Identity of a replica: its id at the controller, in the files ``brokerIdentity`` and ``brokerIdentity-temp``."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING

from orbitmq.store.errors import DiskFaultError, StoreDamagedError

if TYPE_CHECKING:
    from orbitmq.platform.disk import Disk

TEMPORARY = "-temp"
_SEPARATOR = "#"


@dataclasses.dataclass(frozen=True, slots=True)
class Identity:
    """The id of a broker in its group."""

    cluster: str
    broker_name: str
    broker_id: int
    check_code: str = ""
    """Of an id that is not confirmed yet: ``ip:port;milliseconds``, by which the controller knows who applied."""

    def encode(self) -> bytes:
        parts = (self.cluster, self.broker_name, str(self.broker_id), self.check_code)
        return _SEPARATOR.join(parts if self.check_code else parts[:3]).encode()


class IdentityFiles:
    """The identity of a store. The temporary file is written before the controller is asked to confirm an id."""

    def __init__(self, disk: Disk, path: str, cluster: str, broker_name: str) -> None:
        self._disk = disk
        self._path = path
        self._cluster = cluster
        self._broker_name = broker_name

    def load(self) -> Identity | None:
        """The confirmed id, or the one that was applied for. Raises StoreDamagedError, DiskFaultError."""
        for path in (self._path, self._path + TEMPORARY):
            try:
                found = self._disk.stat(path)
                text = "" if found is None else self._disk.read(path).decode("utf-8", "replace").strip()
            except OSError as error:
                raise DiskFaultError(f"cannot read {path}: {error.strerror or error}") from error
            if text:
                return self._parsed(path, text)
        return None

    def _parsed(self, path: str, text: str) -> Identity:
        parts = text.split(_SEPARATOR)
        is_temporary = path.endswith(TEMPORARY)
        if len(parts) != (4 if is_temporary else 3) or not parts[2].isdecimal() or int(parts[2]) < 1:
            raise StoreDamagedError(f"{path} is damaged: {text[:200]!r}; restore it, or remove the store")
        if (parts[0], parts[1]) != (self._cluster, self._broker_name):
            raise StoreDamagedError(
                f"{path}: the store belongs to broker {parts[1]} of cluster {parts[0]}, not to {self._broker_name} "
                f"of {self._cluster}: give the right brokerName, brokerClusterName or storePathRootDir"
            )
        return Identity(parts[0], parts[1], int(parts[2]), parts[3] if is_temporary else "")

    def apply(self, broker_id: int, check_code: str) -> Identity:
        """Note an id that the controller is asked for."""
        identity = Identity(self._cluster, self._broker_name, broker_id, check_code)
        self._write(self._path + TEMPORARY, identity)
        return identity

    def drop(self) -> None:
        """Forget an id that the controller refused."""
        self._removed(self._path + TEMPORARY)

    def confirm(self, applied: Identity) -> Identity:
        """Keep an id for good."""
        identity = dataclasses.replace(applied, check_code="")
        self._write(self._path, identity)
        self._removed(self._path + TEMPORARY)
        return identity

    def _write(self, path: str, identity: Identity) -> None:
        disk = self._disk
        try:
            disk.write(path + ".new", identity.encode())
            disk.sync(path + ".new")
            disk.rename(path + ".new", path)
            disk.sync_dir(os.path.dirname(path) or ".")
        except OSError as error:
            raise DiskFaultError(f"cannot write {path}: {error.strerror or error}") from error

    def _removed(self, path: str) -> None:
        try:
            self._disk.remove(path)
            self._disk.sync_dir(os.path.dirname(path) or ".")
        except OSError as error:
            raise DiskFaultError(f"cannot remove {path}: {error.strerror or error}") from error
