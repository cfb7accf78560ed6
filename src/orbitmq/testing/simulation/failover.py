"""FailoverCluster: a simulated cluster whose broker is a group of three replicas under a controller.

Every third seed has one. What is observed on the way: the master of each epoch, and the confirm offset.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

from orbitmq.protocol.message.message_id import decode_offset_id
from orbitmq.testing.simulation.cluster import SimulatedCluster
from orbitmq.testing.simulation.faults.kinds import BROKER_KINDS, FAILOVER_KINDS
from orbitmq.testing.simulation.histories.controller import ControllerHistory
from orbitmq.testing.simulation.histories.messages import Kind, Outcome
from orbitmq.testing.simulation.machines import ControllerMachine, ReplicaMachine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from orbitmq.store.replication.epochs import Epochs
    from orbitmq.testing.simulation.faults.kinds import FaultKind
    from orbitmq.testing.simulation.machines import BrokerMachine, Machine

SHARE = 3
"""One seed of so many has a controller."""

REPLICAS = 3

GROUP = "broker-0"

LOOK_SECONDS = 0.05
"""How often the replicas are observed."""

MASTER_SECONDS = 60.0
"""Virtual time after the last fault within which there is a master with all replicas in sync."""

LEASE_SECONDS = 3

FENCE_SECONDS = 1.0
"""A master that goes on after a pause needs a moment to see that its lease is over."""

CONTROLLED = {
    "brokerName": GROUP,
    "enableControllerMode": "true",
    "allAckInSyncStateSet": "true",
    "totalReplicas": str(REPLICAS),
    "syncFlushTimeout": "3000",
    "haHousekeepingInterval": "5000",
    "haSendHeartbeatInterval": "1000",
    "haMaxTimeSlaveNotCatchup": "5000",
    "controllerHeartBeatTimeoutMills": str(LEASE_SECONDS * 1000),
    "brokerHeartbeatInterval": "500",
    "syncBrokerMetadataPeriod": "1000",
    "syncControllerMetadataPeriod": "2000",
    "checkSyncStateSetPeriod": "1000",
}
"""Settings of replicas, with short times, so that much happens in a run."""


class FailoverCluster(SimulatedCluster):
    """Two name servers, a controller, three replicas, and the applications."""

    controller: ControllerMachine
    replicas: list[ReplicaMachine]
    calls: ControllerHistory

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.world.needs_all_copies = True
        self.masters: dict[int, str] = {}
        """Machines that took an epoch for theirs."""
        self.confirmed = 0
        """The highest confirm offset of any master."""
        self._begun: dict[int, float] = {}
        """When the first master of each epoch was seen."""
        self._unfenced: dict[str, float] = {}
        """Since when a machine takes messages though its lease is over."""
        self._watching: asyncio.Task[None] | None = None

    def _add_brokers(self, settings: dict[str, str], seed: int) -> None:
        del seed
        self.controller = ControllerMachine(self.loop, "controller", "10.0.0.11", self._rng())
        self.controller.scan_interval = 1000
        own = {
            **settings,
            **CONTROLLED,
            "controllerAddr": self.controller.address,
            "minInSyncReplicas": str(self.random.choice([1, 2])),
        }
        self.replicas = [
            ReplicaMachine(self.loop, f"replica-{number}", f"10.0.1.{number + 1}", self._rng(), own)
            for number in range(REPLICAS)
        ]
        self.calls = ControllerHistory(self.loop.time)
        for replica in self.replicas:
            replica.calls = self.calls

    # Roles

    @property
    def master(self) -> ReplicaMachine | None:
        """The replica that believes to be the master, of the newest epoch."""
        found = [machine for machine in self.replicas if machine.master is not None]
        return max(found, key=lambda machine: machine.replica.term.epoch, default=None)

    @property
    def brokers(self) -> list[BrokerMachine]:
        master = self.master
        return [] if master is None else [master]

    @property
    def slaves(self) -> list[BrokerMachine]:
        master = self.master
        return [machine for machine in self.replicas if machine is not master]

    @property
    def pairs(self) -> list[tuple[BrokerMachine, BrokerMachine]]:
        master = self.master
        return [] if master is None else [(master, slave) for slave in self.slaves]

    @property
    def fault_kinds(self) -> Sequence[FaultKind]:
        # Twice, as they are what such runs are for.
        return (*BROKER_KINDS, *FAILOVER_KINDS, *FAILOVER_KINDS)

    @property
    def machines(self) -> list[Machine]:
        return [*self.name_servers, self.controller, *self.replicas]

    @property
    def all_brokers(self) -> list[BrokerMachine]:
        return [*self.replicas]

    # Life

    async def start(self) -> None:
        for machine in self.machines:
            await self.bring_up(machine)
        self._watching = self.loop.create_task(self._watch())
        await self._until(lambda: not self.unsettled())
        await self._create_topics(self.brokers[0])
        # Topics are copied every few seconds.
        replicas = self.replicas
        await self._until(lambda: all(one.broker.topics.get(kind) for one in replicas for kind in Kind))
        for client in self.clients:
            client.start()

    async def _until(self, condition: Callable[[], bool]) -> None:
        while True:
            if condition():
                return
            await asyncio.sleep(LOOK_SECONDS)

    async def recover(self) -> None:
        await super().recover()
        deadline = self.loop.time() + MASTER_SECONDS
        while trouble := self._without_master():
            if self.loop.time() >= deadline:
                self.history.violations.append(f"{MASTER_SECONDS:.0f} s after the last fault: {trouble}")
                return
            await asyncio.sleep(LOOK_SECONDS)

    async def stop(self) -> None:
        """Stop the controller first, so that nobody is elected when the master stops."""
        pairs = self.pairs
        if self._watching is not None:
            self._watching.cancel()
        await self.controller.stop()
        for machine in (*(master for master, _ in pairs[:1]), *(slave for _, slave in pairs), *self.name_servers):
            await machine.stop()

    # Observation

    async def _watch(self) -> None:
        while True:
            self.observe()
            await asyncio.sleep(LOOK_SECONDS)

    def observe(self) -> None:
        """Note who is the master of which epoch, and how far the log is confirmed."""
        found = []
        for machine in self.replicas:
            master = machine.master
            if master is None:
                continue
            epoch = machine.replica.term.epoch
            other = self.masters.setdefault(epoch, machine.name)
            if other != machine.name:
                self.history.violations.append(f"epoch {epoch} has the masters {other} and {machine.name}")
            found.append((epoch, master.sync.confirmed, machine.name))
            self._begun.setdefault(epoch, self.loop.time())
        for machine in self.replicas:
            self._check_fence(machine)
        if found and max(found)[0] == max(self.masters):
            epoch, confirmed, name = max(found)
            if confirmed < self.confirmed:
                self.history.violations.append(
                    f"the log was confirmed up to {self.confirmed}, and {name} in epoch {epoch} up to {confirmed}"
                )
        self.confirmed = max(self.confirmed, *(confirmed for _, confirmed, _ in found), 0)

    def _check_fence(self, machine: ReplicaMachine) -> None:
        """A master whose successor began a lease ago takes no messages, whether it has heard of it or not."""
        now, process = self.loop.time(), machine.process
        if machine.master is None or process is None or process.is_paused or not self._is_over(machine):
            self._unfenced.pop(machine.name, None)
            return
        since = self._unfenced.setdefault(machine.name, now)
        if now - since > FENCE_SECONDS:
            epoch, newest = machine.replica.term.epoch, max(self.masters)
            self.history.violations.append(
                f"{machine.name}, the master of epoch {epoch}, takes messages long after epoch {newest} began"
            )

    def _is_over(self, machine: ReplicaMachine) -> bool:
        later = [at for epoch, at in self._begun.items() if epoch > machine.replica.term.epoch]
        is_over = bool(later) and self.loop.time() - min(later) > LEASE_SECONDS
        return is_over and machine.broker.store.appender.gate.reason is None

    def _without_master(self) -> str:
        """Why the group is not whole yet; empty if it is."""
        master = self.master
        if master is None or master.master is None:
            return "there is no master"
        if not master.replica.lease_is_valid:
            return f"the master {master.name} is fenced"
        ids = {machine.replica.term.own_id for machine in self.replicas if machine.is_open}
        missing = ids - master.master.sync.members
        if missing or len(ids) < REPLICAS:
            return f"of the replicas {sorted(ids)}, {sorted(master.master.sync.members)} are in sync"
        return ""

    def unsettled(self) -> list[str]:
        trouble = self._without_master()
        return [trouble] if trouble else super().unsettled()

    # Checks at the end

    def findings(self) -> Iterator[str]:
        """Acknowledgements of an epoch come from its master; replicas know the same epochs."""
        master = self.master
        if master is None:
            return
        epochs, end = master.replica.epochs, master.broker.store.log.end
        hosts = {machine.host: machine.name for machine in self.replicas}
        for sent in self.history.sent.values():
            if sent.outcome is not Outcome.ACKNOWLEDGED:
                continue
            for text in sent.ids:
                address, offset = decode_offset_id(text)
                name, found = hosts[socket.inet_ntoa(address[:4])], epochs.at(offset)
                if found is None or offset >= end:
                    yield f"{sent.name} was acknowledged at {offset} by {name}, where no log of the group is"
                    continue
                owner = self.masters.setdefault(found[0].epoch, name)
                if owner != name:
                    yield (
                        f"{sent.name} was acknowledged at {sent.acknowledged_at:.3f} by {name} at {offset}, "
                        f"which {owner} wrote in epoch {found[0].epoch}"
                    )
        expected = _written(epochs, end)
        for machine in self.replicas:
            if _written(machine.replica.epochs, end) != expected:
                yield f"{machine.name} has the epochs {list(machine.replica.epochs)}, {master.name} {list(epochs)}"


def _written(epochs: Epochs, end: int) -> list[tuple[int, int]]:
    """The epochs in which something was written."""
    return [entry for entry in epochs if entry.start < end]


def cluster_of(seed: int) -> SimulatedCluster:
    """The cluster of a seed."""
    return FailoverCluster(seed) if seed % SHARE == 0 else SimulatedCluster(seed)
