"""What operators ask about a broker's settings: all of them, and to change some while it runs."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from orbitmq.protocol.bodies import DataVersion
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.remoting.processing import RequestRefusedError, handler_of
from orbitmq.settings import ConfigError, parse_conf
from orbitmq.store.conf_file import replace_conf
from orbitmq.store.errors import DiskFaultError

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.broker.settings import BrokerSettings
    from orbitmq.protocol.command import Command
    from orbitmq.remoting import Connection, Handler
    from orbitmq.store.clock import Clock
    from orbitmq.store.disk import Disk
    from orbitmq.store.service import RunBlocking

log = logging.getLogger("orbitmq.broker")


class ConfigRequests:
    """Processors for settings.

    ``on_change`` is called when any were changed, and ``on_permission_change`` when ``brokerPermission`` was.
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
        """All settings; those that wait for a restart as they will be then."""
        return request.response(
            ResponseCode.SUCCESS,
            ext_fields={"version": self.data_version.encode().decode()},
            body=self._settings.as_properties().encode(),
        )

    async def update(self, request: Command, _: Connection) -> Command:
        """Change settings and write all of them to their file. One bad value refuses the whole request."""
        if request.body is None:
            return request.response(ResponseCode.SUCCESS)
        # A change builds on the one before, and counts when it is on the disk.
        async with self._one_at_a_time:
            try:
                await self._change(request.body.decode("utf-8", "replace"))
            except (ConfigError, DiskFaultError) as error:
                raise RequestRefusedError(str(error)) from error
        return request.response(ResponseCode.SUCCESS)

    async def _change(self, text: str) -> None:
        settings = self._settings
        asked = parse_conf(text)
        if not settings.broker.black_list.isdisjoint(asked):
            raise RequestRefusedError("Can not update config in black list.", ResponseCode.NO_PERMISSION)
        wanted = settings.changed(asked)
        path, properties = settings.file, wanted.as_properties()
        await self._run_blocking(lambda: replace_conf(self._disk, path, properties))
        permission = settings.broker.broker_permission
        waiting = settings.become(wanted)
        self._on_change()
        version = self.data_version
        self.data_version = DataVersion(version.counter + 1, version.state_version, self._clock.now_ms())
        log.info("settings changed: %s", ", ".join(f"{key}={value}" for key, value in asked.items()))
        if waiting:
            log.warning("these settings wait for a restart: %s", ", ".join(waiting))
        if settings.broker.broker_permission != permission:
            self._on_permission_change()
