"""Writing very many queues in slices: what may happen between two of them, and how a running store paces them."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from typing import TYPE_CHECKING, Any

import pytest

from orbitmq.platform import local_disk as disk_module
from orbitmq.store import DiskFaultError, LocalDisk, StoredMessage, StoreError
from orbitmq.store.background import time_slicing as pace_module
from orbitmq.store.background.time_slicing import (
    MAX_PAUSE_SECONDS,
    PAUSE_SECONDS,
    PIECES_AT_ONCE,
    SHORT_PAUSE_SECONDS,
    SLICE_SECONDS,
    Pace,
)
from orbitmq.store.consumequeue.flush import QueueFlush
from orbitmq.store.retention.retention import Retention
from orbitmq.testing import ManualClock, MemoryDisk
from support.store.running_store import IDLE, Running
from support.store.stores import T0, offsets_of, open_small, read_all, send
from support.store.watched_disk import WatchedDisk, inline, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from orbitmq.store import MessageStore

QUEUES = 20
ROOMY: dict[str, Any] = {"mapped_file_size_commit_log": 1 << 20, "max_index_num": 10_000}


@pytest.fixture
def disk() -> WatchedDisk:
    return WatchedDisk()


@pytest.fixture
def store(disk: WatchedDisk) -> MessageStore:
    return open_small("/store", disk=disk, **ROOMY)


def fill(store: MessageStore, queues: int = QUEUES) -> list[int]:
    offsets = [send(store, topic=f"topic{number}", UNIQ_KEY="u")[0] for number in range(queues)]
    store.flush()
    return offsets


def one_by_one(sync: QueueFlush) -> Iterator[None]:
    """A slice for every queue."""
    return sync.writing(lambda: True)


def complete(store: MessageStore, sync: QueueFlush) -> None:
    sync.run()
    sync.finish()
    store.store_checkpoint()


def written(disk: MemoryDisk) -> list[str]:
    """Topics that have a file."""
    root = "/store/consumequeue"
    return [topic for topic in disk.list(root) if disk.list(f"{root}/{topic}/0")]


def dirty(store: MessageStore) -> list[str]:
    assert all(queue.is_queued for queue in store.dispatcher.unwritten)
    return [queue.topic for queue in store.dispatcher.unwritten]


# Between two slices


def test_a_round_vouches_for_what_there_was_when_it_began(disk: WatchedDisk, store: MessageStore) -> None:
    offsets = fill(store)
    sync = QueueFlush(store)
    later = []
    for number, _ in enumerate(one_by_one(sync)):
        later += send(store, topic=f"topic{(number * 7) % QUEUES}", UNIQ_KEY="u")
        later += send(store, topic="new")
        store.flush()
    complete(store, sync)
    assert store.checkpoint.logics_physical_offset == offsets[-1]
    for seed in range(5):
        with open_small("/store", disk=disk.power_cut(seed), **ROOMY) as again:
            found = [offsets_of(read_all(again, name)) for name in again.queues.names()]
            assert sorted(offset for queue in found for offset in queue) == sorted(offsets + later)
            assert (
                sum(len(again.query(f"topic{number}", "u").records) for number in range(QUEUES)) == 2 * QUEUES - 1
            )


def test_what_was_written_since_a_round_began_is_synced_and_not_written_again(
    disk: WatchedDisk, store: MessageStore
) -> None:
    offsets = fill(store, 3)
    slices = one_by_one(sync := QueueFlush(store))
    next(slices)
    store.queues.write_out([queue for queue in store.dispatcher.unwritten if queue.topic == "topic1"])
    later = send(store, topic="topic1")
    disk.watch.operations.clear()
    assert list(slices) == [None]
    assert not disk.watch.of("pwrite", "topic1")
    assert disk.watch.of("pwrite", "topic2")
    assert dirty(store) == ["topic1"]
    store.flush()
    complete(store, sync)
    assert store.checkpoint.logics_physical_offset == offsets[-1]
    assert any(disk.durable_bytes(f"/store/consumequeue/topic1/0/{0:020d}") or b"")
    store.sync_queues()
    assert dirty(store) == []
    assert offsets_of(read_all(store, "topic1")) == [offsets[1], *later]


def test_a_queue_gets_dirty_again_after_its_turn_and_only_then(store: MessageStore) -> None:
    fill(store, 3)
    slices = one_by_one(sync := QueueFlush(store))
    next(slices)
    send(store, topic="topic0")
    send(store, topic="topic2")
    assert dirty(store) == ["topic1", "topic2", "topic0"]
    assert list(slices) == [None]
    assert dirty(store) == ["topic0"]
    complete(store, sync)
    store.close()


@pytest.mark.parametrize("place", ["memory", "local"])
@pytest.mark.parametrize("turns", [1, 3])
def test_a_topic_deleted_between_slices_leaves_no_file(place: str, turns: int, tmp_path: Path) -> None:
    root, disk = ("/store", MemoryDisk()) if place == "memory" else (str(tmp_path), LocalDisk())
    store = open_small(root, disk=disk, **ROOMY)
    offsets = fill(store, 5)
    slices = one_by_one(sync := QueueFlush(store))
    for _ in range(turns):
        next(slices)
    store.delete_topic("topic1")
    for _ in slices:
        pass
    complete(store, sync)
    assert disk.list(f"{root}/consumequeue") == ["topic0", "topic2", "topic3", "topic4"]
    assert store.checkpoint.logics_physical_offset == offsets[-1]
    assert not store.derived_are_suspect
    store.close()
    assert disk.stat(f"{root}/abort") is None


def test_a_topic_recreated_between_slices_is_written(disk: WatchedDisk, store: MessageStore) -> None:
    fill(store, 3)
    slices = one_by_one(sync := QueueFlush(store))
    next(slices)
    store.delete_topic("topic2")
    (offset,) = send(store, topic="topic2")
    for _ in slices:
        pass
    complete(store, sync)
    store.close()
    with open_small("/store", disk=disk, **ROOMY) as again:
        assert offsets_of(read_all(again, "topic2")) == [offset]


def test_the_sync_of_many_files_does_not_need_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_module, "SYNCFS_FROM", 2)
    paths = [str(tmp_path / name) for name in ("gone", "there")]
    disk = LocalDisk()
    disk.create(paths[1], 10)
    disk.sync_many(paths, [str(tmp_path)])
    os.unlink(paths[1])
    with pytest.raises(FileNotFoundError):
        disk.sync_many(paths, [str(tmp_path)])


def test_files_that_expire_between_slices_hold_up_nothing(disk: WatchedDisk) -> None:
    clock = ManualClock(T0)
    store = open_small("/store", disk=disk, clock=clock, file_reserved_time=0)
    for number in range(4):
        send(store, 25, topic=f"topic{number}")
    send(store, 9, size=1000)
    store.flush()
    slices = one_by_one(sync := QueueFlush(store))
    next(slices)
    next(slices)
    retention = Retention(store)
    retention.request()
    assert retention.run().log_files
    for _ in slices:
        pass
    complete(store, sync)
    assert not store.derived_are_suspect
    store.close()
    assert disk.stat("/store/abort") is None
    with open_small("/store", disk=disk, clock=clock) as again:
        assert again.append(StoredMessage("topic0", 0, b"")).queue_offset == 25


def test_a_queue_that_is_written_again_between_slices_is_not_vouched_for(disk: WatchedDisk) -> None:
    store = open_small("/store", disk=disk)
    quiet = send(store, 25, topic="quiet")
    send(store, 5)
    store.close()
    disk.remove(f"/store/consumequeue/quiet/0/{200:020d}")
    store = open_small("/store", disk=disk)
    fill(store, 3)
    sync = QueueFlush(store)
    for _ in one_by_one(sync):
        store.get("quiet", 0, 0)
    complete(store, sync)
    assert store.recovery.rebuilt_queues == [("quiet", 0)]
    assert store.checkpoint.logics_physical_offset == 0
    with open_small("/store", disk=disk.power_cut()) as again:
        assert offsets_of(read_all(again, "quiet")) == quiet


# Rounds that do not get to their end


@pytest.mark.parametrize("operation", ["create", "pwrite"])
def test_a_refusal_in_the_middle_rolls_back_and_is_retried(
    disk: WatchedDisk, store: MessageStore, operation: str
) -> None:
    offsets = fill(store)
    disk.fail(operation, error=errno.ENOSPC, path_contains="consumequeue", after=QUEUES // 2)
    with pytest.raises(DiskFaultError, match="free space"):
        list(one_by_one(QueueFlush(store)))
    assert "cannot be written" in str(store.dispatcher.fault)
    assert sorted(dirty(store)) == sorted(f"topic{number}" for number in range(QUEUES))
    assert store.checkpoint.logics_physical_offset == 0
    offsets += send(store, topic="topic3")
    assert store.dispatcher.fault is None
    store.flush()
    store.sync_queues()
    assert store.checkpoint.logics_physical_offset == offsets[-1]
    assert not store.derived_are_suspect
    for seed in range(5):
        with open_small("/store", disk=disk.power_cut(seed), **ROOMY) as again:
            assert len(read_all(again, "topic3")) == 2
            assert all(len(read_all(again, f"topic{number}")) for number in range(QUEUES))
            assert len(again.query("topic7", "u").records) == 1


def test_a_topic_deleted_before_a_refusal_is_not_given_back(disk: WatchedDisk, store: MessageStore) -> None:
    fill(store, 4)
    slices = one_by_one(QueueFlush(store))
    next(slices)
    store.delete_topic("topic0")
    store.delete_topic("topic2")
    disk.fail("pwrite", error=errno.ENOSPC, path_contains="consumequeue")
    with pytest.raises(DiskFaultError):
        list(slices)
    assert dirty(store) == ["topic1", "topic3"]
    store.close()
    assert disk.list("/store/consumequeue") == ["topic1", "topic3"]


def test_a_round_that_is_given_up_is_as_if_it_had_not_begun(disk: WatchedDisk, store: MessageStore) -> None:
    offsets = fill(store)
    slices = QueueFlush(store).writing(lambda: True)
    for _ in range(5):
        next(slices)
    slices.close()
    assert sorted(dirty(store)) == sorted(f"topic{number}" for number in range(QUEUES))
    store.sync_queues()
    assert store.checkpoint.logics_physical_offset == offsets[-1]
    for path in [f"/store/consumequeue/topic{number}/0/{0:020d}" for number in range(QUEUES)]:
        assert disk.durable_bytes(path) == disk.read(path)
    for name in disk.list("/store/index"):
        assert disk.durable_bytes(f"/store/index/{name}") == disk.read(f"/store/index/{name}")
    store.close()


def test_nothing_is_written_after_a_store_was_let_go(disk: WatchedDisk, store: MessageStore) -> None:
    fill(store)
    slices = one_by_one(QueueFlush(store))
    next(slices)
    store.abandon()
    with pytest.raises(StoreError, match="was closed"):
        next(slices)
    assert written(disk) == ["topic0"]


# A running store


@pytest.fixture
async def run(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Running]:
    monkeypatch.setattr(pace_module, "PIECES_AT_ONCE", 3)
    running = Running()
    yield running
    await running.stop_all()


FLUSHING: dict[str, Any] = {**IDLE, **ROOMY, "flush_interval_consume_queue": 1}


async def test_messages_are_accepted_while_queues_are_written(disk: WatchedDisk, run: Running) -> None:
    clock = ManualClock(T0)
    store = open_small("/store", disk=disk, clock=clock, **FLUSHING)
    offsets = fill(store)
    await run(store, inline)
    clock.advance(60_000)
    served_at = set()
    while store.checkpoint.logics_physical_offset < offsets[-1]:
        send(store, topic="other")
        served_at.add(len(written(disk)))
        await asyncio.sleep(0)
    assert len(served_at) > QUEUES // 3 - 2


async def test_messages_of_a_master_are_dispatched_while_queues_are_written(
    disk: WatchedDisk, run: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_small("/master", disk=disk, **ROOMY) as master:
        fill(master)
        first = bytes(master.log.files.mapped(0).buffer[: master.log.end])
        send(master, 30, topic="late")
        rest = bytes(master.log.files.mapped(0).buffer[len(first) : master.log.end])
    paused, go_on = asyncio.Event(), asyncio.Event()

    async def pause(_: Pace) -> None:
        paused.set()
        await go_on.wait()

    monkeypatch.setattr(Pace, "pause", pause)
    clock = ManualClock(T0)
    store = open_small("/store", disk=disk, clock=clock, **FLUSHING)
    store.append_raw(first, 0)
    await run(store, inline)
    await until(lambda: len(store.dispatcher.unwritten) == QUEUES)
    clock.advance(60_000)
    await paused.wait()
    store.append_raw(rest, len(first))
    await until(lambda: store.max_offset("late", 0) == 30)
    assert not go_on.is_set()
    go_on.set()


async def test_stopping_does_not_wait_for_pauses(
    disk: WatchedDisk, run: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses = 0
    pause = Pace.pause

    async def counted(pace: Pace) -> None:
        nonlocal pauses
        pauses += 1
        await pause(pace)

    monkeypatch.setattr(Pace, "pause", counted)
    clock = ManualClock(T0)
    store = open_small("/store", disk=disk, clock=clock, **FLUSHING)
    offsets = fill(store)
    service = await run(store, inline)
    clock.advance(60_000)
    await until(lambda: pauses == 1)
    await service.stop()
    assert pauses == 1
    assert disk.stat("/store/abort") is None
    with open_small("/store", disk=disk.power_cut(), **ROOMY) as again:
        assert again.recovery.clean
        assert [read_all(again, f"topic{number}")[0].physical_offset for number in range(QUEUES)] == offsets


async def test_a_cancelled_round_loses_nothing(disk: WatchedDisk, run: Running) -> None:
    clock = ManualClock(T0)
    store = open_small("/store", disk=disk, clock=clock, **FLUSHING)
    fill(store)
    service = await run(store, inline)
    clock.advance(60_000)
    await until(lambda: bool(written(disk)))
    for task in service._tasks:
        task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.gather(*service._tasks)
    assert len(dirty(store)) == QUEUES
    await service.stop()
    with open_small("/store", disk=disk.power_cut(), **ROOMY) as again:
        assert again.recovery.clean
        assert all(len(read_all(again, f"topic{number}")) == 1 for number in range(QUEUES))


async def test_a_refusal_in_the_middle_of_a_round_is_retried_by_the_next(disk: WatchedDisk, run: Running) -> None:
    clock = ManualClock(T0)
    store = open_small("/store", disk=disk, clock=clock, **FLUSHING)
    offsets = fill(store)
    disk.fail("pwrite", error=errno.ENOSPC, path_contains="consumequeue", after=QUEUES // 2)
    await run(store, inline)
    clock.advance(60_000)
    await until(lambda: store.dispatcher.fault is not None)
    assert len(dirty(store)) == QUEUES
    clock.advance(60_000)
    await until(lambda: store.checkpoint.logics_physical_offset == offsets[-1])
    assert not store.derived_are_suspect


async def test_others_are_served_while_queues_follow_the_log(disk: WatchedDisk, run: Running) -> None:
    clock = ManualClock(T0)
    settings = {**IDLE, "clean_resource_interval": 1, "delete_when": "23", "file_reserved_time": 1}
    store = open_small("/store", disk=disk, clock=clock, **settings)
    for number in range(QUEUES):
        send(store, topic=f"topic{number}")
    send(store, 9, size=1500)
    store.flush()
    await run(store, inline)
    clock.advance(3_600_000)

    def followed() -> int:
        return sum(store.min_offset(f"topic{number}", 0) for number in range(QUEUES))

    seen = set()
    while followed() < QUEUES:
        seen.add(followed())
        await asyncio.sleep(0)
    assert len(seen) > QUEUES // 3 - 2


# The pace


async def pause_of(pace: Pace, monkeypatch: pytest.MonkeyPatch) -> float:
    """The duration of a pause."""
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    await pace.pause()
    return slept[0]


def pieces_until_due(pace: Pace) -> int:
    return next(number for number in range(1, 10_000) if pace.is_due())


@pytest.fixture
def clock_of_loop(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """The time of a loop, which stands still until the test moves it."""
    now = 0.0

    def advance(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr(asyncio.BaseEventLoop, "time", lambda _: now)
    return advance


async def test_a_slice_ends_after_a_number_of_steps(
    clock_of_loop: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    pace = Pace()
    assert pieces_until_due(pace) == PIECES_AT_ONCE
    await pause_of(pace, monkeypatch)
    assert pieces_until_due(pace) == PIECES_AT_ONCE
    clock_of_loop(1)
    assert pieces_until_due(pace) == 1


async def test_a_slice_ends_after_a_millisecond(clock_of_loop: Callable[[float], None]) -> None:
    pace = Pace()
    assert not pace.is_due()
    clock_of_loop(0.001)
    assert pace.is_due()


async def pauses_of(pace: Pace, seconds: float, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses of so many seconds of work."""
    pauses: list[float] = []
    while sum(pauses) + len(pauses) * SLICE_SECONDS < seconds:
        pauses.append(await pause_of(pace, monkeypatch))
    return pauses


async def test_pauses_are_shorter_when_the_work_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    pace = Pace(3)
    assert set(await pauses_of(pace, 3, monkeypatch)) == {PAUSE_SECONDS}
    assert await pause_of(pace, monkeypatch) == SHORT_PAUSE_SECONDS


@pytest.mark.parametrize("in_a_slice", [PIECES_AT_ONCE, PIECES_AT_ONCE // 4, 1])
async def test_work_of_known_size_is_spread_over_its_time(
    in_a_slice: int, clock_of_loop: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    slices, seconds = 100, 4.0
    pace = Pace(seconds, pieces=slices * in_a_slice)
    pauses = []
    for _ in range(slices):
        for _ in range(in_a_slice - 1):
            assert not pace.is_due()
        clock_of_loop(SLICE_SECONDS)
        assert pace.is_due()
        pauses.append(await pause_of(pace, monkeypatch))
    assert 0.8 * seconds < sum(pauses) + slices * SLICE_SECONDS < 1.1 * seconds
    assert max(pauses[:-1]) < 1.1 * min(pauses[:-1])


async def test_work_of_known_size_that_is_late_is_hurried_more_and_more(monkeypatch: pytest.MonkeyPatch) -> None:
    pace = Pace(3, pieces=70 * PIECES_AT_ONCE)
    pauses = await pauses_of(pace, 3, monkeypatch)
    assert pauses == sorted(pauses, reverse=True)
    assert pauses[0] > PAUSE_SECONDS
    assert set(await pauses_of(pace, 3, monkeypatch)) == {PAUSE_SECONDS}
    assert await pause_of(pace, monkeypatch) == SHORT_PAUSE_SECONDS


async def test_work_is_not_late_because_everything_stood_still(
    clock_of_loop: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    pace = Pace(3, pieces=70 * PIECES_AT_ONCE)
    pieces_until_due(pace)
    pause = await pause_of(pace, monkeypatch)
    pieces_until_due(pace)
    clock_of_loop(100)
    assert await pause_of(pace, monkeypatch) == pytest.approx(pause, rel=0.1)
    assert pause > PAUSE_SECONDS


@pytest.mark.parametrize(("pieces", "expected"), [(1, MAX_PAUSE_SECONDS), (10**7, PAUSE_SECONDS)])
async def test_a_pause_is_neither_very_long_nor_very_short(
    pieces: int, expected: float, clock_of_loop: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock_of_loop(1)
    assert await pause_of(Pace(30, pieces=pieces), monkeypatch) == expected


async def test_hurried_work_does_not_pause() -> None:
    pace = Pace(30, lambda: True)
    assert not any(pace.is_due() for _ in range(10 * PIECES_AT_ONCE))
