"""Master and slave in one process: the slave's log, queues and index are those of the master."""

from __future__ import annotations

import contextlib
import random
from typing import TYPE_CHECKING, Any

import pytest

from orbitmq.aio import Message, Producer, SendError, SendStatus
from orbitmq.protocol.broker_events import EventKind
from orbitmq.testing import LocalCluster
from support.broker.broker_harness import running_broker
from support.remoting_harness import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from orbitmq.broker import Broker
    from orbitmq.platform.disk import Disk

FILE = 1 << 20


@contextlib.asynccontextmanager
async def slave_of(master: Broker, disk: Disk | None = None, **settings: str) -> AsyncIterator[Broker]:
    more: dict[str, Any] = {"haMasterAddress": f"127.0.0.1:{master.replication.port}", **settings}
    size = str(master.settings.store.mapped_file_size_commit_log)
    async with running_broker(disk, brokerRole="SLAVE", brokerId=1, mappedFileSizeCommitLog=size, **more) as slave:
        yield slave


def log_bytes(broker: Broker) -> bytes:
    log = broker.store.log
    found = bytearray()
    for base in log.files.bases:
        found += bytes(log.files.mapped(base).buffer[: min(log.end - base, log.file_size)])
    return bytes(found)


def has_all(slave: Broker, master: Broker) -> bool:
    return slave.store.log.end == master.store.log.end and slave.store.dispatcher.position == slave.store.log.end


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_a_slave_gets_every_byte_of_the_log(flush: str) -> None:
    async with (
        LocalCluster(settings={"flushDiskType": flush, "mappedFileSizeCommitLog": str(FILE)}) as cluster,
        slave_of(cluster.broker(), flushDiskType=flush) as slave,
    ):
        master = cluster.broker()
        async with Producer(cluster.name_server, group="p") as producer:
            for number in range(50):
                await producer.send(Message("orders", random.randbytes(40_000), tags="a", keys=[f"k{number}"]))
        await eventually(lambda: has_all(slave, master))
        assert log_bytes(slave) == log_bytes(master)
        assert len(master.store.log.files) > 1
        queues = [(q.topic, q.queue_id, q.min_offset, q.max_offset) for q in master.store.queues.opened()]
        assert [
            (topic, queue_id, slave.store.min_offset(topic, queue_id), slave.store.max_offset(topic, queue_id))
            for topic, queue_id, *_ in queues
        ] == queues
        await eventually(lambda: next(iter(master.replication.acks.ends))[1] == master.store.log.end)


SYNC = {"brokerRole": "SYNC_MASTER", "totalReplicas": "2", "inSyncReplicas": "2", "slaveTimeout": "1"}


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_a_send_to_a_sync_master_is_answered_when_a_slave_has_the_message(flush: str) -> None:
    settings = {**SYNC, "slaveTimeout": "20000", "flushDiskType": flush}
    async with LocalCluster(settings=settings) as cluster, slave_of(cluster.broker(), flushDiskType=flush) as slave:
        master = cluster.broker()
        async with Producer(cluster.name_server, group="p") as producer:
            for number in range(10):
                sent = await producer.send(Message("orders", b"%d" % number))
                assert sent.status is SendStatus.SEND_OK
                assert slave.store.log.end == master.store.log.end
                if flush == "SYNC_FLUSH":
                    assert slave.store.log.flushed == master.store.log.flushed == slave.store.log.end


async def test_a_send_to_a_sync_master_without_a_slave_says_so() -> None:
    async with LocalCluster(settings=SYNC) as cluster:
        master = cluster.broker()
        async with Producer(cluster.name_server, group="p") as producer:
            sent = await producer.send(Message("orders", b"1"))
            assert sent.status is SendStatus.FLUSH_SLAVE_TIMEOUT
            sent = await producer.send(Message("orders", b"2", wait_store_ok=False))
            assert sent.status is SendStatus.SEND_OK
            async with slave_of(master):
                await eventually(lambda: bool(master.replication.acks))
                master.settings.store.slave_timeout = 20_000
                assert (await producer.send(Message("orders", b"3"))).status is SendStatus.SEND_OK


async def test_a_group_with_acting_masters_refuses_sends_while_too_few_replicas_are_in_sync() -> None:
    settings = {**SYNC, "enableSlaveActingMaster": "true", "slaveTimeout": "20000"}
    async with LocalCluster(settings=settings) as cluster:
        master = cluster.broker()
        async with Producer(cluster.name_server, group="p", retry_times_when_send_failed=0) as producer:
            with pytest.raises(SendError, match="in-sync replicas not enough"):
                await producer.send(Message("orders", b"1"))
            assert not master.store.log.end
            async with slave_of(master):
                await eventually(lambda: not master.replication.is_short)
                assert (await producer.send(Message("orders", b"2"))).status is SendStatus.SEND_OK
            await eventually(lambda: master.replication.is_short)
            with pytest.raises(SendError, match="in-sync replicas not enough"):
                await producer.send(Message("orders", b"3"))


async def test_replication_status_is_in_the_answers_of_both_sides_and_in_the_metrics() -> None:
    async with (
        LocalCluster(settings={"metricsExporterType": "PROM", "metricsPromExporterPort": "0"}) as cluster,
        slave_of(cluster.broker()) as slave,
    ):
        master = cluster.broker()
        async with Producer(cluster.name_server, group="p") as producer:
            await producer.send(Message("orders", b"1"))
        await eventually(lambda: next(iter(master.replication.lags().values()), (1,))[0] == 0)
        info = master.ha_status.info()
        assert info.master
        assert info.in_sync_slave_nums == 1
        (connection,) = info.ha_connection_info
        assert (connection.slave_ack_offset, connection.diff) == (master.store.log.end, 0)
        theirs = slave.ha_status.info()
        assert not theirs.master
        assert theirs.ha_client_runtime_info.max_offset == slave.store.log.end
        assert slave.runtime_info.table()["haMasterConnected"] == "true"
        assert master.runtime_info.table()[f"haSlave_{connection.addr}"].startswith("0 bytes")
        found = master.journal.find(0, 0, {EventKind.SLAVE_CONNECTED}, 10).events
        assert [event.subject for event in found] == [connection.addr]


async def test_a_slave_is_sent_no_more_per_second_than_allowed() -> None:
    limits = {"haFlowControlEnable": "true", "maxHaTransferByteInSecond": "20000"}
    async with LocalCluster(settings=limits) as cluster:
        master = cluster.broker()
        async with Producer(cluster.name_server, group="p") as producer:
            for _ in range(20):
                await producer.send(Message("orders", random.randbytes(3000)))
        async with slave_of(master) as slave:
            await eventually(lambda: slave.store.log.end)
            assert slave.store.log.end < master.store.log.end
            await eventually(lambda: has_all(slave, master))
            assert log_bytes(slave) == log_bytes(master)


async def test_the_log_is_not_copied_by_a_peer_that_is_not_allowed(caplog: pytest.LogCaptureFixture) -> None:
    async with (
        LocalCluster(settings={"haAllowedPeers": "192.0.2.1"}) as cluster,
        slave_of(cluster.broker()) as slave,
    ):
        await eventually(lambda: "127.0.0.1 is not in haAllowedPeers" in caplog.text)
        assert slave.store.log.end == 0
