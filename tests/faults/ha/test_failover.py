"""Failover of brokers as processes under our controller: nothing that was acknowledged is lost, ever."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from typing import TYPE_CHECKING

import pytest

from peers.frames import ask
from support.broker.failover_group import FailoverGroup, Member, send_command
from support.broker.own_controller import QUICK, OwnController
from support.broker.process_network import ProcessNetwork
from support.remoting_harness import HOST, eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

ROUNDS = int(os.environ.get("ORBITMQ_FAILOVERS", "1"))
"""Masters that are killed, and stopped, one after the other."""

LEASE_MS = 1500
TIMES = (
    *("brokerHeartbeatInterval=100", f"controllerHeartBeatTimeoutMills={LEASE_MS}", "slaveTimeout=500"),
    *("haSendHeartbeatInterval=100", "haHousekeepingInterval=1000", "syncBrokerMetadataPeriod=500"),
    *("haMaxTimeSlaveNotCatchup=1500", "checkSyncStateSetPeriod=200"),
)
SERVICE_NOT_AVAILABLE = 14
SEND_MESSAGE = 10


@pytest.fixture
async def controller(tmp_path: Path) -> AsyncIterator[OwnController]:
    server = OwnController(tmp_path / "controller", *QUICK)
    await server.start()
    try:
        yield server
    finally:
        await server.close()


def send_to(member: Member) -> int:
    """The code of the answer to a send to this broker; -1 without one."""
    command = send_command(b"probe", 0)
    try:
        return ask(member.address, SEND_MESSAGE, command.ext_fields, b"probe").code
    except OSError:
        return -1


async def test_masters_that_are_killed_lose_nothing(controller: OwnController, tmp_path: Path) -> None:
    async with FailoverGroup(tmp_path, controller.address, 3, *TIMES, "minInSyncReplicas=2") as group:
        async with group.sending():
            for _ in range(ROUNDS):
                await group.acknowledges(200)
                old = group.master()
                await old.end(signal.SIGKILL)
                await group.master_other_than(old)
                await group.acknowledges(200)
                await old.start()
                await eventually(lambda: len(group.in_sync()) == 3)
        await group.settle()
        group.check()


async def test_a_master_that_was_stopped_and_resumed_acknowledges_nothing_that_is_lost(
    controller: OwnController, tmp_path: Path
) -> None:
    async with FailoverGroup(tmp_path, controller.address, 2, *TIMES) as group:
        for _ in range(ROUNDS):
            old = group.master()
            async with group.pinned_to(old), group.sending():
                await group.acknowledges(200)
                old.tell(signal.SIGSTOP)
                await group.master_other_than(old)
                await group.acknowledges(200)
                old.tell(signal.SIGCONT)
                await eventually(lambda: len(group.in_sync()) == 2)
                await group.acknowledges(50)
        await group.settle()
        group.check()


async def test_a_master_without_controller_and_slave_loses_nothing_that_it_acknowledged(
    controller: OwnController, tmp_path: Path
) -> None:
    """Where Apache 5.5.0 drops the slave from its set, acknowledges, and loses all of it."""
    async with FailoverGroup(tmp_path, controller.address, 2, *TIMES) as group:
        old = group.master()
        slave = next(member for member in group.members if member is not old)
        async with group.pinned_to(old):
            await group.acknowledges(200)
            # Killed, not stopped: the request for a smaller set would wait in its buffer, and succeed.
            await controller.kill()
            slave.tell(signal.SIGSTOP)
            await eventually(lambda: "disconnected" in old.log)
            before = len(group.ledger.placed)
            await eventually(lambda: send_to(old) == SERVICE_NOT_AVAILABLE)
            await asyncio.sleep(0.5)
            assert len(group.ledger.placed) == before, "acknowledged what only this master has"
            await old.end(signal.SIGKILL)
        slave.tell(signal.SIGCONT)
        await controller.start()
        await group.master_other_than(old)
        async with group.sending():
            await group.acknowledges(100)
        await old.start()
        await group.settle()
        group.check()


@contextlib.asynccontextmanager
async def group_of_three(folder: Path) -> AsyncIterator[FailoverGroup]:
    """Three brokers and a controller whose connections can be cut."""
    async with contextlib.AsyncExitStack() as stack:
        network = await stack.enter_async_context(ProcessNetwork())
        controller = OwnController(folder / "controller", *QUICK, network=network)
        stack.push_async_callback(controller.close)
        await controller.start()
        settings = (*TIMES, "minInSyncReplicas=2")
        group = FailoverGroup(folder / "group", controller.address, 3, *settings, network=network)
        yield await stack.enter_async_context(group)


async def test_a_master_that_is_cut_off_refuses_and_loses_nothing(tmp_path: Path) -> None:
    """Clients still reach it, and so do name servers; Apache 5.5.0 acknowledges, and then cuts it off."""
    async with group_of_three(tmp_path) as group:
        for _ in range(ROUNDS):
            old = group.master()
            async with group.pinned_to(old), group.sending():
                await group.acknowledges(200)
                group.cut_off(old)
                await group.master_other_than(old)
                assert send_to(old) == SERVICE_NOT_AVAILABLE
                await group.acknowledges(200)
                group.heal()
                await eventually(lambda: len(group.in_sync()) == 3)
                await group.acknowledges(50)
        await group.settle()
        group.check()


async def test_a_master_that_hears_nothing_is_replaced(tmp_path: Path) -> None:
    """The controller hears it, and would leave it the master that refuses everything."""
    async with group_of_three(tmp_path) as group, group.sending():
        old = group.master()
        await group.acknowledges(200)
        group.cut_off(old, speaks=True)
        await group.master_other_than(old)
        await group.acknowledges(200)
        group.heal()
        await eventually(lambda: len(group.in_sync()) == 3)
        await group.acknowledges(50)


async def test_a_resumed_master_that_waits_for_no_slave_acknowledges_nothing_either(
    controller: OwnController, tmp_path: Path
) -> None:
    """Its lease alone stops it: no acknowledgement of a slave is missing."""
    # Flow control would refuse as well, because the event loop is late.
    more = "allAckInSyncStateSet=false", "osPageCacheBusyTimeOutMills=60000"
    async with FailoverGroup(tmp_path, controller.address, 2, *TIMES, *more) as group:
        old = group.master()
        async with group.pinned_to(old):
            await group.acknowledges(100)
            old.tell(signal.SIGSTOP)
            await group.master_other_than(old)
            before = len(group.ledger.placed)
            old.tell(signal.SIGCONT)
            await eventually(lambda: "is slave now" in old.log)
            await eventually(lambda: len(group.in_sync()) == 2)
            assert len(group.ledger.placed) == before


async def test_a_master_refuses_messages_while_no_controller_confirms_it(
    controller: OwnController, tmp_path: Path
) -> None:
    async with FailoverGroup(tmp_path, controller.address, 1, *TIMES) as group:
        master = group.master()
        await eventually(lambda: send_to(master) == 0)
        await controller.kill()
        await eventually(lambda: send_to(master) == SERVICE_NOT_AVAILABLE)
        await controller.start()
        await eventually(lambda: send_to(master) == 0)


async def test_brokers_prove_themselves_to_each_new_master(controller: OwnController, tmp_path: Path) -> None:
    inner = 'innerClientAuthenticationCredentials={"accessKey":"inner","secretKey":"inners-secret"}'
    settings = ("authenticationEnabled=true", "haAuthenticationEnabled=true", inner)
    await controller.kill()
    # It signs what it tells the brokers.
    controller.settings = (*controller.settings, inner)
    await controller.start()
    async with FailoverGroup(tmp_path, controller.address, 2, *TIMES, *settings) as group:
        old = group.master()
        async with connection_to_ha(old) as (reader, writer):
            writer.write(bytes(8))
            assert await reader.read() == b""
        await old.end(signal.SIGKILL)
        await group.master_other_than(old)
        await old.start()
        await eventually(lambda: len(group.in_sync()) == 2)


@contextlib.asynccontextmanager
async def connection_to_ha(member: Member) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A stranger at the HA port."""
    reader, writer = await asyncio.open_connection(HOST, member.port + 1)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
