"""SimulatedCluster: name servers, brokers and applications of one run, on one loop and one network."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING

from orbitmq.protocol.codes import LanguageCode, RequestCode, ResponseCode
from orbitmq.protocol.command.command import Command
from orbitmq.remoting import RemotingClient, RemotingError
from orbitmq.testing.simulation.event_loop import SimulatedLoop
from orbitmq.testing.simulation.faults.kinds import BROKER_KINDS
from orbitmq.testing.simulation.histories.messages import History, Kind
from orbitmq.testing.simulation.machines import BrokerMachine, NameServerMachine
from orbitmq.testing.simulation.network import Network
from orbitmq.testing.simulation.workload import QUEUES, PopMember, PushMember, Sender, World

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from orbitmq.testing.simulation.faults.kinds import FaultKind
    from orbitmq.testing.simulation.machines import Machine
    from orbitmq.testing.simulation.workload import Application

log = logging.getLogger("orbitmq.simulation")

START_SECONDS = 60.0
"""Patience with a server that starts."""

SHARE_WITH_SLAVES = 0.5
"""Share of runs in which brokers have slaves."""

REPLICATED = {
    "totalReplicas": "2",
    "inSyncReplicas": "2",
    "syncFlushTimeout": "3000",
    "haHousekeepingInterval": "5000",
    "haSendHeartbeatInterval": "1000",
}
"""Settings of masters and slaves: a send is acknowledged when both have it on their disks."""

SHARE_ACTING = 0.5
"""Share of runs with slaves, and more than one master, in which slaves act as master."""

ACTING = {"enableSlaveActingMaster": "true", "enableRemoteEscape": "true"}

SETTINGS = {"messageDelayLevel": "1s 1s 2s 2s 3s 5s", "reviveInterval": "500"}


class SimulatedCluster:
    """Two name servers, some brokers, and applications that send and consume every kind of message."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.network = Network(self.random.getrandbits(64))
        self.loop = SimulatedLoop(self.network, self.random.getrandbits(64))
        self.history = History()
        self.name_servers = [
            NameServerMachine(self.loop, f"name-server-{number}", f"10.0.0.{number + 1}", self._rng())
            for number in range(2)
        ]
        settings = {
            **SETTINGS,
            "namesrvAddr": ";".join(one.address for one in self.name_servers),
        }
        self.slaves_act = False
        self._masters: list[BrokerMachine] = []
        self._slaves: list[BrokerMachine] = []
        self._add_brokers(settings, seed)
        self.world = World(self.loop, settings["namesrvAddr"], self.history)
        self.clients: list[Application] = []
        for number, kind in enumerate(Kind):
            self.clients.append(Sender(self.world, kind, 0, f"10.0.2.{number + 1}", self._rng()))
            for member in range(2):
                host = f"10.0.3.{2 * number + member + 1}"
                self.clients.append(PushMember(self.world, kind, member, host, self._rng()))
        self.clients.append(PopMember(self.world, 0, "10.0.4.1", self._rng()))

    def _rng(self) -> random.Random:
        return random.Random(self.random.getrandbits(64))

    def _add_brokers(self, settings: dict[str, str], seed: int) -> None:
        brokers = self.random.choice([1, 2, 2])
        self._masters = [
            BrokerMachine(self.loop, f"broker-{number}", f"10.0.1.{number + 1}", self._rng(), settings)
            for number in range(brokers)
        ]
        if self.random.random() < SHARE_WITH_SLAVES:
            self._add_slaves(settings, seed)

    def _add_slaves(self, settings: dict[str, str], seed: int) -> None:
        """Give every broker a slave, and let its answers wait for it. Some slaves act for their masters."""
        replicated = dict(REPLICATED)
        # A draw of its own: the rest of the run follows from its seed as before.
        if len(self.brokers) > 1 and random.Random(f"{seed} acts").random() < SHARE_ACTING:
            self.slaves_act = True
            replicated |= ACTING
        for number, master in enumerate(self.brokers):
            master.change({"brokerRole": "SYNC_MASTER", **replicated})
            slave = {"brokerName": master.name, "brokerRole": "SLAVE", "brokerId": "1", **replicated}
            host = f"10.0.1.{number + 101}"
            self._slaves.append(
                BrokerMachine(self.loop, f"{master.name}-slave", host, self._rng(), {**settings, **slave})
            )

    @property
    def brokers(self) -> list[BrokerMachine]:
        """The masters."""
        return self._masters

    @property
    def slaves(self) -> list[BrokerMachine]:
        return self._slaves

    @property
    def pairs(self) -> list[tuple[BrokerMachine, BrokerMachine]]:
        """Every slave, behind its master."""
        return list(zip(self.brokers, self.slaves, strict=True)) if self.slaves else []

    @property
    def fault_kinds(self) -> Sequence[FaultKind]:
        """Kinds of faults that can strike this cluster."""
        return BROKER_KINDS

    @property
    def machines(self) -> list[Machine]:
        return [*self.name_servers, *self.brokers, *self.slaves]

    @property
    def all_brokers(self) -> list[BrokerMachine]:
        """Masters and slaves."""
        return [*self.brokers, *self.slaves]

    @property
    def hosts(self) -> list[str]:
        return [*(machine.host for machine in self.machines), *(client.host for client in self.clients)]

    async def start(self) -> None:
        """Start the servers, create the topics, start the applications."""
        for machine in self.machines:
            await self.bring_up(machine)
        for broker in self.brokers:
            await self._create_topics(broker)
        for client in self.clients:
            client.start()

    async def bring_up(self, machine: Machine) -> None:
        """Start a server, again and again until it runs."""
        while not machine.is_up:
            starting = machine.start()
            process = machine.process
            assert process is not None
            await asyncio.wait([starting], timeout=START_SECONDS)
            if machine.process is not process:
                return  # killed meanwhile, by what will start it again
            if starting.done() and starting.exception() is None:
                return
            log.info("%s did not start: %s", machine.name, starting.exception() if starting.done() else "time-out")
            machine.kill()
            machine.disk.heal()
            await asyncio.sleep(1)

    async def _create_topics(self, broker: BrokerMachine) -> None:
        client = RemotingClient()
        count = str(QUEUES // len(self.brokers))
        try:
            for kind in Kind:
                fields = {
                    "topic": str(kind),
                    "defaultTopic": "TBW102",
                    "readQueueNums": count,
                    "writeQueueNums": count,
                    "perm": "6",
                    "topicFilterType": "SINGLE_TAG",
                    "topicSysFlag": "0",
                    "order": "false",
                }
                code = RequestCode.UPDATE_AND_CREATE_TOPIC
                request = Command(code, ext_fields=fields, language=LanguageCode.PYTHON)
                answer = await client.call(broker.address, request, 10)
                if answer.code != ResponseCode.SUCCESS:
                    raise RemotingError(f"{kind} was not created: {answer.remark}")
        finally:
            await client.close()

    def unsettled(self) -> list[str]:
        """What is not yet as it has to be when nothing fails any more."""
        found = []
        for master, slave in self.pairs:
            ends = slave.broker.store.log.end, master.broker.store.log.end
            if ends[0] != ends[1]:
                found.append(f"the log of {slave.name} ends at {ends[0]}, the master's at {ends[1]}")
        return found

    def findings(self) -> Iterator[str]:
        """Violations of what only this kind of cluster promises, when it has settled."""
        yield from ()

    async def stop(self) -> None:
        """Stop all servers in an orderly way. Masters first: what they still write is copied."""
        for machine in (*self.brokers, *self.slaves, *self.name_servers):
            await machine.stop()

    async def recover(self) -> None:
        """End all faults: links heal, machines and applications run."""
        self.network.heal_all()
        for machine in self.machines:
            machine.resume()
            machine.disk.heal()
            if machine.process is not None:
                machine.process.disk_delay = 0.0
            await self.bring_up(machine)
        for client in self.clients:
            client.resume()
            client.start()
