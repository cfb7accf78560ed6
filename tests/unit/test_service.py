"""The store's background work on an event loop: group commit, timed flushes, files made ahead, and its end."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
from typing import TYPE_CHECKING, Any

import pytest

from orbitmq.store import AppendRefusedError, FlushFailedError, MessageStore, StoreLockedError
from orbitmq.store.service import CATCH_UP_SLICE, StoreService
from orbitmq.testing import ManualClock, MemoryDisk, PowerCut
from stores import SYNC, T0, TOPIC, offsets_of, open_small, read_all, send, tree
from watched import Turnstile, WatchedDisk, WatchedLocalDisk, inline, turns, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from orbitmq.store.service import RunBlocking

IDLE: dict[str, Any] = {
    "flush_interval_commit_log": 10**9,
    "flush_interval_consume_queue": 10**9,
    "clean_resource_interval": 10**9,
    "commit_interval_commit_log": 10**9,
}
"""Settings with which nothing comes round by itself."""

BUSY: dict[str, Any] = {
    "flush_interval_commit_log": 1,
    "flush_interval_consume_queue": 1,
    "clean_resource_interval": 1,
    "commit_interval_commit_log": 1,
}
"""Settings with which everything comes round all the time."""

ALWAYS: dict[str, Any] = {"delete_when": ";".join(map(str, range(24))), "file_reserved_time": 0}
"""Settings with which every log file but the newest goes as soon as it is flushed."""

ROOMY: dict[str, Any] = {"mapped_file_size_commit_log": 1 << 20, "max_index_num": 10_000}


class Running:
    """Starts services and stops those that a test did not stop."""

    def __init__(self) -> None:
        self._services: list[StoreService] = []

    async def __call__(self, store: MessageStore, run_blocking: RunBlocking | None = None) -> StoreService:
        service = StoreService(store, run_blocking)
        await service.start()
        self._services.append(service)
        return service

    async def stop_all(self) -> None:
        for service in self._services:
            if service.store.is_open:
                await service.stop()


@pytest.fixture
async def run() -> AsyncIterator[Running]:
    running = Running()
    yield running
    await running.stop_all()


@pytest.fixture
def disk() -> WatchedDisk:
    return WatchedDisk()


async def cut_power(service: StoreService, disk: WatchedDisk) -> MemoryDisk:
    """What is left of a running store's disk."""
    left = disk.power_cut()
    with contextlib.suppress(PowerCut):
        await service.stop()
    return left


def append(store: MessageStore, size: int = 10) -> int:
    """Append a message; returns where its record ends."""
    appended = store.append(TOPIC, 0, b"m" * size)
    return appended.offset + appended.size


# Group commit


async def test_one_sync_answers_everybody_who_waits(disk: WatchedDisk, run: Running) -> None:
    store = open_small("/store", disk=disk, **SYNC, **IDLE, **ROOMY)
    service = await run(store, inline)
    waiting = [service.flushed(append(store)) for _ in range(100)]
    assert not any(future.done() for future in waiting)
    before = len(disk.watch.of("sync", "commitlog"))
    await asyncio.gather(*waiting)
    assert len(disk.watch.of("sync", "commitlog")) - before == 1


async def test_who_comes_during_a_sync_is_answered_by_the_next(disk: WatchedDisk, run: Running) -> None:
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


async def test_nobody_is_answered_and_nothing_shown_before_the_sync(disk: WatchedDisk, run: Running) -> None:
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


async def test_answers_come_in_the_order_of_the_log(disk: WatchedDisk, run: Running) -> None:
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


async def test_under_load_nobody_is_answered_too_early(tmp_path: Path, run: Running) -> None:
    disk = WatchedLocalDisk()
    store = open_small(tmp_path, disk=disk, **SYNC, **BUSY, flush_consume_queue_thorough_interval=0)
    service = await run(store)

    async def send_many(queue_id: int) -> None:
        for _ in range(20):
            appended = store.append(TOPIC, queue_id, b"x" * 100)
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


async def test_a_failed_sync_is_told_to_all_who_wait_and_all_who_come(disk: WatchedDisk, run: Running) -> None:
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


async def test_nobody_waits_for_ever_whatever_goes_wrong(disk: WatchedDisk, run: Running) -> None:
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


# What comes round


@pytest.mark.parametrize("run_blocking", [None, inline], ids=["threads", "inline"])
async def test_everything_gets_to_disk_without_being_asked_for(
    disk: WatchedDisk, run: Running, run_blocking: RunBlocking | None
) -> None:
    clock = ManualClock(T0)
    settings = {**BUSY, "flush_consume_queue_thorough_interval": 0, "flush_commit_log_thorough_interval": 0}
    store = open_small("/store", disk=disk, clock=clock, **settings)
    service = await run(store, run_blocking)
    offsets = send(store, 30, UNIQ_KEY="u")
    await until(lambda: store.checkpoint.logics_physical_offset == offsets[-1])
    await until(lambda: store.checkpoint.index_msg_timestamp == T0)
    rounds = len(disk.watch.of("sync", "checkpoint"))
    await until(lambda: len(disk.watch.of("sync", "checkpoint")) > rounds + 1)
    with open_small("/store", disk=await cut_power(service, disk), clock=clock) as again:
        assert offsets_of(read_all(again)) == offsets
        assert len(again.query(TOPIC, "u").records) == 30


async def test_few_dirty_pages_wait_for_the_thorough_flush(disk: WatchedDisk, run: Running) -> None:
    clock = ManualClock(T0)
    settings = {**IDLE, "flush_interval_commit_log": 1, "flush_interval_consume_queue": 1, **ROOMY}
    store = open_small("/store", disk=disk, clock=clock, **settings)
    await run(store, inline)
    end = append(store)
    rounds = len(disk.watch.of("sync", "checkpoint"))
    await until(lambda: len(disk.watch.of("sync", "checkpoint")) > rounds + 10)
    assert store.log.flushed == 0
    clock.advance(10_000)
    await until(lambda: store.log.flushed == end)
    append(store, 3 * 4096)
    assert store.log.flushed == end
    end = append(store, 4096)
    await until(lambda: store.log.flushed == end)


async def test_a_sync_flush_store_flushes_also_what_nobody_waits_for(disk: WatchedDisk, run: Running) -> None:
    store = open_small("/store", disk=disk, **SYNC, **BUSY)
    await run(store, inline)
    append(store)
    await until(lambda: store.max_offset(TOPIC, 0) == 1)


async def test_under_load_the_checkpoint_still_gets_to_vouch_for_the_queues(
    disk: WatchedDisk, run: Running
) -> None:
    """Messages keep coming between any two syncs, so the log is never flushed to its end."""
    settings = {**IDLE, "flush_interval_consume_queue": 1, "flush_consume_queue_thorough_interval": 0}
    store = open_small("/store", disk=disk, **settings, **ROOMY)

    async def append_meanwhile(work: Callable[[], Any]) -> Any:
        append(store)
        done = work()
        append(store)
        return done

    await run(store, append_meanwhile)
    append(store)
    for _ in range(3):
        vouched = store.checkpoint.logics_physical_offset
        await until(lambda: store.checkpoint.logics_physical_offset > vouched)  # noqa: B023
    assert store.log.flushed < store.log.end


@pytest.mark.parametrize(
    ("operation", "path"),
    [
        ("sync", "checkpoint"),
        ("pwrite", "checkpoint"),
        ("sync", "consumequeue"),
        ("pwrite", "consumequeue"),
        ("space", ""),
        ("remove", "commitlog"),
    ],
)
async def test_jobs_go_on_after_the_disk_failed(
    disk: WatchedDisk, run: Running, operation: str, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock(T0)
    settings = {**BUSY, **ALWAYS, "flush_consume_queue_thorough_interval": 0}
    store = open_small("/store", disk=disk, clock=clock, **settings)
    await run(store, inline)
    for _ in range(3):
        disk.fail(operation, path_contains=path)
        count, tries = len(caplog.records), len(disk.watch.of(operation, path))
        while len(caplog.records) == count or len(disk.watch.of(operation, path)) < tries + 2:
            append(store, 1500)
            clock.advance(20_000)
            await turns()
            await until(lambda: store.log.flushed == store.log.end)
    end = store.log.end
    await until(lambda: len(store.log.files) == 1 and store.log.flushed == end)
    assert all("background work failed" in record.message for record in caplog.records)


async def test_a_job_goes_on_after_an_error_that_nobody_expected(
    disk: WatchedDisk, run: Running, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_small("/store", disk=disk, **BUSY, transient_store_pool_enable=True)
    arrived: list[int] = []

    def fail_first(*_: object) -> None:
        arrived.append(1)
        if len(arrived) == 1:
            raise ValueError("not expected")

    store.dispatcher.on_arrival = fail_first
    await run(store, inline)
    append(store)
    append(store)
    await until(lambda: store.max_offset(TOPIC, 0) == 2)
    assert "background work failed" in caplog.text


async def test_an_error_that_lasts_is_told_once(
    disk: WatchedDisk, run: Running, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_small("/store", disk=disk, **BUSY)
    disk.fail("stat", path_contains="checkpoint", times=20)
    await run(store, inline)
    await until(lambda: len(disk.watch.of("stat", "checkpoint")) > 22)
    assert len([record for record in caplog.records if "checkpoint" in str(record.exc_info)]) == 1
    disk.fail("stat", path_contains="checkpoint", times=2)
    await until(lambda: len([record for record in caplog.records if "checkpoint" in str(record.exc_info)]) == 2)
    disk.heal()


async def test_keys_get_into_the_index_by_themselves(disk: WatchedDisk, run: Running) -> None:
    store = open_small("/store", disk=disk, **IDLE)
    await run(store, inline)
    send(store, 3, UNIQ_KEY="u")
    assert store.index is not None
    assert store.index.pending == 3
    await until(lambda: store.index is not None and store.index.pending == 0)


async def test_expired_files_go_by_themselves(
    disk: WatchedDisk, run: Running, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    clock = ManualClock(T0)
    store = open_small("/store", disk=disk, clock=clock, **BUSY, **SYNC, delete_when="23", file_reserved_time=1)
    service = await run(store, inline)
    await service.flushed([append(store, 1500) for _ in range(9)][-1])
    clock.advance(3_600_000)
    await until(lambda: len(store.log.files) == 1)
    assert "removed 4 log files because it is 23 o'clock" in caplog.text
    assert store.min_offset(TOPIC, 0) == 8


async def test_what_a_replica_receives_becomes_visible_by_itself(disk: WatchedDisk, run: Running) -> None:
    count = 2 * CATCH_UP_SLICE + 10
    with open_small("/master", disk=disk, **ROOMY) as master:
        send(master, count)
        data = bytes(master.log.files.mapped(0).buffer[: master.log.end])
    store = open_small("/store", disk=disk, **BUSY, **ROOMY)
    await run(store, inline)
    for start in range(0, len(data), 50_000):
        store.append_raw(data[start : start + 50_000], start)
    await until(lambda: store.max_offset(TOPIC, 0) == count)


async def test_the_pool_hands_its_records_on_by_itself(disk: WatchedDisk, run: Running) -> None:
    settings = {**IDLE, "commit_interval_commit_log": 1, "transient_store_pool_enable": True}
    store = open_small("/store", disk=disk, **settings)
    end = append(store, 1500)
    append(store, 1500)
    assert store.max_offset(TOPIC, 0) == 0
    service = await run(store, inline)
    for _ in range(6):
        end = append(store, 1500)
    await until(lambda: store.max_offset(TOPIC, 0) == 8)
    await service.flushed(end)
    await service.stop()
    with open_small("/store", disk=disk.power_cut()) as again:
        assert len(read_all(again)) == 8


async def test_a_flush_takes_along_what_the_pool_holds(disk: WatchedDisk, run: Running) -> None:
    store = open_small("/store", disk=disk, **IDLE, **SYNC, transient_store_pool_enable=True)
    service = await run(store, inline)
    await service.flushed([append(store, 1500) for _ in range(8)][-1])
    assert store.max_offset(TOPIC, 0) == 8
    with open_small("/store", disk=await cut_power(service, disk)) as again:
        assert len(read_all(again)) == 8


# The next file


async def test_the_next_file_is_there_before_it_is_needed(tmp_path: Path, run: Running) -> None:
    disk = WatchedLocalDisk()
    store = open_small(tmp_path, disk=disk, **BUSY)
    await run(store)
    append(store, 1000)
    for number in range(1, 6):
        append(store, 1000)
        await until(lambda: store.log._spare is not None)
        assert len(disk.list(f"{tmp_path}/commitlog")) == number + 1
        append(store, 1000)
        append(store, 1000)
        assert len(store.log.files) == number + 1
    creates = disk.watch.of("create", "commitlog")
    assert [one.on_main_thread for one in creates] == [True] + [False] * 5


async def test_a_proper_stop_leaves_no_empty_file_behind(tmp_path: Path, run: Running) -> None:
    store = open_small(tmp_path, **BUSY)
    service = await run(store)
    send(store, 3, size=1000)
    await until(lambda: store.log._spare is not None)
    await service.stop()
    assert list(tree(tmp_path, "commitlog")) == ["commitlog/" + "0" * 20]


async def test_a_log_that_overtakes_the_making_of_its_next_file_takes_no_harm(
    disk: WatchedDisk, run: Running
) -> None:
    turnstile = Turnstile()
    store = open_small("/store", disk=disk, **{**IDLE, "flush_interval_commit_log": 1})
    await run(store, turnstile)
    sent = send(store, 3, size=1000)
    await until(lambda: bool(turnstile.waiting))
    sent += send(store, 8, size=1000)
    turnstile.open()
    await until(lambda: store.log._spare is not None)
    sent += send(store, 7, size=1000)
    assert offsets_of(read_all(store)) == sent
    assert len(disk.list("/store/commitlog")) in {len(store.log.files), len(store.log.files) + 1}


async def test_a_next_file_that_cannot_be_made_is_a_warning_until_it_is_needed(
    disk: WatchedDisk, run: Running, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_small("/store", disk=disk, **BUSY)
    await run(store, inline)
    send(store, 2, size=1000)
    disk.fail("create", error=errno.EMFILE, path_contains="commitlog", times=1)
    append(store, 1000)
    await until(lambda: "could not be made ahead of time" in caplog.text)
    send(store, 5, size=1000)
    assert len(read_all(store)) == 8


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


async def test_after_stopping_the_store_is_closed_and_its_threads_are_gone(tmp_path: Path, run: Running) -> None:
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
            appended = store.append(TOPIC, queue_id, b"x" * 200, b"UNIQ_KEY\x01u\x02")
            await service.flushed(appended.offset + appended.size)
            answered.add(appended.offset)

    await asyncio.gather(*(send_many(queue_id) for queue_id in range(8)))
    with open_small("/store", disk=await cut_power(service, disk), **settings) as again:
        found = {offset for queue_id in range(8) for offset in offsets_of(read_all(again, TOPIC, queue_id))}
        assert answered <= found
