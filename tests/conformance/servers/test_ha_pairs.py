"""Master and slave, one of them Apache's: synchronous sends, identical logs and queues, a slave that returns.

The slave finds its master through the name server. Small log files, so that the log rolls over on the way.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import TYPE_CHECKING

import pytest

from orbitmq.aio import Message, Producer, SendStatus
from orbitmq.testing import LocalCluster
from peers.apache import ApacheBroker, free_broker_port, mqadmin
from peers.frames import ask
from support.remoting_harness import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("apache")

FILE = 1 << 20
SHARED = {
    "mappedFileSizeCommitLog": str(FILE),
    "mappedFileSizeConsumeQueue": "20000",
    "haSendHeartbeatInterval": "300",
    "autoCreateTopicEnable": "true",
    "totalReplicas": "2",
    "inSyncReplicas": "2",
    "slaveTimeout": "30000",
    "maxHashSlotNum": "1000",
    "maxIndexNum": "4000",
}
MASTER = {**SHARED, "brokerRole": "SYNC_MASTER", "brokerId": "0"}
SLAVE = {**SHARED, "brokerRole": "SLAVE", "brokerId": "1"}
VIEW_BROKER_HA_STATUS = 907


@contextlib.asynccontextmanager
async def apache_broker(store: Path, conf: dict[str, str], cluster: LocalCluster) -> AsyncIterator[ApacheBroker]:
    """In a thread, because the name server runs on this loop."""
    home = store.parent / f"{store.name}-home"
    broker = await asyncio.to_thread(lambda: ApacheBroker(store, conf, home=home, nameserver=cluster.name_server))
    try:
        yield broker
    finally:
        await asyncio.to_thread(broker.kill)


async def send_all_kinds(cluster: LocalCluster, seed: int) -> None:
    """Plain, tagged, keyed, batched and delayed messages, more than a log file of them."""
    rng = random.Random(seed)
    async with Producer(cluster.name_server, group="p", send_msg_timeout=40_000) as producer:
        for number in range(30):
            sent = await producer.send(
                Message("orders", rng.randbytes(40_000), tags="a", keys=[f"k{number}"]),
            )
            assert sent.status is SendStatus.SEND_OK
        batch = [Message("orders", b"%d" % number) for number in range(10)]
        for receipt in await producer.send_batch(batch):
            assert receipt.status is SendStatus.SEND_OK
        assert (await producer.send(Message("orders", b"later", delay_level=18))).status is SendStatus.SEND_OK


def log_files(store: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted((store / "commitlog").iterdir())}


def assert_same_logs(master: Path, slave: Path) -> None:
    mine, theirs = log_files(master), log_files(slave)
    names = sorted(mine.keys() & theirs.keys())
    assert len(names) > 1
    for name in names:
        assert mine[name] == theirs[name], name


def queue_units(store: Path) -> dict[str, bytes]:
    """Units of every queue of the topic that was sent to, without the zeros behind the last one."""
    found = {}
    for folder in sorted((store / "consumequeue" / "orders").iterdir()):
        units = b"".join(file.read_bytes() for file in sorted(folder.iterdir()))
        found[folder.name] = units.rstrip(b"\0")
    return {name: units for name, units in found.items() if units}


async def test_an_apache_slave_copies_our_master(tmp_path: Path) -> None:
    async with LocalCluster(settings=MASTER, directory=tmp_path / "ours") as cluster:
        master = cluster.broker()
        store = tmp_path / "slave"
        conf = {**SLAVE, "listenPort": str(free_broker_port())}
        async with apache_broker(store, conf, cluster):
            await send_all_kinds(cluster, 1)
        # A slave that was away, without a clean shutdown, gets the rest.
        master.settings.store.in_sync_replicas = 1
        await send_all_kinds(cluster, 2)
        async with apache_broker(store, conf, cluster) as slave:
            await eventually(
                lambda: any(acked == master.store.log.end for _, acked in master.replication.acks.ends)
            )
            status = await asyncio.to_thread(
                mqadmin, "haStatus", "-n", cluster.name_server, "-b", cluster.address("broker-a")
            )
            assert f"#MasterCommitLogMaxOffset\t{master.store.log.end}" in status
            assert "#SlaveNum\t1" in status
            assert "#InSyncSlaveNum\t1" in status
            answer = await asyncio.to_thread(ask, slave.address, VIEW_BROKER_HA_STATUS)
            assert answer.code == 0
            await asyncio.to_thread(slave.stop)
        master.store.sync_queues()
        assert_same_logs(tmp_path / "ours" / "broker-a", store)
        assert queue_units(tmp_path / "ours" / "broker-a") == queue_units(store)


async def test_our_slave_copies_an_apache_master(tmp_path: Path) -> None:
    store = tmp_path / "master"
    conf = {**MASTER, "listenPort": str(free_broker_port()), "messageDelayLevel": "1s 2h 2h"}
    async with (
        LocalCluster(settings={**SLAVE}, directory=tmp_path / "ours", brokers=1) as cluster,
        apache_broker(store, conf, cluster) as master,
    ):
        slave = cluster.broker()
        await eventually(lambda: slave.slave is not None and slave.slave.connection is not None)
        await send_all_kinds(cluster, 1)
        await cluster.restart("broker-a")
        await send_all_kinds(cluster, 2)
        slave = cluster.broker()
        await asyncio.to_thread(master.stop)
        await eventually(lambda: slave.store.dispatcher.position == slave.store.log.end)
        slave.store.sync_queues()
        assert_same_logs(store, tmp_path / "ours" / "broker-a")
        assert queue_units(store) == queue_units(tmp_path / "ours" / "broker-a")
