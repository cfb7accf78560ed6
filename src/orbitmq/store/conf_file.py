"""A properties file on a disk: where settings come from, and where settings changed at runtime are written."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from orbitmq.settings import ConfigError, parse_conf
from orbitmq.store.errors import DiskFaultError

if TYPE_CHECKING:
    from orbitmq.store.disk import Disk


def read_conf(disk: Disk, path: str) -> dict[str, str]:
    """The settings in a file. Raises ConfigError or DiskFaultError.

    Comments may be in any encoding: people write them in their own, and nobody reads them here.
    """
    try:
        data = disk.read(path)
    except OSError as error:
        raise DiskFaultError(f"cannot read {path}: {error.strerror or error}") from error
    try:
        return parse_conf(data.decode("utf-8-sig", "surrogateescape"))
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def replace_conf(disk: Disk, path: str, text: str) -> None:
    """Replace a file; what it said before is in ``.bak``. Raises DiskFaultError. Blocks.

    After a crash at any moment the file is there and whole, as it was or as it was to be.
    """
    try:
        if disk.stat(path) is not None:
            disk.write(path + ".bak", disk.read(path))
            disk.sync(path + ".bak")
        disk.write(path + ".tmp", text.encode())
        disk.sync(path + ".tmp")
        disk.rename(path + ".tmp", path)
        disk.sync_dir(os.path.dirname(path) or ".")
    except OSError as error:
        raise DiskFaultError(f"cannot write {path}: {error.strerror or error}") from error
