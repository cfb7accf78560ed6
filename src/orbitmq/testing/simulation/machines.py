"""Machines of a simulated cluster: a name server or broker, with a disk and a clock that outlive its processes."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from typing import TYPE_CHECKING

from orbitmq.broker import Broker, load_settings
from orbitmq.broker.autoswitch.broker import ControlledBroker
from orbitmq.broker.autoswitch.master import AutoSwitchMaster
from orbitmq.broker.config.feature_defaults import FEATURES
from orbitmq.controller import Controller, ControllerConfig
from orbitmq.nameserver import NameServer
from orbitmq.nameserver.config import NameServerConfig
from orbitmq.platform.memory_budget import MemoryBudget
from orbitmq.store.errors import StoreError
from orbitmq.testing.simulation.disk import MemoryDisk
from orbitmq.testing.simulation.event_loop import Process, running_as
from orbitmq.testing.simulation.switched_disk import SwitchedDisk

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from orbitmq.broker.config.loader import BrokerSettings
    from orbitmq.testing.simulation.event_loop import SimulatedLoop
    from orbitmq.testing.simulation.histories.controller import ControllerHistory

EPOCH_MS = 1_700_000_000_000
"""When every simulation begins."""

NAME_SERVER_PORT = 9876
CONTROLLER_PORT = 9878
BROKER_PORT = 10911

MEMORY_BYTES = 256 << 20
"""Of each server. With the budget of the process, killed servers would count as its members."""

STOP_SECONDS = 30.0
"""Patience with a server that is to stop."""

ADMIN_NETWORKS = "10.0.0.0/8"
"""Where brokers register from, and tools: the machines of the simulation."""

SETTINGS = {
    "adminNetworks": ADMIN_NETWORKS,
    # Small files, so that the log rolls over many times in a run.
    "mappedFileSizeCommitLog": str(256 << 10),
    "mappedFileSizeConsumeQueue": str(20 * 500),
    "maxMessageSize": str(32 << 10),
    "maxHashSlotNum": "1000",
    "maxIndexNum": "4000",
    # The clock may jump by days, and the messages are still to be there.
    "fileReservedTime": "876000",
    "diskMaxUsedSpaceRatio": "99",
    "flushDiskType": "SYNC_FLUSH",
    "transactionTimeOut": "3000",
    "transactionCheckInterval": "5000",
    "transactionCheckMax": "1000",
    "registerNameServerPeriod": "10000",
    **FEATURES,
}
"""Settings of simulated brokers, by RocketMQ's keys."""


class SkewedClock:
    """The clock of a machine: virtual time, and how far it is wrong. Its local time is UTC."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self.skew_ms = 0

    def now_ms(self) -> int:
        return EPOCH_MS + self.skew_ms + int(self._seconds() * 1000)

    def monotonic(self) -> float:
        return self._seconds()

    def hour(self) -> int:
        return time.gmtime(self.now_ms() // 1000).tm_hour

    def stamp(self) -> str:
        now = self.now_ms()
        return time.strftime("%Y%m%d%H%M%S", time.gmtime(now // 1000)) + f"{now % 1000:03d}"


class Machine:
    """A host that runs one server process at a time."""

    def __init__(self, loop: SimulatedLoop, name: str, host: str, rng: random.Random) -> None:
        self.name = name
        self.host = host
        self.clock = SkewedClock(loop.time)
        self.process: Process | None = None
        self.starts = 0
        self.has_failed = False
        """Its server ended in an error while it started; it is started again."""
        self._loop = loop
        self._random = rng
        self.disk = MemoryDisk(rng.getrandbits(32), clock=self.clock, check_reservations=False)

    @property
    def is_up(self) -> bool:
        return self.process is not None

    def start(self) -> asyncio.Task[None]:
        """Start the process; the task ends when its server listens, or has failed to."""
        assert self.process is None, f"{self.name} runs already"
        self.process = process = Process(self.name, self.host)
        self.starts += 1
        self.has_failed = False
        self._loop.network.power_on(self.host)
        with running_as(process):
            return self._loop.create_task(self._run(process))

    async def _run(self, process: Process) -> None:
        try:
            await self._serve()
        except Exception:
            if self.process is process and not process.is_dead:
                self.has_failed = True
            raise

    async def _serve(self) -> None:
        raise NotImplementedError

    async def _stop(self) -> None:
        raise NotImplementedError

    async def stop(self) -> None:
        """Stop in an orderly way."""
        process = self.process
        if process is None:
            return
        with running_as(process):
            stopping = self._loop.create_task(self._stop())
        # It may be paused or killed meanwhile; who stops a server kills it in the end, too.
        await asyncio.wait([stopping], timeout=STOP_SECONDS)
        if stopping.done():
            # With a disk that fails, it ends without its last writes.
            with contextlib.suppress(StoreError):
                stopping.result()
        if self.process is not process:
            return
        self.process = None
        self._loop.kill(process)
        self.disk = self.disk.kill()

    def kill(self) -> None:
        """As kill -9: what was written is in the page cache and stays."""
        self._end()
        self.disk = self.disk.kill()

    def cut_power(self, seed: int) -> None:
        """Lose, tear or keep what was not synced; peers see nothing."""
        self._end()
        self._loop.network.power_off(self.host)
        self.disk = self.disk.power_cut(seed)

    def lose_disk(self) -> None:
        """The process ends, and the next one finds an empty disk."""
        self._end()
        self.disk = MemoryDisk(self._random.getrandbits(32), clock=self.clock, check_reservations=False)

    def _end(self) -> None:
        process, self.process = self.process, None
        if process is not None:
            self._loop.kill(process)

    def pause(self) -> None:
        if self.process is not None:
            self._loop.pause(self.process)

    def resume(self) -> None:
        if self.process is not None and self.process.is_paused:
            self._loop.resume(self.process)


class NameServerMachine(Machine):
    """A name server. What it knows is in memory."""

    server: NameServer

    @property
    def address(self) -> str:
        return f"{self.host}:{NAME_SERVER_PORT}"

    async def _serve(self) -> None:
        config = NameServerConfig(
            listen_port=NAME_SERVER_PORT,
            bind_address=self.host,
            kv_config_path="/nameserver/kvConfig.json",
            config_store_path="/nameserver/namesrv.properties",
            admin_networks=ADMIN_NETWORKS,
            support_acting_master=True,
        )
        self.server = NameServer(config, disk=SwitchedDisk(self.disk), memory=MemoryBudget(MEMORY_BYTES))
        await self.server.start()

    async def _stop(self) -> None:
        await self.server.stop()


class ControllerMachine(Machine):
    """A controller with its event log."""

    server: Controller
    scan_interval = 5000
    """Milliseconds between two searches for groups without a master."""

    @property
    def address(self) -> str:
        return f"{self.host}:{CONTROLLER_PORT}"

    async def _serve(self) -> None:
        config = ControllerConfig(
            listen_port=CONTROLLER_PORT,
            bind_address=self.host,
            controller_store_path="/controller",
            config_store_path="/controller/controller.properties",
            admin_networks=ADMIN_NETWORKS,
            scan_inactive_master_interval=self.scan_interval,
        )
        disk, memory = SwitchedDisk(self.disk), MemoryBudget(MEMORY_BYTES)
        self.server = Controller(config, disk=disk, clock=self.clock, memory=memory)
        await self.server.start()

    async def _stop(self) -> None:
        await self.server.stop()


class BrokerMachine(Machine):
    """A broker."""

    def __init__(
        self, loop: SimulatedLoop, name: str, host: str, rng: random.Random, settings: Mapping[str, str]
    ) -> None:
        super().__init__(loop, name, host, rng)
        self._broker: Broker | None = None
        self._texts = {
            **SETTINGS,
            "brokerName": name,
            "brokerIP1": host,
            "brokerIP2": host,
            "bindAddress": host,
            "listenPort": str(BROKER_PORT),
            "storePathRootDir": "/store",
            **settings,
        }

    def change(self, settings: Mapping[str, str]) -> None:
        """Change settings before the first start."""
        assert not self.starts, f"{self.name} was started"
        self._texts |= settings

    @property
    def address(self) -> str:
        return f"{self.host}:{BROKER_PORT}"

    @property
    def broker_name(self) -> str:
        """The name that clients see."""
        return self._texts["brokerName"]

    @property
    def broker(self) -> Broker:
        """The broker of the last start."""
        assert self._broker is not None, f"{self.name} has not started"
        return self._broker

    @property
    def settings(self) -> BrokerSettings:
        return self.broker.settings

    def _load(self, disk: SwitchedDisk) -> BrokerSettings:
        settings, unknown = load_settings(disk, None, self._texts)
        assert not unknown, unknown
        return settings

    async def _serve(self) -> None:
        disk = SwitchedDisk(self.disk)
        self._broker = Broker(
            self._load(disk),
            disk=disk,
            clock=self.clock,
            memory=MemoryBudget(MEMORY_BYTES),
            random_source=random.Random(self._random.getrandbits(32)),
        )
        await self._broker.start()

    async def _stop(self) -> None:
        await self.broker.stop()


class ReplicaMachine(BrokerMachine):
    """A broker whose role a controller decides. Its lease runs while its process is paused."""

    replica: ControlledBroker
    calls: ControllerHistory | None = None
    """Records the requests to the controller."""

    @property
    def is_open(self) -> bool:
        """True while its process runs, or is paused, and has its store open."""
        return self.is_up and hasattr(self, "replica") and self.replica.broker is not None

    @property
    def broker(self) -> Broker:
        """The broker that was opened for the present role."""
        assert self.replica.broker is not None, f"{self.name} changes its role"
        return self.replica.broker

    @property
    def settings(self) -> BrokerSettings:
        return self.replica.settings

    @property
    def master(self) -> AutoSwitchMaster | None:
        """The HA listener, while it believes to be the master."""
        if not self.is_open or not self.replica.term.is_master:
            return None
        replication = self.broker.replication
        return replication if isinstance(replication, AutoSwitchMaster) else None

    async def _serve(self) -> None:
        disk = SwitchedDisk(self.disk)
        self.replica = ControlledBroker(
            self._load(disk),
            disk=disk,
            clock=self.clock,
            memory=MemoryBudget(MEMORY_BYTES),
            random_source=random.Random(self._random.getrandbits(32)),
            lease_clock=self._loop.time,
        )
        if self.calls is not None:
            self.replica.observer = self.calls.observer(self.name)
        await self.replica.start()

    async def _stop(self) -> None:
        await self.replica.stop()
