"""A running store on a virtual disk that fails: nothing acknowledged is lost, nothing is written half."""

from __future__ import annotations

import errno
import os
from typing import Any

import pytest

from faults.store.failing_disk_run import FailingLife
from orbitmq.protocol.message.batch import encode_batch
from orbitmq.store import (
    AppendRefusedError,
    DiskFaultError,
    FlushFailedError,
    MessageStore,
    PutStatus,
    StoredMessage,
)
from orbitmq.store.background.service import StoreService
from orbitmq.store.commitlog.commit_log import WRITTEN_FROM
from orbitmq.testing import ManualClock, MemoryDisk
from support.store.stores import (
    LOG_FILE,
    SMALLEST_RECORD,
    SYNC,
    T0,
    TOPIC,
    all_queues,
    offsets_of,
    open_small,
    read_all,
    send,
)
from support.store.watched_disk import inline, until

SEEDS = int(os.environ.get("ORBITMQ_SEEDS", "50"))

PAGE = 4096
QUICK: dict[str, Any] = {
    "flush_interval_commit_log": 1,
    "flush_interval_consume_queue": 1,
    "flush_consume_queue_thorough_interval": 0,
}


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


# Campaigns


@pytest.mark.parametrize("seed", range(SEEDS))
def test_nothing_acknowledged_is_lost_by_a_failing_disk(seed: int) -> None:
    FailingLife(seed).live(cuts=5)


@pytest.mark.parametrize("seed", range(SEEDS // 5))
def test_what_an_asynchronous_store_keeps_on_a_failing_disk_is_whole(seed: int) -> None:
    FailingLife(seed, sync_flush=False).live(cuts=5)


# Syncs that fail


@pytest.mark.parametrize("seed", range(5))
async def test_after_a_failed_sync_of_the_log_a_restart_finds_what_was_acknowledged(seed: int) -> None:
    disk = MemoryDisk(seed)
    # One file that is there already: only flushes sync it, so the fault cannot hit the making of another.
    store = open_small("/store", disk=disk, mapped_file_size_commit_log=1 << 20, **SYNC, **QUICK)
    service = StoreService(store)
    await service.start()
    acknowledged = send(store, size=500, UNIQ_KEY="u0")
    await service.flushed(store.log.end)
    disk.fail("sync", path_contains="commitlog", after=5 + 3 * seed)
    with pytest.raises(FlushFailedError):  # noqa: PT012
        for number in range(1, 100):
            offset = send(store, size=500, UNIQ_KEY=f"u{number}")[0]
            await service.flushed(store.log.end)
            acknowledged.append(offset)
    with pytest.raises(AppendRefusedError, match="check the disk, then restart the broker") as refused:
        send(store)
    assert refused.value.status is PutStatus.SERVICE_NOT_AVAILABLE
    assert offsets_of(read_all(store)) == acknowledged
    with pytest.raises(FlushFailedError):
        await service.stop()
    with open_small("/store", disk=disk.power_cut(), mapped_file_size_commit_log=1 << 20, **SYNC) as again:
        assert not again.recovery.clean
        assert offsets_of(read_all(again))[: len(acknowledged)] == acknowledged
        for number in range(len(acknowledged)):
            assert len(again.query(TOPIC, f"u{number}").records) == 1


@pytest.mark.parametrize("path", ["consumequeue", "index"])
async def test_after_a_failed_sync_of_queues_or_index_the_store_continues(disk: MemoryDisk, path: str) -> None:
    clock = ManualClock(T0)
    store = open_small("/store", disk=disk, clock=clock, **SYNC, **QUICK)
    service = StoreService(store, inline)
    await service.start()
    disk.fail("sync", path_contains=path)
    send(store, UNIQ_KEY="u")
    await service.flushed(store.log.end)
    await until(lambda: store.derived_are_suspect)
    clock.advance(60_000)
    send(store, 30, UNIQ_KEY="u")
    await service.flushed(store.log.end)
    await until(lambda: store.checkpoint.physic_msg_timestamp == T0 + 60_000)
    assert store.checkpoint.logics_physical_offset == 0
    await service.stop()
    assert disk.stat("/store/abort") is not None
    with open_small("/store", disk=disk.power_cut(), clock=clock, **SYNC) as again:
        assert len(read_all(again)) == 31
        assert len(again.query(TOPIC, "u").records) == 31


def test_a_store_on_a_disk_that_turns_read_only_serves_reads(disk: MemoryDisk) -> None:
    store = open_small("/store", disk=disk, **SYNC)
    offsets = send(store, 12, size=1000)
    store.flush()
    send(store)
    disk.read_only = True
    with pytest.raises(FlushFailedError, match="Read-only file system"):
        store.flush()
    with pytest.raises(AppendRefusedError, match="Read-only file system"):
        send(store)
    assert offsets_of(read_all(store)) == offsets
    with pytest.raises(FlushFailedError):
        store.close()
    disk.heal()
    with open_small("/store", disk=disk, **SYNC) as again:
        assert offsets_of(read_all(again))[:12] == offsets


def test_short_writes_change_nothing(disk: MemoryDisk) -> None:
    def life(disk: MemoryDisk) -> dict[str, bytes]:
        for _ in range(3):
            with open_small("/store", disk=disk) as store:
                send(store, 50, UNIQ_KEY="u", TAGS="t")
                send(store, 30, topic="other", size=700)
                store.flush()
                store.sync_queues()
        return {
            path: disk.read(path)
            for path in (
                "/store/checkpoint",
                "/store/orbitmq.queues",
                *(f"/store/commitlog/{name}" for name in disk.list("/store/commitlog")),
                *(f"/store/consumequeue/{TOPIC}/0/{name}" for name in disk.list(f"/store/consumequeue/{TOPIC}/0")),
            )
        }

    short = MemoryDisk(1)
    short.short_writes(0.5)
    assert life(short) == life(disk)


# A full disk


def fill(disk: MemoryDisk, pages: int = 0) -> None:
    """Let somebody else take all the space but so many pages."""
    disk.capacity = disk._used + pages * PAGE


def sparse(disk: MemoryDisk, path: str = "/") -> MemoryDisk:
    """A copy of a disk on which only what is not zero has space, as RocketMQ leaves its files."""
    copy = MemoryDisk()

    def take(path: str) -> None:
        found = disk.stat(path)
        assert found is not None
        if found.is_dir:
            for name in disk.list(path):
                take(os.path.join(path, name))
            return
        data = disk.read(path)
        copy.create(path, len(data))
        for at in range(0, len(data), PAGE):
            if any(data[at : at + PAGE]):
                copy.pwrite(path, at, data[at : at + PAGE])

    take(path)
    return copy


def assert_whole(store: MessageStore, disk: MemoryDisk, offsets: list[int], **settings: Any) -> None:
    """A restart finds these records, and finds nothing to complain about."""
    assert offsets_of(read_all(store)) == offsets
    store.close()
    with open_small("/store", disk=disk, **settings) as again:
        assert again.recovery.clean
        assert offsets_of(read_all(again)) == offsets
    left = disk.kill()
    with open_small("/store", disk=left, **settings) as again:
        assert offsets_of(read_all(again)) == offsets
        assert not again.recovery.damages


@pytest.mark.parametrize("settings", [{}, SYNC], ids=["async", "sync"])
@pytest.mark.parametrize("before", [0, 1, 3, 4], ids=["new", "in a file", "file full", "in the second file"])
def test_a_full_disk_refuses_a_message_until_there_is_space(
    disk: MemoryDisk, before: int, settings: dict[str, Any]
) -> None:
    settings = {**settings, "mapped_file_size_commit_log": 3 * PAGE}
    with open_small("/store", disk=disk, **settings) as store:
        offsets = send(store, before, size=3800)
    disk = sparse(disk)
    store = open_small("/store", disk=disk, **settings)
    fill(disk)
    end = store.log.end
    for _ in range(3):
        with pytest.raises(AppendRefusedError, match="is full: free space or shorten") as refused:
            send(store, size=3800)
        assert refused.value.status is PutStatus.CREATE_MAPPED_FILE_FAILED
    assert store.log.end in {end, 3 * PAGE}
    disk.capacity = None
    offsets += send(store, 2, size=3800)
    store.flush()
    assert [record.queue_offset for record in read_all(store)] == list(range(len(offsets)))
    assert_whole(store, disk, offsets, **settings)


def test_a_batch_that_does_not_fit_the_disk_leaves_nothing(disk: MemoryDisk) -> None:
    store = open_small("/store", disk=disk, **SYNC)
    offsets = send(store, 2, size=1000)
    store.flush()
    fill(disk)
    batch = encode_batch([(0, b"m" * 900, b"")] * 3)
    with pytest.raises(AppendRefusedError, match="is full"):
        store.append_batch(StoredMessage(TOPIC, 0, batch))
    disk.capacity = None
    offsets += [appended.offset for appended in store.append_batch(StoredMessage(TOPIC, 0, batch))]
    store.flush()
    assert_whole(store, disk, offsets, **SYNC)


@pytest.mark.parametrize("failures", [0, 1])
def test_a_batch_that_is_written_at_once_is_stored_though_writing_fails(failures: int) -> None:
    disk = MemoryDisk(seed=3)
    disk.short_writes(0.7)
    store = open_small("/store", disk=disk, mapped_file_size_commit_log=1 << 18)
    items = [(0, b"%d" % number * 100, b"UNIQ_KEY\x01u%d\x02" % number) for number in range(300)]
    batch = encode_batch(items)
    assert len(batch) > WRITTEN_FROM
    offsets = send(store)
    if failures:
        disk.fail("pwrite", path_contains="commitlog", times=failures)
    offsets += [appended.offset for appended in store.append_batch(StoredMessage(TOPIC, 0, batch))]
    offsets += send(store)
    assert [record.body for record in read_all(store)[1:-1]] == [body for _, body, _ in items]
    store.flush()
    assert_whole(store, disk, offsets, mapped_file_size_commit_log=1 << 18)


def test_a_long_batch_is_found_by_its_keys_once_the_index_has_room_again(disk: MemoryDisk) -> None:
    store = open_small("/store", disk=disk, mapped_file_size_commit_log=1 << 20, max_index_num=100)
    send(store, UNIQ_KEY="before")
    batch = encode_batch((0, b"m", b"UNIQ_KEY\x01u%d\x02" % number) for number in range(300))
    disk.fail("create", path_contains="index", times=2)
    offsets = [appended.offset for appended in store.append_batch(StoredMessage(TOPIC, 0, batch))]
    with pytest.raises(AppendRefusedError, match="cannot extend the index"):
        send(store)
    disk.heal()
    offsets += send(store, UNIQ_KEY="after")
    assert offsets_of(read_all(store))[1:] == offsets
    for key in ("before", "u0", "u299", "after"):
        assert len(store.query(TOPIC, key).records) == 1
    store.close()


def test_log_bytes_of_a_master_that_do_not_fit_the_disk_leave_nothing(disk: MemoryDisk) -> None:
    settings: dict[str, Any] = {"mapped_file_size_commit_log": 8 * PAGE}
    with open_small("/master", disk=disk, **settings) as master:
        offsets = send(master, 40, size=200)
        data = bytes(master.log.files.mapped(0).buffer[: master.log.end])
    disk = MemoryDisk()
    store = open_small("/store", disk=disk, **settings)
    fill(disk)
    with pytest.raises(AppendRefusedError, match="is full"):
        store.append_raw(data, 0)
    assert store.log.end == 0
    disk.capacity = None
    store.append_raw(data, 0)
    store.catch_up()
    store.flush()
    assert_whole(store, disk, offsets, **settings)


def test_the_end_of_a_file_is_marked_only_where_the_space_for_the_mark_is_owned(disk: MemoryDisk) -> None:
    """A store into a hole of a map on a full disk kills the process; the virtual disk tells of any such store."""
    settings: dict[str, Any] = {"mapped_file_size_commit_log": 4 * PAGE}
    with open_small("/store", disk=disk, **settings) as store:
        offsets = [store.append(StoredMessage(TOPIC, 0, b"x" * (PAGE - SMALLEST_RECORD))).offset]
        assert store.log.end == PAGE
    disk = sparse(disk)
    store = open_small("/store", disk=disk, **settings)
    large = b"y" * (3 * PAGE - SMALLEST_RECORD)
    fill(disk)
    with pytest.raises(AppendRefusedError, match="is full"):
        store.append(StoredMessage(TOPIC, 0, large))
    assert store.log.end == PAGE
    disk.capacity = None
    offsets.append(store.append(StoredMessage(TOPIC, 0, large)).offset)
    assert offsets[-1] == 4 * PAGE
    store.flush()
    assert_whole(store, disk, offsets, **settings)


@pytest.mark.parametrize("place", ["consumequeue", "index"])
def test_queues_and_index_catch_up_when_there_is_space_again(disk: MemoryDisk, place: str) -> None:
    settings: dict[str, Any] = {
        "mapped_file_size_commit_log": 64 * PAGE, "mapped_file_size_consume_queue": 20_000, "max_index_num": 3000,
        "message_index_enable": place == "index",
    }  # fmt: skip
    store = open_small("/store", disk=disk, **settings)
    sent = send(store, UNIQ_KEY="u0")
    # The log owns all of its file. There is room for some pages of a queue, and not for an index file.
    fill(disk, pages=1 if place == "consumequeue" else 6)
    with pytest.raises(AppendRefusedError, match="free space") as refused:  # noqa: PT012
        while len(sent) < 2000:
            sent += send(store, UNIQ_KEY=f"u{len(sent)}")
    assert refused.value.status is PutStatus.SERVICE_NOT_AVAILABLE
    assert place.removesuffix("queue") in str(refused.value)
    with pytest.raises(AppendRefusedError, match="free space"):
        send(store)
    assert offsets_of(read_all(store)) == sent, "what is in the log is shown"
    disk.capacity = None
    sent += send(store, UNIQ_KEY=f"u{len(sent)}")
    assert offsets_of(read_all(store)) == sent
    if place == "index":
        assert [len(store.query(TOPIC, f"u{number}").records) for number in range(len(sent))] == [1] * len(sent)
    store.close()
    assert disk.stat("/store/abort") is None
    with open_small("/store", disk=disk, **settings) as again:
        assert again.recovery.clean
        assert offsets_of(read_all(again)) == sent
        if place == "index":
            assert len(again.query(TOPIC, f"u{len(sent) - 1}").records) == 1


@pytest.mark.parametrize("with_room_for_queues", [False, True])
def test_a_store_on_a_full_disk_can_be_left_and_opened_and_read(
    disk: MemoryDisk, with_room_for_queues: bool
) -> None:
    store = open_small("/store", disk=disk, **SYNC)
    store.sync_queues()
    offsets = send(store, 20, size=500, UNIQ_KEY="u")
    store.flush()
    if with_room_for_queues:
        store.sync_queues()
    fill(disk)
    with pytest.raises(DiskFaultError, match="No space left on device"):
        store.close()
    store = open_small("/store", disk=disk, **SYNC)
    assert offsets_of(read_all(store)) == offsets
    with pytest.raises(AppendRefusedError, match="free space"):  # noqa: PT012
        while True:
            offsets += send(store, size=2000)
    disk.capacity = None
    offsets += send(store)
    store.flush()
    assert_whole(store, disk, offsets, **SYNC)


# Files that cannot be made or opened


@pytest.mark.parametrize("error", [errno.EACCES, errno.EMFILE, errno.EIO, errno.EROFS])
@pytest.mark.parametrize("operation", ["create", "map", "sync", "sync_dir", "reserve"])
def test_a_log_file_that_cannot_be_made_refuses_the_message_until_it_can(
    disk: MemoryDisk, operation: str, error: int
) -> None:
    store = open_small("/store", disk=disk, **SYNC)
    offsets = send(store, 3, size=1000)
    store.flush()
    disk.fail(operation, error=error, path_contains="commitlog")
    with pytest.raises(AppendRefusedError, match=f"no log file could be made: {os.strerror(error)}") as no:
        send(store, size=1000)
    assert no.value.status is PutStatus.CREATE_MAPPED_FILE_FAILED
    assert offsets_of(read_all(store)) == offsets
    offsets += send(store, 2, size=1000)
    store.flush()
    assert_whole(store, disk, offsets, **SYNC)


@pytest.mark.parametrize("error", [errno.EACCES, errno.EMFILE])
@pytest.mark.parametrize("operation", ["create", "pwrite"])
def test_a_queue_file_that_cannot_be_made_loses_nothing(disk: MemoryDisk, operation: str, error: int) -> None:
    store = open_small("/store", disk=disk, **SYNC)
    offsets = send(store, 3)
    store.flush()
    disk.fail(operation, error=error, path_contains="consumequeue")
    with pytest.raises(DiskFaultError, match=os.strerror(error)):
        store.sync_queues()
    offsets += send(store, 3)
    store.flush()
    assert_whole(store, disk, offsets, **SYNC)


@pytest.mark.parametrize("operation", ["list", "stat", "map", "read", "lock", "write", "sync", "sync_dir"])
@pytest.mark.parametrize("error", [errno.EACCES, errno.EMFILE, errno.ENOSPC])
def test_a_store_that_cannot_be_opened_has_a_reason_and_opens_later(
    disk: MemoryDisk, operation: str, error: int
) -> None:
    with open_small("/store", disk=disk, **SYNC) as store:
        offsets = send(store, 20, size=500)
    disk.fail(operation, error=error)
    with pytest.raises(DiskFaultError, match=os.strerror(error)):
        open_small("/store", disk=disk, **SYNC)
    with open_small("/store", disk=disk, **SYNC) as again:
        assert offsets_of(read_all(again)) == offsets
        assert list(all_queues(again)) == [(TOPIC, 0)]


def test_a_log_file_is_as_long_as_its_settings_say(disk: MemoryDisk) -> None:
    """And not one byte longer, however often making it was broken off."""
    store = open_small("/store", disk=disk)
    for _ in range(5):
        disk.fail("create", path_contains="commitlog")
        with pytest.raises(AppendRefusedError):
            send(store)
    send(store, 10, size=1000)
    for name in disk.list("/store/commitlog"):
        found = disk.stat(f"/store/commitlog/{name}")
        assert found is not None
        assert found.size == LOG_FILE
    store.close()
