"""Properties files on a disk: reading settings, and replacing the file after a change at run time."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from orbitmq.platform.errors import DiskFaultError
from orbitmq.platform.local_disk import LocalDisk
from orbitmq.platform.settings import ConfigError, parse_conf

if TYPE_CHECKING:
    from orbitmq.platform.disk import Disk


def read_conf(disk: Disk, path: str) -> dict[str, str]:
    """Read the settings of a file. Raises ConfigError or DiskFaultError.

    Comments may be in any encoding; they are not decoded.
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
    """Replace a file; the previous contents are in ``.bak``. Raises DiskFaultError. Blocks.

    After a crash at any moment the file is complete, with the old or the new contents.
    """
    try:
        if disk.stat(path) is not None:
            _like(disk, path, path + ".bak")
            disk.write(path + ".bak", disk.read(path))
            disk.sync(path + ".bak")
        _like(disk, path, path + ".tmp")
        disk.write(path + ".tmp", text.encode())
        disk.sync(path + ".tmp")
        disk.rename(path + ".tmp", path)
        disk.sync_dir(os.path.dirname(path) or ".")
    except OSError as error:
        raise DiskFaultError(f"cannot write {path}: {error.strerror or error}") from error


def _like(disk: Disk, path: str, copy: str) -> None:
    """Create a copy with the mode of the file, or for its owner only: settings may have secrets."""
    if not isinstance(disk, LocalDisk):
        return
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    mode = stat.S_IMODE(os.stat(path).st_mode) if os.path.exists(path) else 0o600
    descriptor = os.open(copy, os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW, 0o600)
    try:
        os.fchmod(descriptor, mode)
    finally:
        os.close(descriptor)
