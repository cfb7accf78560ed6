"""One server of a local cluster: it keeps its port and its disk while it is stopped, killed and started again."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from orbitmq.broker import Broker, load_settings
from orbitmq.broker.config.feature_defaults import FEATURES
from orbitmq.nameserver import NameServer
from orbitmq.nameserver.config import NameServerConfig
from orbitmq.platform.settings import ConfigError
from orbitmq.remoting import ListenError
from orbitmq.store import FlushDiskType, StoreError
from orbitmq.testing.replica_link import ReplicaLink

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.broker import BrokerSettings
    from orbitmq.testing.simulation.loop_clock import MovableClock
    from orbitmq.testing.simulation.switched_disk import SwitchedDisk

HOST = "127.0.0.1"

SETTINGS = {
    # Small files, so that creating, comparing and removing them takes no time; the largest message still fits.
    "mappedFileSizeCommitLog": str(8 << 20),
    "mappedFileSizeConsumeQueue": str(20 * 10_000),
    "maxHashSlotNum": "10000",
    "maxIndexNum": "50000",
    # Time may be moved ahead by days, and the messages are still to be there.
    "fileReservedTime": "876000",
    # A test process may stand still for seconds on a busy machine. Sends would be refused then, and oneway
    # messages would be lost.
    "osPageCacheBusyTimeOutMills": "60000",
    "waitTimeMillsInSendQueue": "60000",
    **FEATURES,
}
"""Default settings of brokers, by RocketMQ's keys."""

OWN_KEYS = frozenset(
    ["bindAddress", "brokerIP1", "brokerIP2", "brokerName", "listenPort", "namesrvAddr", "storePathRootDir"]
)
"""Settings that follow from the cluster and cannot be given."""

ATTEMPTS = 10
"""Attempts to find a free pair of ports: another process may take them before they are used."""


class NameServerNode:
    """A name server."""

    def __init__(self, name: str, root: str, disk: SwitchedDisk, *, has_controller: bool = False) -> None:
        self.name = name
        self._has_controller = has_controller
        self._controller_port = 0
        self.server: NameServer | None = None
        self._root = root
        self._disk = disk
        self._port = 0

    @property
    def address(self) -> str:
        assert self._port, "not started yet"
        return f"{HOST}:{self._port}"

    @property
    def controller_address(self) -> str:
        assert self._controller_port, "no controller"
        return f"{HOST}:{self._controller_port}"

    async def start(self) -> None:
        if self.server is not None:
            return
        controller = None
        if self._has_controller:
            # Many tests have no controller, and start faster without its code.
            from orbitmq.controller import ControllerConfig  # noqa: PLC0415

            controller = ControllerConfig(
                bind_address=HOST,
                listen_port=self._controller_port,
                controller_store_path=f"{self._root}/controller",
                config_store_path=f"{self._root}/controller.properties",
                scan_not_active_broker_interval=100,
                scan_inactive_master_interval=200,
            )
        config = NameServerConfig(
            listen_port=self._port,
            bind_address=HOST,
            kv_config_path=f"{self._root}/kvConfig.json",
            config_store_path=f"{self._root}/namesrv.properties",
            enable_controller_in_namesrv=self._has_controller,
        )
        server = NameServer(config, disk=self._disk, controller=controller)
        await server.start()
        self.server, self._port = server, server.port
        if server.controller is not None:
            self._controller_port = server.controller.port

    async def stop(self, grace: float = 1.0) -> None:
        server, self.server = self.server, None
        if server is not None:
            await server.stop(grace)

    async def kill(self) -> None:
        """Close all connections at once. What a name server has is in memory, so nothing more is lost."""
        await self.stop(0)

    def close(self) -> None:
        self._disk.close()


class BrokerNode:
    """A broker."""

    def __init__(
        self,
        name: str,
        root: str,
        disk: SwitchedDisk,
        settings: Mapping[str, str],
        clock: MovableClock,
        *,
        master: BrokerNode | None = None,
        broker_id: int = 0,
    ) -> None:
        """A slave of ``master``, if that is given. Raises ConfigError."""
        if taken := sorted(OWN_KEYS & settings.keys()):
            raise ConfigError(f"{taken[0]}={settings[taken[0]]}: a local cluster sets it itself")
        self.name = name
        self._broker: Broker | None = None
        self.disk = disk
        self._texts = {
            **SETTINGS,
            **settings,
            "brokerName": name if master is None else master.name,
            "brokerIP1": HOST,
            "brokerIP2": HOST,
            "bindAddress": HOST,
            "storePathRootDir": root,
        }
        self.group = self._texts["brokerName"]
        self.broker_id = broker_id
        self.link: ReplicaLink | None = None
        if master is not None:
            self._texts |= {"brokerRole": "SLAVE", "brokerId": str(broker_id)}
            self.link = ReplicaLink(lambda: 0 if master.broker is None else master.broker.replication.port)
        self._clock = clock
        self._port = 0

    @property
    def broker(self) -> Broker | None:
        """The broker, if it runs."""
        return self._broker

    @property
    def is_master(self) -> bool:
        return self.broker_id == 0

    @property
    def address(self) -> str:
        assert self._port, "not started yet"
        return f"{HOST}:{self._port}"

    async def start(self, name_servers: str) -> None:
        """Returns when the name servers know the broker, those that are not there excepted."""
        if self.broker is not None:
            return
        texts = {**self._texts, "namesrvAddr": name_servers}
        if self.link is not None:
            await self.link.start()
            texts["haMasterAddress"] = self.link.address
        broker = await self._started(texts)
        self._broker, self._port = broker, broker.port
        await broker.registration.settled()

    async def _started(self, texts: dict[str, str], attempts: int = ATTEMPTS) -> Broker:
        settings = self._loaded(texts)
        broker = Broker(settings, disk=self.disk, clock=self._clock)
        try:
            await broker.start()
        except ListenError:
            if self._port or attempts == 1:
                raise
            return await self._started(texts, attempts - 1)
        return broker

    def _loaded(self, texts: dict[str, str]) -> BrokerSettings:
        settings, unknown = load_settings(self.disk, None, {**texts, "listenPort": str(self._port)})
        if unknown:
            raise ConfigError(f"{unknown[0]}={texts[unknown[0]]}: a broker has no such setting")
        return settings

    def hold(self, *, is_held: bool) -> None:
        """Hang, or go on."""
        assert self._broker is not None, "not started"
        self._broker.hold(is_held=is_held)

    async def stop(self) -> None:
        broker, self._broker = self._broker, None
        if broker is not None:
            await broker.stop()

    async def kill(self, seed: int | None = None) -> None:
        """End it without a word to anybody; what was not on the disk is lost."""
        broker, self._broker = self._broker, None
        if broker is None:
            return
        dead, self.disk = self.disk, self.disk.power_off(seed)
        forget_name_servers(broker)
        for connection in broker.connections:
            connection.abort()
        # No peer is connected any more, and the disk of a killed broker refuses writes.
        with contextlib.suppress(StoreError):
            await broker.stop()
        dead.close()

    async def meet(self, address: str) -> None:
        """Register with a name server that came back, without the pause that follows a failure."""
        if self.broker is None:
            return
        config, registration = self.broker.settings.broker, self.broker.registration
        everybody = config.namesrv_addr
        config.namesrv_addr = ";".join(one for one in config.name_servers if one != address)
        registration.register_soon()
        config.namesrv_addr = everybody
        registration.register_soon()
        await registration.settled()

    async def before_time_passes(self) -> None:
        """Let what was sent for a time be entered now, and not as if it had come late."""
        broker = self.broker
        if broker is not None and broker.timer is not None:
            await self._show_all(broker)
            while broker.timer.run_slice() <= self._clock.now_ms():  # noqa: ASYNC110
                await asyncio.sleep(0)

    async def time_passed(self, ms: int) -> None:
        """Deliver what has come due by an advance of the clock, and ask about transactions that are open."""
        broker = self.broker
        if broker is None:
            return
        # Clients live in real time and could not have sent the heartbeats of the time that was skipped.
        for members in (
            *(group.members for group in broker.clients.consumers.values()),
            *broker.clients.producers.values(),
        ):
            for member in members.values():
                member.last_update_ms += ms
        await self._show_all(broker)
        while broker.schedule.deliver_due() <= self._clock.now_ms():  # noqa: ASYNC110  # a turn's worth each
            await asyncio.sleep(0)
        while broker.timer is not None and broker.timer.run_slice() <= self._clock.now_ms():  # noqa: ASYNC110
            await asyncio.sleep(0)
        if ms >= broker.settings.broker.transaction_check_interval:
            await broker.checks.check()
        await self._show_all(broker)

    @staticmethod
    async def _show_all(broker: Broker) -> None:
        """Under SYNC_FLUSH, messages are seen when they are on the disk."""
        if broker.store.config.flush_disk_type is FlushDiskType.SYNC_FLUSH:
            with contextlib.suppress(StoreError):
                await broker.service.flushed(broker.store.log.end)

    async def close_link(self) -> None:
        if self.link is not None:
            await self.link.close()

    def close(self) -> None:
        self.disk.close()


def forget_name_servers(broker: Broker) -> None:
    """Leave the links to name servers without telling them."""
    broker.settings.broker.namesrv_addr = ""
    broker.registration.register_soon()
