"""What follows the log when its oldest files go: queues, index, readers, and the next start."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

import pytest

from orbitmq.protocol.message.batch import encode_batch
from orbitmq.protocol.message.record import iter_records
from orbitmq.store import GetStatus, LocalDisk, StoredMessage
from orbitmq.store.retention.retention import Retention
from orbitmq.testing import ManualClock, MemoryDisk, PowerCut
from support.store.aged_store import HOUR, PER_FILE, SIZE, aged
from support.store.stores import LOG_FILE, T0, TOPIC, offsets_of, open_small, read_all, send

if TYPE_CHECKING:
    from pathlib import Path

    from orbitmq.platform.disk import Disk

# Queues and index


def test_queues_and_index_follow() -> None:
    it = aged(files=1)
    sent = [
        offset for number in range(20 * PER_FILE) for offset in send(it.store, size=SIZE, UNIQ_KEY=f"u{number}")
    ]
    it.store.flush()
    it.store.sync_queues()
    queue_files = len(it.disk.list(f"/store/consumequeue/{TOPIC}/0"))
    index_files = len(it.disk.list("/store/index"))
    it.disk.used = 86
    report = Retention(it.store).run()
    assert len(report.log_files) == 10
    assert report.queue_files == queue_files - len(it.disk.list(f"/store/consumequeue/{TOPIC}/0")) > 0
    assert report.index_files == index_files - len(it.disk.list("/store/index")) == 0
    while Retention(it.store).run().log_files:
        pass
    left = [offset for offset in sent if offset >= it.store.log.start]
    assert offsets_of(read_all(it.store)) == left
    assert it.store.min_offset(TOPIC, 0) == 20 * PER_FILE + 1 - len(left)
    assert it.store.max_offset(TOPIC, 0) == 20 * PER_FILE + 1
    gone = it.store.get(TOPIC, 0, it.store.min_offset(TOPIC, 0) - 1)
    assert gone.status is GetStatus.OFFSET_TOO_SMALL
    assert gone.next_begin_offset == it.store.min_offset(TOPIC, 0)
    assert it.store.query(TOPIC, "u0").records == []
    assert len(it.store.query(TOPIC, f"u{20 * PER_FILE - 1}").records) == 1
    it.store.close()
    it.reopen()
    assert it.store.recovery.clean
    assert offsets_of(read_all(it.store)) == left
    assert it.store.recovery.rebuilt_queues == []
    it.store.close()


def test_expired_index_files_are_deleted_except_the_newest() -> None:
    it = aged(files=1, max_index_num=10)
    send(it.store, 10 * PER_FILE, size=SIZE, UNIQ_KEY="u")
    it.store.flush()
    it.store.sync_queues()
    before = it.disk.list("/store/index")
    it.disk.used = 86
    removed = 0
    while (report := Retention(it.store).run()).log_files:
        removed += report.index_files
    after = it.disk.list("/store/index")
    assert removed == len(before) - len(after) > 0
    assert after == before[removed:]
    assert len(it.store.query(TOPIC, "u").records) == len(read_all(it.store))
    it.store.close()


def test_a_fully_expired_queue_continues_its_numbering() -> None:
    it = aged(files=1)
    send(it.store, 4, topic="quiet")
    send(it.store, 4 * PER_FILE, size=SIZE)
    it.store.flush()
    it.disk.used = 86
    assert Retention(it.store).run().log_files
    assert it.store.min_offset("quiet", 0) == it.store.max_offset("quiet", 0) == 4
    assert it.store.get("quiet", 0, 4).status is GetStatus.OFFSET_OVERFLOW_ONE
    it.store.close()
    it.reopen()
    assert it.store.min_offset("quiet", 0) == it.store.max_offset("quiet", 0) == 4
    assert it.store.append(StoredMessage("quiet", 0, b"")).queue_offset == 4
    it.store.close()


@pytest.mark.parametrize("messages", [4, 25], ids=["one queue file", "several queue files"])
@pytest.mark.parametrize("crashed", [False, True])
def test_an_unopened_queue_follows_when_it_is_opened(messages: int, crashed: bool) -> None:
    it = aged(files=1)
    send(it.store, messages, topic="quiet")
    send(it.store, 40 * PER_FILE, size=SIZE)
    late = send(it.store, 2, topic="late")
    send(it.store, PER_FILE + 1, size=SIZE)
    it.store.close()
    it.reopen()
    send(it.store, 9, size=SIZE)
    it.store.flush()
    it.disk.used = 86
    while Retention(it.store).run().log_files:
        pass
    if crashed:
        it.crash()
        it.reopen()
        assert not it.store.recovery.clean
    it.disk.used = 10
    assert it.store.min_offset("quiet", 0) == it.store.max_offset("quiet", 0) == messages
    assert it.store.max_offset("late", 0) == len(late)
    assert it.store.append(StoredMessage("quiet", 0, b"")).queue_offset == messages
    assert it.store.append(StoredMessage("late", 0, b"")).queue_offset == len(late)
    assert it.store.recovery.rebuilt_queues == []
    it.store.close()


def test_an_unopened_queue_that_lost_only_its_front_is_not_rebuilt() -> None:
    it = aged(files=1)
    early = send(it.store, 3, topic="quiet")
    send(it.store, 10 * PER_FILE, size=SIZE)
    late = send(it.store, 2, topic="quiet")
    send(it.store, 1, size=SIZE)
    it.store.close()
    it.reopen()
    it.disk.used = 86
    while Retention(it.store).run().log_files:
        pass
    assert it.store.log.start > early[-1]
    assert offsets_of(read_all(it.store, "quiet")) == late
    assert (it.store.min_offset("quiet", 0), it.store.max_offset("quiet", 0)) == (3, 5)
    assert it.store.recovery.rebuilt_queues == []
    it.store.close()
    it.reopen()
    assert offsets_of(read_all(it.store, "quiet")) == late
    assert it.store.recovery.rebuilt_queues == []
    it.store.close()


def test_a_queue_that_lost_its_front_before_a_crash_is_not_rebuilt_later() -> None:
    it = aged(files=1, delete_file_batch_max=3)
    send(it.store, 25, topic="quiet")
    for _ in range(10 * PER_FILE):
        send(it.store, size=SIZE)
        it.clock.advance(10_000)
    it.store.close()
    it.reopen()
    assert it.store.get("quiet", 0, 0).count
    send(it.store)
    it.store.flush()
    it.store.sync_queues()
    it.disk.used = 86
    assert len(Retention(it.store).run().log_files) == 3
    assert it.disk.list("/store/consumequeue/quiet/0") == [f"{400:020d}"]
    it.crash()
    it.reopen()
    it.store.close()
    it.reopen()
    assert it.store.recovery.clean
    assert it.store.min_offset("quiet", 0) == it.store.max_offset("quiet", 0) == 25
    assert it.store.recovery.rebuilt_queues == []
    it.store.close()


@pytest.mark.parametrize("number", [0, 1], ids=["first", "middle"])
def test_a_queue_that_lost_a_file_by_accident_keeps_its_numbering_when_all_of_it_expired(number: int) -> None:
    it = aged(files=1)
    send(it.store, 25, topic="quiet")
    send(it.store, 10 * PER_FILE, size=SIZE)
    it.store.close()
    it.disk.remove(f"/store/consumequeue/quiet/0/{200 * number:020d}")
    it.reopen()
    it.disk.used = 86
    assert Retention(it.store).run().log_files
    assert it.store.min_offset("quiet", 0) == it.store.max_offset("quiet", 0) == 25
    assert it.store.append(StoredMessage("quiet", 0, b"")).queue_offset == 25
    it.store.close()


def test_a_removed_queue_file_that_reappears_does_no_harm() -> None:
    """A removed name that was not made durable is there again after a power cut."""
    it = aged(files=1, delete_file_batch_max=3)
    send(it.store, 25, topic="quiet")
    for _ in range(10 * PER_FILE):
        send(it.store, size=SIZE)
        it.clock.advance(10_000)
    it.store.flush()
    it.store.sync_queues()
    first = f"/store/consumequeue/quiet/0/{0:020d}"
    units = it.disk.read(first)
    it.disk.used = 86
    assert Retention(it.store).run().log_files
    it.crash()
    it.disk.write(first, units)
    it.reopen()
    assert it.store.min_offset("quiet", 0) == it.store.max_offset("quiet", 0) == 25
    assert it.store.append(StoredMessage("quiet", 0, b"")).queue_offset == 25
    assert it.store.recovery.rebuilt_queues == []
    it.store.close()


def test_batch_queues_keep_their_numbering_over_a_crash() -> None:
    it = aged(files=1, batch_topics=["batched"])
    batch = encode_batch([(0, b"m" * 100, b"")] * 3)
    for _ in range(5):
        it.store.append_inner_batch(StoredMessage("batched", 0, batch))
    send(it.store, 4 * PER_FILE, size=SIZE)
    it.store.flush()
    it.store.sync_queues()
    it.disk.used = 86
    assert Retention(it.store).run().log_files
    it.crash()
    it.reopen()
    assert not it.store.recovery.clean
    assert it.store.append_inner_batch(StoredMessage("batched", 0, batch)).queue_offset == 15
    it.store.close()


def test_batch_queues_follow() -> None:
    it = aged(files=1, batch_topics=["batched"])
    batch = encode_batch([(0, b"m" * 100, b"")] * 3)
    for _ in range(30):
        send(it.store, 1, size=SIZE)
        it.store.append_inner_batch(StoredMessage("batched", 0, batch))
    it.store.flush()
    it.store.sync_queues()
    it.disk.used = 86
    removed = 0
    while (report := Retention(it.store).run()).log_files:
        removed += report.queue_files
    assert removed
    left = read_all(it.store, "batched")
    assert left[0].queue_offset == it.store.min_offset("batched", 0) == 90 - 3 * len(left)
    assert it.store.max_offset("batched", 0) == 90
    it.store.close()
    it.reopen()
    assert offsets_of(read_all(it.store, "batched")) == offsets_of(left)
    it.store.close()


@pytest.mark.parametrize("crashed", [False, True])
def test_reopening_afterwards_finds_what_was_left(crashed: bool) -> None:
    it = aged(files=6)
    it.disk.used = 86
    Retention(it.store).run()
    left = offsets_of(read_all(it.store))
    left += send(it.store, 2, size=SIZE)
    it.store.flush()
    if crashed:
        it.store.abandon()
    else:
        it.store.close()
    it.reopen()
    assert it.store.recovery.clean is not crashed
    assert offsets_of(read_all(it.store)) == left
    assert it.store.append(StoredMessage(TOPIC, 0, b"")).queue_offset == 5 * PER_FILE + 3
    it.store.close()


# Readers


@pytest.mark.parametrize("kind", ["local", "memory"])
def test_a_slow_reader_reads_its_slices_to_the_end(kind: str, tmp_path: Path) -> None:
    disk: Disk = LocalDisk() if kind == "local" else MemoryDisk()
    root = tmp_path if kind == "local" else "/store"
    store = open_small(root, disk=disk, disk_space_clean_forcibly_ratio=30)
    sent = send(store, 8 * PER_FILE, size=SIZE)
    store.flush()
    held = store.get(TOPIC, 0, 0)
    assert len(held.slices) > 2
    before = [bytes(piece) for piece in held.slices]
    for base in store.log.files.bases[:-1]:
        store.log.files.remove(base)
    Retention(store)._follow(Retention(store).run())
    assert disk.list(f"{root}/commitlog") == [f"{7 * LOG_FILE:020d}"]
    assert store.record(sent[0]) is None
    send(store, 8 * PER_FILE, size=SIZE)
    store.close()
    assert [bytes(piece) for piece in held.slices] == before
    records = [record for piece in held.slices for record in iter_records(piece)]
    assert all(record.body_is_intact for record in records)
    assert offsets_of(records) == sent[: len(records)]


# Faults on the way


def test_a_file_that_cannot_be_removed_leaves_no_hole_in_the_log() -> None:
    it = aged(files=6, delete_file_batch_max=2)
    it.disk.used = 86
    it.disk.fail("remove", error=errno.EBUSY, path_contains="commitlog")
    with pytest.raises(OSError, match="commitlog"):
        Retention(it.store).run()
    assert it.store.log.start == 0
    assert len(Retention(it.store).run().log_files) == 2
    left = offsets_of(read_all(it.store))
    it.store.close()
    it.reopen()
    assert offsets_of(read_all(it.store)) == left
    it.store.close()


def test_queues_follow_even_if_a_round_is_broken_off() -> None:
    it = aged(files=6)
    it.disk.used = 86
    it.disk.fail("remove", error=errno.EBUSY, path_contains="commitlog", after=2)
    with pytest.raises(OSError, match="commitlog"):
        Retention(it.store).run()
    assert it.store.log.start == 2 * LOG_FILE
    assert it.store.min_offset(TOPIC, 0) == 2 * PER_FILE
    assert len(read_all(it.store)) == 3 * PER_FILE + 1
    it.store.close()


@pytest.mark.parametrize("operations", range(24))
def test_a_power_cut_in_the_middle_loses_nothing_that_had_not_expired(operations: int) -> None:
    clock = ManualClock(T0)
    disk = MemoryDisk(operations, clock=clock)
    settings: dict[str, Any] = {"file_reserved_time": 1, "delete_file_batch_max": 4, "max_index_num": 20}
    store = open_small("/store", disk=disk, clock=clock, **settings)
    old = send(store, 6 * PER_FILE, size=SIZE, UNIQ_KEY="u")
    send(store, 25, topic="small")
    store.flush()
    clock.advance(2 * HOUR)
    young = send(store, 3 * PER_FILE, size=SIZE, UNIQ_KEY="u")
    store.flush()
    store.sync_queues()
    retention = Retention(store)
    retention.request()
    disk.crash_after(operations)
    try:
        while retention.run().log_files:
            pass
    except PowerCut:
        pass
    for seed in range(4):
        with open_small("/store", disk=disk.power_cut(seed), clock=clock, **settings) as again:
            found = offsets_of(read_all(again))
            kept = [offset for offset in old if offset >= again.log.start] + young
            assert found == kept
            assert again.min_offset(TOPIC, 0) == len(old) + len(young) - len(kept)
            assert again.max_offset("small", 0) == 25
            assert again.append(StoredMessage(TOPIC, 0, b"")).queue_offset == len(old) + len(young)
