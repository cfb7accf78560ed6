"""Cuts, stalls, power failures and full disks between a master and its slave. Nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
import errno
import logging
from typing import TYPE_CHECKING

import pytest

from orbitmq.aio import SendError, SendStatus
from orbitmq.store.replication.frames import REPORT
from orbitmq.testing import LocalCluster
from support.broker.replica_harness import (
    FAST,
    MASTER,
    SLAVE,
    SYNC,
    Sends,
    assert_same,
    bodies,
    log_bytes,
    promoted,
)
from support.remoting_harness import HOST, eventually

if TYPE_CHECKING:
    from orbitmq.testing import MemoryDisk

WAIT = 60.0


@pytest.mark.parametrize("seed", range(3))
async def test_a_slave_that_was_cut_off_gets_the_rest(seed: int) -> None:
    async with LocalCluster(replicas=2, settings=FAST, seed=seed) as cluster:
        sends = Sends(cluster, seed)
        sending = asyncio.create_task(sends.some(300))
        while not sending.done():
            cluster.cut(MASTER, SLAVE)
            await asyncio.sleep(0.01)
            cluster.heal(MASTER, SLAVE)
            await asyncio.sleep(0.2)
        await sending
        await cluster.wait_until_replicated(WAIT)
        assert_same(cluster.broker(MASTER), cluster.broker(SLAVE))
        assert set(sends.statuses) == {SendStatus.SEND_OK}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_a_slave_whose_power_fails_in_the_middle_of_a_record_goes_on(flush: str, seed: int) -> None:
    settings = {**FAST, "flushDiskType": flush, "haTransferBatchSize": "777"}
    async with LocalCluster(replicas=2, settings=settings, seed=seed) as cluster:
        sends = Sends(cluster, seed)
        for _ in range(3):
            sending = asyncio.create_task(sends.some(60))
            slave = cluster.broker(SLAVE).store.log
            end = slave.end
            while slave.end == end and not sending.done():  # noqa: ASYNC110 - either of the two
                await asyncio.sleep(0.001)
            await cluster.kill(SLAVE)
            await cluster.start(SLAVE)
            await sending
        await cluster.wait_until_replicated(WAIT)
        assert_same(cluster.broker(MASTER), cluster.broker(SLAVE))


async def test_a_stalled_slave_delays_sends_until_the_timeout_and_no_longer() -> None:
    settings = {**SYNC, "slaveTimeout": "100"}
    async with LocalCluster(replicas=2, settings=settings) as cluster:
        sends = Sends(cluster)
        await eventually(lambda: len(cluster.broker(MASTER).replication.acks))
        cluster.stall(MASTER, SLAVE)
        await sends.some(3)
        assert set(sends.statuses) == {SendStatus.FLUSH_SLAVE_TIMEOUT}
        cluster.heal(MASTER, SLAVE)
        cluster.broker(MASTER).settings.store.slave_timeout = 60_000
        await sends.some(3)
        assert sends.statuses[3:] == [SendStatus.SEND_OK] * 3
        await cluster.wait_until_replicated(WAIT)
        assert_same(cluster.broker(MASTER), cluster.broker(SLAVE))


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_what_a_sync_master_acknowledged_survives_the_loss_of_its_disk(flush: str) -> None:
    """The slave is promoted by hand. It loses no power itself: with SYNC_FLUSH it may, see the next test."""
    async with LocalCluster(replicas=2, settings={**SYNC, "flushDiskType": flush}) as cluster:
        sends = Sends(cluster)
        await sends.some(80)
        await cluster.kill(MASTER)
        await cluster.stop(SLAVE)
        async with promoted(cluster) as broker:
            assert sends.acknowledged
            assert sends.acknowledged <= bodies(broker)
            assert set(sends.statuses) == {SendStatus.SEND_OK}
            stored = broker.store.append("orders", 0, b"after the promotion")
            assert broker.store.record(stored.offset) is not None


@pytest.mark.parametrize("seed", range(3))
async def test_with_sync_flush_on_both_sides_one_disk_may_be_lost_while_the_other_loses_power(seed: int) -> None:
    async with LocalCluster(replicas=2, settings={**SYNC, "flushDiskType": "SYNC_FLUSH"}, seed=seed) as cluster:
        sends = Sends(cluster, seed)
        await sends.some(40)
        await cluster.kill()
        async with promoted(cluster) as broker:
            assert len(sends.acknowledged) == 40
            assert sends.acknowledged <= bodies(broker)


async def test_a_master_that_lost_the_end_of_its_log_gives_its_slave_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Neither side cuts anything off; both say so, and the slave can be promoted without a loss."""
    settings = {**FAST, "flushIntervalCommitLog": "3600000", "flushCommitLogThoroughInterval": "36000000"}
    async with LocalCluster(replicas=2, settings=settings, seed=3) as cluster:
        sends = Sends(cluster)
        await sends.some(50)
        await cluster.wait_until_replicated(WAIT)
        before = log_bytes(cluster.broker(SLAVE))
        await cluster.kill(MASTER)
        with caplog.at_level(logging.ERROR, "orbitmq.broker"):
            await cluster.start(MASTER)
            master = cluster.broker(MASTER)
            assert master.store.log.end < len(before)
            await eventually(
                lambda: any("Nothing is copied and nothing cut off" in text for text in caplog.messages)
            )
            # The master's log grows past the end of the slave's: its bytes do not continue it.
            await Sends(cluster, 7).some(60)
            assert master.store.log.end > len(before)
            slave = cluster.broker(SLAVE)
            caplog.clear()
            cluster.cut(MASTER, SLAVE)
            cluster.heal(MASTER, SLAVE)
            assert slave.slave is not None
            slave.slave._trouble = ""
            slave.slave._wake.set()
            await eventually(lambda: "Nothing is copied and nothing cut off" in caplog.text)
        assert log_bytes(slave) == before
        await cluster.stop(SLAVE)
        async with promoted(cluster) as broker:
            assert sends.acknowledged <= bodies(broker)


async def test_a_slave_with_a_full_disk_says_so_and_goes_on_when_there_is_room() -> None:
    async with LocalCluster(replicas=2, settings=FAST) as cluster:
        sends = Sends(cluster)
        await sends.some(10)
        await cluster.wait_until_replicated(WAIT)
        slave = cluster.broker(SLAVE)
        slave.store.appender.gate.close("disk", "the disk is full")
        await sends.some(10)
        assert slave.slave is not None
        await eventually(lambda: "the disk is full" in slave.slave._trouble)  # type: ignore[union-attr]
        slave.store.appender.gate.open("disk")
        await cluster.wait_until_replicated(WAIT)
        assert_same(cluster.broker(MASTER), slave)


async def test_a_disk_of_the_slave_that_refuses_a_new_file_delays_the_copy() -> None:
    async with LocalCluster(replicas=2, settings=FAST) as cluster:
        sends = Sends(cluster)
        disk: MemoryDisk = cluster.disk(SLAVE)  # type: ignore[assignment]
        disk.fail("create", times=3)
        await sends.some(50)
        await cluster.wait_until_replicated(WAIT)
        assert_same(cluster.broker(MASTER), cluster.broker(SLAVE))


async def test_a_master_with_a_full_disk_refuses_sends_and_its_slave_copies_the_rest() -> None:
    async with LocalCluster(replicas=2, settings=FAST) as cluster:
        master, slave = cluster.broker(MASTER), cluster.broker(SLAVE)
        sends = Sends(cluster)
        await sends.some(10)
        await cluster.wait_until_replicated(WAIT)
        cluster.stall(MASTER, SLAVE)
        await sends.some(20)
        disk: MemoryDisk = cluster.disk(MASTER)  # type: ignore[assignment]
        for operation in ("create", "write", "reserve", "pwrite"):
            disk.fail(operation, error=errno.ENOSPC, times=1_000_000)
        with pytest.raises(SendError):
            await sends.some(1000, retry_times_when_send_failed=0)
        assert slave.store.log.end < master.store.log.end
        cluster.heal(MASTER, SLAVE)
        await cluster.wait_until_replicated(WAIT)
        assert log_bytes(master) == log_bytes(slave)
        assert sends.acknowledged <= bodies(slave)
        disk.heal()
        await eventually(lambda: not master.store.appender.gate.reason)
        await sends.some(10)
        await cluster.wait_until_replicated(WAIT)
        assert_same(master, slave)


async def test_a_slave_behind_the_oldest_file_of_its_master_is_refused_until_its_store_is_removed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with LocalCluster(replicas=2, settings={**FAST, "fileReservedTime": "0"}) as cluster:
        master = cluster.broker(MASTER)
        await Sends(cluster).some(20)
        await cluster.wait_until_replicated(WAIT)
        await cluster.stop(SLAVE)
        # While it is away, the master does not wait for it.
        await Sends(cluster, 2).some(200, 40_000)
        cluster.clock.advance(3_600_000)
        await master.service.flushed(master.store.log.end)
        master.service.retention.request()
        master.service.retention.run()
        assert master.store.log.start > 0
        await cluster.start(SLAVE)
        # The slave's last record is not there any more; and the master says so by itself, too.
        await eventually(lambda: "it lost the end of its log, removed that part" in caplog.text)
        end = cluster.broker(SLAVE).store.log.end
        reader, writer = await asyncio.open_connection(HOST, master.replication.port)
        writer.write(REPORT.pack(end))
        await eventually(lambda: "but this master's begins at" in caplog.text)
        writer.transport.abort()
        assert await reader.read() == b""
        assert cluster.broker(SLAVE).store.log.end == end
        await cluster.stop(SLAVE)
        cluster._brokers[SLAVE].disk = cluster._new_disk(SLAVE, 1)
        await cluster.start(SLAVE)
        await cluster.wait_until_replicated(WAIT)
        assert_same(master, cluster.broker(SLAVE))


async def test_a_master_keeps_log_files_that_a_slave_still_copies() -> None:
    settings = {**FAST, "fileReservedTime": "0"}
    async with LocalCluster(replicas=2, settings=settings) as cluster:
        master = cluster.broker(MASTER)
        sends = Sends(cluster)
        await sends.some(5)
        await cluster.wait_until_replicated(WAIT)
        cluster.stall(MASTER, SLAVE)
        await sends.some(200, 40_000)
        cluster.clock.advance(3_600_000)
        await master.service.flushed(master.store.log.end)
        retention = master.service.retention
        retention.request()
        assert retention.run().waits == "a slave has not copied it yet"
        assert master.store.log.start == 0
        cluster.heal(MASTER, SLAVE)
        await cluster.wait_until_replicated(WAIT)
        await eventually(lambda: master.replication.oldest_needed == master.store.log.end)
        retention.request()
        retention.run()
        assert master.store.log.start > 0


async def test_an_empty_slave_begins_at_the_oldest_file_of_its_master() -> None:
    async with LocalCluster(replicas=2, settings={**FAST, "fileReservedTime": "0"}) as cluster:
        master = cluster.broker(MASTER)
        await cluster.stop(SLAVE)
        await Sends(cluster).some(200, 40_000)
        cluster.clock.advance(3_600_000)
        await master.service.flushed(master.store.log.end)
        master.service.retention.request()
        master.service.retention.run()
        assert master.store.log.start > 0
        cluster.disk(SLAVE)
        await cluster.start(SLAVE)
        await cluster.wait_until_replicated(WAIT)
        assert_same(master, cluster.broker(SLAVE))
        await cluster.restart(SLAVE)
        await Sends(cluster, 2).some(20)
        await cluster.wait_until_replicated(WAIT)
        assert_same(master, cluster.broker(SLAVE))
