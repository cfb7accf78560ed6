"""Our brokers under our controller: a killed and a stopped master are replaced without loss."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from support.broker.failover_group import FailoverGroup
from support.cli.server_process import orbitmq
from support.remoting_harness import eventually

if TYPE_CHECKING:
    from pathlib import Path

TIMINGS = ("controllerHeartBeatTimeoutMills=3000", "minInSyncReplicas=2")


async def test_a_killed_and_a_stopped_master_are_replaced_without_loss(tmp_path: Path) -> None:
    home = tmp_path / "controller"
    home.mkdir()
    async with orbitmq(home, "controller", "--port", 0, "--data", home / "data") as controller:
        address = await controller.says(r"listens on (\S+)")
        async with FailoverGroup(tmp_path / "group", address, 3, *TIMINGS) as group:
            first = group.master()
            async with group.sending():
                await group.acknowledges(200)
                await first.end(signal.SIGKILL)
                second = await group.master_other_than(first)
                await group.acknowledges(200)
                await first.start()
                await eventually(lambda: len(group.in_sync()) == 3)
                second.tell(signal.SIGSTOP)
                await group.master_other_than(second)
                second.tell(signal.SIGCONT)
                await eventually(lambda: len(group.in_sync()) == 3)
                await group.acknowledges(200)
            await group.settle()
            group.check()
