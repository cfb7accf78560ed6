"""Our brokers under Apache's controller: elected, replicated, killed and replaced, without a lost message."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from typing import TYPE_CHECKING

import pytest

from peers.apache import ApacheBroker, ApacheController, mqadmin
from support.broker.failover_group import FailoverGroup
from support.cli.server_process import SMALL_FILES
from support.remoting_harness import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

TIMES = ("haSendHeartbeatInterval=300", "checkSyncStateSetPeriod=300", "syncBrokerMetadataPeriod=500")

pytestmark = pytest.mark.usefixtures("apache")


@pytest.fixture(scope="module")
def controller(apache: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheController]:
    with ApacheController(tmp_path_factory.mktemp("controller") / "home") as server:
        yield server


async def test_a_killed_master_is_replaced_and_comes_back_as_a_slave(
    controller: ApacheController, tmp_path: Path
) -> None:
    async with FailoverGroup(tmp_path, controller.address, 2) as group:
        old = group.master()
        async with group.sending():
            await group.acknowledges(300)
            await old.end(signal.SIGKILL)
            new = await group.master_other_than(old)
            await group.acknowledges(300)
            await old.start()
            await eventually(lambda: len(group.in_sync()) == 2)
            await group.acknowledges(100)
        assert new is group.master()
        shown = await asyncio.to_thread(mqadmin, "getBrokerEpoch", "-n", group.name_server, "-b", "g")
        assert "EpochEntry{epoch=1, startOffset=0" in shown
        await group.settle()
        group.check()


async def test_a_group_of_both_kinds_changes_its_master_from_ours_to_apaches_and_back(
    controller: ApacheController, tmp_path: Path
) -> None:
    async with FailoverGroup(tmp_path, controller.address, 2, *TIMES, name="mixed") as group:
        first = group.master()
        other = next(member for member in group.members if member is not first)
        async with apache_member(group, tmp_path) as apache:
            await eventually(lambda: len(group.in_sync()) == 3)
            async with group.sending():
                await group.acknowledges(300)
                await other.end(signal.SIGKILL)
                await eventually(lambda: len(group.in_sync()) == 2)
                await first.end(signal.SIGKILL)
                await eventually(lambda: group.master_address() == apache.address)
                await group.acknowledges(300)
                await other.start()
                await first.start()
                await eventually(lambda: len(group.in_sync()) == 3)
                await group.acknowledges(100)
                await asyncio.to_thread(apache.kill)
                await eventually(lambda: group.master_address() not in {"", apache.address})
                await group.acknowledges(300)
        await group.settle()
        group.check()


@contextlib.asynccontextmanager
async def apache_member(group: FailoverGroup, folder: Path) -> AsyncIterator[ApacheBroker]:
    """Apache's broker as one more replica. In a thread, because the name server runs on this loop."""
    conf = {
        **dict(
            line.split("=", 1) for line in (*group.shared, *SMALL_FILES.split()) if not line.startswith("namesrv")
        ),
        "maxHashSlotNum": "1000",
        "storePathBrokerIdentity": str(folder / "identity"),
        "storePathEpochFile": str(folder / "apache-epochs"),
    }
    broker = await asyncio.to_thread(
        lambda: ApacheBroker(folder / "apache", conf, home=folder / "home", nameserver=group.name_server)
    )
    try:
        yield broker
    finally:
        await asyncio.to_thread(broker.kill)
