"""Controllers on a real etcd: one leads, none leads in doubt, and what was committed is there for the next one."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from orbitmq.cli.server.certificates import server_certificate
from orbitmq.controller.machine.events import BrokerIdApplied, BrokersCleaned, MasterElected
from orbitmq.controller.storage.etcd import EtcdStorage
from orbitmq.controller.storage.etcd_client import Credentials, EtcdClient, EtcdError, put, tls_context
from orbitmq.controller.storage.interface import CommitError, NotLeaderError
from orbitmq.platform.clock import SYSTEM_CLOCK
from orbitmq.protocol.codes import RequestCode, ResponseCode
from peers.etcd import EtcdCluster, available
from support.controller_harness import CLUSTER, GROUP, QuietController
from support.remoting_harness import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from orbitmq.platform.clock import Clock

LEASE = 2


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    if reason := available():
        pytest.skip(reason)
    with EtcdCluster(tmp_path_factory.mktemp("etcd"), members=3) as cluster:
        yield cluster


def storage(urls: list[str], prefix: str, name: str, clock: Clock = SYSTEM_CLOCK) -> EtcdStorage:
    client = EtcdClient(urls, seconds=LEASE / 5)
    made = EtcdStorage(client, prefix, name, clock, lease_seconds=LEASE)
    made.address = f"{name}:1"
    return made


@contextlib.asynccontextmanager
async def running(*storages: EtcdStorage) -> AsyncIterator[None]:
    try:
        for one in storages:
            await one.start()
        yield
    finally:
        for one in storages:
            await one.stop()


def leaders(*storages: EtcdStorage) -> int:
    return sum(one.leadership().is_leader for one in storages)


def applied(name: str) -> BrokerIdApplied:
    return BrokerIdApplied("c", name, 1, "h:1", "h:1;1")


async def test_one_leads_and_the_next_one_has_what_it_committed(etcd: EtcdCluster) -> None:
    first, second = storage(etcd.urls, "/t1", "a"), storage(etcd.urls, "/t1", "b")
    async with running(first, second):
        assert first.leadership().is_leader
        assert second.leadership().leader_address == "a:1"
        await eventually(lambda: len(first.leadership().peers) == 2)
        with pytest.raises(NotLeaderError):
            await second.commit(applied("g"))
        await first.commit(applied("g"))
        await first.commit(MasterElected("g", 1, 7))
        await first.commit(applied("gone"))
        await first.commit(BrokersCleaned("gone", None))
        await first.stop()
        await eventually(lambda: second.leadership().is_leader)
        assert list(second.groups) == ["g"]
        assert second.groups == first.groups
        await second.commit(MasterElected("g", None, 8))
        assert second.groups["g"].master is None


async def test_many_groups_are_read_in_pages(etcd: EtcdCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orbitmq.controller.storage.etcd_client.PAGE", 7)
    first = storage(etcd.urls, "/t2", "a")
    async with running(first):
        await asyncio.gather(*(first.commit(applied(f"g{number}")) for number in range(30)))
    second = storage(etcd.urls, "/t2", "b")
    async with running(second):
        assert len(second.groups) == 30


class StoppedClock:
    """A clock of a machine that does not notice the time pass."""

    def monotonic(self) -> float:
        return 0.0

    now_ms = hour = stamp = None


async def test_a_leader_that_was_replaced_without_noticing_changes_nothing(etcd: EtcdCluster) -> None:
    old = storage(etcd.urls, "/t3", "old", StoppedClock())  # type: ignore[arg-type]
    new = storage(etcd.urls, "/t3", "new")
    async with running(old, new):
        await old.commit(applied("g"))
        assert old._task is not None
        old._task.cancel()
        await eventually(lambda: new.leadership().is_leader)
        assert old.leadership().is_leader, "its clock stands still"
        with pytest.raises(NotLeaderError):
            await old.commit(MasterElected("g", 1, 1))
        assert not old.leadership().is_leader
        await new.commit(MasterElected("g", 1, 1))


async def test_without_etcd_the_leader_steps_down_within_its_lease_and_comes_back(etcd: EtcdCluster) -> None:
    loop = asyncio.get_running_loop()
    first, second = storage(etcd.urls, "/t4", "a"), storage(etcd.urls, "/t4", "b")
    async with running(first, second):
        await first.commit(applied("g"))
        etcd.pause()
        try:
            begin = loop.time()
            await eventually(lambda: not leaders(first, second))
            assert loop.time() - begin <= LEASE
            with pytest.raises((NotLeaderError, CommitError)):
                await first.commit(MasterElected("g", 1, 1))
            while loop.time() - begin < 2 * LEASE:
                assert not leaders(first, second)
                await asyncio.sleep(0.02)
        finally:
            etcd.resume()
        await eventually(lambda: leaders(first, second) == 1)
        leader = first if first.leadership().is_leader else second
        assert list(leader.groups) == ["g"]
        await leader.commit(MasterElected("g", 1, 1))


async def test_controllers_that_do_not_lead_name_the_one_that_does(etcd: EtcdCluster) -> None:
    settings: dict[str, Any] = {
        "controller_store_type": "etcd",
        "etcd_endpoints": ",".join(etcd.urls),
        "etcd_key_prefix": "/t5",
    }
    leader = QuietController(**settings, controller_address="127.0.0.1:1001")
    follower = QuietController(**settings, controller_address="127.0.0.1:1002")
    async with leader, follower:
        await leader.join(1)
        assert (await leader.elect(1)).code == ResponseCode.SUCCESS
        refused = await follower.ask(RequestCode.CONTROLLER_GET_REPLICA_INFO, brokerName=GROUP)
        assert refused.code == ResponseCode.CONTROLLER_NOT_LEADER
        found = (await follower.ask(RequestCode.CONTROLLER_GET_METADATA_INFO)).ext_fields
        assert found["isLeader"] == "false"
        assert found["controllerLeaderAddress"] == "127.0.0.1:1001"
        # Heartbeats go to every controller: the next leader knows who is alive.
        assert (await follower.heartbeat(1)).code == ResponseCode.SUCCESS
        await leader.controller.storage.stop()
        await eventually(lambda: follower.controller.storage.leadership().is_leader)
        names = {"clusterName": CLUSTER, "brokerName": GROUP}
        found = (await follower.ask(RequestCode.CONTROLLER_GET_REPLICA_INFO, **names)).ext_fields
        assert (found["masterBrokerId"], found["masterEpoch"]) == ("1", "1")


async def test_tls_and_etcds_own_users(tmp_path: Path) -> None:
    if reason := available():
        pytest.skip(reason)
    files = server_certificate(tmp_path, [])
    tls = tls_context(str(files.authority), "", "")
    with EtcdCluster(tmp_path / "etcd", certificate=(files.certificate, files.key)) as etcd:
        plain = EtcdClient(etcd.urls, seconds=5, tls=tls)
        for method, request in (
            ("auth/user/add", {"name": "root", "password": "secret"}),
            ("auth/role/add", {"name": "root"}),
            ("auth/user/grant", {"user": "root", "role": "root"}),
            ("auth/enable", {}),
        ):
            await plain.call(method, request, retries=False)
        with pytest.raises(EtcdError, match="user name is empty"):
            await plain.txn([], [put(b"k", b"v")])
        await plain.close()
        stranger = EtcdClient(etcd.urls, seconds=5, tls=tls_context("", "", ""))
        with pytest.raises(EtcdError, match="CERTIFICATE_VERIFY_FAILED"):
            await stranger.grant(LEASE)
        client = EtcdClient(etcd.urls, seconds=5, tls=tls, credentials=Credentials("root", "secret"))
        one = EtcdStorage(client, "/t7", "a", SYSTEM_CLOCK, lease_seconds=LEASE)
        async with running(one):
            await eventually(lambda: one.leadership().is_leader)
            await one.commit(applied("g"))
            # A token that etcd has forgotten is replaced.
            client._token = "forgotten"
            await one.commit(MasterElected("g", 1, 1))
            assert one.groups["g"].master == 1


async def test_a_lost_member_of_etcd_is_no_loss(etcd: EtcdCluster) -> None:
    # The last test: the member stays dead.
    first = storage(etcd.urls, "/t6", "a")
    async with running(first):
        await first.commit(applied("g"))
        etcd.processes[0].kill()

        async with asyncio.timeout(30):
            while first.groups["g"].master is None:
                with contextlib.suppress(NotLeaderError, CommitError):
                    await first.commit(MasterElected("g", 1, 1))
                await asyncio.sleep(0.05)
        assert first.groups["g"].master == 1
