"""Admin requests for settings: read all of them, change some at run time."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from orbitmq.auth.runtime_settings.changeable import check_changeable
from orbitmq.broker.config.broker_config import BrokerConfig
from orbitmq.platform.properties_file import replace_conf
from orbitmq.platform.secret_settings import masked
from orbitmq.platform.settings import ConfigError, as_properties, parse_conf, settings_text
from orbitmq.protocol.bodies import DataVersion
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.remarks import hide_paths
from orbitmq.remoting.processor import RequestRefusedError, handler_of
from orbitmq.store.config import StoreConfig
from orbitmq.store.errors import DiskFaultError

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.broker.config.loader import BrokerSettings
    from orbitmq.platform.clock import Clock
    from orbitmq.platform.disk import Disk
    from orbitmq.platform.threads import RunBlocking
    from orbitmq.protocol.command.command import Command
    from orbitmq.remoting import Connection, Handler

log = logging.getLogger("orbitmq.broker")


class ConfigRequests:
    """Requests for settings.

    ``on_change`` is called after a change, ``on_permission_change`` after a change of ``brokerPermission``.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        disk: Disk,
        run_blocking: RunBlocking,
        clock: Clock,
        on_change: Callable[[], None],
        on_permission_change: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._disk = disk
        self._run_blocking = run_blocking
        self._clock = clock
        self._on_change = on_change
        self._on_permission_change = on_permission_change
        self._one_at_a_time = asyncio.Lock()
        self.data_version = DataVersion(timestamp=clock.now_ms())

    @property
    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.UPDATE_BROKER_CONFIG: handler_of(self.update),
            RequestCode.GET_BROKER_CONFIG: handler_of(self.show),
        }

    def show(self, request: Command, _: Connection) -> Command:
        """GET_BROKER_CONFIG: all settings but secrets; those that need a restart with their future values."""
        return request.response(
            ResponseCode.SUCCESS,
            ext_fields={"version": self.data_version.encode().decode()},
            body=as_properties(masked(self._settings.texts())).encode(),
        )

    async def update(self, request: Command, _: Connection) -> Command:
        """UPDATE_BROKER_CONFIG: change settings and write the file. One invalid value refuses the whole request."""
        if request.body is None:
            return request.response(ResponseCode.SUCCESS)
        # Serialized: a change builds on the one before, and takes effect once it is on disk.
        async with self._one_at_a_time:
            try:
                await self._change(settings_text(request.body))
            except ConfigError as error:
                raise RequestRefusedError(str(error)) from error
            except DiskFaultError as error:
                log.error("settings: update failed: %s", error)
                raise RequestRefusedError(hide_paths(str(error))) from error
        return request.response(ResponseCode.SUCCESS)

    async def _change(self, text: str) -> None:
        settings = self._settings
        requested = parse_conf(text)
        if not settings.broker.black_list.isdisjoint(requested):
            raise RequestRefusedError("Can not update config in black list.", ResponseCode.NO_PERMISSION)
        check_changeable(requested, settings.texts(), (BrokerConfig, StoreConfig))
        wanted = settings.changed(requested)
        path, properties = settings.file, wanted.as_properties()
        # Resolves host names, as a start does.
        await self._run_blocking(wanted.check_start)
        await self._run_blocking(lambda: replace_conf(self._disk, path, properties))
        permission = settings.broker.broker_permission
        waiting = settings.become(wanted)
        self._on_change()
        version = self.data_version
        self.data_version = DataVersion(version.counter + 1, version.state_version, self._clock.now_ms())
        log.info("settings: changed %s", ", ".join(f"{key}={value}" for key, value in masked(requested).items()))
        if waiting:
            log.warning("settings: restart needed for %s", ", ".join(waiting))
        if settings.broker.broker_permission != permission:
            self._on_permission_change()
