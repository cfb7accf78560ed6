"""What the virtual disk refuses on request: failing calls, no space, a read-only disk; and what it objects to."""

from __future__ import annotations

import errno
import threading
from typing import TYPE_CHECKING

import pytest

from orbitmq.platform.disk import Space
from orbitmq.testing import BrokenMapError, ManualClock, MemoryDisk, UnreservedStoreError

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE = 4096
SEEDS = range(60)


def written(data: bytes = b"old") -> MemoryDisk:
    """A disk with one durable file."""
    disk = MemoryDisk()
    disk.write("/d/file", data)
    disk.sync("/d/file")
    disk.sync_dir("/d")
    return disk


def test_injected_errors_occur_as_often_as_requested() -> None:
    disk = written()
    disk.fail("pread", after=1, times=2, error=errno.EIO, path_contains="file")
    disk.pread("/d/other", 0, 1)
    assert disk.pread("/d/file", 0, 3) == b"old"
    for _ in range(2):
        with pytest.raises(OSError) as refused:
            disk.pread("/d/file", 0, 3)
        assert refused.value.errno == errno.EIO
        assert refused.value.filename == "/d/file"
    assert disk.pread("/d/file", 0, 3) == b"old"


def test_every_operation_can_fail() -> None:
    disk = written(bytes(10))
    mapped = disk.map("/d/file")
    calls: dict[str, Callable[[], object]] = {
        "list": lambda: disk.list("/d"),
        "stat": lambda: disk.stat("/d/file"),
        "read": lambda: disk.read("/d/file"),
        "write": lambda: disk.write("/d/other", b"x"),
        "create": lambda: disk.create("/d/new", 1),
        "pread": lambda: disk.pread("/d/file", 0, 1),
        "pwrite": lambda: disk.pwrite("/d/file", 0, b"x"),
        "zero": lambda: disk.zero("/d/file", 0),
        "map": lambda: disk.map("/d/file"),
        "sync": mapped.sync,
        "reserve": lambda: mapped.reserve(0, 1),
        "sync_dir": lambda: disk.sync_dir("/d"),
        "rename": lambda: disk.rename("/d/file", "/d/moved"),
        "remove": lambda: disk.remove("/d/file"),
        "space": lambda: disk.space("/d"),
        "lock": lambda: disk.lock("/d/lock"),
    }
    for operation, call in calls.items():
        disk.fail(operation, error=errno.EACCES)
        with pytest.raises(PermissionError):
            call()
    assert disk.list("/d") == ["file"]


def test_an_unknown_operation_cannot_fail() -> None:
    with pytest.raises(ValueError, match="no operation 'fsync'"):
        MemoryDisk().fail("fsync")


def test_impossible_faults_are_refused() -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        MemoryDisk().short_writes(1.5)
    with pytest.raises(ValueError, match="calls to come"):
        MemoryDisk().crash_after(-1)
    with pytest.raises(ValueError, match="multiple of the sector"):
        MemoryDisk(page_size=1000)


def test_faults_can_be_cancelled() -> None:
    disk = written()
    disk.fail("read")
    disk.crash_after(0)
    disk.short_writes(1.0)
    disk.read_only = True
    disk.heal()
    assert disk.read("/d/file") == b"old"
    assert disk.pwrite("/d/file", 0, b"new") == 3


def test_a_failed_sync_loses_its_pages_for_good() -> None:
    disk = written(bytes(PAGE * 3))
    mapped = disk.map("/d/file")
    mapped.buffer[0:4] = b"lost"
    disk.fail("sync")
    with pytest.raises(OSError):
        mapped.sync()
    assert disk.pread("/d/file", 0, 4) == b"lost"
    mapped.buffer[PAGE : PAGE + 5] = b"after"
    mapped.sync()
    disk.sync("/d/file")
    # The sync that succeeded covered the later page and said nothing of the earlier one.
    assert disk.durable_bytes("/d/file") == bytes(PAGE) + b"after" + bytes(PAGE * 2 - 5)
    lost = bytes(PAGE) + b"after" + bytes(PAGE * 2 - 5)
    assert {disk.power_cut(seed).read("/d/file") for seed in SEEDS} == {lost, b"lost" + lost[4:]}


def test_a_lost_page_is_written_when_it_is_changed_again() -> None:
    disk = written(bytes(PAGE))
    mapped = disk.map("/d/file")
    mapped.buffer[0:4] = b"lost"
    disk.fail("sync")
    with pytest.raises(OSError):
        mapped.sync()
    mapped.buffer[100:105] = b"again"
    mapped.sync()
    assert disk.durable_bytes("/d/file") == b"lost" + bytes(96) + b"again" + bytes(PAGE - 105)


def test_writing_a_lost_page_again_revives_it_even_with_the_same_bytes() -> None:
    disk = written(bytes(10))
    disk.pwrite("/d/file", 0, b"lost")
    disk.fail("sync")
    with pytest.raises(OSError):
        disk.sync("/d/file")
    disk.pwrite("/d/file", 0, b"lost")
    disk.sync("/d/file")
    assert disk.durable_bytes("/d/file") == b"lost" + bytes(6)


def test_pages_lost_to_a_failed_sync_stay_lost_through_a_kill() -> None:
    disk = written(bytes(10))
    disk.pwrite("/d/file", 0, b"lost")
    disk.fail("sync")
    with pytest.raises(OSError):
        disk.sync("/d/file")
    after = disk.kill()
    after.sync("/d/file")
    assert after.read("/d/file") == b"lost" + bytes(6)
    assert after.durable_bytes("/d/file") == bytes(10)


def test_a_failed_write_may_have_destroyed_the_file() -> None:
    seen = set()
    for seed in SEEDS:
        disk = MemoryDisk(seed)
        disk.write("/d/file", b"old")
        disk.fail("write", error=errno.ENOSPC)
        with pytest.raises(OSError):
            disk.write("/d/file", b"12")
        seen.add(disk.read("/d/file"))
    assert seen == {b"old", b"", b"1", b"12"}


def test_short_writes_take_a_part_and_at_least_a_byte() -> None:
    disk = written(bytes(100))
    disk.short_writes(1.0)
    counts = [disk.pwrite("/d/file", 0, b"x" * 100) for _ in SEEDS]
    assert all(1 <= count < 100 for count in counts)
    assert disk.pwrite("/d/file", 0, b"x") == 1


def test_a_read_only_disk_refuses_changes_and_still_reads() -> None:
    disk = written()
    disk.read_only = True
    changes: tuple[Callable[[], object], ...] = (
        lambda: disk.create("/d/new", 1),
        lambda: disk.write("/d/new", b"x"),
        lambda: disk.pwrite("/d/file", 0, b"x"),
        lambda: disk.zero("/d/file", 0),
        lambda: disk.rename("/d/file", "/d/new"),
        lambda: disk.remove("/d/file"),
        lambda: disk.lock("/d/lock"),
        lambda: disk.map("/d/file"),
    )
    for change in changes:
        with pytest.raises(OSError) as refused:
            change()
        assert refused.value.errno == errno.EROFS
    assert bytes(disk.map("/d/file", writable=False).buffer[:]) == b"old"
    disk.sync("/d/file")


def test_a_disk_that_turns_read_only_does_not_sync_what_was_stored_before() -> None:
    disk = written()
    disk.pwrite("/d/file", 0, b"new")
    disk.read_only = True
    with pytest.raises(OSError) as refused:
        disk.sync("/d/file")
    assert refused.value.errno == errno.EROFS
    assert disk.durable_bytes("/d/file") == b"old"


# Space


def test_a_full_disk_refuses_to_reserve_until_something_is_deleted() -> None:
    disk = MemoryDisk(capacity=PAGE * 4)
    disk.create("/d/file", PAGE * 100)
    disk.write("/d/other", b"x")
    assert disk.space("/d") == Space(PAGE * 4, PAGE, PAGE * 3)
    mapped = disk.map("/d/file")
    mapped.reserve(1, PAGE * 2)
    mapped.reserve(0, PAGE * 2)
    with pytest.raises(OSError) as refused:
        mapped.reserve(PAGE * 2, PAGE * 4)
    assert refused.value.errno == errno.ENOSPC
    assert disk.space("/d") == Space(PAGE * 4, PAGE * 3, PAGE)
    disk.remove("/d/other")
    mapped.reserve(PAGE * 2, PAGE * 4)
    assert disk.space("/d").ratio == 1.0


def test_a_removed_file_takes_room_until_its_map_is_closed() -> None:
    disk = MemoryDisk(capacity=PAGE)
    disk.write("/d/file", b"x")
    mapped = disk.map("/d/file")
    disk.remove("/d/file")
    assert disk.space("/").used == PAGE
    mapped.close()
    assert disk.space("/").used == 0


def test_a_rename_frees_the_file_it_replaces() -> None:
    disk = MemoryDisk(capacity=PAGE * 2)
    disk.write("/d/a", b"x")
    disk.write("/d/b", b"x")
    disk.rename("/d/a", "/d/b")
    assert disk.space("/").used == PAGE
    disk.rename("/d/b", "/d/b")
    assert disk.space("/").used == PAGE


def test_writes_stop_where_the_disk_is_full() -> None:
    disk = MemoryDisk(capacity=PAGE * 2)
    disk.create("/d/file", PAGE * 4)
    assert disk.pwrite("/d/file", 10, b"x" * PAGE * 3) == PAGE * 2 - 10
    with pytest.raises(OSError) as refused:
        disk.pwrite("/d/file", PAGE * 2, b"x")
    assert refused.value.errno == errno.ENOSPC
    assert disk.pwrite("/d/file", 0, b"over what has room already") == 26


def test_a_whole_file_that_does_not_fit_is_left_cut_off() -> None:
    disk = MemoryDisk(capacity=PAGE)
    disk.write("/d/file", b"old")
    with pytest.raises(OSError) as refused:
        disk.write("/d/file", b"x" * PAGE * 2)
    assert refused.value.errno == errno.ENOSPC
    assert disk.read("/d/file") == b"x" * PAGE
    disk.write("/d/file", b"fits")
    assert disk.space("/").used == PAGE


def test_unsynced_reservations_survive_a_kill_but_not_a_power_cut() -> None:
    disk = written(bytes(PAGE * 4))
    disk.map("/d/file").close()
    disk.create("/d/sparse", PAGE * 9)
    disk.sync("/d/sparse")
    disk.sync_dir("/d")
    mapped = disk.map("/d/sparse")
    mapped.reserve(0, PAGE * 9)
    assert disk.kill().space("/").used == PAGE * 13
    assert disk.power_cut(0).space("/").used == PAGE * 4


def test_a_replaced_file_takes_the_room_of_what_is_left_of_it() -> None:
    disk = written(b"o" * PAGE * 4)
    disk.write("/d/file", b"new")
    cuts = [disk.power_cut(seed) for seed in SEEDS]
    assert {(after.read("/d/file"), after.space("/").used) for after in cuts} == {
        (b"o" * PAGE * 4, PAGE * 4),
        (b"", 0),
        (bytes(3), 0),
        (bytes(3), PAGE),  # torn, with every sector old
        (b"new", PAGE),
    }


def test_a_store_into_a_hole_is_found_at_the_next_sync() -> None:
    disk = MemoryDisk()
    disk.create("/d/file", PAGE * 100)
    mapped = disk.map("/d/file")
    mapped.reserve(0, PAGE)
    mapped.buffer[: PAGE + 1] = b"x" * (PAGE + 1)
    with pytest.raises(UnreservedStoreError, match="page 1 "):
        mapped.sync()
    with pytest.raises(UnreservedStoreError):
        disk.sync("/d/file")
    with pytest.raises(UnreservedStoreError):
        disk.power_cut()
    with pytest.raises(UnreservedStoreError):
        disk.kill()


def test_a_store_into_a_hole_can_be_allowed() -> None:
    disk = MemoryDisk(check_reservations=False)
    disk.create("/d/file", PAGE)
    mapped = disk.map("/d/file")
    mapped.buffer[0:1] = b"x"
    mapped.sync()
    assert disk.durable_bytes("/d/file") == b"x" + bytes(PAGE - 1)
    assert disk.space("/").used == PAGE


def test_the_size_of_a_mapped_file_is_fixed() -> None:
    disk = written(b"old")
    mapped = disk.map("/d/file")
    changes: tuple[Callable[[], object], ...] = (
        lambda: disk.write("/d/file", b"x"),
        lambda: disk.pwrite("/d/file", 3, b"x"),
        lambda: disk.create("/d/file", 4),
    )
    for change in changes:
        with pytest.raises(BrokenMapError):
            change()
    assert disk.read("/d/file") == b"old"
    mapped.close()
    disk.pwrite("/d/file", 3, b"er")
    assert disk.read("/d/file") == b"older"


def test_a_large_sparse_file_is_synced_and_cut_without_being_filled() -> None:
    disk = MemoryDisk()
    disk.create("/d/file", 1 << 30)
    mapped = disk.map("/d/file")
    mapped.reserve(1 << 29, (1 << 29) + 1)
    mapped.buffer[1 << 29] = 7
    mapped.sync()
    disk.sync_dir("/d")
    after = disk.power_cut(1)
    assert after.pread("/d/file", 1 << 29, 2) == b"\7\0"
    assert after.space("/").used == PAGE


def test_syncing_works_from_other_threads() -> None:
    disk = written(bytes(PAGE * 20))
    mapped = disk.map("/d/file")
    threads = [threading.Thread(target=mapped.sync) for _ in range(4)]
    for number, thread in enumerate(threads):
        mapped.buffer[number * PAGE : number * PAGE + 1] = b"x"
        thread.start()
    for thread in threads:
        thread.join()
    mapped.sync()
    assert disk.durable_bytes("/d/file") == disk.read("/d/file")


def test_files_are_modified_at_the_time_of_the_clock() -> None:
    clock = ManualClock(1000)
    disk = MemoryDisk(clock=clock)

    def mtime() -> int:
        found = disk.stat("/d/file")
        assert found is not None
        return found.mtime_ms

    disk.create("/d/file", PAGE)
    mapped = disk.map("/d/file")
    mapped.reserve(0, PAGE)
    times = [mtime()]
    clock.advance(1)
    disk.pwrite("/d/file", 0, b"x")
    times.append(mtime())
    mapped.sync()
    clock.advance(1)
    mapped.sync()
    times.append(mtime())
    mapped.buffer[1:2] = b"y"
    mapped.sync()
    times.append(mtime())
    assert times == [1000, 1001, 1001, 1002]
