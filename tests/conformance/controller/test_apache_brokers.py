"""Apache's brokers under our controller: ids, in-sync sets, a master that is killed, and Apache's ``mqadmin``.

One story told in one module: starting two brokers takes longer than all that is checked.
"""

from __future__ import annotations

import contextlib
import sys
import time
from typing import TYPE_CHECKING

import pytest

from orbitmq import Message, Producer, SendStatus
from orbitmq.admin import SyncAdminClient, UnreachableError
from peers.admin import AdminRunner
from peers.apache import ApacheBroker, ApacheNameServer, free_broker_port
from peers.frames import GET_BROKER_CLUSTER_INFO, ask
from peers.ports import free_port
from peers.process import PeerProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from orbitmq.protocol.bodies.replication import ReplicasInfo

pytestmark = pytest.mark.usefixtures("apache")

GROUP = "broker-a"
PATIENCE = 60.0


class Cluster:
    """A controller of ours, and a name server and two brokers of Apache's."""

    def __init__(self, home: Path, nameserver: str) -> None:
        self.home = home
        self.nameserver = nameserver
        self.controller = f"127.0.0.1:{free_port()}"
        self.ports = {number: free_broker_port() for number in (1, 2)}
        self.brokers: dict[int, ApacheBroker] = {}
        self._server: PeerProcess | None = None
        self.admin = SyncAdminClient(nameserver)
        self.admin.start()

    def start_controller(self) -> None:
        folder = self.home / "controller"
        folder.mkdir(exist_ok=True)
        (folder / "controller.conf").write_text(
            f"controllerDLegerGroup=group1\ncontrollerDLegerPeers=n0-{self.controller}\ncontrollerDLegerSelfId=n0\n"
            f"controllerStorePath={folder / 'store'}\n",
            "utf-8",
        )
        command = [sys.executable, "-m", "orbitmq", "controller", "-c", str(folder / "controller.conf")]
        self._server = PeerProcess("OrbitMQ controller", command, home=folder, environment={})
        self._server.wait_until(self._leads, what="leading", seconds=PATIENCE)

    def kill_controller(self) -> None:
        if self._server is not None:
            self._server.kill()

    def _leads(self) -> bool:
        try:
            return bool(self.admin.controllers.metadata(self.controller).is_leader)
        except UnreachableError:
            return False

    def start(self, number: int) -> None:
        conf = {
            "brokerName": GROUP,
            "listenPort": str(self.ports[number]),
            "autoCreateTopicEnable": "true",
            "enableControllerMode": "true",
            "controllerAddr": self.controller,
            "allAckInSyncStateSet": "true",
            "totalReplicas": "2",
            "inSyncReplicas": "2",
            "mappedFileSizeCommitLog": "1048576",
            "mappedFileSizeConsumeQueue": "60000",
            "maxHashSlotNum": "1000",
            "maxIndexNum": "4000",
        }
        self.brokers[number] = ApacheBroker(
            self.home / f"store-{number}", conf, home=self.home / f"home-{number}", nameserver=self.nameserver
        )

    def info(self) -> ReplicasInfo:
        found: ReplicasInfo = self.admin.controllers.replicas(self.controller, [GROUP]).replicas_info_table[GROUP]
        return found

    def address(self, number: int) -> str:
        return f"127.0.0.1:{self.ports[number]}"

    def close(self) -> None:
        self.admin.close()
        for broker in self.brokers.values():
            broker.kill()
        self.kill_controller()


@pytest.fixture(scope="module")
def cluster(apache_nameserver: ApacheNameServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("controller"), apache_nameserver.address)
    with contextlib.closing(cluster):
        cluster.start_controller()
        cluster.start(1)
        cluster.start(2)
        until(lambda: in_sync(cluster.info()) == {1, 2})
        yield cluster


def until(condition: Callable[[], object]) -> float:
    """Seconds until a condition held."""
    begin = time.monotonic()
    while not condition():
        assert time.monotonic() - begin < PATIENCE, "it did not happen"
        time.sleep(0.02)
    return time.monotonic() - begin


def in_sync(info: ReplicasInfo) -> set[int | None]:
    return {one.broker_id for one in info.in_sync_replicas}


def is_routed(cluster: Cluster, number: int) -> bool:
    """True if the name server knows a broker as master: it registers after the controller has elected it."""
    found = ask(cluster.nameserver, GET_BROKER_CLUSTER_INFO).body
    return f'0:"{cluster.address(number)}"'.encode() in found.replace(b'"0":', b"0:")


def send(cluster: Cluster, count: int) -> None:
    with Producer(cluster.nameserver, group="p", send_msg_timeout=20_000) as producer:
        for number in range(count):
            assert producer.send(Message("TopicTest", b"%d" % number)).status is SendStatus.SEND_OK


def stored(cluster: Cluster) -> int:
    return int(cluster.admin.topics.describe("TopicTest").messages)


def test_a_killed_master_is_replaced_and_comes_back_as_a_slave(cluster: Cluster) -> None:
    before = cluster.info()
    assert (before.master_broker_id, before.master_address, before.master_epoch) == (1, cluster.address(1), 1)
    assert (cluster.home / "store-1" / "brokerIdentity").read_text().endswith(f"#{GROUP}#1")
    assert (cluster.home / "store-2" / "brokerIdentity").read_text().endswith(f"#{GROUP}#2")
    send(cluster, 50)
    cluster.brokers[1].kill()
    until(lambda: cluster.info().master_broker_id == 2)
    after = cluster.info()
    assert (after.master_address, after.master_epoch, in_sync(after)) == (cluster.address(2), 2, {2})
    report = cluster.admin.controllers.explain(cluster.controller, GROUP)
    dead, alive = report.replicas
    assert (report.has_master, dead.alive, alive.alive) == (True, False, True)
    assert dead.max_offset is not None
    assert "no other replica is in sync" in report.reason
    until(lambda: is_routed(cluster, 2))
    send(cluster, 10)
    assert stored(cluster) == 60
    cluster.start(1)
    until(lambda: in_sync(cluster.info()) == {1, 2})
    assert cluster.info().master_broker_id == 2


def test_a_controller_that_was_killed_knows_everything_and_nobody_loses_a_master(cluster: Cluster) -> None:
    before = cluster.info()
    cluster.kill_controller()
    cluster.start_controller()
    until(lambda: all(one.alive for one in cluster.info().in_sync_replicas))
    after = cluster.info()
    assert (after.master_broker_id, after.master_epoch) == (before.master_broker_id, before.master_epoch)
    assert in_sync(after) == {1, 2}


def test_apaches_mqadmin_shows_and_elects(cluster: Cluster) -> None:
    with AdminRunner(home=cluster.home / "mqadmin", nameserver=cluster.nameserver) as admin:
        printed = admin.run("getControllerMetaData", "-a", cluster.controller)
        assert f"#ControllerLeaderAddress\t{cluster.controller}" in printed
        assert "#ControllerGroup\tgroup1\n#ControllerLeaderId\tn0" in printed
        printed = admin.run("getSyncStateSet", "-a", cluster.controller, "-b", GROUP)
        assert "#MasterBrokerId\t2" in printed
        assert f"brokerAddress='{cluster.address(1)}', alive=true" in printed
        assert "#SyncStateSetNums\t2" in printed
        names = ("-bn", GROUP, "-c", "DefaultCluster")
        elected = admin.run("electMaster", "-a", cluster.controller, "-b", "1", *names)
        assert f"#BrokerMasterAddr\t{cluster.address(1)}" in elected
        until(lambda: is_routed(cluster, 1))
        send(cluster, 10)
        refused = admin.run("cleanBrokerMetadata", "-a", cluster.controller, *names)
        assert "2009" in refused
        admin.run("updateControllerConfig", "-a", cluster.controller, "-k", "electMasterMaxRetryCount", "-v", "4")
        assert "electMasterMaxRetryCount" in admin.run("getControllerConfig", "-a", cluster.controller)
