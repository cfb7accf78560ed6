"""The background work of a running store: timed flushes, retention, and preallocation."""

from __future__ import annotations

import asyncio
import errno
import logging
from typing import TYPE_CHECKING, Any

import pytest

from orbitmq.store.background import service as service_module
from orbitmq.store.background.service import CATCH_UP_SLICE
from orbitmq.store.background.time_slicing import Pace
from orbitmq.store.commitlog import commit_log
from orbitmq.testing import ManualClock
from support.store.running_store import ALWAYS, BUSY, IDLE, ROOMY, Running, append, cut_power
from support.store.stores import SYNC, T0, TOPIC, offsets_of, open_small, read_all, send, tree
from support.store.watched_disk import Turnstile, WatchedDisk, WatchedLocalDisk, inline, turns, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from orbitmq.platform.threads import RunBlocking


@pytest.fixture
async def run() -> AsyncIterator[Running]:
    running = Running()
    yield running
    await running.stop_all()


@pytest.fixture
def disk() -> WatchedDisk:
    return WatchedDisk()


# What comes round


@pytest.mark.parametrize("run_blocking", [None, inline], ids=["threads", "inline"])
async def test_timed_flushes_make_everything_durable(
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


async def test_a_sync_flush_store_flushes_without_waiters_too(disk: WatchedDisk, run: Running) -> None:
    store = open_small("/store", disk=disk, **SYNC, **BUSY)
    await run(store, inline)
    append(store)
    await until(lambda: store.max_offset(TOPIC, 0) == 1)


async def test_under_load_the_checkpoint_still_advances_for_the_queues(disk: WatchedDisk, run: Running) -> None:
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
    # Other tests of the process may have lowered the level of the logger.
    warnings = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    assert warnings
    assert all("job failed, will retry" in message for message in warnings)


async def test_a_periodic_job_continues_after_an_unexpected_error(
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
    assert "job failed, will retry" in caplog.text


async def test_a_persistent_error_is_logged_once(
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
    await until(lambda: "retention: removed 4 log files: it is 23 o'clock" in caplog.text)
    assert len(store.log.files) == 1
    assert store.min_offset(TOPIC, 0) == 8


async def test_expired_files_go_without_holding_up_the_loop(disk: WatchedDisk, run: Running) -> None:
    clock = ManualClock(T0)
    store = open_small("/store", disk=disk, clock=clock, **BUSY, **SYNC, delete_when="23", file_reserved_time=1)
    service = await run(store)
    await service.flushed([append(store, 1500) for _ in range(9)][-1])
    before = len(disk.watch.operations)
    clock.advance(3_600_000)
    await until(lambda: len(store.log.files) == 1)
    await until(lambda: store.min_offset(TOPIC, 0) == 8)
    since = [one for one in disk.watch.operations[before:] if "/commitlog" in one.path]
    for name in ("remove", "sync_dir"):
        assert {one.on_main_thread for one in since if one.name == name} == {False}


async def test_a_file_that_is_being_removed_can_be_read_to_the_end(disk: WatchedDisk, run: Running) -> None:
    clock = ManualClock(T0)
    turnstile = Turnstile()
    store = open_small("/store", disk=disk, clock=clock, **IDLE, delete_when="23", file_reserved_time=1)
    sent = send(store, 9, size=1500)
    store.flush()
    clock.advance(3_600_000)
    service = await run(store, turnstile)
    round_ = asyncio.ensure_future(service.retention.run_with(turnstile, Pace()))
    await until(lambda: bool(turnstile.waiting))
    removal, _ = turnstile.waiting[0]
    removal()  # the disk has done it, the loop has not heard of it yet
    assert not disk.list("/store/commitlog")[0].endswith("0" * 20)
    assert offsets_of(read_all(store)) == sent
    turnstile.open()
    report = await round_
    assert len(report.log_files) == 4
    assert offsets_of(read_all(store)) == sent[8:]


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


async def test_a_flush_includes_the_transient_pool(disk: WatchedDisk, run: Running) -> None:
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
        await until(lambda: store.log._next.is_allocated)
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
    await until(lambda: store.log._next.is_allocated)
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
    await until(lambda: store.log._next.is_allocated)
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
    await until(lambda: "preallocation of the next file failed" in caplog.text)
    send(store, 5, size=1000)
    assert len(read_all(store)) == 8


# Space ahead


@pytest.fixture
def _small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in (("RESERVE_STEP", 4096), ("AHEAD_STEP", 1 << 17), ("BUSY_BYTES", 1000), ("LARGE_PAGE", 1)):
        monkeypatch.setattr(commit_log, name, size)
    monkeypatch.setattr(service_module, "SPACE_INTERVAL", 0.001)


@pytest.mark.usefixtures("_small_steps")
async def test_a_busy_log_has_space_before_it_needs_it(disk: WatchedDisk, run: Running) -> None:
    store = open_small("/store", disk=disk, **IDLE, **ROOMY)
    await run(store)
    for _ in range(8):
        send(store, 40, size=1000)
        await until(lambda: store.log.room >= 1 << 16)
    reserves = disk.watch.of("reserve", "commitlog")
    assert {one.on_main_thread for one in reserves[-3:]} == {False}
    assert len(read_all(store)) == 320


@pytest.mark.usefixtures("_small_steps")
async def test_a_disk_without_space_ahead_is_no_fault_yet(
    disk: WatchedDisk, run: Running, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_small("/store", disk=disk, **IDLE, **ROOMY)
    await run(store, inline)
    send(store, 3, size=1000)
    disk.fail("reserve", error=errno.ENOSPC, path_contains="commitlog", times=1)
    await until(lambda: store.log.room >= 1 << 16)
    send(store, 3, size=1000)
    assert not caplog.records
    assert len(read_all(store)) == 6
