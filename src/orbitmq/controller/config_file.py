"""Settings file of the controller: loaded at the start, replaced when settings change at run time."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

from orbitmq.controller.config import ControllerConfig
from orbitmq.platform.properties_file import read_conf, replace_conf
from orbitmq.platform.settings import from_settings, parse_conf
from orbitmq.remoting.tls.settings import with_tls_file

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.platform.disk import Disk


def load_config(
    disk: Disk, path: str, *, defaults: Mapping[str, str] | None = None
) -> tuple[ControllerConfig, list[str]]:
    """The settings in a file and its unknown keys. Raises ConfigError or DiskFaultError.

    ``defaults``, by Java's keys, are used for what the file does not set, before those of RocketMQ. Without
    ``bindAddress`` in the file, the controller listens on the IP address of its own entry among the peers.
    """
    return config_of(disk, read_conf(disk, path), path, defaults=defaults)


def config_of(
    disk: Disk, texts: Mapping[str, str], path: str, *, defaults: Mapping[str, str] | None = None
) -> tuple[ControllerConfig, list[str]]:
    """``load_config`` for texts that were read before: a name server's file has those of its controller too."""
    config, unknown = _built(with_tls_file(disk, {**(defaults or {}), **texts}), path)
    own = config.own_peer
    if own is not None and "bindAddress" not in texts and _is_ip(own.host):
        config.bind_address = own.host
    return config, unknown


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


def check_start(config: ControllerConfig) -> None:
    """Check that the next start can load the file as it would be written. Raises ConfigError."""
    _built(parse_conf(config.as_properties()), config.config_store_path)


def _built(texts: Mapping[str, str], path: str) -> tuple[ControllerConfig, list[str]]:
    return from_settings(ControllerConfig, texts, config_store_path=path)


def store_config(disk: Disk, config: ControllerConfig) -> None:
    """Write all settings to the file; its previous content goes to ``.bak``. Raises DiskFaultError."""
    replace_conf(disk, config.config_store_path, config.as_properties())
