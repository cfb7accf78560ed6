"""Composition root of the controller: storage, liveness, elections, processors and the listening socket."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from orbitmq.auth.access import AccessControl, Place
from orbitmq.auth.requirements import Environment
from orbitmq.controller.admin_requests import AdminRequests
from orbitmq.controller.broker_requests import BrokerRequests
from orbitmq.controller.config import ControllerConfig
from orbitmq.controller.elections import Elections
from orbitmq.controller.liveness import Liveness
from orbitmq.controller.notifications import Notifications
from orbitmq.controller.service import ControllerService
from orbitmq.controller.storage import storage_of
from orbitmq.platform.clock import SYSTEM_CLOCK
from orbitmq.platform.local_disk import LocalDisk
from orbitmq.platform.memory_budget import budget_of
from orbitmq.platform.settings import ConfigError
from orbitmq.platform.threads import in_thread
from orbitmq.remoting import Listener, RemotingServer
from orbitmq.remoting.processor import handler_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.controller.storage.interface import GroupStorage
    from orbitmq.platform.clock import Clock
    from orbitmq.platform.disk import Disk
    from orbitmq.platform.memory_budget import MemoryBudget
    from orbitmq.platform.threads import RunBlocking
    from orbitmq.remoting import Connection, Handler, ServerTls


class Controller:
    """A controller. Sockets and timers come from the running event loop; disk and clock are arguments."""

    def __init__(
        self,
        config: ControllerConfig | None = None,
        *,
        disk: Disk | None = None,
        clock: Clock = SYSTEM_CLOCK,
        storage: GroupStorage | None = None,
        tls: ServerTls | None = None,
        run_blocking: RunBlocking = in_thread,
        memory: MemoryBudget | None = None,
        access: AccessControl | None = None,
    ) -> None:
        """``storage`` takes the place of that of the settings; ``memory`` and ``access`` are shared with other
        servers of the process."""
        # Loopback unless a configuration is given.
        self.config = config = config or ControllerConfig(bind_address="127.0.0.1", listen_port=0)
        self._clock = clock
        disk = disk or LocalDisk()
        own = config.own_peer
        self._port = config.listen_port if own is None else own.port
        self.storage = storage or storage_of(config, disk, clock, run_blocking, self._own_id)
        self.liveness = Liveness(config.max_brokers, self._now_ms())
        self.service = ControllerService(self.storage, self.liveness, config, self._now_ms, clock.monotonic)
        self.elections = Elections(self.service, config, self._now_ms)
        directory = os.path.join(config.store_path, "config")
        self._owns_access = access is None
        self.access = access or AccessControl(
            config, Place(disk, directory, run_blocking, clock.now_ms), home=config.rocketmq_home
        )
        self.metrics = self.service.metrics
        processors = {
            **BrokerRequests(self.service, self.elections, config, self._now_ms).processors,
            **AdminRequests(self.service, config, disk, run_blocking, self._now_ms).processors,
        }
        handlers = {int(code): handler_of(self.metrics.measured(code, one)) for code, one in processors.items()}
        # A controller belongs to no cluster: a rule for all of them is meant for it.
        self.handlers: Mapping[int, Handler] = self.access.guarded(handlers, Environment("", lambda _: None))
        self._server = RemotingServer(
            [Listener(self.handlers, self._port, config.bind_address)],
            limits=config.remoting_limits(config.server_channel_max_idle_time_seconds),
            tls=tls or config.server_tls,
            trusted_proxies=config.trusted_proxies,
            budget=memory or budget_of(config.remoting_memory_budget),
            on_close=self.connection_closed,
        )
        self._notifications: Notifications | None = None

    @property
    def port(self) -> int:
        """The port it listens on, after ``start``."""
        return self._server.ports[0]

    @property
    def _own_id(self) -> str:
        """Id among the controllers: of its entry, or the address that etcd shows the others."""
        own = self.config.own_peer
        if own is not None:
            return own.id
        if not self.config.is_on_etcd:
            return "n0"
        if self.config.controller_address:
            return self.config.controller_address
        if self._port == 0 or self.config.bind_address in {"0.0.0.0", "::", "[::]"}:  # noqa: S104 - compared
            raise ConfigError(
                "controllerStoreType=etcd: brokers and controllers need an address of this controller; give "
                "controllerDLegerPeers and controllerDLegerSelfId, or controllerAddress"
            )
        return f"{self.config.bind_address}:{self._port}"

    @property
    def address(self) -> str:
        """The address that brokers are given, after ``start``."""
        own = self.config.own_peer
        if self.config.controller_address:
            return self.config.controller_address
        if own is not None and own.port:
            return own.address
        host = self.config.bind_address
        return f"[{host}]:{self.port}" if ":" in host and not host.startswith("[") else f"{host}:{self.port}"

    async def start(self) -> None:
        """Load the state and listen. Raises StoreError, RemotingError, MetricsEndpointError."""
        if self._owns_access:
            self.access.load()
        notifications = Notifications(self.access.signer, self.config.client_tls)
        self.elections.start(notifications)
        try:
            await self.metrics.start()
            await self._server.start()
            self.storage.address = self.address
            self.storage.on_lead = self.elections.check_masters
            await self.storage.start()
        except BaseException:
            await self.metrics.stop()
            await self.elections.stop()
            await notifications.close()
            await self._server.stop(0)
            raise
        self._notifications = notifications
        if self._owns_access:
            self.access.start()

    async def stop(self, grace: float = 5.0) -> None:
        """Stop listening, send deferred responses, and close all connections."""
        await self.metrics.stop()
        await self.elections.stop()
        await self._server.stop(grace)
        await self.storage.stop()
        notifications, self._notifications = self._notifications, None
        if notifications is not None:
            await notifications.close()
        if self._owns_access:
            await self.access.stop()

    def connection_closed(self, connection: Connection, _: Exception | None = None) -> None:
        """The brokers of a closed connection are dead; another master is elected where one of them was master."""
        self.elections.disconnected(connection)

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)
