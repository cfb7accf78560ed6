"""Making queues and index durable: what the checkpoint may say, and what happens to them meanwhile."""

from __future__ import annotations

import contextlib
import errno
import threading
from typing import TYPE_CHECKING, Any

import pytest

from orbitmq.protocol.message.batch import encode_batch
from orbitmq.store import (
    AppendRefusedError,
    DiskFaultError,
    FlushFailedError,
    LocalDisk,
    MessageStore,
    StoredMessage,
)
from orbitmq.store.background.checkpoint import Checkpoint
from orbitmq.store.consumequeue.flush import QueueFlush
from orbitmq.store.message_store import INDEX_BATCH
from orbitmq.store.retention.retention import Retention
from orbitmq.testing import ManualClock, MemoryDisk, PowerCut
from support.store.stores import LOG_FILE, SYNC, T0, TOPIC, offsets_of, open_small, read_all, send

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

QUEUE = f"/store/consumequeue/{TOPIC}/0"


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


def sync_with(store: MessageStore, meanwhile: Callable[[], object]) -> None:
    """One round, during whose waiting for the disk something else happens to the store."""
    sync = QueueFlush(store)
    sync.prepare()
    meanwhile()
    sync.run()
    sync.finish()
    store.store_checkpoint()


# What the checkpoint may say


def test_after_a_round_a_power_cut_costs_nothing(disk: MemoryDisk) -> None:
    clock = ManualClock(T0)
    store = open_small("/store", disk=disk, clock=clock)
    offsets = send(store, 25, UNIQ_KEY="u")
    clock.advance(10)
    last = send(store)
    store.flush()
    store.sync_queues()
    checkpoint = Checkpoint.load(disk.power_cut(), "/store/checkpoint")
    assert checkpoint.logics_physical_offset == last[0]
    assert checkpoint.logics_msg_timestamp == checkpoint.physic_msg_timestamp == T0 + 10
    assert checkpoint.index_msg_timestamp == T0
    for seed in range(5):
        with open_small("/store", disk=disk.power_cut(seed), clock=clock) as again:
            assert offsets_of(read_all(again)) == offsets + last
            assert len(again.query(TOPIC, "u").records) == 25


def test_the_checkpoint_does_not_pass_the_flushed_log(disk: MemoryDisk) -> None:
    store = open_small("/store", disk=disk)
    first = send(store, 2)
    store.flush()
    store.sync_queues()
    send(store, 2)
    store.sync_queues()
    assert store.checkpoint.logics_physical_offset == first[-1]
    store.close()


def test_units_added_during_a_flush_are_left_to_the_next(disk: MemoryDisk) -> None:
    store = open_small("/store", disk=disk, **SYNC)
    first = send(store, 2)
    store.flush()

    def send_and_flush() -> None:
        send(store, 30, UNIQ_KEY="u")
        store.flush()

    sync_with(store, send_and_flush)
    assert store.checkpoint.logics_physical_offset == first[-1]
    for seed in range(5):
        with open_small("/store", disk=disk.power_cut(seed), **SYNC) as again:
            assert len(read_all(again)) == 32
            assert len(again.query(TOPIC, "u").records) == 30


def test_what_the_index_lacked_when_a_round_began_is_left_to_the_next(disk: MemoryDisk) -> None:
    count = INDEX_BATCH + 300
    settings: dict[str, Any] = {"max_index_num": 40, "mapped_file_size_consume_queue": 20 * count}
    store = open_small("/store", disk=disk, **settings, **SYNC)
    for number in range(count):
        send(store, UNIQ_KEY=f"u{number}")
    disk.fail("create", error=errno.ENOSPC, path_contains="index")
    store.flush()
    lacking_from = store.dispatcher.index_missing_from
    assert lacking_from is not None
    # Records that the index had no room for are put while those before them are being synced.
    sync_with(store, lambda: store.query(TOPIC, "u0"))
    assert store.dispatcher.index_missing_from is None
    assert store.checkpoint.logics_physical_offset == store.dispatcher.last_offset
    assert store.checkpoint.index_msg_timestamp == 0
    for seed in range(5):
        with open_small("/store", disk=disk.power_cut(seed), **settings, **SYNC) as again:
            assert [len(again.query(TOPIC, f"u{number}").records) for number in range(count)] == [1] * count


def test_a_queue_that_is_being_rebuilt_is_not_covered_by_the_checkpoint(disk: MemoryDisk) -> None:
    clock = ManualClock(T0)
    store = open_small("/store", disk=disk, clock=clock)
    quiet = send(store, 25, topic="quiet")
    send(store, 5)
    store.close()
    disk.remove(f"/store/consumequeue/quiet/0/{200:020d}")
    clock.advance(60_000)
    store = open_small("/store", disk=disk, clock=clock)
    for _ in range(5):
        send(store, size=1500)
        clock.advance(60_000)
    store.flush()
    sync_with(store, lambda: store.get("quiet", 0, 0))
    assert store.recovery.rebuilt_queues == [("quiet", 0)]
    assert offsets_of(read_all(store, "quiet")) == quiet
    for seed in range(8):
        with open_small("/store", disk=disk.power_cut(seed), clock=clock) as again:
            assert offsets_of(read_all(again, "quiet")) == quiet
            assert len(read_all(again)) == 10


class SlowCheckpoint(MemoryDisk):
    """A disk on which somebody else wants to write the checkpoint while one write of it is under way."""

    meanwhile: Callable[[], None] | None = None

    def pwrite(self, path: str, offset: int, data: bytes | bytearray | memoryview) -> int:
        if path.endswith("checkpoint") and self.meanwhile is not None:
            other, self.meanwhile = threading.Thread(target=self.meanwhile), None
            other.start()
            # It is done, or it waits for its turn.
            other.join(0.2)
            self.other = other
        return super().pwrite(path, offset, data)


def test_a_checkpoint_reset_wins_over_a_concurrent_write() -> None:
    disk = SlowCheckpoint()
    checkpoint = Checkpoint(10, 20, 30, 0, 0, 40)

    def take_back() -> None:
        checkpoint.logics_msg_timestamp = checkpoint.logics_physical_offset = 0
        checkpoint.store(disk, "/checkpoint")

    disk.meanwhile = take_back
    checkpoint.store(disk, "/checkpoint")
    disk.other.join()
    assert Checkpoint.load(disk, "/checkpoint").logics_physical_offset == 0


# What happens to the queues meanwhile


@pytest.fixture(params=["local", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, LocalDisk | MemoryDisk]:
    if request.param == "memory":
        return "/store", MemoryDisk()
    return str(tmp_path), LocalDisk()


def test_a_topic_may_be_deleted_during_a_round(place: tuple[str, LocalDisk | MemoryDisk]) -> None:
    root, disk = place
    store = open_small(root, disk=disk)
    send(store, 25, topic="doomed")
    offsets = send(store, 25)
    store.flush()
    sync_with(store, lambda: store.delete_topic("doomed"))
    assert not store.derived_are_suspect
    assert store.checkpoint.logics_physical_offset == offsets[-1]
    store.close()
    with open_small(root) if root != "/store" else open_small(root, disk=disk) as again:
        assert again.recovery.clean
        assert again.queues.names() == [TOPIC]
        assert offsets_of(read_all(again)) == offsets


def test_queue_files_may_expire_during_a_round(disk: MemoryDisk) -> None:
    store = open_small("/store", disk=disk, file_reserved_time=0)
    send(store, 25)
    send(store, 9, size=1000)
    store.flush()
    retention = Retention(store)
    retention.request()
    sync_with(store, retention.run)
    assert len(disk.list(QUEUE)) == 1  # of four that were written
    assert not store.derived_are_suspect
    assert store.checkpoint.logics_physical_offset
    store.close()
    assert disk.stat("/store/abort") is None


def test_a_round_without_anything_new_is_fine(disk: MemoryDisk) -> None:
    store = open_small("/store", disk=disk)
    store.sync_queues()
    send(store)
    store.flush()
    store.sync_queues()
    before = disk.operations
    store.sync_queues()
    assert disk.operations - before == 2  # the checkpoint, written and synced
    store.close()


# Faults


@pytest.mark.parametrize("path", ["consumequeue", "index"])
@pytest.mark.parametrize("operation", ["sync", "sync_dir"])
def test_after_a_failed_sync_the_checkpoint_stays_until_a_restart(
    disk: MemoryDisk, operation: str, path: str
) -> None:
    store = open_small("/store", disk=disk, **SYNC)
    offsets = send(store, 25, UNIQ_KEY="u")
    store.flush()
    disk.fail(operation, path_contains=path)
    with pytest.raises((OSError, FlushFailedError), match=r"/store/consumequeue|cannot sync the index"):
        store.sync_queues()
    store.sync_queues()
    assert store.checkpoint.logics_physical_offset == 0
    assert store.checkpoint.index_msg_timestamp == 0
    offsets += send(store, 5, UNIQ_KEY="u")
    store.flush()
    store.close()
    assert disk.stat("/store/abort") is not None
    for seed in range(5):
        with open_small("/store", disk=disk.power_cut(seed), **SYNC) as again:
            assert not again.recovery.clean
            assert offsets_of(read_all(again)) == offsets
            assert len(again.query(TOPIC, "u").records) == 30


def test_an_index_file_that_failed_to_sync_when_it_was_put_aside_is_not_trusted_either(disk: MemoryDisk) -> None:
    """With tiny files the index syncs some by itself, to keep few of them mapped."""
    store = open_small("/store", disk=disk, max_index_num=5, **SYNC)
    sent = 0
    disk.fail("sync", path_contains="index", after=3)
    while store.index is not None and not store.index.sync_failed:
        store.append(StoredMessage(TOPIC, 0, b"", f"UNIQ_KEY\x01u{sent}\x02".encode()))
        sent += 1
        store.flush()
        with contextlib.suppress(FlushFailedError):
            store.index.flush_pending()
    store.close()
    assert disk.stat("/store/abort") is not None
    for seed in range(5):
        with open_small("/store", disk=disk.power_cut(seed), max_index_num=5, **SYNC) as again:
            assert not again.recovery.clean
            assert [len(again.query(TOPIC, f"u{number}").records) for number in range(sent)] == [1] * sent


@pytest.mark.parametrize("refusals", range(1, 8))
def test_an_index_that_lacks_keys_is_not_closed_as_if_it_had_them(disk: MemoryDisk, refusals: int) -> None:
    """However often the disk refuses, in mending, in closing, or just once more."""
    settings: dict[str, Any] = {"max_index_num": 3000, "mapped_file_size_consume_queue": 8000}
    store = open_small("/store", disk=disk, **settings, **SYNC)
    count = 1500
    for number in range(count):
        store.append(StoredMessage(TOPIC, 0, b"", f"UNIQ_KEY\x01u{number}\x02".encode()))
    disk.fail("create", error=errno.ENOSPC, path_contains="index", times=refusals)
    store.flush()
    try:
        store.close()
    except DiskFaultError:
        assert disk.stat("/store/abort") is not None
    disk.heal()
    with open_small("/store", disk=disk, **settings, **SYNC) as again:
        assert [len(again.query(TOPIC, f"u{number}").records) for number in range(count)] == [1] * count


@pytest.mark.parametrize("settings", [{}, SYNC], ids=["async", "sync"])
def test_a_queue_accepts_units_while_its_last_write_error_is_unresolved(
    disk: MemoryDisk, settings: dict[str, Any]
) -> None:
    store = open_small("/store", disk=disk, **settings)
    send(store, 5)
    store.flush()
    disk.fail("pwrite", error=errno.ENOSPC, path_contains="consumequeue")
    with pytest.raises(DiskFaultError, match="free space") as kept:
        store.sync_queues()
    assert kept.value.__cause__ is not None
    send(store, 5)
    store.flush()
    assert len(read_all(store)) == 10
    store.close()


def test_a_queue_that_cannot_be_read_does_not_fail_the_append_that_is_in_the_log(disk: MemoryDisk) -> None:
    batch = encode_batch([(0, b"m", b"")] * 3)
    with open_small("/store", disk=disk, batch_topics=["batched"]) as store:
        store.append_inner_batch(StoredMessage("batched", 0, batch))
    store = open_small("/store", disk=disk)
    assert store.max_offset("batched", 0) == 3
    disk.fail("pread", path_contains="batchconsumequeue")
    assert store.append_inner_batch(StoredMessage("batched", 0, batch)).queue_offset == 3
    assert store.max_offset("batched", 0) == 3
    disk.fail("pread", path_contains="batchconsumequeue")
    store.catch_up()
    assert store.max_offset("batched", 0) == 3
    assert "cannot be read" in str(store.dispatcher.fault)
    assert store.append_inner_batch(StoredMessage("batched", 0, batch)).queue_offset == 6
    store.catch_up()
    assert store.max_offset("batched", 0) == 9
    assert [record.queue_offset for record in read_all(store, "batched")] == [0, 3, 6]
    store.close()
    assert disk.stat("/store/abort") is None


def test_messages_are_refused_only_while_queues_cannot_be_written(disk: MemoryDisk) -> None:
    store = open_small("/store", disk=disk, mapped_file_size_commit_log=16 * LOG_FILE)
    disk.fail("create", error=errno.ENOSPC, path_contains="consumequeue", times=10)
    sent: list[int] = []
    with pytest.raises(AppendRefusedError, match="consume queues"):  # noqa: PT012
        for _ in range(1000):
            sent += send(store)
    disk.heal()
    sent += send(store)
    assert offsets_of(read_all(store)) == sent
    store.close()


@pytest.mark.parametrize("front", [False, True], ids=["behind", "in front"])
@pytest.mark.parametrize("operations", range(0, 40, 2))
def test_a_hole_between_queue_files_costs_no_unit_however_often_recovery_is_cut_off(
    operations: int, front: bool
) -> None:
    """A power cut leaves one where names of new files, or the removal of expired ones, were not durable."""
    disk = MemoryDisk(operations)
    store = open_small("/store", disk=disk, file_reserved_time=0, delete_file_batch_max=1)
    sent = send(store, 25) + send(store, 40, size=300)
    store.flush()
    store.sync_queues()
    first_file = disk.read(f"{QUEUE}/{0:020d}")
    if front:
        retention = Retention(store)
        retention.request()
        assert retention.run().queue_files == 2
    sent += send(store, 30)
    store.flush()
    store.dispatcher.write_queues(store.dispatcher.unwritten)
    start = store.log.start
    disk = disk.kill()
    if front:
        disk.write(f"{QUEUE}/{0:020d}", first_file)
    else:
        disk.remove(f"{QUEUE}/{1600:020d}")
    for round_ in range(3):
        disk.crash_after(operations + round_)
        with contextlib.suppress(PowerCut):
            open_small("/store", disk=disk)
        disk = disk.power_cut()
    with open_small("/store", disk=disk) as again:
        assert offsets_of(read_all(again)) == [offset for offset in sent if offset >= start]
        assert again.append(StoredMessage(TOPIC, 0, b"")).queue_offset == len(sent)
