"""The properties file that settings come from, and that settings changed at runtime are written to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.nameserver.config import NameServerConfig
from orbitmq.settings import from_settings
from orbitmq.store.conf_file import read_conf, replace_conf

if TYPE_CHECKING:
    from orbitmq.store.disk import Disk


def load_config(disk: Disk, path: str) -> tuple[NameServerConfig, list[str]]:
    """The settings in a file, and the keys in it that are none. Raises ConfigError or DiskFaultError."""
    return from_settings(NameServerConfig, read_conf(disk, path), config_store_path=path)


def store_config(disk: Disk, config: NameServerConfig) -> None:
    """Replace the file by all settings; what it said before is in ``.bak``. Raises DiskFaultError."""
    replace_conf(disk, config.config_store_path, config.as_properties())
