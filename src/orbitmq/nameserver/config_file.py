"""The properties file that settings come from, and that settings changed at runtime are written to."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from orbitmq.nameserver.config import NameServerConfig, from_settings
from orbitmq.store.config import parse_conf
from orbitmq.store.errors import DiskFaultError

if TYPE_CHECKING:
    from orbitmq.store.disk import Disk


def load_config(disk: Disk, path: str) -> tuple[NameServerConfig, list[str]]:
    """The settings in a file, and the keys in it that are none. Raises ConfigError or DiskFaultError."""
    try:
        text = disk.read(path).decode("utf-8", "replace")
    except OSError as error:
        raise DiskFaultError(f"cannot read {path}: {error.strerror or error}") from error
    return from_settings(parse_conf(text), config_store_path=path)


def store_config(disk: Disk, config: NameServerConfig) -> None:
    """Replace the file by all settings; what it said before is in ``.bak``. Raises DiskFaultError.

    After a crash at any moment the file or its ``.bak`` is whole.
    """
    path = config.config_store_path
    try:
        disk.write(path + ".tmp", config.as_properties().encode())
        disk.sync(path + ".tmp")
        if disk.stat(path) is not None:
            disk.rename(path, path + ".bak")
        disk.rename(path + ".tmp", path)
        disk.sync_dir(os.path.dirname(path) or ".")
    except OSError as error:
        raise DiskFaultError(f"cannot write {path}: {error.strerror or error}") from error
