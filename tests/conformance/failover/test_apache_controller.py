"""Our brokers under Apache's controller: elected, replicated, killed and replaced, without a lost message."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

import pytest

from peers.apache import ApacheController, mqadmin
from support.broker.failover_group import FailoverGroup
from support.remoting_harness import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

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
