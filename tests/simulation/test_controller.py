"""A controller in virtual time that is paused, killed and loses power, under replicas that come and go.

The replicas speak the protocol and store nothing: what is checked is the controller. Every answer says which master
an epoch has; an epoch has one, and an answer is never older than one that was given before.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import TYPE_CHECKING

import pytest

from orbitmq.protocol.bodies import SyncStateSet
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command.command import Command
from orbitmq.remoting import RemotingClient, RemotingError
from orbitmq.testing.simulation.event_loop import Process, SimulatedLoop, running_as
from orbitmq.testing.simulation.machines import ControllerMachine
from orbitmq.testing.simulation.network import Network

if TYPE_CHECKING:
    from collections.abc import Mapping

REPLICAS = (1, 2, 3)
SECONDS = 120.0
NAMES = {"clusterName": "c", "brokerName": "b"}


class Group:
    """Three replicas, and what the controller has answered to any of them."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.network = Network(seed)
        self.loop = SimulatedLoop(self.network, seed)
        rng = random.Random(self.random.random())
        self.controller = ControllerMachine(self.loop, "controller", "10.0.0.1", rng)
        self.masters: dict[int, str] = {}
        self.newest = (0, 0)
        """Master epoch and epoch of the set."""
        self.violations: list[str] = []
        self.processes: dict[int, Process] = {}

    async def play(self) -> None:
        await self.controller.start()
        for number in REPLICAS:
            self.start(number)
        while self.loop.time() < SECONDS:
            await asyncio.sleep(self.random.uniform(1, 6))
            await self.fail()
        # When nothing fails any more, there is a master before long.
        for number in REPLICAS:
            self.start(number)
        if not self.controller.is_up:
            await self.controller.start()
        for _ in range(40):
            await asyncio.sleep(0 if self.has_living_master() else 1)
        assert self.has_living_master()

    def has_living_master(self) -> bool:
        if not self.controller.is_up:
            return False
        group = self.controller.server.storage.groups.get("b")
        if group is None or group.master is None:
            return False
        return self.controller.server.service.replicas(group).report(group.master) is not None

    async def fail(self) -> None:
        """One fault of the controller or of a replica."""
        controller, number = self.controller, self.random.choice(REPLICAS)
        fault = self.random.choice(["kill", "power", "pause", "replica", "replica", "freeze", "cut"])
        if fault in {"kill", "power"}:
            if fault == "kill":
                controller.kill()
            else:
                controller.cut_power(self.random.getrandbits(32))
            await asyncio.sleep(self.random.uniform(0, 15))
            await controller.start()
        elif fault == "pause":
            controller.pause()
            await asyncio.sleep(self.random.uniform(0, 30))
            controller.resume()
        elif fault == "replica":
            self.loop.kill(self.processes[number])
            await asyncio.sleep(self.random.uniform(0, 15))
            self.start(number)
        elif fault == "freeze":
            self.loop.pause(self.processes[number])
            await asyncio.sleep(self.random.uniform(0, 20))
            self.loop.resume(self.processes[number])
        else:
            host = f"10.0.1.{number}"
            self.network.cut(host, controller.host)
            await asyncio.sleep(self.random.uniform(0, 15))
            self.network.heal(host, controller.host)

    # Replicas

    def start(self, number: int) -> None:
        running = self.processes.get(number)
        if running is not None and not running.is_dead:
            return
        self.processes[number] = process = Process(f"replica-{number}", f"10.0.1.{number}")
        self.network.power_on(process.host)
        with running_as(process):
            self.loop.create_task(self.live(number))

    async def live(self, number: int) -> None:
        client = RemotingClient()
        address = f"10.0.1.{number}:1"
        names = {**NAMES, "brokerId": str(number)}
        beat = {**names, "brokerAddr": address, "epoch": "0", "maxOffset": "0", "heartbeatTimeoutMills": "3000"}
        is_known = False
        while True:
            with contextlib.suppress(RemotingError):
                if not is_known:
                    is_known = await self.join(client, names, address)
                await client.call_oneway(
                    self.controller.address, Command(RequestCode.BROKER_HEARTBEAT, ext_fields=beat)
                )
                if is_known:
                    await self.act(client, number, names)
            await asyncio.sleep(1)

    async def join(self, client: RemotingClient, names: Mapping[str, str], address: str) -> bool:
        check_code = f"{address};1"
        applied = {**NAMES, "appliedBrokerId": names["brokerId"], "registerCheckCode": check_code}
        await self.ask(client, RequestCode.CONTROLLER_APPLY_BROKER_ID, applied)
        found = await self.ask(client, RequestCode.CONTROLLER_REGISTER_BROKER, {**names, "brokerAddress": address})
        return found.code == ResponseCode.SUCCESS

    async def act(self, client: RemotingClient, number: int, names: Mapping[str, str]) -> None:
        known = self.newest
        found = await self.ask(client, RequestCode.CONTROLLER_GET_REPLICA_INFO, NAMES)
        fields = found.ext_fields
        if found.code != ResponseCode.SUCCESS:
            return
        present = SyncStateSet.decode(found.body or b"")
        self.observe(fields, present.sync_state_set_epoch)
        if (int(fields["masterEpoch"]), present.sync_state_set_epoch) < known:
            self.violations.append(f"{fields} came after an answer with epochs {known}")
        if "masterBrokerId" not in fields:
            elected = await self.ask(client, RequestCode.CONTROLLER_ELECT_MASTER, names)
            if elected.code in {ResponseCode.SUCCESS, ResponseCode.CONTROLLER_MASTER_STILL_EXIST}:
                self.observe(elected.ext_fields, int(elected.ext_fields["syncStateSetEpoch"]))
        elif fields["masterBrokerId"] == str(number):
            others = [other for other in REPLICAS if other == number or self.random.random() < 0.8]
            given = {"brokerName": "b", "masterBrokerId": str(number), "masterEpoch": fields["masterEpoch"]}
            body = SyncStateSet(others, present.sync_state_set_epoch).encode()
            await self.ask(client, RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, given, body)

    async def ask(
        self, client: RemotingClient, code: int, fields: Mapping[str, str], body: bytes | None = None
    ) -> Command:
        command = Command(code, ext_fields=dict(fields), body=body)
        return await client.call(self.controller.address, command, 3.0)

    def observe(self, fields: Mapping[str, str], set_epoch: int) -> None:
        epoch = int(fields["masterEpoch"])
        master = fields.get("masterBrokerId", "")
        if self.masters.setdefault(epoch, master) != master:
            self.violations.append(f"epoch {epoch} has two masters: {self.masters[epoch]} and {master}")
        self.newest = max(self.newest, (epoch, set_epoch))


@pytest.mark.parametrize("seed", range(1, 13))
def test_an_epoch_has_one_master_whatever_happens_to_the_controller(seed: int) -> None:
    group = Group(seed)
    try:
        group.loop.run_until_complete(group.play())
        stored = group.controller.server.storage.groups["b"]
        assert (stored.master_epoch, stored.set_epoch) >= group.newest
        assert group.violations == []
        assert len(group.masters) > 2
    finally:
        group.loop.close()
