"""Master and slave in one process: the slave's log, queues and index are those of the master."""

from __future__ import annotations

import contextlib
import random
from typing import TYPE_CHECKING, Any

import pytest

from orbitmq.aio import Message, Producer, SendStatus
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
