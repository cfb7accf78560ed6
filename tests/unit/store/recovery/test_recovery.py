"""Opening a store: clean, after a crash, with torn and damaged records, and what is refused."""

from __future__ import annotations

import os
import shutil
import struct
from typing import TYPE_CHECKING

import pytest

from orbitmq.protocol.message.record import decode_record
from orbitmq.store import DiskFaultError, FlushFailedError, MessageStore, StoreDamagedError, StoreLockedError
from orbitmq.store.commitlog.scanner import Damage, Seen, walk
from orbitmq.store.recovery.recovery import FENCE_TOPIC
from orbitmq.testing import ManualClock, MemoryDisk, PowerCut
from support.store.stores import (
    LOG_FILE,
    SYNC,
    T0,
    TOPIC,
    all_queues,
    edit_log,
    offsets_of,
    open_small,
    read_all,
    send,
    tree,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def crash(store: MessageStore) -> str:
    """Leave a store as a killed process does, and say where it is."""
    store.abandon()
    return store.config.store_path_root_dir


# Clean and not


def test_after_a_crash_the_walk_begins_at_the_record_the_checkpoint_names(tmp_path: Path) -> None:
    store = open_small(tmp_path, message_index_enable=False)
    for _ in range(20):
        send(store)
    store.flush()
    store.sync_queues()
    last = store.checkpoint.logics_physical_offset
    send(store)
    store.flush()
    store.abandon()
    again = open_small(tmp_path, message_index_enable=False)
    assert (again.recovery.started_at, again.recovery.records) == (last, 2)
    assert again.max_offset(TOPIC, 0) == 21
    again.close()


def test_a_new_store_is_empty_and_stays_so(tmp_path: Path) -> None:
    root = tmp_path / "deep" / "store"
    for _ in range(2):
        with open_small(root) as store:
            assert store.recovery.clean
            assert (store.log.start, store.log.end, store.recovery.records) == (0, 0, 0)
            assert (root / "abort").read_text() == f"{os.getpid()} orbitmq"
            assert (root / "lock").read_text() == "lock"
        assert not (root / "abort").exists()
    assert store.recovery.end_reason == "the store is empty"


def test_a_clean_start_reads_no_more_than_the_last_record(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        offsets = send(store, 50, size=300)
    with open_small(tmp_path) as store:
        report = store.recovery
        assert (report.clean, report.started_at, report.records) == (True, offsets[-1], 1)
        assert (report.log_start, report.log_end) == (0, store.log.end)
        assert not report.damages
        assert offsets_of(read_all(store)) == offsets
        assert send(store) == [report.log_end]


def test_a_clean_start_with_records_without_keys_does_not_read_the_log_for_the_index(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        send(store, KEYS="k")
        offsets = send(store, 20)
    with open_small(tmp_path) as store:
        assert store.recovery.started_at == offsets[-1]
        assert len(store.query(TOPIC, "k").records) == 1


def test_closing_twice_is_closing_once(tmp_path: Path) -> None:
    store = open_small(tmp_path)
    store.close()
    store.close()
    assert not store.is_open


@pytest.mark.parametrize("synced", [False, True])
def test_a_killed_store_has_everything_it_had(tmp_path: Path, synced: bool) -> None:
    store = open_small(tmp_path)
    for number in range(300):
        send(store, queue_id=number % 3, KEYS=f"k{number}", TAGS="t")
        if synced and number == 200:
            store.flush()
            store.sync_queues()
    before = all_queues(store)
    crash(store)
    with open_small(tmp_path) as store:
        assert not store.recovery.clean
        assert all_queues(store) == before
        for number in range(300):
            (found,) = store.query(TOPIC, f"k{number}").records
            assert decode_record(found) in before[TOPIC, number % 3]
    with open_small(tmp_path) as store:
        assert store.recovery.clean
        assert all_queues(store) == before


def test_letting_go_writes_nothing(tmp_path: Path) -> None:
    folders = ("commitlog", "consumequeue", "index", ".")
    store = open_small(tmp_path)
    send(store, 20, KEYS="k")
    before = tree(tmp_path, *folders)
    crash(store)
    assert tree(tmp_path, *folders) == before
    assert (tmp_path / "abort").exists()


def test_messages_that_were_not_flushed_survive_a_killed_process(tmp_path: Path) -> None:
    store = open_small(tmp_path, **SYNC)
    offsets = send(store, 10)
    crash(store)
    with open_small(tmp_path, **SYNC) as store:
        assert offsets_of(read_all(store)) == offsets


# The end of the log


def test_a_record_cut_off_anywhere_ends_the_log(tmp_path: Path) -> None:
    store = open_small(tmp_path / "written")
    offsets = send(store, 3, size=40, KEYS="key", TAGS="tag")
    end = store.log.end
    crash(store)
    for cut in range(offsets[-1], end):
        root = tmp_path / "cut"
        shutil.copytree(tmp_path / "written", root)
        edit_log(root, cut, bytes(end - cut))
        with open_small(root) as store:
            assert store.log.end == offsets[-1], cut - offsets[-1]
            assert not store.recovery.damages
            assert offsets_of(read_all(store)) == offsets[:2]
            assert len(store.query(TOPIC, "key").records) == 2
            # Nothing of it is left behind the record that takes its place.
            assert send(store, size=1) == [offsets[-1]]
            end_now = store.log.end
        rest = tree(root, "commitlog")[f"commitlog/{0:020d}"][end_now:]
        assert not any(rest)
        shutil.rmtree(root)


def test_a_file_made_ahead_of_time_is_not_part_of_the_log(tmp_path: Path) -> None:
    store = open_small(tmp_path)
    send(store, 3, size=1000)
    create = store.log.wants_next_file()
    assert create is not None
    store.log.keep_next_file(create())
    crash(store)
    assert len(os.listdir(tmp_path / "commitlog")) == 2
    with open_small(tmp_path) as store:
        assert store.log.files.bases == [0]
        assert len(read_all(store)) == 3
        send(store, 3, size=1000)
        assert store.log.files.bases == [0, LOG_FILE]


def test_a_log_that_ends_with_a_blank_continues(tmp_path: Path) -> None:
    for crashes in (False, True):
        root = tmp_path / str(crashes)
        store = open_small(root)
        offsets = send(store, 3, size=1200)
        store.log.make_room(1200)  # which ends the file, and then nothing comes
        assert store.log.end == LOG_FILE
        if crashes:
            crash(store)
        else:
            store.close()
        with open_small(root) as store:
            offsets += send(store, 2, size=1200)
            assert offsets_of(read_all(store)) == offsets


# Damage


@pytest.mark.parametrize("size", [0, 7, 9, 20, 200, 1000])
@pytest.mark.parametrize("damaged", [[0], [2], [1, 2], [1, 3]])
def test_a_damaged_record_in_the_middle_is_fenced_and_the_others_survive(
    tmp_path: Path, damaged: list[int], size: int
) -> None:
    store = open_small(tmp_path)
    offsets = send(store, 10, size=size)
    crash(store)
    for number in damaged:
        edit_log(tmp_path, offsets[number], b"\xde\xad\xbe\xef" * 5)
    kept = [offset for number, offset in enumerate(offsets) if number not in damaged]
    with open_small(tmp_path) as store:
        assert store.recovery.damages
        assert offsets_of(read_all(store)) == kept
        assert [record.queue_offset for record in read_all(store)] == [offsets.index(offset) for offset in kept]
        assert store.max_offset(TOPIC, 0) == 10
    # There is nothing left to do, also for a walk that knows nothing of damage.
    (tmp_path / "checkpoint").unlink()
    (tmp_path / "abort").touch()
    with open_small(tmp_path) as store:
        assert store.recovery.started_at == 0
        assert not store.recovery.damages
        assert offsets_of(read_all(store)) == kept
        assert store.queues.names() == [TOPIC]
        seen = [one for one in walk(store.log.files, 0, store.log.end) if isinstance(one, Seen)]
        assert [one.offset for one in seen if one.topic != FENCE_TOPIC[: len(one.topic)]] == kept
        assert sum(one.size for one in seen) == sum(file_end(store, base) for base in store.log.files.bases)


def file_end(store: MessageStore, base: int) -> int:
    """How many bytes of records a log file holds."""
    ends = [one.offset + one.size for one in walk(store.log.files, base, base + LOG_FILE) if isinstance(one, Seen)]
    return max(end for end in ends if end <= base + LOG_FILE) - base


def test_damage_up_to_the_end_of_a_file_is_skipped_with_a_blank(tmp_path: Path) -> None:
    store = open_small(tmp_path)
    offsets = send(store, 6, size=1000)
    crash(store)
    edit_log(tmp_path, offsets[2], b"\xff" * (LOG_FILE - offsets[2]))
    kept = [*offsets[:2], *offsets[3:]]
    for expected in ([Damage(offsets[2], LOG_FILE - offsets[2], "no record starts here")], []):
        with open_small(tmp_path) as store:
            assert store.recovery.damages == expected
            assert offsets_of(read_all(store)) == kept
        (tmp_path / "abort").touch()


def test_records_behind_a_hole_survive_a_crash(tmp_path: Path) -> None:
    store = open_small(tmp_path)
    offsets = send(store, 10, size=1000)
    crash(store)
    edit_log(tmp_path, offsets[1], bytes(offsets[2] - offsets[1]))
    edit_log(tmp_path, offsets[5], bytes(LOG_FILE - offsets[5] % LOG_FILE))
    with open_small(tmp_path) as store:
        assert [damage.offset for damage in store.recovery.damages] == [offsets[1], offsets[5]]
        assert offsets_of(read_all(store)) == [*offsets[:1], *offsets[2:5], *offsets[6:]]
        assert store.max_offset(TOPIC, 0) == 10


def test_damage_in_a_closed_store_that_starts_later_is_passed_when_it_is_read(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        offsets = send(store, 10)
    edit_log(tmp_path, offsets[4] + 4, b"\0")
    with open_small(tmp_path) as store:
        assert store.recovery.clean
        assert offsets_of(read_all(store)) == offsets[:4] + offsets[5:]


def test_a_start_in_the_middle_of_a_record_does_no_harm(tmp_path: Path) -> None:
    """An index that ends with a place that is no record's beginning must not make good records look damaged."""
    for wrong in (1, 50, 200, 330, 4000):
        root = tmp_path / str(wrong)
        with open_small(root) as store:
            offsets = send(store, 12, size=200, KEYS="k")
        (index,) = (root / "index").iterdir()
        content = bytearray(index.read_bytes())
        struct.pack_into(">q", content, 24, wrong)
        index.write_bytes(content)
        for crashed in (False, True):
            if crashed:
                (root / "abort").touch()
            with open_small(root) as store:
                assert not store.recovery.damages
                assert offsets_of(read_all(store)) == offsets


def test_a_checkpoint_that_is_wrong_costs_time_only(tmp_path: Path) -> None:
    for wrong in (b"", b"\xff" * 48, struct.pack(">6q", T0, T0, T0, 0, 0, 77), bytes(4096)):
        root = tmp_path / wrong.hex()[:40]
        with open_small(root) as store:
            offsets = send(store, 12, size=600, KEYS="k")
        (root / "checkpoint").write_bytes(wrong)
        with open_small(root) as store:
            assert offsets_of(read_all(store)) == offsets
            assert len(store.query(TOPIC, "k").records) == 12


# On the same machine


def fail_flush(store: MessageStore, disk: MemoryDisk) -> None:
    disk.fail("sync", path_contains="commitlog")
    with pytest.raises(FlushFailedError, match="then restart the broker"):
        store.flush()
    crash(store)


def fail_recovery(store: MessageStore, disk: MemoryDisk) -> None:
    root = crash(store)
    disk.fail("sync", path_contains="commitlog")
    with pytest.raises(DiskFaultError):
        open_small(root, disk=disk, **SYNC)


def only_crash(store: MessageStore, disk: MemoryDisk) -> None:
    crash(store)


@pytest.mark.parametrize("end_life", [fail_flush, fail_recovery, only_crash])
def test_what_a_start_on_the_same_machine_found_stays_when_the_power_fails(
    end_life: Callable[[MessageStore, MemoryDisk], None],
) -> None:
    disk = MemoryDisk()
    store = open_small("/store", disk=disk, **SYNC)
    offsets = send(store, size=1000)
    store.flush()
    offsets += send(store, 6, size=1500)
    end_life(store, disk)
    store = open_small("/store", disk=disk, **SYNC)
    assert offsets_of(read_all(store)) == offsets
    offsets += send(store)
    store.flush()
    store.sync_queues()
    for seed in range(10):
        with open_small("/store", disk=disk.power_cut(seed), **SYNC) as again:
            assert not again.recovery.damages
            assert offsets_of(read_all(again)) == offsets
            assert [record.body_is_intact for record in read_all(again)] == [True] * len(offsets)


def test_a_failed_flush_that_cannot_be_noted_asks_for_a_restart_of_the_machine() -> None:
    disk = MemoryDisk()
    store = open_small("/store", disk=disk, **SYNC)
    send(store)
    disk.fail("sync", path_contains="commitlog")
    disk.fail("create", path_contains="orbitmq.unflushed")
    with pytest.raises(FlushFailedError, match="then restart the machine"):
        store.flush()
    crash(store)


# Interrupted


@pytest.mark.parametrize("loses_power", [False, True])
def test_a_recovery_cut_off_anywhere_is_simply_done_again(loses_power: bool) -> None:
    clock = ManualClock(T0)
    origin = MemoryDisk(seed=1, clock=clock)
    store = open_small("/store", disk=origin, clock=clock)
    for number in range(40):
        send(store, queue_id=number % 3, size=300, KEYS=f"k{number}")
        clock.advance(500)
        if number == 20:
            store.flush()
            store.sync_queues()
    store.flush()
    expected = all_queues(store)
    for cut in range(1000):
        disk = origin.kill() if not loses_power else origin.power_cut(seed=cut)
        disk.crash_after(cut)
        try:
            store = open_small("/store", disk=disk, clock=clock)
        except PowerCut:
            disk = disk.power_cut() if loses_power else disk.kill()
            store = open_small("/store", disk=disk, clock=clock)
            finished = False
        else:
            finished = True
            disk.heal()
        assert all_queues(store) == expected, cut
        for number in range(40):
            assert len(store.query(TOPIC, f"k{number}").records) == 1, (cut, number)
        store.abandon()
        if finished:
            break
    assert 5 < cut < 999


# What is refused


def test_a_store_is_opened_once(tmp_path: Path) -> None:
    with (
        open_small(tmp_path) as store,
        pytest.raises(StoreLockedError, match="is open in another process: stop that one"),
    ):
        open_small(tmp_path)
    crash(open_small(tmp_path))
    with open_small(tmp_path) as store:
        assert store.is_open


def test_log_files_of_another_size_are_refused_by_name(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        send(store, 10, size=600)
    with pytest.raises(
        StoreDamagedError, match=r"0{20} has 4096 bytes .* have 8192: give the broker.conf .* or restore the file"
    ):
        open_small(tmp_path, mapped_file_size_commit_log=8192)
    # The attempt leaves no trace: opened rightly, it is a store that was closed properly.
    with open_small(tmp_path) as store:
        assert store.recovery.clean
        assert len(read_all(store)) == 10


def test_queue_files_of_another_size_are_refused_by_name(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        send(store, 10)
    with pytest.raises(StoreDamagedError, match=r"has 200 bytes .* queue files have 400: give the broker.conf"):
        open_small(tmp_path, mapped_file_size_consume_queue=400)
    with open_small(tmp_path) as store:
        assert len(read_all(store)) == 10


def test_index_files_of_another_size_are_refused_by_name(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        send(store, 10, KEYS="k")
    with pytest.raises(StoreDamagedError, match="set them as they were when it was written, or delete the index"):
        open_small(tmp_path, max_index_num=200)
    with open_small(tmp_path) as store:
        assert len(store.query(TOPIC, "k").records) == 10


def test_a_missing_log_file_is_named(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        send(store, 30, size=600)
    (tmp_path / "commitlog" / f"{2 * LOG_FILE:020d}").unlink()
    with pytest.raises(StoreDamagedError, match=f"{2 * LOG_FILE:020d} is missing: restore it"):
        open_small(tmp_path)


def test_queues_without_a_log_are_refused(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        send(store, 3)
    shutil.rmtree(tmp_path / "commitlog")
    with pytest.raises(StoreDamagedError, match=r"there are consume queues but no commit log in .*commitlog"):
        open_small(tmp_path)
    assert len(list((tmp_path / "consumequeue" / TOPIC / "0").iterdir())) == 1


# Elsewhere


def test_a_log_over_two_directories_is_one_log(tmp_path: Path) -> None:
    paths = f"{tmp_path}/disk2/log,{tmp_path}/disk1/log"
    store = open_small(tmp_path / "store", store_path_commit_log=paths)
    offsets = send(store, 30, size=600)
    crash(store)
    assert len(os.listdir(tmp_path / "disk1" / "log")) == 3
    assert len(os.listdir(tmp_path / "disk2" / "log")) == 3
    with open_small(tmp_path / "store", store_path_commit_log=paths) as store:
        assert offsets_of(read_all(store)) == offsets
        offsets += send(store, 10, size=600)
    # A directory that is read only keeps what it has and gets nothing new.
    with open_small(
        tmp_path / "store",
        store_path_commit_log=paths,
        read_only_commit_log_store_paths=f"{tmp_path}/disk1/log",
    ) as store:
        before = len(os.listdir(tmp_path / "disk1" / "log"))
        offsets += send(store, 20, size=600)
        assert offsets_of(read_all(store)) == offsets
        assert len(os.listdir(tmp_path / "disk1" / "log")) == before
