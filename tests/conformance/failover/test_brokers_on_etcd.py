"""Brokers under three controllers on three members of etcd, all as processes: killed leaders lose nothing."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import urllib.request
from typing import TYPE_CHECKING

import pytest

from peers.etcd import EtcdCluster, available
from peers.frames import ask
from support.broker.failover_group import FailoverGroup
from support.broker.own_controller import QUICK, OwnController
from support.remoting_harness import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

GET_METADATA_INFO = 1005
TIMES = (
    *("brokerHeartbeatInterval=100", "controllerHeartBeatTimeoutMills=3000", "slaveTimeout=500"),
    *("haSendHeartbeatInterval=100", "haHousekeepingInterval=1000", "syncBrokerMetadataPeriod=500"),
    *("checkSyncStateSetPeriod=200", "syncControllerMetadataPeriod=500"),
)


@contextlib.asynccontextmanager
async def controllers_on(etcd: EtcdCluster, folder: Path) -> AsyncIterator[list[OwnController]]:
    settings = ("controllerStoreType=etcd", f"etcdEndpoints={','.join(etcd.urls)}", "etcdLeaseSeconds=2", *QUICK)
    found = [OwnController(folder / f"controller-{number}", *settings) for number in range(3)]
    async with contextlib.AsyncExitStack() as stack:
        for number, one in enumerate(found):
            one.own_id = f"n{number}"
            one.peers = ";".join(f"n{other}-{peer.address}" for other, peer in enumerate(found))
            stack.push_async_callback(one.close)
            await one.start()
        yield found


def leader_of(controllers: Sequence[OwnController]) -> OwnController | None:
    """The controller that claims to lead."""
    for one in controllers:
        with contextlib.suppress(OSError):
            if ask(one.address, GET_METADATA_INFO).fields.get("isLeader") == "true":
                return one
    return None


def etcd_leader(etcd: EtcdCluster) -> int:
    """The index of the member that leads etcd."""
    request = urllib.request.Request(f"{etcd.urls[0]}/v3/maintenance/status", b"{}", method="POST")
    for number, url in enumerate(etcd.urls):
        request.full_url = f"{url}/v3/maintenance/status"
        with urllib.request.urlopen(request, timeout=5) as answer:
            status = json.loads(answer.read())
        if status["leader"] == status["header"]["member_id"]:
            return number
    raise AssertionError("etcd has no leader")


async def test_killed_leaders_of_etcd_of_the_controllers_and_of_the_group_lose_nothing(tmp_path: Path) -> None:
    if reason := available():
        pytest.skip(reason)
    with EtcdCluster(tmp_path / "etcd", members=3) as etcd:
        async with controllers_on(etcd, tmp_path) as controllers:
            await eventually(lambda: leader_of(controllers) is not None)
            addresses = ";".join(one.address for one in controllers)
            settings = (*TIMES, "minInSyncReplicas=2")
            async with FailoverGroup(tmp_path / "group", addresses, 3, *settings) as group:
                async with group.sending():
                    await group.acknowledges(100)
                    await asyncio.to_thread(etcd.processes[etcd_leader(etcd)].kill)
                    await group.acknowledges(100)
                    leader = leader_of(controllers)
                    assert leader is not None
                    await leader.kill()
                    await eventually(lambda: leader_of(controllers) is not None)
                    old = group.master()
                    await old.end(signal.SIGKILL)
                    await group.master_other_than(old)
                    await group.acknowledges(100)
                    await old.start()
                await group.settle()
                group.check()
