"""What the virtual disk leaves after a power cut, a kill, or a crash in the middle of an operation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from orbitmq.testing import MemoryDisk, PowerCut

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE = 4096
SEEDS = range(60)


def written(data: bytes = b"old", path: str = "/d/file") -> MemoryDisk:
    """A disk with one durable file."""
    disk = MemoryDisk()
    disk.write(path, data)
    disk.sync(path)
    disk.sync_dir("/d")
    return disk


def contents(disk: MemoryDisk, path: str) -> bytes | None:
    return disk.read(path) if disk.stat(path) is not None else None


def outcomes(disk: MemoryDisk, path: str) -> set[bytes | None]:
    """What a file can be after the power was cut now."""
    return {contents(disk.power_cut(seed), path) for seed in SEEDS}


# Power cuts


def test_what_was_synced_survives() -> None:
    assert outcomes(written(b"synced"), "/d/file") == {b"synced"}


def test_many_files_and_directories_are_synced_in_one_call() -> None:
    disk = MemoryDisk()
    paths = ["/a/file", "/b/file", "/c/file"]
    for path in paths:
        disk.write(path, b"synced")
    before = disk.operations
    disk.sync_many(paths, ["/a", "/b", "/c"])
    assert disk.operations == before + 6
    for path in paths:
        assert outcomes(disk, path) == {b"synced"}


def test_a_file_whose_name_was_not_synced_may_vanish() -> None:
    disk = MemoryDisk()
    disk.write("/d/file", b"x")
    disk.sync("/d/file")
    assert outcomes(disk, "/d/file") == {None, b"x"}


def test_a_file_that_was_never_synced_is_empty_or_zeros_or_has_its_bytes() -> None:
    disk = MemoryDisk()
    disk.write("/d/file", b"x" * 10)
    disk.sync_dir("/d")
    assert outcomes(disk, "/d/file") == {b"", bytes(10), b"x" * 10}


def test_a_created_file_that_was_never_synced_has_its_size_or_none() -> None:
    disk = MemoryDisk()
    disk.create("/d/file", 100)
    disk.sync_dir("/d")
    assert outcomes(disk, "/d/file") == {b"", bytes(100)}


def test_a_replaced_file_is_old_or_empty_or_zeros_or_new() -> None:
    disk = written(b"the old version")
    disk.write("/d/file", b"new")
    assert outcomes(disk, "/d/file") == {b"the old version", b"", bytes(3), b"new"}


def test_a_file_replaced_by_zeros_is_zeros() -> None:
    disk = written(b"o" * PAGE * 3)
    disk.write("/d/file", bytes(PAGE * 2))
    assert disk.kill().read("/d/file") == bytes(PAGE * 2)
    assert outcomes(disk, "/d/file") == {b"o" * PAGE * 3, b"", bytes(PAGE * 2)}
    disk = disk.kill()
    assert outcomes(disk, "/d/file") == {b"o" * PAGE * 3, b"", bytes(PAGE * 2)}
    disk = disk.kill()
    disk.sync("/d/file")
    assert disk.durable_bytes("/d/file") == bytes(PAGE * 2)
    assert outcomes(disk, "/d/file") == {bytes(PAGE * 2)}


def test_unsynced_pages_survive_each_for_itself_and_may_be_torn() -> None:
    disk = written(b"o" * PAGE * 4)
    disk.pwrite("/d/file", 0, b"n" * PAGE * 4)
    found = [after for after in outcomes(disk, "/d/file") if after is not None]
    pages = {tuple(after[at : at + PAGE] for at in range(0, len(after), PAGE)) for after in found}
    old, new = b"o" * PAGE, b"n" * PAGE
    assert (old, old, old, old) in pages
    assert (new, new, new, new) in pages
    # A later page without an earlier one: write-back has no order.
    assert any(old in after and new in after[after.index(old) :] for after in pages)
    torn = {page for after in pages for page in after} - {old, new}
    assert torn
    for page in torn:
        sectors = {page[at : at + 512] for at in range(0, PAGE, 512)}
        assert sectors == {b"o" * 512, b"n" * 512}


def test_only_the_pages_that_changed_are_in_danger() -> None:
    disk = written(b"o" * PAGE * 40)
    disk.pwrite("/d/file", PAGE * 20, b"n" * 10)
    for after in outcomes(disk, "/d/file"):
        assert after is not None
        assert after[: PAGE * 20] == b"o" * PAGE * 20
        assert after[PAGE * 20 + 10 :] == b"o" * (PAGE * 20 - 10)


def test_stores_through_a_map_are_found() -> None:
    disk = written(bytes(PAGE * 40))
    mapped = disk.map("/d/file")
    mapped.buffer[PAGE * 30 : PAGE * 30 + 6] = b"synced"
    mapped.sync()
    mapped.buffer[5:8] = b"not"
    synced = bytes(PAGE * 30) + b"synced" + bytes(PAGE * 10 - 6)
    assert disk.durable_bytes("/d/file") == synced
    assert outcomes(disk, "/d/file") == {synced, b"\0\0\0\0\0not" + synced[8:]}


def test_growth_that_was_not_synced_may_be_lost() -> None:
    disk = written(b"old")
    disk.pwrite("/d/file", 3, b"new")
    assert outcomes(disk, "/d/file") == {b"old", b"old\0\0\0", b"oldnew"}


def test_a_rename_is_all_or_nothing() -> None:
    disk = written(b"old")
    disk.write("/d/file.tmp", b"new")
    disk.sync("/d/file.tmp")
    disk.rename("/d/file.tmp", "/d/file")
    seen = set()
    for seed in SEEDS:
        after = disk.power_cut(seed)
        seen.add((contents(after, "/d/file"), contents(after, "/d/file.tmp")))
    assert seen == {(b"old", None), (b"old", b"new"), (b"new", None)}


def test_renaming_without_syncing_the_contents_can_leave_an_empty_file() -> None:
    disk = written(b"old")
    disk.write("/d/file.tmp", b"new")
    disk.rename("/d/file.tmp", "/d/file")
    disk.sync_dir("/d")
    assert outcomes(disk, "/d/file") == {b"", bytes(3), b"new"}


def test_the_usual_way_to_replace_a_file_is_safe() -> None:
    disk = written(b"old")
    disk.write("/d/file.tmp", b"new")
    disk.sync("/d/file.tmp")
    disk.rename("/d/file.tmp", "/d/file")
    assert outcomes(disk, "/d/file") == {b"old", b"new"}
    disk = disk.kill()
    disk.sync_dir("/d")
    assert outcomes(disk, "/d/file") == {b"new"}


def test_a_removed_file_may_come_back_until_its_directory_is_synced() -> None:
    disk = written(b"old")
    disk.remove("/d/file")
    assert outcomes(disk, "/d/file") == {None, b"old"}
    disk = disk.kill()
    disk.sync_dir("/d")
    assert outcomes(disk, "/d/file") == {None}


def test_a_moved_file_is_never_lost_in_a_directory_that_was_not_made() -> None:
    disk = written(b"x")
    disk.create("/new/other", 1)
    disk.rename("/d/file", "/new/file")
    synced = disk.kill()
    synced.sync_dir("/d")
    for seed in SEEDS:
        after = disk.power_cut(seed)
        assert sorted([contents(after, "/d/file") or b"", contents(after, "/new/file") or b""]) == [b"", b"x"]
    assert outcomes(synced, "/new/file") == {b"x"}


def test_a_file_that_takes_the_name_of_one_moved_away_does_not_push_it_out() -> None:
    disk = written(b"old")
    disk.rename("/d/file", "/d/moved")
    disk.write("/d/file", b"new")
    disk.sync("/d/file")
    seen = set()
    for seed in SEEDS:
        after = disk.power_cut(seed)
        seen.add((contents(after, "/d/file"), contents(after, "/d/moved")))
    assert seen == {(b"old", None), (None, b"old"), (b"new", b"old")}


def test_a_directory_is_not_gone_while_something_is_in_it() -> None:
    disk = written(b"x")
    disk.remove("/d/file")
    disk.remove("/d")
    cuts = [disk.power_cut(seed) for seed in SEEDS]
    assert {(*after.list("/"), *after.list("/d")) for after in cuts} == {("d", "file"), ("d",), ()}


def test_a_file_is_not_lost_with_the_directory_it_was_moved_out_of() -> None:
    disk = written(b"x")
    disk.write("/e/other", b"")
    disk.sync_dir("/e")
    disk.rename("/d/file", "/e/file")
    disk.remove("/d")
    synced = disk.kill()
    synced.sync_dir("/")
    for seed in SEEDS:
        after = disk.power_cut(seed)
        assert sorted([contents(after, "/d/file") or b"", contents(after, "/e/file") or b""]) == [b"", b"x"]
    assert outcomes(synced, "/e/file") == {b"x"}


def test_what_is_new_in_a_moved_directory_is_found_under_the_old_or_the_new_name() -> None:
    disk = written(b"x")
    disk.rename("/d", "/e")
    disk.write("/e/new", b"y")
    disk.sync("/e/new")
    seen = set()
    for seed in SEEDS:
        after = disk.power_cut(seed)
        seen.add((contents(after, "/d/new"), contents(after, "/e/new"), *after.list("/")))
    assert seen == {(None, None, "d"), (b"y", None, "d"), (None, None, "e"), (None, b"y", "e")}
    disk = disk.kill()
    disk.sync_dir("/e")
    assert outcomes(disk, "/e/new") == {b"y"}


def test_syncing_a_directory_makes_durable_that_the_one_around_it_was_moved() -> None:
    disk = MemoryDisk()
    disk.write("/d/below/file", b"x")
    disk.sync("/d/below/file")
    disk.sync_dir("/d/below")
    disk.rename("/d", "/e")
    disk.sync_dir("/e/below")
    assert outcomes(disk, "/e/below/file") == {b"x"}


def test_syncing_a_directory_makes_it_reachable() -> None:
    disk = MemoryDisk()
    disk.write("/a/b/c/file", b"x")
    disk.sync("/a/b/c/file")
    disk.sync_dir("/a/b/c")
    assert outcomes(disk, "/a/b/c/file") == {b"x"}


def test_syncing_a_directory_does_not_sync_another() -> None:
    disk = MemoryDisk()
    disk.write("/a/file", b"x")
    disk.write("/b/file", b"x")
    disk.sync("/b/file")
    disk.sync_dir("/a")
    assert outcomes(disk, "/b/file") == {None, b"x"}


def test_the_same_seed_gives_the_same_disk() -> None:
    def after(seed: int) -> list[bytes | None]:
        disk = MemoryDisk(seed)
        for number in range(20):
            disk.write(f"/d/{number}", bytes([number + 1]) * 9000)
        cut = disk.power_cut()
        return [contents(cut, f"/d/{number}") for number in range(20)]

    assert after(7) == after(7)
    assert any(after(7) != after(seed) for seed in SEEDS)


def test_everything_found_after_a_power_cut_is_durable() -> None:
    disk = MemoryDisk()
    for number in range(9):
        disk.write(f"/d/{number}", b"x" * 9000)
    after = disk.power_cut(3)
    found = {name: after.read(f"/d/{name}") for name in after.list("/d")}
    again = after.power_cut(4)
    assert {name: again.read(f"/d/{name}") for name in again.list("/d")} == found


def test_the_dead_do_nothing() -> None:
    disk = written(b"old")
    disk.write("/d/empty", b"")
    mapped, release = disk.map("/d/file"), disk.lock("/d/lock")
    after = disk.power_cut(0)
    calls: tuple[Callable[[], object], ...] = (
        lambda: disk.read("/d/file"),
        lambda: disk.pwrite("/d/file", 0, b"x"),
        lambda: disk.sync("/d/file"),
        lambda: disk.sync("/d/missing"),
        lambda: disk.zero("/d/missing", 0),
        lambda: disk.list("/"),
        mapped.sync,
        lambda: mapped.reserve(0, 1),
    )
    for call in calls:
        with pytest.raises(PowerCut):
            call()
    piece = memoryview(mapped.buffer)
    piece[:] = b"new"
    mapped.close()
    release()
    assert after.read("/d/file") == b"old"
    assert outcomes(disk, "/d/file") == {b"old"}


def test_locks_do_not_survive() -> None:
    disk = MemoryDisk()
    disk.lock("/d/lock")
    killed = disk.kill()
    first = killed.lock("/d/lock")
    with pytest.raises(OSError):
        killed.lock("/d/lock")
    assert killed.power_cut().lock("/d/lock") is not first


def test_files_that_a_power_cut_may_bring_back_are_as_they_were_when_it_came() -> None:
    disk = written(b"old")
    disk.write("/d/new", b"old")
    pieces = [memoryview(disk.map(path).buffer) for path in ("/d/file", "/d/new")]
    disk.remove("/d/file")
    disk.remove("/d/new")
    disk.power_cut(0)
    for piece in pieces:
        piece[:] = b"bad"
    assert outcomes(disk, "/d/file") == {None, b"old"}
    assert outcomes(disk, "/d/new") == {None, b"", bytes(3), b"old"}


# Kills


def test_a_kill_loses_nothing_and_makes_nothing_durable() -> None:
    disk = written(b"o" * 9000)
    mapped = disk.map("/d/file")
    mapped.buffer[5000:5003] = b"map"
    disk.write("/d/other", b"x")
    after = disk.kill()
    assert after.read("/d/file") == b"o" * 5000 + b"map" + b"o" * 3997
    assert after.read("/d/other") == b"x"
    assert after.durable_bytes("/d/file") == b"o" * 9000
    assert after.durable_bytes("/d/other") is None
    assert outcomes(after, "/d/other") > {None, b"x"}


def test_a_kill_detaches_maps() -> None:
    disk = written(b"old")
    piece = memoryview(disk.map("/d/file").buffer)
    after = disk.kill()
    piece[:] = b"new"
    assert after.read("/d/file") == b"old"
    after.write("/d/file", b"replaced, which an open map would forbid")


# Crashes in the middle


def replace_a_file(disk: MemoryDisk) -> None:
    disk.write("/d/file.tmp", b"new")
    disk.sync("/d/file.tmp")
    disk.rename("/d/file.tmp", "/d/file")
    disk.sync_dir("/d")


def test_power_can_be_cut_in_every_operation() -> None:
    disk = written(b"old")
    before = disk.operations
    replace_a_file(disk)
    count = disk.operations - before
    assert count == 4
    for number in range(count):
        disk = written(b"old")
        disk.crash_after(number)
        with pytest.raises(PowerCut):
            replace_a_file(disk)
        assert disk.operations == before + number
        for seed in SEEDS:
            assert contents(disk.power_cut(seed), "/d/file") in (b"old", b"new")
        with pytest.raises(PowerCut):
            disk.stat("/d/file")
    disk = written(b"old")
    disk.crash_after(count)
    replace_a_file(disk)


def test_reading_is_not_counted() -> None:
    disk = written()
    disk.crash_after(0)
    disk.read("/d/file")
    disk.stat("/d/file")
    disk.map("/d/file").close()
    disk.space("/")
    assert disk.list("/d") == ["file"]


def test_the_interrupted_write_is_done_in_part_or_not_at_all() -> None:
    seen = set()
    for seed in SEEDS:
        disk = MemoryDisk(seed)
        disk.write("/d/file", b"old")
        disk.crash_after(0)
        with pytest.raises(PowerCut):
            disk.write("/d/file", b"1234")
        seen.add(disk.kill().read("/d/file"))
    assert seen == {b"old", b"", b"1", b"12", b"123", b"1234"}


def test_no_handler_of_exceptions_hides_a_power_cut() -> None:
    assert not issubclass(PowerCut, Exception)
