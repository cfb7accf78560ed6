"""A master with its slaves as processes on this machine, of OrbitMQ or of Apache RocketMQ."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import sys
from typing import TYPE_CHECKING

from bench.replicas.controlled import CONTROLLED, controller_of, set_size, start_controlled
from bench.server.systems import APACHE, APACHE_HEAP, ORBITMQ, Server, java_server, start_apache, start_orbitmq
from bench.server.usage import processor_seconds
from orbitmq.protocol.bodies import HARuntimeInfo
from peers.frames import ask
from peers.ports import free_port, is_listening
from peers.process import PeerProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

GET_BROKER_HA_STATUS = 907
START_SECONDS = 60
CATCH_UP_SECONDS = 120

# Pairs are halted while others are measured, which must not end their connections.
SHARED = {"haHousekeepingInterval": "3600000", "haSendHeartbeatInterval": "500", "brokerName": "broker-a"}


@dataclasses.dataclass(frozen=True, slots=True)
class Shape:
    """A system to measure: whose brokers, and how they are replicated."""

    system: str
    slaves: int
    is_sync: bool = False
    is_controlled: bool = False
    """A controller names the master, and sends wait for the whole sync state set."""

    @property
    def name(self) -> str:
        if not self.slaves:
            return f"{self.system}, no slave"
        if self.is_controlled:
            return f"{self.system}, controller mode, {self.slaves} slave(s)"
        return f"{self.system}, {'SYNC' if self.is_sync else 'ASYNC'}_MASTER, {self.slaves} slave(s)"

    @property
    def settings(self) -> dict[str, str]:
        role = "SYNC_MASTER" if self.is_sync else "ASYNC_MASTER"
        needed = str(1 + self.slaves if self.is_sync else 1)
        settings = {**SHARED, "totalReplicas": str(1 + self.slaves), "inSyncReplicas": needed}
        return {**settings, **CONTROLLED} if self.is_controlled else {**settings, "brokerRole": role}


class Pair:
    """A running master and its slaves, which are halted outside their turns."""

    def __init__(self, shape: Shape, home: Path) -> None:
        self.shape = shape
        self._home = home
        start: Callable[[Path, Mapping[str, str]], Server]
        start = start_orbitmq if shape.system == ORBITMQ else start_apache
        if shape.is_controlled:
            start = start_controlled
        self.master: Server = start(home / "master", shape.settings)
        self.slaves: list[PeerProcess] = []

    def add_slaves(self) -> None:
        for number in range(1, self.shape.slaves + 1):
            self.slaves.append(self._slave(number))
        if self.slaves:
            self.slaves[-1].wait_until(
                lambda: self.in_sync() == self.shape.slaves, what="in sync", seconds=START_SECONDS
            )
        if self.shape.is_controlled:
            self.slaves[-1].wait_until(
                lambda: set_size(self._home / "master", SHARED["brokerName"]) == 1 + self.shape.slaves,
                what="in the sync state set",
                seconds=START_SECONDS,
            )

    def exchange_slave(self) -> None:
        """Start an empty slave in the place of the only one. Does not wait until it is in sync."""
        self.slaves.pop().kill()
        self.slaves.append(self._slave(2))

    def _slave(self, number: int) -> PeerProcess:
        home = self._home / f"slave-{number}"
        home.mkdir(parents=True)
        master_port = int(self.master.address.rpartition(":")[2])
        port = free_port(-2, 1)
        settings = {
            **SHARED,
            "brokerIP1": "127.0.0.1",
            "brokerIP2": "127.0.0.1",
            "listenPort": str(port),
            "storePathRootDir": str(home / "store"),
            "storePathCommitLog": str(home / "store" / "commitlog"),
            "fileReservedTime": "876000",
        }
        if self.shape.is_controlled:
            settings |= {**CONTROLLED, "controllerAddr": controller_of(self._home / "master")}
        else:
            settings |= {"brokerRole": "SLAVE", "brokerId": str(number)}
        if self.shape.system == ORBITMQ and not self.shape.is_controlled:
            # Apache's slave of 5.5.0 connects to "null" if it is given; its name server has the address.
            settings["haMasterAddress"] = f"127.0.0.1:{master_port + 1}"
        if self.shape.system == ORBITMQ:
            conf = home / "broker.conf"
            conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), "utf-8")
            command = [sys.executable, "-m", "orbitmq", "broker", "-c", str(conf), "-n", self.master.nameserver]
            process = PeerProcess("orbitmq broker", command, home=home, environment={})
        else:
            main, arguments = "org.apache.rocketmq.broker.BrokerStartup", ("-n", self.master.nameserver)
            process = java_server(APACHE, main, arguments, settings, APACHE_HEAP, home)
        process.wait_until(lambda: is_listening(f"127.0.0.1:{port}"), what="listening", seconds=START_SECONDS)
        return process

    def status(self) -> HARuntimeInfo:
        return HARuntimeInfo.decode(ask(self.master.address, GET_BROKER_HA_STATUS).body)

    def in_sync(self) -> int:
        return sum(slave.in_sync for slave in self.status().ha_connection_info)

    def is_copied(self) -> bool:
        slaves = self.status().ha_connection_info
        return len(slaves) == self.shape.slaves and not any(slave.diff for slave in slaves)

    def has_copied(self, offset: int) -> bool:
        """Whether all slaves have the log up to an offset."""
        slaves = self.status().ha_connection_info
        return len(slaves) == self.shape.slaves and all(slave.slave_ack_offset >= offset for slave in slaves)

    def slave_seconds(self) -> float:
        """Processor time of all slaves."""
        return sum(processor_seconds(slave.pid) for slave in self.slaves)

    def halt(self) -> None:
        self.master.halt()
        self._signal(signal.SIGSTOP)

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        self._signal(signal.SIGCONT)
        try:
            with self.master.turn():
                yield
        finally:
            self._signal(signal.SIGSTOP)

    def _signal(self, number: signal.Signals) -> None:
        for slave in self.slaves:
            os.killpg(slave.pid, number)

    def close(self) -> None:
        for slave in self.slaves:
            slave.kill()
        self.master.__exit__()
