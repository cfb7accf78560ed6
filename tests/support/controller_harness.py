"""A controller without a network: requests go in as commands, and its clock stands still until it is moved."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING, Any, Self, cast

from orbitmq.controller import Controller, ControllerConfig
from orbitmq.controller.machine.election import Report
from orbitmq.controller.machine.events import apply
from orbitmq.controller.machine.operations import (
    Application,
    Decision,
    ElectionRequest,
    apply_broker_id,
    elect_master,
)
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.command.fast_decode import decode_header
from orbitmq.protocol.command.frame import FrameParser
from orbitmq.testing import ManualClock, MemoryDisk
from support.nameserver_harness import Wire, as_text, run_here

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.controller.machine.group import BrokerGroup
    from orbitmq.remoting import Connection

CLUSTER, GROUP = "DefaultCluster", "broker-a"


@dataclasses.dataclass(frozen=True)
class Alive:
    """Liveness that a test writes down: the reports of living replicas, and those that may come."""

    reports: Mapping[int, Report] = dataclasses.field(default_factory=dict)
    unheard: frozenset[int] = frozenset()

    def report(self, broker_id: int) -> Report | None:
        return self.reports.get(broker_id)

    def is_gone(self, broker_id: int) -> bool:
        return broker_id not in self.reports and broker_id not in self.unheard


def alive(*ids: int, **reports: Report) -> Alive:
    """Replicas that are alive with empty logs; ``_2=Report(…)`` gives another report."""
    others = {int(name.lstrip("_")): report for name, report in reports.items()}
    return Alive({**{broker_id: report_of() for broker_id in ids}, **others})


def report_of(epoch: int = 0, offset: int = 0, priority: int = 100) -> Report:
    return Report(epoch, offset, offset, priority)


def group_of(*ids: int, master: int | None = None, in_sync: tuple[int, ...] = ()) -> BrokerGroup:
    """A group with replicas ``h<id>:1``; with a master in its second epoch."""
    group: BrokerGroup | None = None
    for broker_id in ids:
        check_code = f"h{broker_id}:1;{broker_id}"
        decision = apply_broker_id(group, Application(CLUSTER, GROUP, broker_id, check_code))
        group = after(group, decision)
    assert group is not None
    if master is not None or in_sync:
        epochs = {"master_epoch": 2, "set_epoch": 5}
        group = dataclasses.replace(group, master=master, in_sync=in_sync or (master,), **epochs)  # type: ignore[arg-type]
    return group


def after(group: BrokerGroup | None, decision: Decision) -> BrokerGroup | None:
    return group if decision.event is None else apply(group, decision.event)


def elect(
    group: BrokerGroup, replicas: Alive, broker_id: int = -1, *, designated: bool = False, unclean: bool = False
) -> Decision:
    return elect_master(group, ElectionRequest(GROUP, broker_id, designated), replicas, unclean=unclean)


class QuietController:
    """A controller on a virtual disk. Use its ``ask`` within one event loop."""

    def __init__(self, disk: MemoryDisk | None = None, **settings: Any) -> None:
        self.clock = ManualClock(1_000_000)
        self.disk = disk or MemoryDisk()
        paths = {"controller_store_path": "/c/store", "config_store_path": "/c/controller.properties"}
        self.config = ControllerConfig(bind_address="127.0.0.1", **{"listen_port": 0, **paths, **settings})
        self.controller = Controller(self.config, disk=self.disk, clock=self.clock, run_blocking=run_here)
        self.wires = {broker_id: Wire() for broker_id in range(10)}

    async def __aenter__(self) -> Self:
        await self.controller.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.controller.stop(0)

    async def ask(
        self, code: int, body: bytes | None = None, wire: Wire | None = None, /, **fields: object
    ) -> Command:
        """The response to a request."""
        wire = wire or self.wires[0]
        (frame,) = FrameParser().feed(Command(code, 7, ext_fields=as_text(fields), body=body).encode())
        header = decode_header(frame)
        answer = self.controller.handlers[code](cast("Connection", wire), header, frame[2], frame[0])
        while answer is None:
            await asyncio.sleep(0)
            answer = wire.answered.pop() if wire.answered else None
        assert isinstance(answer, bytes)
        (response,) = FrameParser().feed(answer)
        return Command.decode(response)

    async def heartbeat(self, broker_id: int, **fields: object) -> Command:
        given = {"epoch": 0, "maxOffset": 0, "heartbeatTimeoutMills": 10_000, **fields}
        return await self.ask(
            RequestCode.BROKER_HEARTBEAT,
            None,
            self.wires[broker_id],
            clusterName=CLUSTER,
            brokerName=GROUP,
            brokerId=broker_id,
            brokerAddr=f"127.0.0.1:{broker_id}",
            **given,
        )

    async def join(self, broker_id: int) -> None:
        """Apply for an id, register, and send a heartbeat."""
        names = {"clusterName": CLUSTER, "brokerName": GROUP}
        check_code = f"127.0.0.1:{broker_id};1"
        applied = await self.ask(
            RequestCode.CONTROLLER_APPLY_BROKER_ID, **names, appliedBrokerId=broker_id, registerCheckCode=check_code
        )
        assert applied.code == 0, applied.remark
        registered = await self.register(broker_id)
        assert registered.code == 0, registered.remark
        await self.heartbeat(broker_id)

    async def register(self, broker_id: int) -> Command:
        address = f"127.0.0.1:{broker_id}"
        return await self.ask(
            RequestCode.CONTROLLER_REGISTER_BROKER,
            clusterName=CLUSTER, brokerName=GROUP, brokerId=broker_id, brokerAddress=address,
        )  # fmt: skip

    async def elect(self, broker_id: int, **fields: object) -> Command:
        return await self.ask(
            RequestCode.CONTROLLER_ELECT_MASTER,
            clusterName=CLUSTER, brokerName=GROUP, brokerId=broker_id, **fields,
        )  # fmt: skip
