"""The timer's files, byte for byte as Apache RocketMQ writes them, and what opening them finds and mends."""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from orbitmq.broker.deferred import delivery_loop
from orbitmq.broker.timer import enqueue
from orbitmq.store import LocalDisk, MessageStore, StoreDamagedError, from_settings
from orbitmq.store.errors import DiskFaultError, FlushFailedError
from orbitmq.store.timer.checkpoint import TimerCheckpoint
from orbitmq.store.timer.files import TimerFiles
from orbitmq.store.timer.timer_log import DEFAULT, DELETE, NO_UNIT, UNIT_SIZE, TimerLog
from orbitmq.store.timer.timer_wheel import FILE_SIZE, PAGE, SLOT_SIZE, SLOTS, Slot, TimerWheel
from orbitmq.testing import ManualClock, MemoryDisk
from support.broker.timer_harness import Timers
from support.store import golden
from support.store.stores import small_config, tree

if TYPE_CHECKING:
    from pathlib import Path

    from orbitmq.platform.disk import Disk

NOW = 1_700_000_000_000
FAR = 1 << 60
WRITTEN = [(109, 1794773499000), (10, 1794773500000), (2, 1794773513000)]
"""How many messages Apache's broker entered at which time of its wheel."""


def open_files(disk: Disk, root: str = "/store", place: int = FAR, file_size: int = 4096) -> TimerFiles:
    files = TimerFiles(disk, small_config(root, mapped_file_size_timer_log=file_size))
    files.open(lambda _: place)
    return files


def add(files: TimerFiles, count: int = 1, *, due: int = NOW + 5000, magic: int = DEFAULT, first: int = 0) -> None:
    for number in range(first, first + count):
        files.add(due, magic, NOW, number * 100, 100, 7)


def save(files: TimerFiles, **values: int) -> None:
    unsaved = files.take_unsaved(TimerCheckpoint(**values))
    files.save(unsaved)
    files.on_saved(unsaved)


def chain(files: TimerFiles, due: int = NOW + 5000) -> list[int]:
    """The records of a slot, newest first."""
    slot = files.wheel.slot(due)
    position = NO_UNIT if slot is None else slot.last
    found = []
    while (unit := files.log.unit(position)) is not None:
        found.append(unit.offset)
        position = unit.previous
    return found


# The same bytes


def test_log_and_wheel_are_the_same_bytes_as_apaches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = golden.unpack("basic", tmp_path / "theirs", with_timer=True)
    theirs = tree(root, "timerlog")
    with open(os.path.join(root, "timerwheel"), "rb") as file:
        wheel = file.read()
    for name in theirs:
        os.unlink(os.path.join(root, name))
    for name in ("timerwheel", "config/timercheck", "config/timermetrics", "config/timermetrics.bak"):
        os.unlink(os.path.join(root, name))
    clock = ManualClock(WRITTEN[0][1])
    config, _ = from_settings(golden.config("basic"), store_path_root_dir=root)
    config.timer_stop_dequeue = True
    monkeypatch.setattr(enqueue, "SLICE_RECORDS", 1)
    monkeypatch.setattr(delivery_loop, "SLICE_RECORDS", 1)
    with MessageStore.open(config, clock=clock) as store:
        timers = Timers(store)
        for count, written in WRITTEN:
            clock.advance(written - clock.now_ms())
            for _ in range(count):
                timers.service.run_slice()
        assert timers.service.queue_offset == 121
        save(timers.service.files, read_time_ms=1794773649000, queue_offset=121, master_queue_offset=121)
        timers.service.files.close()

    assert tree(root, "timerlog") == theirs
    with open(os.path.join(root, "timerwheel"), "rb") as file:
        assert file.read() == wheel


def test_apaches_checkpoint_is_read_and_written(tmp_path: Path) -> None:
    root = golden.unpack("basic", tmp_path)
    path = os.path.join(root, "config", "timercheck")
    with open(path, "rb") as file:
        theirs = file.read()
    found = TimerCheckpoint.load(LocalDisk(), path)

    assert found == TimerCheckpoint(1794773649000, 6332, 121, 121, 0, 1794773649635, 243)
    found.store(LocalDisk(), str(tmp_path / "written"))
    assert (tmp_path / "written").read_bytes() == theirs
    assert found.encode() == theirs[:56]


def test_apaches_files_are_opened_without_a_change(tmp_path: Path) -> None:
    root = golden.unpack("basic", tmp_path, with_timer=True)
    before = tree(root, "timerlog", "config")
    config, _ = from_settings(golden.config("basic"), store_path_root_dir=root)
    files = TimerFiles(LocalDisk(), config)
    files.open(lambda _: FAR)

    assert files.log.end == 6332
    assert not files.is_damaged
    assert files.wheel.waiting(1794773649000) == 2
    assert files.wheel.slot(1794777099000) == Slot(208, 208, 1)
    assert files.wheel.slot(1794774099000) == Slot(364, 416, 0)
    assert files.take_unsaved(files.saved).wheel_pages == []
    assert tree(root, "timerlog", "config") == before
    files.close()


# The log


def test_a_file_holds_whole_units_and_a_mark_behind_them() -> None:
    disk = MemoryDisk()
    log = TimerLog(disk, "/log", 200)
    log.load()
    positions = [log.append(NO_UNIT, DEFAULT, NOW, NOW, number, 100, 7) for number in range(5)]

    assert positions == [0, 52, 104, 200, 252]
    assert struct.unpack_from(">iqI", disk.read("/log/00000000000000000000"), 156) == (44, 0, 0xCBD43194)
    assert log.last() == log.unit(252)
    assert [units["offset"].tolist() for _, units in log.columns(0)] == [[0, 1, 2], [3, 4]]
    assert [places.tolist() for places, _ in log.columns(104)] == [[104], [200, 252]]
    log.close()


def test_what_is_no_unit_is_not_read() -> None:
    files = open_files(MemoryDisk())
    add(files, 2)
    assert files.log.unit(52) is not None
    for position in (-1, 7, 104, 4096, 1 << 40):
        assert files.log.unit(position) is None


def test_a_file_of_another_size_is_refused_by_name(tmp_path: Path) -> None:
    disk = LocalDisk()
    files = open_files(disk, str(tmp_path))
    add(files)
    files.close()
    with pytest.raises(StoreDamagedError, match="timerlog/00000000000000000000 has 4096 bytes"):
        open_files(disk, str(tmp_path), file_size=8192)


def test_files_go_when_the_commit_log_has_none_of_their_records() -> None:
    disk = MemoryDisk()
    files = open_files(disk, file_size=200)
    add(files, 7)
    assert files.log.delete_before(200) == 0
    assert files.log.delete_before(201) == 1
    assert files.log.delete_before(FAR) == 1
    assert disk.list("/store/timerlog") == ["00000000000000000400"]
    assert chain(files) == [600]


# The wheel


def test_a_slot_is_one_of_two_weeks() -> None:
    wheel = TimerWheel(MemoryDisk(), "/wheel", 1000)
    wheel.put(NOW, Slot(1, 2, 3))
    assert wheel.slot(NOW + 999) == Slot(1, 2, 3)
    assert wheel.slot(NOW + 1000) is None
    assert wheel.slot(NOW + SLOTS * 1000) is None
    assert FILE_SIZE == 38_707_200


def test_the_next_slot_with_something_in_it_is_found_also_round_the_end() -> None:
    wheel = TimerWheel(MemoryDisk(), "/wheel", 1000)
    turn = NOW - NOW % (SLOTS * 1000) + SLOTS * 1000
    for time in (turn - 5000, turn + 7000):
        wheel.put(time, Slot(1, 1, 1))
    assert wheel.next_busy(turn - 9000, turn + 9000) == turn - 5000
    assert wheel.next_busy(turn - 4000, turn + 9000) == turn + 7000
    assert wheel.next_busy(turn - 4000, turn + 7000) == turn + 7000
    assert wheel.next_busy(turn + 8000, turn + 9000) == turn + 9000


@pytest.mark.parametrize("waits", [False, True])
def test_a_clock_that_jumps_by_a_century_makes_the_wheel_turn_twice_at_most(
    monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    wheel = TimerWheel(MemoryDisk(), "/wheel", 1000)
    wheel.put(NOW, Slot(1, 1, 1))
    century = 120 * 365 * 86_400_000
    # Set ahead by a month, the clock let a message wait for a time that a jump from before passes.
    ahead = NOW + 40 * 86_400_000
    if waits:
        wheel.put(ahead, Slot(2, 2, 1))
    looked_at = 0
    arange = np.arange

    def counted(start: int, stop: int, **more: Any) -> Any:
        nonlocal looked_at
        looked_at += stop - start
        return arange(start, stop, **more)

    monkeypatch.setattr(np, "arange", counted)
    assert wheel.next_busy(NOW, NOW + century) == NOW
    assert wheel.next_busy(NOW + 1000, NOW + century) == (ahead if waits else NOW + century)
    assert looked_at <= 2 * SLOTS


def test_many_slots_are_emptied_at_once() -> None:
    wheel = TimerWheel(MemoryDisk(), "/wheel", 1000)
    times = [NOW + second * 1000 for second in range(0, 3000, 7)]
    for time in times:
        wheel.put(time, Slot(1, 1, 1))
    wheel.take_unwritten()
    wheel.clear_between(times[10], times[-10])
    assert [time for time in times if wheel.slot(time) is not None] == times[:10] + times[-10:]
    other = TimerWheel(MemoryDisk(), "/wheel", 1000)
    for at, data in wheel.take_unwritten():
        other._slots[at : at + len(data)] = data
    assert [time for time in times[10:-10] if other.slot(time) is not None] == []


def test_what_waits_is_counted_by_time() -> None:
    wheel = TimerWheel(MemoryDisk(), "/wheel", 1000)
    for seconds, count in ((0, 3), (4, 5), (100, 7)):
        wheel.put(NOW + seconds * 1000, Slot(1, 1, count))
    assert wheel.waiting(NOW) == 15
    assert wheel.waiting(NOW + 1000) == 12
    assert wheel.waiting(NOW, NOW + 5000) == 8


def test_only_pages_that_changed_are_written() -> None:
    disk = MemoryDisk()
    wheel = TimerWheel(disk, "/wheel", 1000)
    wheel.put(NOW, Slot(1, 2, 3))
    wheel.put(NOW + 1000, Slot(4, 5, 6))
    pages = wheel.take_unwritten()
    assert len(pages) == 1
    wheel.write(pages)
    assert wheel.take_unwritten() == []
    found = TimerWheel(disk, "/wheel", 1000)
    assert found.load()
    assert (found.slot(NOW), found.slot(NOW + 1000)) == (Slot(1, 2, 3), Slot(4, 5, 6))


def test_pages_side_by_side_are_written_in_one_piece() -> None:
    wheel = TimerWheel(MemoryDisk(), "/wheel", 1000)
    slots = PAGE // SLOT_SIZE
    first = NOW // 1000 // slots * slots
    for page in (5, 1, 2, 0, 9):
        wheel.put((first + page * slots) * 1000, Slot(page, page, 1))
    pages = wheel.take_unwritten()
    start = first % SLOTS * SLOT_SIZE
    assert [(at - start, len(data)) for at, data in pages] == [(0, 3 * PAGE), (5 * PAGE, PAGE), (9 * PAGE, PAGE)]
    wheel.give_back_unwritten(pages)
    assert wheel.take_unwritten() == pages


def test_a_wheel_of_another_size_is_refused() -> None:
    disk = MemoryDisk()
    disk.write("/wheel", b"x")
    with pytest.raises(StoreDamagedError, match="a timer wheel has 38707200"):
        TimerWheel(disk, "/wheel", 1000).load()


# Opening after all kinds of exits


def test_what_was_saved_is_found_again() -> None:
    disk = MemoryDisk()
    files = open_files(disk)
    add(files, 200)
    save(files, queue_offset=200, read_time_ms=NOW)
    again = open_files(disk)
    assert again.log.end == files.log.end
    assert chain(again) == [number * 100 for number in reversed(range(200))]
    assert again.wheel.slot(NOW + 5000) == files.wheel.slot(NOW + 5000)


@pytest.mark.parametrize(("counter", "place"), [(0, 300), (7, FAR)])
def test_entries_after_the_checkpoint_are_removed(counter: int, place: int) -> None:
    """Where that begins is known from the queue, or from a checkpoint that was written here."""
    disk = MemoryDisk()
    files = open_files(disk)
    add(files, 3)
    save(files, queue_offset=3, version_counter=counter, own_counter=counter)
    saved = files.log.end
    add(files, 2, first=3)
    add(files, 1, first=5, due=NOW + 9000)
    unsaved = files.take_unsaved(TimerCheckpoint())
    for file in unsaved.log_files:
        file.sync()
    files.wheel.write(unsaved.wheel_pages)  # and then the process was killed

    again = open_files(disk.kill(), place=place)
    assert again.log.end == saved
    assert again.wheel.slot(NOW + 5000) == Slot(0, 104, 3)
    assert again.wheel.slot(NOW + 9000) is None
    assert again.log.unit(saved) is None
    assert not again.is_damaged
    add(again, 2, first=3)
    assert chain(again) == [400, 300, 200, 100, 0]


def test_units_that_apache_had_not_put_into_its_wheel_are_put_there() -> None:
    """Its checkpoint names an end of the log that is a second behind."""
    disk = MemoryDisk()
    files = open_files(disk)
    add(files, 3)
    save(files, queue_offset=3)
    early = files.log.end
    add(files, 2, first=3)
    add(files, 1, first=3, magic=DEFAULT | DELETE)
    for file in files.log.take_unsynced():
        file.sync()
    TimerCheckpoint(queue_offset=6, log_end=early).store(disk, "/store/config/timercheck")

    again = open_files(disk, place=600)
    assert again.wheel.slot(NOW + 5000) == Slot(0, files.log.end - UNIT_SIZE, 4)
    assert len(chain(again)) == 6


def test_a_missing_wheel_is_rebuilt_from_the_log() -> None:
    disk = MemoryDisk()
    files = open_files(disk)
    for number in range(300):
        add(files, first=number, due=NOW + number % 7 * 1000)
    save(files, queue_offset=300, read_time_ms=NOW + 2000)
    disk.remove("/store/timerwheel")

    again = open_files(disk)
    for slot in range(7):
        time = NOW + slot * 1000
        assert again.wheel.slot(time) == (None if slot < 2 else files.wheel.slot(time))
    assert again.wheel.waiting(NOW) == sum(number % 7 >= 2 for number in range(300))


def test_a_log_that_is_shorter_than_it_should_be_is_noticed() -> None:
    disk = MemoryDisk()
    files = open_files(disk)
    add(files, 100)
    save(files, queue_offset=100)
    files.close()
    disk.zero("/store/timerlog/00000000000000000000", 20 * UNIT_SIZE)
    disk.remove("/store/timerlog/00000000000000004096")

    again = open_files(disk)
    assert again.is_damaged
    assert again.log.end == 20 * UNIT_SIZE
    assert again.wheel.slot(NOW + 5000) == Slot(0, 19 * UNIT_SIZE, 20)


def test_a_torn_unit_ends_the_log() -> None:
    disk = MemoryDisk()
    files = open_files(disk)
    add(files, 40)
    save(files, queue_offset=20)
    TimerCheckpoint(queue_offset=40, log_end=20 * UNIT_SIZE).store(disk, "/store/config/timercheck")
    files.close()
    disk.pwrite("/store/timerlog/00000000000000000000", 29 * UNIT_SIZE + 28, bytes(24))

    assert open_files(disk, place=4000).log.end == 29 * UNIT_SIZE


def test_units_of_lost_records_are_removed() -> None:
    disk = MemoryDisk()
    files = open_files(disk)
    add(files, 10)
    save(files, queue_offset=10)
    assert chain(open_files(disk, place=700)) == [600, 500, 400, 300, 200, 100, 0]


# A disk that fails


def test_after_a_failed_sync_of_the_log_nothing_is_saved() -> None:
    disk = MemoryDisk()
    files = open_files(disk)
    add(files, 3)
    save(files, queue_offset=3)
    add(files, 1, first=3)
    disk.fail("sync", path_contains="timerlog")
    for _ in range(2):
        with pytest.raises(FlushFailedError, match="restart the broker"):
            save(files, queue_offset=4)
    assert TimerCheckpoint.load(disk, "/store/config/timercheck").queue_offset == 3


@pytest.mark.parametrize("operation", ["pwrite", "create"])
def test_a_wheel_that_cannot_be_written_is_written_later(operation: str) -> None:
    disk = MemoryDisk()
    files = open_files(disk)
    add(files, 3)
    disk.fail(operation, path_contains="timerwheel")
    unsaved = files.take_unsaved(TimerCheckpoint(queue_offset=3))
    with pytest.raises(DiskFaultError):
        files.save(unsaved)
    files.give_back(unsaved)
    save(files, queue_offset=3)
    assert chain(open_files(disk.power_cut())) == [200, 100, 0]


def test_a_full_disk_refuses_a_message_and_changes_nothing() -> None:
    disk = MemoryDisk(capacity=16 * 4096)
    files = open_files(disk, file_size=1 << 20)
    with pytest.raises(DiskFaultError, match="free space"):
        add(files, 10_000)
    slot = files.wheel.slot(NOW + 5000)
    assert slot is not None
    assert 100 < slot.waiting == len(chain(files)) < 10_000
    disk.capacity = None
    add(files)
    assert len(chain(files)) == slot.waiting + 1


def test_unreadable_files_are_reported() -> None:
    disk = MemoryDisk()
    files = open_files(disk)
    add(files)
    save(files)
    disk.fail("pread", path_contains="timercheck")
    with pytest.raises(DiskFaultError, match="timer's files cannot be opened"):
        open_files(disk)


def test_ten_million_messages_take_no_memory_to_speak_of(tmp_path: Path) -> None:
    """What a message costs is in the files: nothing is kept for it but its slot's 32 bytes."""
    files = open_files(LocalDisk(), str(tmp_path), file_size=1 << 20)
    add(files, 30_000)
    sizes = np.array([len(vars(files.log)["_unsynced"]), len(files.wheel._dirty)])
    assert sizes.tolist() == [2, 1]
    files.close()
