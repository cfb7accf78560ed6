"""Acknowledging messages when they are on disk: group commit, a disk that fails, and the end of a service."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from orbitmq.store import AppendRefusedError, FlushFailedError, StoredMessage, StoreLockedError
from orbitmq.store.background.service import StoreService
from support.store.running_store import BUSY, IDLE, ROOMY, Running, append, cut_power
from support.store.stores import SYNC, TOPIC, offsets_of, open_small, read_all, send
from support.store.watched_disk import Turnstile, WatchedDisk, WatchedLocalDisk, inline, turns, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@pytest.fixture
async def run() -> AsyncIterator[Running]:
    running = Running()
    yield running
    await running.stop_all()


@pytest.fixture
def disk() -> WatchedDisk:
    return WatchedDisk()


# Group commit


async def test_one_sync_answers_everybody_who_waits(disk: WatchedDisk, run: Running) -> None:
    store = open_small("/store", disk=disk, **SYNC, **IDLE, **ROOMY)
    service = await run(store, inline)
    waiting = [service.flushed(append(store)) for _ in range(100)]
    assert not any(future.done() for future in waiting)
    before = len(disk.watch.of("sync", "commitlog"))
    await asyncio.gather(*waiting)
    assert len(disk.watch.of("sync", "commitlog")) - before == 1


async def test_a_waiter_that_arrives_during_a_sync_is_covered_by_the_next(disk: WatchedDisk, run: Running) -> None:
    turnstile = Turnstile()
    store = open_small("/store", disk=disk, **SYNC, **IDLE, **ROOMY)
    service = await run(store, turnstile)
    first = [service.flushed(append(store)) for _ in range(3)]
    await until(lambda: len(turnstile.waiting) == 1)
    second = [service.flushed(append(store)) for _ in range(3)]
    before = len(disk.watch.of("sync", "commitlog"))
    turnstile.let_one_through()
    await asyncio.gather(*first)
    await until(lambda: len(turnstile.waiting) == 1)
    assert not any(future.done() for future in second)
    turnstile.open()
    await asyncio.gather(*second)
    assert len(disk.watch.of("sync", "commitlog")) - before == 2


async def test_no_waiter_completes_and_nothing_is_visible_before_the_sync(disk: WatchedDisk, run: Running) -> None:
    turnstile = Turnstile()
    store = open_small("/store", disk=disk, **SYNC, **IDLE)
    service = await run(store, turnstile)
    future = service.flushed(append(store))
    await until(lambda: bool(turnstile.waiting))
    await turns()
    assert not future.done()
    assert store.max_offset(TOPIC, 0) == 0
    turnstile.open()
    await future
    assert store.max_offset(TOPIC, 0) == 1


async def test_waiters_complete_in_log_order(disk: WatchedDisk, run: Running) -> None:
    store = open_small("/store", disk=disk, **SYNC, **IDLE, **ROOMY)
    service = await run(store, inline)
    order: list[int] = []

    async def send_one(number: int) -> None:
        await service.flushed(append(store))
        order.append(number)

    await asyncio.gather(*(send_one(number) for number in range(50)))
    assert order == list(range(50))


async def test_what_is_on_disk_already_is_answered_at_once(disk: WatchedDisk, run: Running) -> None:
    store = open_small("/store", disk=disk, **SYNC, **IDLE)
    service = await run(store, inline)
    end = append(store)
    store.flush()
    assert service.flushed(end).done()


async def test_a_sync_covers_all_the_files_that_records_went_to(disk: WatchedDisk, run: Running) -> None:
    store = open_small("/store", disk=disk, **SYNC, **IDLE)
    service = await run(store, inline)
    await service.flushed([append(store, 1000) for _ in range(10)][-1])
    for name in disk.list("/store/commitlog"):
        path = f"/store/commitlog/{name}"
        assert disk.durable_bytes(path) == disk.read(path)


async def test_one_who_gives_up_does_not_disturb_the_others(disk: WatchedDisk, run: Running) -> None:
    turnstile = Turnstile()
    store = open_small("/store", disk=disk, **SYNC, **IDLE)
    service = await run(store, turnstile)
    first, second, third = (service.flushed(append(store)) for _ in range(3))
    second.cancel()
    turnstile.open()
    await asyncio.gather(first, third)
    assert second.cancelled()


async def test_under_load_no_waiter_completes_too_early(tmp_path: Path, run: Running) -> None:
    disk = WatchedLocalDisk()
    store = open_small(tmp_path, disk=disk, **SYNC, **BUSY, flush_consume_queue_thorough_interval=0)
    service = await run(store)

    async def send_many(queue_id: int) -> None:
        for _ in range(20):
            appended = store.append(StoredMessage(TOPIC, queue_id, b"x" * 100))
            await service.flushed(appended.offset + appended.size)
            assert store.log.flushed >= appended.offset + appended.size
            assert store.max_offset(TOPIC, queue_id) > appended.queue_offset

    await asyncio.gather(*(send_many(queue_id) for queue_id in range(16)))
    flushes = disk.watch.of("sync of a map", "commitlog")
    assert 0 < len(flushes) < 16 * 20
    assert not any(one.on_main_thread for one in flushes)
    await service.stop()
    with open_small(tmp_path, **SYNC) as again:
        assert again.recovery.clean
        assert [len(read_all(again, TOPIC, queue_id)) for queue_id in range(16)] == [20] * 16


# A disk that fails


async def test_a_failed_sync_fails_all_present_and_later_waiters(disk: WatchedDisk, run: Running) -> None:
    turnstile = Turnstile()
    store = open_small("/store", disk=disk, **SYNC, **IDLE)
    service = await run(store, turnstile)
    send(store, 2)
    turnstile.open()
    await service.flushed(store.log.end)
    turnstile.close()
    waiting = [service.flushed(append(store)) for _ in range(3)]
    await until(lambda: bool(turnstile.waiting))
    waiting.append(service.flushed(append(store)))
    disk.fail("sync", path_contains="commitlog")
    turnstile.open()
    for future in waiting:
        with pytest.raises(FlushFailedError, match="the disk failed to store the log"):
            await future
    with pytest.raises(AppendRefusedError, match="check the disk, then restart the broker"):
        append(store)
    syncs = len(disk.watch.of("sync", "commitlog"))
    with pytest.raises(FlushFailedError):
        await service.flushed(store.log.end)
    assert len(disk.watch.of("sync", "commitlog")) == syncs, "a later sync proves nothing and is not tried"
    assert len(read_all(store)) == 2
    with pytest.raises(FlushFailedError):
        await service.stop()
    assert not store.is_open
    assert disk.stat("/store/abort") is not None


async def test_a_failed_timed_flush_is_logged_once_and_stops_appends(
    disk: WatchedDisk, run: Running, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_small("/store", disk=disk, **BUSY, flush_commit_log_least_pages=0)
    disk.fail("sync", path_contains="commitlog", after=1)  # the first is of the new file
    service = await run(store, inline)
    append(store)
    await until(lambda: store.log_failure is not None)
    rounds = len(disk.watch.of("sync", "checkpoint"))
    await until(lambda: len(disk.watch.of("sync", "checkpoint")) > rounds + 5)
    assert [record.message for record in caplog.records] == ["store /store: a flush failed"]
    with pytest.raises(AppendRefusedError):
        append(store)
    assert len(read_all(store)) == 1
    with pytest.raises(FlushFailedError):
        await service.stop()


async def test_no_waiter_is_left_pending_after_any_error(disk: WatchedDisk, run: Running) -> None:
    """Here it is whoever is told of arrivals; the messages are on disk, so they are acknowledged."""
    turnstile = Turnstile()
    store = open_small("/store", disk=disk, **SYNC, **IDLE)

    def fail_on_arrival(*_: object) -> None:
        raise RuntimeError("nobody expected this")

    store.dispatcher.on_arrival = fail_on_arrival
    service = await run(store, turnstile)
    first = service.flushed(append(store))
    await until(lambda: bool(turnstile.waiting))
    second = service.flushed(append(store))
    turnstile.open()
    await first
    with pytest.raises(FlushFailedError, match="nobody expected this"):
        await second
    store.dispatcher.on_arrival = None
    await service.flushed(store.log.end)
    assert len(read_all(store)) == 2


# The end


async def test_stopping_flushes_what_waits(disk: WatchedDisk, run: Running) -> None:
    store = open_small("/store", disk=disk, **SYNC, **IDLE)
    service = await run(store, inline)
    waiting = [service.flushed(append(store)) for _ in range(5)]
    await service.stop()
    assert all(future.done() and future.exception() is None for future in waiting)
    assert disk.stat("/store/abort") is None
    with open_small("/store", disk=disk.power_cut(), **SYNC) as again:
        assert again.recovery.clean
        assert len(read_all(again)) == 5


async def test_stopping_waits_for_a_sync_under_way(disk: WatchedDisk, run: Running) -> None:
    turnstile = Turnstile()
    store = open_small("/store", disk=disk, **SYNC, **IDLE)
    service = await run(store, turnstile)
    first = service.flushed(append(store))
    await until(lambda: bool(turnstile.waiting))
    second = service.flushed(append(store))
    stopping = asyncio.create_task(service.stop())
    await turns()
    assert not stopping.done()
    turnstile.open()
    await stopping
    assert first.done()
    assert second.done()
    assert not store.is_open
    with open_small("/store", disk=disk.power_cut(), **SYNC) as again:
        assert again.recovery.clean
        assert len(read_all(again)) == 2


async def test_stopping_waits_for_queues_that_are_being_synced(disk: WatchedDisk, run: Running) -> None:
    turnstile = Turnstile()
    settings = {**IDLE, "flush_interval_consume_queue": 1, "flush_consume_queue_thorough_interval": 0}
    store = open_small("/store", disk=disk, **settings)
    turnstile.open()
    service = await run(store, turnstile)
    send(store, 5, UNIQ_KEY="u")
    turnstile.close()
    await until(lambda: bool(turnstile.waiting))
    stopping = asyncio.create_task(service.stop())
    await turns()
    assert not stopping.done()
    turnstile.open()
    await stopping
    with open_small("/store", disk=disk.power_cut()) as again:
        assert again.recovery.clean
        assert len(read_all(again)) == 5


async def test_stopping_closes_the_store_and_ends_its_threads(tmp_path: Path, run: Running) -> None:
    store = open_small(tmp_path, **SYNC, **BUSY)
    service = await run(store)
    await service.flushed(append(store))
    with pytest.raises(StoreLockedError):
        open_small(tmp_path)
    threads = service._threads
    assert threads is not None
    await service.stop()
    assert not any(thread.is_alive() for thread in threads._threads)
    open_small(tmp_path).close()


async def test_stopping_right_after_starting_is_fine(disk: WatchedDisk, run: Running) -> None:
    service = await run(open_small("/store", disk=disk))
    await service.stop()
    assert disk.stat("/store/abort") is None


async def test_stopping_closes_the_store_even_if_its_jobs_were_cancelled(disk: WatchedDisk) -> None:
    store = open_small("/store", disk=disk)
    service = StoreService(store, inline)
    await service.start()
    for task in service._tasks:
        task.cancel()
    append(store)
    await service.stop()
    assert not store.is_open
    assert disk.stat("/store/abort") is None


async def test_a_store_that_cannot_be_closed_cleanly_gives_up_its_lock(disk: WatchedDisk, run: Running) -> None:
    store = open_small("/store", disk=disk, **IDLE)
    service = await run(store)
    append(store)
    disk.fail("sync", path_contains="commitlog")
    with pytest.raises(FlushFailedError):
        await service.stop()
    with open_small("/store", disk=disk) as again:
        assert not again.recovery.clean


@pytest.mark.parametrize("seed", range(10))
async def test_what_is_answered_survives_a_power_cut_under_load(seed: int) -> None:
    disk = WatchedDisk(seed)
    settings = {**SYNC, **BUSY, "flush_consume_queue_thorough_interval": 0}
    store = open_small("/store", disk=disk, **settings)
    service = StoreService(store)
    await service.start()
    answered: set[int] = set()

    async def send_many(queue_id: int) -> None:
        while len(answered) < 40 + seed * 10:
            appended = store.append(StoredMessage(TOPIC, queue_id, b"x" * 200, b"UNIQ_KEY\x01u\x02"))
            await service.flushed(appended.offset + appended.size)
            answered.add(appended.offset)

    await asyncio.gather(*(send_many(queue_id) for queue_id in range(8)))
    with open_small("/store", disk=await cut_power(service, disk), **settings) as again:
        found = {offset for queue_id in range(8) for offset in offsets_of(read_all(again, TOPIC, queue_id))}
        assert answered <= found
