"""Requests for the settings of a server that has one settings class and one file: read them, change some."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

from orbitmq.auth.runtime_settings.changeable import check_changeable
from orbitmq.platform.errors import DiskFaultError
from orbitmq.platform.secret_settings import masked
from orbitmq.platform.settings import ConfigError, as_properties, become, parse_conf, settings_text, texts_of
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.remarks import hide_paths
from orbitmq.remoting.processor import RequestRefusedError

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable, Mapping
    from dataclasses import Field
    from typing import ClassVar

    from orbitmq.platform.disk import Disk
    from orbitmq.platform.threads import RunBlocking
    from orbitmq.protocol.command.command import Command
    from orbitmq.remoting import Connection


class ServerConfig(Protocol):
    """What the settings of a server have in common."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    def black_list(self) -> frozenset[str]: ...

    def changed(self, settings: Mapping[str, str]) -> Self: ...


ConfigT = TypeVar("ConfigT", bound=ServerConfig)


class SettingsRequests(Generic[ConfigT]):
    """Processors for the settings of a name server or a controller."""

    def __init__(
        self,
        config: ConfigT,
        disk: Disk,
        run_blocking: RunBlocking,
        *,
        check_start: Callable[[ConfigT], None],
        store: Callable[[Disk, ConfigT], None],
        log: logging.Logger,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """``check_start`` raises ConfigError if a start would refuse the settings, ``store`` writes their file."""
        self._config = config
        self._disk = disk
        self._run = run_blocking
        self._check_start = check_start
        self._store = store
        self._log = log
        self._on_change = on_change
        self._changing = asyncio.Lock()

    async def update(self, request: Command, _: Connection) -> Command:
        """Change settings and write all of them to their file. One bad value refuses the whole request."""
        if request.body is None:
            return request.response(ResponseCode.SUCCESS)
        try:
            changes = parse_conf(settings_text(request.body))
            if not self._config.black_list.isdisjoint(changes):
                raise RequestRefusedError("Can not update config in black list.", ResponseCode.NO_PERMISSION)
            # Serialized: each change starts from the settings that the previous one left.
            async with self._changing:
                check_changeable(changes, texts_of(self._config), (type(self._config),))
                changed = self._config.changed(changes)
                self._check_start(changed)
                await self._run(lambda: self._store(self._disk, changed))
                become(self._config, changed)
        except ConfigError as error:
            raise RequestRefusedError(str(error)) from error
        except DiskFaultError as error:
            self._log.error("settings: update failed: %s", error)
            raise RequestRefusedError(hide_paths(str(error))) from error
        self._on_change()
        return request.response(ResponseCode.SUCCESS)

    def show(self, request: Command, _: Connection) -> Command:
        """All settings but secrets."""
        return request.response(ResponseCode.SUCCESS, body=as_properties(masked(texts_of(self._config))).encode())
