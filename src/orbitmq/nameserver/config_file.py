"""Settings file of the name server: loaded at the start, replaced when settings change at run time.

With ``enableControllerInNamesrv`` it has the settings of the controller in the same process too. Keys that both
have, such as those of TLS and users, are for both; what changes at run time goes to a file beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.nameserver.config import NameServerConfig
from orbitmq.platform.properties_file import read_conf, replace_conf
from orbitmq.platform.settings import as_properties, from_settings, parse_conf, settings_of, texts_of
from orbitmq.remoting.tls.settings import with_tls_file

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.controller import ControllerConfig
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
    """Write all settings to the file; its previous content goes to ``.bak``. Raises ConfigError, DiskFaultError.

    Settings of a controller in the same process stay as they are.
    """
    texts = texts_of(config)
    if config.enable_controller_in_namesrv and disk.stat(config.config_store_path) is not None:
        texts = {**controller_keys(read_conf(disk, config.config_store_path)), **texts}
    replace_conf(disk, config.config_store_path, as_properties(texts))


def controller_config(disk: Disk, texts: Mapping[str, str], config: NameServerConfig) -> ControllerConfig:
    """The settings of the controller, from the texts of the name server's file. Raises ConfigError, DiskFaultError.

    Its listen port is that of its own entry among the peers, or RocketMQ's default.
    """
    # Most name servers have no controller, and start faster without its code.
    from orbitmq.controller.config import DEFAULT_PORT, ControllerConfig  # noqa: PLC0415
    from orbitmq.controller.config_file import config_of  # noqa: PLC0415

    changes = f"{config.config_store_path}.controller"
    changed = read_conf(disk, changes) if disk.stat(changes) is not None else {}
    shared = {key: text for key, text in texts_of(config).items() if key in settings_of(ControllerConfig)}
    own = {**controller_keys(texts), **controller_keys(changed), "listenPort": str(DEFAULT_PORT)}
    return config_of(disk, {**shared, **own}, changes)[0]


def controller_keys(texts: Mapping[str, str]) -> dict[str, str]:
    """The settings of a file that a controller has and a name server has not."""
    from orbitmq.controller import ControllerConfig  # noqa: PLC0415

    own = settings_of(ControllerConfig).keys() - settings_of(NameServerConfig).keys()
    return {key: text for key, text in texts.items() if key in own}
