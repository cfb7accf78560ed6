"""Settings file of the name server: loaded at the start, replaced when settings change at run time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.nameserver.config import NameServerConfig
from orbitmq.platform.properties_file import read_conf, replace_conf
from orbitmq.platform.settings import from_settings, parse_conf
from orbitmq.remoting.tls.settings import with_tls_file

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.platform.disk import Disk


def load_config(
    disk: Disk, path: str, *, defaults: Mapping[str, str] | None = None
) -> tuple[NameServerConfig, list[str]]:
    """The settings in a file and its unknown keys. Raises ConfigError or DiskFaultError.

    ``defaults``, by Java's keys, are used for what the file does not set, before those of RocketMQ.
    """
    return _built(with_tls_file(disk, {**(defaults or {}), **read_conf(disk, path)}), path)


def check_start(config: NameServerConfig) -> None:
    """Check that the next start can load the file as it would be written. Raises ConfigError."""
    _built(parse_conf(config.as_properties()), config.config_store_path)


def _built(texts: Mapping[str, str], path: str) -> tuple[NameServerConfig, list[str]]:
    return from_settings(NameServerConfig, texts, config_store_path=path)


def store_config(disk: Disk, config: NameServerConfig) -> None:
    """Write all settings to the file; its previous content goes to ``.bak``. Raises DiskFaultError."""
    replace_conf(disk, config.config_store_path, config.as_properties())
