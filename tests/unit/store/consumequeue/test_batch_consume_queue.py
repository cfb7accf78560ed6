"""The consume queue of a BatchCQ topic: one unit for many messages, found by bisection."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from orbitmq.protocol.message.batch import encode_batch
from orbitmq.store import Boundary, GetStatus, StoredMessage
from orbitmq.store.consumequeue.batch_consume_queue import FILLER, UNIT_SIZE, BatchConsumeQueue, BatchUnit
from orbitmq.testing import ManualClock, MemoryDisk
from support.store.stores import T0, TOPIC, open_small, read_all, served

if TYPE_CHECKING:
    from pathlib import Path

    from orbitmq.store import MessageStore

DIRECTORY = f"/store/batchconsumequeue/{TOPIC}/0"
FILE_SIZE = 10 * UNIT_SIZE
FOREVER = 1 << 62


def new_queue(disk: MemoryDisk) -> BatchConsumeQueue:
    return BatchConsumeQueue(disk, DIRECTORY, TOPIC, 0, FILE_SIZE)


def opened(
    disk: MemoryDisk, log_start: int = 0, log_end: int = FOREVER, *, crashed: bool = False
) -> BatchConsumeQueue:
    queue = new_queue(disk)
    queue.open(log_start, log_end, (lambda *_: True) if crashed else None)
    return queue


def put(queue: BatchConsumeQueue, *counts: int) -> None:
    """Enter batches of these many messages, one after the other."""
    for count in counts:
        base = queue.next_offset
        assert queue.put(base, 10 * base, 10 * count, 7, T0 + base, count)
    queue.write_out(FILLER)


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


@pytest.fixture
def queue(disk: MemoryDisk) -> BatchConsumeQueue:
    return new_queue(disk)


def test_a_unit_has_46_bytes(queue: BatchConsumeQueue, disk: MemoryDisk) -> None:
    queue.put(5, 100, 200, -3, T0, 4)
    queue.write_out(FILLER)
    unit = disk.read(f"{DIRECTORY}/{0:020d}")[:46]
    assert unit == (
        (100).to_bytes(8, "big")
        + (200).to_bytes(4, "big")
        + (-3).to_bytes(8, "big", signed=True)
        + T0.to_bytes(8, "big")
        + (5).to_bytes(8, "big")
        + (4).to_bytes(2, "big")
        + b"\xff" * 4
        + bytes(4)
    )
    assert queue.all_units() == [BatchUnit(100, 200, -3, T0, 5, 4, -1, 0)]


def test_a_queue_offset_leads_to_the_batch_that_holds_it(queue: BatchConsumeQueue) -> None:
    put(queue, 3, 1, 5, 2)
    bases = [unit.base_offset for offset in range(11) if (unit := queue.unit(offset)) is not None]
    assert bases == [0, 0, 0, 3, 4, 4, 4, 4, 4, 9, 9]
    assert queue.unit(11) is None
    assert (queue.min_offset, queue.max_offset, queue.next_offset) == (0, 11, 11)


def test_a_queue_offset_in_a_gap_leads_to_the_next_batch(queue: BatchConsumeQueue) -> None:
    put(queue, 3)
    assert queue.put(10, 100, 10, 0, T0, 2)
    assert queue.gaps == 1
    unit = queue.unit(5)
    assert unit is not None
    assert unit.base_offset == 10


@pytest.mark.parametrize("batches", [1, 9, 10, 11, 35])
@pytest.mark.parametrize("crashed", [False, True])
def test_an_opened_queue_continues_behind_its_last_batch(disk: MemoryDisk, batches: int, crashed: bool) -> None:
    put(new_queue(disk), *[3] * batches)
    queue = opened(disk, crashed=crashed)
    assert len(queue.all_units()) == batches
    assert (queue.max_offset, queue.next_offset, queue.max_physical) == (3 * batches, 3 * batches, 30 * batches)
    assert not queue.put(0, 0, 30, 7, T0, 3)
    put(queue, 2)
    assert opened(disk).max_offset == 3 * batches + 2


@pytest.mark.parametrize("kept", [0, 1, 10, 14, 15])
def test_batches_behind_the_end_of_the_log_are_forgotten(disk: MemoryDisk, kept: int) -> None:
    put(new_queue(disk), *[3] * 15)
    truncated = opened(disk)
    truncated.truncate_to_log(30 * kept)
    for queue in (truncated, opened(disk, log_end=30 * kept, crashed=True), opened(disk)):
        assert len(queue.all_units()) == kept
        assert queue.max_offset == queue.next_offset == 3 * kept


@pytest.mark.parametrize("expired", range(0, 36, 5))
def test_the_smallest_offset_follows_the_start_of_the_log(disk: MemoryDisk, expired: int) -> None:
    put(new_queue(disk), *[3] * 35)
    queue = opened(disk)
    assert queue.expire(30 * expired) == min(expired // 10, 3)
    for found in (queue, opened(disk, log_start=30 * expired)):
        assert (found.min_offset, found.max_offset, found.next_offset) == (3 * expired, 105, 105)


def test_an_older_number_from_a_newer_record_starts_the_queue_again(disk: MemoryDisk) -> None:
    queue = new_queue(disk)
    put(queue, *[3] * 15)
    assert queue.put(0, 5000, 50, 0, T0, 5)
    assert (queue.min_offset, queue.max_offset, queue.next_offset) == (0, 5, 5)
    queue.write_out(FILLER)
    assert opened(disk).max_offset == 5


# Through a store


def batch(count: int) -> bytes:
    return encode_batch((0, b"%d" % number, b"") for number in range(count))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(T0)


def filled(root: Path, clock: ManualClock) -> MessageStore:
    """A store with batches of 3, 1, 5 and 2 messages, a second apart."""
    store = open_small(root, clock=clock, batch_topics=[TOPIC])
    for count in (3, 1, 5, 2):
        store.append_inner_batch(StoredMessage(TOPIC, 0, batch(count)))
        clock.advance(1000)
    return store


def test_a_reader_gets_the_whole_batch_that_holds_its_offset(tmp_path: Path, clock: ManualClock) -> None:
    with filled(tmp_path, clock) as store:
        for offset, found in ((0, 4), (2, 4), (3, 3), (6, 2), (10, 1)):
            result = store.get(TOPIC, 0, offset)
            assert result.status is GetStatus.FOUND
            assert (len(served(result)), result.next_begin_offset) == (found, 11)
        # What was asked for is counted in messages; the first batch comes whole.
        assert store.get(TOPIC, 0, 0, 2).next_begin_offset == 3
        assert store.get(TOPIC, 0, 0, 3).next_begin_offset == 3
        assert store.get(TOPIC, 0, 0, 4).next_begin_offset == 4
        assert store.get(TOPIC, 0, 0, 8).next_begin_offset == 4
        assert store.get(TOPIC, 0, 0, 9).next_begin_offset == 9
        assert store.get(TOPIC, 0, 11).status is GetStatus.OFFSET_OVERFLOW_ONE


def test_a_time_leads_to_the_batch_stored_then(tmp_path: Path, clock: ManualClock) -> None:
    with filled(tmp_path, clock) as store:
        lower = [store.reader.offset_by_time(TOPIC, 0, T0 + ms) for ms in (-1, 0, 1, 1000, 2500, 3000, 3001)]
        assert lower == [0, 0, 3, 3, 9, 9, 11]
        upper = [
            store.reader.offset_by_time(TOPIC, 0, T0 + ms, Boundary.UPPER) for ms in (-1, 0, 999, 1000, 2500, 9999)
        ]
        assert upper == [0, 0, 0, 3, 4, 9]


def test_batches_survive_a_restart_a_crash_and_the_loss_of_their_queue(tmp_path: Path, clock: ManualClock) -> None:
    store = filled(tmp_path, clock)
    store.close()
    with open_small(tmp_path, clock=clock) as store:
        assert len(read_all(store)) == 4
        assert store.append_inner_batch(StoredMessage(TOPIC, 0, batch(4))).queue_offset == 11
    store = open_small(tmp_path, clock=clock)
    store.append_inner_batch(StoredMessage(TOPIC, 0, batch(2)))
    store.abandon()
    with open_small(tmp_path, clock=clock) as store:
        assert len(read_all(store)) == 6
        assert store.max_offset(TOPIC, 0) == 17
    for file in (tmp_path / "batchconsumequeue" / TOPIC / "0").iterdir():
        file.unlink()
    with open_small(tmp_path, clock=clock) as store:
        assert len(read_all(store)) == 6
        assert store.queues.get(TOPIC, 0).next_offset == 17


def test_a_topic_made_again_as_a_batch_topic_is_numbered_from_its_start(tmp_path: Path, clock: ManualClock) -> None:
    with filled(tmp_path, clock) as store:
        store.delete_topic(TOPIC)
        assert store.append_inner_batch(StoredMessage(TOPIC, 0, batch(3))).queue_offset == 0
    for file in (tmp_path / "batchconsumequeue" / TOPIC / "0").iterdir():
        file.unlink()
    with open_small(tmp_path, clock=clock) as store:
        assert store.max_offset(TOPIC, 0) == 3
        assert store.append_inner_batch(StoredMessage(TOPIC, 0, batch(1))).queue_offset == 3


@pytest.mark.parametrize("number", ["x", "-1", "0", "99999", "9" * 30])
def test_a_strange_count_in_a_record_of_a_master_counts_as_one(tmp_path: Path, number: str) -> None:
    with open_small(tmp_path / "master") as master:
        # A plain topic there, so the properties are taken as they are.
        master.append(StoredMessage(TOPIC, 0, b"body", f"INNER_NUM\x01{number}\x02".encode()))
        raw = bytearray(master.log.files.mapped(0).buffer[: master.log.end])
    raw[36:40] = (0xC0).to_bytes(4, "big")
    with open_small(tmp_path / "replica", batch_topics=[TOPIC]) as replica:
        replica.append_raw(bytes(raw), 0)
        replica.catch_up()
        assert replica.max_offset(TOPIC, 0) == 1
