"""Composition root of the name server: tables, processors and the listening socket, with start and stop."""

from __future__ import annotations

import asyncio
import logging
import os
from typing import TYPE_CHECKING

from orbitmq.auth.access import AccessControl, Place
from orbitmq.auth.requirements import Environment
from orbitmq.nameserver.broker_expiry import BrokerExpiry
from orbitmq.nameserver.broker_requests import BrokerRequests
from orbitmq.nameserver.config import NameServerConfig
from orbitmq.nameserver.config_file import controller_config
from orbitmq.nameserver.config_requests import ConfigRequests
from orbitmq.nameserver.kv_config import KvConfig
from orbitmq.nameserver.notifications import Notifications
from orbitmq.nameserver.route_answers import RouteAnswers
from orbitmq.nameserver.route_table import RouteTable
from orbitmq.nameserver.topic_requests import TopicRequests
from orbitmq.platform.clock import SYSTEM_CLOCK
from orbitmq.platform.local_disk import LocalDisk
from orbitmq.platform.memory_budget import budget_of
from orbitmq.platform.threads import in_thread
from orbitmq.remoting import Listener, RemotingServer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from orbitmq.controller import Controller, ControllerConfig
    from orbitmq.nameserver.brokers import MinBrokerIdChange
    from orbitmq.nameserver.limits import NameServerLimits
    from orbitmq.platform.disk import Disk
    from orbitmq.platform.memory_budget import MemoryBudget
    from orbitmq.platform.threads import RunBlocking
    from orbitmq.remoting import Connection, Handler, ServerTls

log = logging.getLogger("orbitmq.nameserver")


class NameServer:
    """A name server. Sockets and timers come from the running event loop; disk and clock are arguments."""

    def __init__(
        self,
        config: NameServerConfig | None = None,
        *,
        disk: Disk | None = None,
        now_ms: Callable[[], int] | None = None,
        limits: NameServerLimits | None = None,
        tls: ServerTls | None = None,
        run_blocking: RunBlocking = in_thread,
        memory: MemoryBudget | None = None,
        access: AccessControl | None = None,
        controller: ControllerConfig | None = None,
    ) -> None:
        """``controller`` are the settings of the controller that ``enableControllerInNamesrv`` runs here.

        ``memory`` is a budget shared with other servers, instead of the one of the settings.

        ``access`` is shared with a broker of this process, which then knows the same users.

        ``now_ms`` is the clock of heartbeat timeouts; by default the event loop's, which is monotonic.
        """
        # Loopback unless a configuration is given.
        self.config = config = config or NameServerConfig(bind_address="127.0.0.1")
        self._now_ms = now_ms or _loop_ms
        self._started_ms = 0
        disk = disk or LocalDisk()
        limits = limits or config.limits
        self.table = RouteTable(limits, self._changed)
        self._kv_config = KvConfig(disk, config.kv_config_path, limits, run_blocking)
        self._answers = RouteAnswers(self.table, self._kv_config, config, self._uptime_ms)
        self._notifications: Notifications | None = None
        brokers = BrokerRequests(self.table, self._kv_config, config, limits, self._now_ms, self._notify)
        place = Place(
            disk, os.path.join(os.path.dirname(config.kv_config_path), "config"), run_blocking, SYSTEM_CLOCK.now_ms
        )
        self.access = access or AccessControl(config, place, home=config.rocketmq_home)
        handlers = {
            **self._answers.handlers,
            **brokers.handlers,
            **TopicRequests(self.table, config, limits).handlers,
            **ConfigRequests(self._kv_config, config, disk, self._changed, run_blocking).handlers,
        }
        # A name server belongs to no cluster: a rule for all of them is meant for it.
        self.handlers: Mapping[int, Handler] = self.access.guarded(handlers, Environment("", lambda _: None))
        self.memory = memory or budget_of(config.remoting_memory_budget)
        self._server = RemotingServer(
            [Listener(self.handlers, config.listen_port, config.bind_address)],
            limits=config.remoting_limits(config.server_channel_max_idle_time_seconds),
            tls=tls or config.server_tls,
            trusted_proxies=config.trusted_proxies,
            budget=self.memory,
            on_close=self.connection_closed,
        )
        self.expiry = BrokerExpiry(self.table, config, self._now_ms, self._notify)
        self.controller: Controller | None = None
        if config.enable_controller_in_namesrv:
            # Most name servers have none, and start faster without its code.
            from orbitmq.controller import Controller  # noqa: PLC0415

            self.controller = Controller(
                controller or controller_config(disk, {}, config),
                disk=disk,
                tls=tls,
                run_blocking=run_blocking,
                memory=self.memory,
                access=self.access,
            )

    @property
    def port(self) -> int:
        """The port it listens on, after ``start``."""
        return self._server.ports[0]

    async def start(self) -> None:
        """Load the files and listen. Raises StoreError, RemotingError."""
        if self.config.cluster_test:
            log.warning("settings: clusterTest=true has no effect")
        self._kv_config.load()
        self.access.load()
        self._started_ms = self._now_ms()
        self._notifications = Notifications(self.access.signer, self.config.client_tls)
        try:
            await self._server.start()
        except BaseException:
            await self._notifications.close()
            raise
        if self.controller is not None:
            try:
                await self.controller.start()
            except BaseException:
                await self._notifications.close()
                await self._server.stop(0)
                raise
        self.access.start()
        self.expiry.start()

    async def stop(self, grace: float = 5.0) -> None:
        """Stop listening, send deferred responses, and close all connections."""
        self.expiry.stop()
        notifications, self._notifications = self._notifications, None
        if notifications is not None:
            await notifications.close()
        if self.controller is not None:
            await self.controller.stop(grace)
        await self._server.stop(grace)
        await self.access.stop()
        await self._kv_config.stop()

    def connection_closed(self, connection: Connection, _: Exception | None = None) -> None:
        """Remove the brokers of a closed connection from all routes."""
        self.expiry.remove_connected(connection)

    def _notify(self, change: MinBrokerIdChange) -> None:
        if self.config.notify_min_broker_id_changed and self._notifications is not None:
            self._notifications.send(change)

    def _changed(self, topic: str | None) -> None:
        self._answers.invalidate(topic)

    def _uptime_ms(self) -> int:
        return self._now_ms() - self._started_ms


def _loop_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1000)
