"""Many queues: what each costs in memory, descriptors and time to open."""

from __future__ import annotations

import gc
import os
import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest

from orbitmq.store import LocalDisk
from orbitmq.store.consumequeue.consume_queue import UNIT_SIZE
from orbitmq.store.consumequeue.unit_file import TAIL_BYTES
from orbitmq.store.retention.retention import Retention
from orbitmq.testing import ManualClock
from support.store.stores import T0, open_small, read_all, send
from support.store.watched_disk import WatchedLocalDisk

if TYPE_CHECKING:
    from pathlib import Path

    from orbitmq.store import MessageStore

TOPICS = 30
QUEUES = 100
ROOMY: dict[str, Any] = {"mapped_file_size_commit_log": 1 << 24, "message_index_enable": False}
MAX_OPEN = 64


def send_to_all(store: MessageStore, count: int = 1) -> None:
    for topic in range(TOPICS):
        for queue_id in range(QUEUES):
            send(store, count, topic=f"topic{topic}", queue_id=queue_id)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="the number of open files is not known here")
def test_descriptors_do_not_grow_with_queues(tmp_path: Path) -> None:
    before = descriptors()
    store = open_small(tmp_path, disk=LocalDisk(max_open_files=MAX_OPEN), **ROOMY)
    send_to_all(store)
    store.flush()
    store.sync_queues()
    assert descriptors() - before < 10
    for topic in range(TOPICS):
        for queue_id in range(QUEUES):
            assert len(read_all(store, f"topic{topic}", queue_id)) == 1
    assert descriptors() - before < 10
    store.close()
    # A new process reads from files: some stay open, never more than the limit.
    store = open_small(tmp_path, disk=LocalDisk(max_open_files=MAX_OPEN), **ROOMY)
    for topic in range(TOPICS):
        for queue_id in range(QUEUES):
            assert len(read_all(store, f"topic{topic}", queue_id)) == 1
    assert descriptors() - before < MAX_OPEN + 10
    store.close()
    assert descriptors() <= before


def test_a_queue_costs_little_memory(tmp_path: Path) -> None:
    """It is some 800 bytes beside the tail: 40 MB for fifty thousand queues."""
    store = open_small(tmp_path, **ROOMY, mapped_file_size_consume_queue=UNIT_SIZE * 1000)
    send(store)
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        send_to_all(store)
        store.flush()
        store.sync_queues()
        gc.collect()
        each = (tracemalloc.get_traced_memory()[0] - before) / (TOPICS * QUEUES)
    finally:
        tracemalloc.stop()
    assert each < 1500
    store.close()


def test_the_tail_of_a_queue_in_memory_is_bounded(tmp_path: Path) -> None:
    store = open_small(tmp_path, **ROOMY, mapped_file_size_consume_queue=UNIT_SIZE * 1000)
    send(store, 3000)
    (queue,) = store.queues.opened()
    assert queue.tail_size <= TAIL_BYTES
    assert len(read_all(store)) == 3000
    store.close()


def test_a_store_opens_without_reading_its_queues(tmp_path: Path) -> None:
    with open_small(tmp_path, **ROOMY) as store:
        send_to_all(store)
        send(store)
    disk = WatchedLocalDisk()
    store = open_small(tmp_path, disk=disk, **ROOMY)
    assert store.recovery.clean
    asked = disk.watch.count("consumequeue")
    assert asked["list"] <= TOPICS + 4, "the names of topics, and of their queues"
    assert asked["stat"] + asked["pread"] < 20, "no queue but that of the last record"
    assert len(list(store.queues.opened())) <= 1
    asked.clear()
    assert store.max_offset("topic7", 42) == 1
    assert len(list(store.queues.opened())) <= 2
    store.close()


def test_closing_writes_only_what_was_touched(tmp_path: Path) -> None:
    with open_small(tmp_path, **ROOMY) as store:
        send_to_all(store)
    disk = WatchedLocalDisk()
    store = open_small(tmp_path, disk=disk, **ROOMY)
    send(store, 2, topic="topic3", queue_id=5)
    store.close()
    assert {one.path for one in disk.watch.of("sync", "consumequeue")} == {
        f"{tmp_path}/consumequeue/topic3/5/{0:020d}"
    }
    with open_small(tmp_path, **ROOMY) as store:
        assert store.recovery.clean
        assert store.max_offset("topic3", 5) == 3
        assert store.max_offset("topic3", 6) == 1
        assert store.recovery.rebuilt_queues == []


def test_all_queues_are_right_after_a_crash(tmp_path: Path) -> None:
    store = open_small(tmp_path, **ROOMY)
    send_to_all(store, 2)
    store.flush()
    store.sync_queues()
    send_to_all(store)
    store.abandon()
    with open_small(tmp_path, **ROOMY) as again:
        assert not again.recovery.clean
        for topic in range(TOPICS):
            for queue_id in range(0, QUEUES, 9):
                records = read_all(again, f"topic{topic}", queue_id)
                assert [record.queue_offset for record in records] == [0, 1, 2]


def test_retention_does_not_open_unused_queues(tmp_path: Path) -> None:
    clock = ManualClock(T0)
    settings = {**ROOMY, "mapped_file_size_commit_log": 1 << 16, "file_reserved_time": 0}
    with open_small(tmp_path, clock=clock, **settings) as store:
        send_to_all(store)
    disk = WatchedLocalDisk()
    store = open_small(tmp_path, disk=disk, clock=clock, **settings)
    clock.advance(10**13)  # later than the files, whose times are the machine's
    retention = Retention(store)
    retention.request()
    before = disk.watch.count("consumequeue")
    assert len(retention.run().log_files) > 2
    asked = disk.watch.count("consumequeue") - before
    assert asked["pread"] + asked["stat"] + asked["list"] < 20
    assert store.min_offset("topic0", 0) == store.max_offset("topic0", 0) == 1
    store.close()
