"""The contract of a disk, kept by this machine's and by the virtual one."""

from __future__ import annotations

import dataclasses
import errno
import os
from typing import TYPE_CHECKING

import pytest

from orbitmq.platform.disk import Disk, MappedFile, Space
from orbitmq.platform.local_disk import LocalDisk
from orbitmq.testing import MemoryDisk

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Iterator


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """A disk and an empty directory on it."""

    disk: Disk
    root: str

    def at(self, name: str) -> str:
        return os.path.join(self.root, name)


@pytest.fixture(params=["local", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Iterator[Place]:
    if request.param == "memory":
        yield Place(MemoryDisk(), "/somewhere")
        return
    disk = LocalDisk()
    yield Place(disk, str(tmp_path))
    disk.close()


def test_names_are_listed_in_order(place: Place) -> None:
    for name in ("b", "a", "10", "9", "d/below"):
        place.disk.create(place.at(name), 1)
    assert place.disk.list(place.root) == ["10", "9", "a", "b", "d"]


def test_a_missing_directory_lists_as_empty_and_so_does_a_file(place: Place) -> None:
    place.disk.create(place.at("file"), 1)
    assert place.disk.list(place.at("missing")) == []
    assert place.disk.list(place.at("file")) == []
    assert place.disk.list(place.at("file/below")) == []


def test_stat_tells_files_from_directories_and_from_nothing(place: Place) -> None:
    place.disk.create(place.at("d/file"), 70_000)
    file, directory = place.disk.stat(place.at("d/file")), place.disk.stat(place.at("d"))
    assert file is not None
    assert (file.size, file.is_dir) == (70_000, False)
    assert directory is not None
    assert directory.is_dir
    assert place.disk.stat(place.at("missing")) is None
    assert place.disk.stat(place.at("d/file/below")) is None


def test_a_written_file_is_read_back_and_replaced_whole(place: Place) -> None:
    path = place.at("config/topics.json")
    place.disk.write(path, b"a long first version")
    place.disk.write(path, b"second")
    assert place.disk.read(path) == b"second"
    place.disk.write(path, b"")
    assert place.disk.read(path) == b""


def test_reading_a_missing_file_whole_is_an_error(place: Place) -> None:
    with pytest.raises(FileNotFoundError):
        place.disk.read(place.at("missing"))


def test_a_created_file_is_all_zeros(place: Place) -> None:
    place.disk.create(place.at("file"), 10_000)
    assert place.disk.read(place.at("file")) == bytes(10_000)


def test_creating_keeps_what_is_there_and_only_adds_zeros(place: Place) -> None:
    path = place.at("file")
    place.disk.write(path, b"kept")
    place.disk.create(path, 2)
    assert place.disk.read(path) == b"kept"
    place.disk.create(path, 6)
    assert place.disk.read(path) == b"kept\0\0"


def test_a_directory_is_not_a_file(place: Place) -> None:
    place.disk.create(place.at("d/file"), 1)
    with pytest.raises(IsADirectoryError):
        place.disk.create(place.at("d"), 1)
    with pytest.raises(IsADirectoryError):
        place.disk.write(place.at("d"), b"x")
    with pytest.raises(OSError):
        place.disk.create(place.at("d/file/below"), 1)


def test_pread_is_short_at_the_end_and_empty_past_it(place: Place) -> None:
    path = place.at("file")
    place.disk.write(path, b"0123456789")
    assert place.disk.pread(path, 2, 3) == b"234"
    assert place.disk.pread(path, 8, 100) == b"89"
    assert place.disk.pread(path, 10, 1) == b""
    assert place.disk.pread(path, 1000, 1) == b""


def test_pread_of_a_missing_file_is_empty(place: Place) -> None:
    place.disk.create(place.at("file"), 1)
    assert place.disk.pread(place.at("missing"), 0, 1) == b""
    assert place.disk.pread(place.at("file/below"), 0, 1) == b""


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_pwrite_takes_any_buffer_and_makes_the_file_longer(place: Place, kind: type[bytes]) -> None:
    path = place.at("file")
    place.disk.create(path, 4)
    assert place.disk.pwrite(path, 6, kind(b"tail")) == 4
    assert place.disk.read(path) == b"\0\0\0\0\0\0tail"
    assert place.disk.pwrite(path, 0, kind(b"")) == 0


def test_pwrite_does_not_create(place: Place) -> None:
    with pytest.raises(FileNotFoundError):
        place.disk.pwrite(place.at("missing"), 0, b"x")
    assert place.disk.stat(place.at("missing")) is None


def test_zero_wipes_from_a_byte_to_the_end_also_under_a_map(place: Place) -> None:
    path = place.at("file")
    place.disk.create(path, 300_000)
    place.disk.pwrite(path, 100, b"x" * 100_000)
    place.disk.pwrite(path, 299_990, b"y" * 10)
    mapped = place.disk.map(path)
    place.disk.zero(path, 150)
    assert place.disk.read(path) == bytes(100) + b"x" * 50 + bytes(299_850)
    assert bytes(mapped.buffer[:200]) == bytes(100) + b"x" * 50 + bytes(50)
    mapped.close()
    place.disk.zero(path, 300_000)
    with pytest.raises(FileNotFoundError):
        place.disk.zero(place.at("missing"), 0)


def test_rename_moves_a_file_and_replaces_another(place: Place) -> None:
    place.disk.write(place.at("new"), b"new")
    place.disk.write(place.at("old"), b"old")
    assert place.disk.pread(place.at("new"), 0, 9) == b"new"
    assert place.disk.pread(place.at("old"), 0, 9) == b"old"
    place.disk.rename(place.at("new"), place.at("old"))
    assert place.disk.list(place.root) == ["old"]
    assert place.disk.pread(place.at("old"), 0, 9) == b"new"
    assert place.disk.pread(place.at("new"), 0, 9) == b""


def test_rename_moves_a_directory_with_what_is_in_it(place: Place) -> None:
    place.disk.write(place.at("a/deep/file"), b"x")
    assert place.disk.pread(place.at("a/deep/file"), 0, 9) == b"x"
    place.disk.rename(place.at("a"), place.at("b"))
    assert place.disk.pread(place.at("b/deep/file"), 0, 9) == b"x"
    assert place.disk.pread(place.at("a/deep/file"), 0, 9) == b""


def test_rename_refuses_what_the_system_refuses(place: Place) -> None:
    place.disk.write(place.at("file"), b"")
    place.disk.write(place.at("d/inside"), b"")
    place.disk.write(place.at("e/inside"), b"")
    for source, target in (
        ("missing", "x"),
        ("file", "missing/x"),
        ("file", "d"),
        ("d", "file"),
        ("d", "e"),
        ("d", "d/below"),
    ):
        with pytest.raises(OSError):
            place.disk.rename(place.at(source), place.at(target))
    assert place.disk.list(place.root) == ["d", "e", "file"]


def test_renaming_something_to_itself_changes_nothing(place: Place) -> None:
    place.disk.write(place.at("d/file"), b"x")
    place.disk.rename(place.at("d/file"), place.at("d/file"))
    place.disk.rename(place.at("d"), place.at("d"))
    assert place.disk.read(place.at("d/file")) == b"x"


def test_remove_takes_files_and_empty_directories(place: Place) -> None:
    place.disk.write(place.at("d/file"), b"x")
    assert place.disk.pread(place.at("d/file"), 0, 1) == b"x"
    with pytest.raises(OSError) as refused:
        place.disk.remove(place.at("d"))
    assert refused.value.errno == errno.ENOTEMPTY
    place.disk.remove(place.at("d/file"))
    assert place.disk.pread(place.at("d/file"), 0, 1) == b""
    place.disk.remove(place.at("d"))
    assert place.disk.stat(place.at("d")) is None


def test_removing_what_is_not_there_is_no_error(place: Place) -> None:
    place.disk.write(place.at("file"), b"x")
    place.disk.remove(place.at("missing"))
    place.disk.remove(place.at("missing/below"))
    place.disk.remove(place.at("file/below"))
    assert place.disk.read(place.at("file")) == b"x"


def test_a_map_and_the_reads_and_writes_see_each_other(place: Place) -> None:
    path = place.at("file")
    place.disk.create(path, 10_000)
    mapped, other = place.disk.map(path), place.disk.map(path, writable=False)
    assert (mapped.path, mapped.size, len(mapped.buffer)) == (path, 10_000, 10_000)
    mapped.reserve(0, 10_000)
    mapped.buffer[5000:5003] = b"map"
    assert place.disk.pread(path, 5000, 3) == b"map"
    assert bytes(other.buffer[5000:5003]) == b"map"
    place.disk.pwrite(path, 9997, b"end")
    assert bytes(mapped.buffer[9997:]) == b"end"
    mapped.sync()
    place.disk.sync(path)
    place.disk.sync_dir(place.root)
    mapped.close()
    other.close()
    assert place.disk.read(path)[5000:5003] == b"map"


def test_advice_about_a_map_does_not_change_its_contents(place: Place) -> None:
    path = place.at("file")
    place.disk.create(path, 10_000)
    mapped = place.disk.map(path)
    mapped.reserve(5000, 10_000)
    mapped.buffer[5000:5003] = b"map"
    mapped.warm(4500, 10_000)
    mapped.warm(5000, 10_000, is_synced_often=True)
    mapped.expect_reading()
    mapped.reserve(0, 10_000)
    assert bytes(mapped.buffer[5000:5003]) == b"map"
    mapped.close()
    mapped.warm(0, 1)
    mapped.expect_reading()


def test_slices_of_a_map_live_on_after_close_and_remove(place: Place) -> None:
    path = place.at("file")
    place.disk.write(path, b"still here")
    mapped = place.disk.map(path)
    piece = memoryview(mapped.buffer)[6:]
    mapped.close()
    place.disk.remove(path)
    assert bytes(piece) == b"here"


def test_an_empty_file_maps_to_an_empty_buffer(place: Place) -> None:
    place.disk.create(place.at("file"), 0)
    mapped = place.disk.map(place.at("file"))
    assert (mapped.size, len(mapped.buffer)) == (0, 0)
    mapped.reserve(0, 0)
    mapped.sync()
    mapped.close()


def test_only_files_can_be_mapped(place: Place) -> None:
    place.disk.create(place.at("d/file"), 1)
    with pytest.raises(FileNotFoundError):
        place.disk.map(place.at("missing"))
    for writable in (True, False):
        with pytest.raises(OSError):
            place.disk.map(place.at("d"), writable=writable)


def test_a_map_of_a_removed_file_can_still_be_synced(place: Place) -> None:
    place.disk.create(place.at("file"), 10)
    mapped = place.disk.map(place.at("file"))
    place.disk.remove(place.at("file"))
    mapped.reserve(0, 10)
    mapped.buffer[0:1] = b"x"
    mapped.sync()
    assert bytes(mapped.buffer[0:2]) == b"x\0"
    assert place.disk.stat(place.at("file")) is None
    mapped.close()


@pytest.mark.parametrize(("start", "end"), [(-1, 5), (5, 4), (0, 11)])
def test_only_what_is_in_the_file_can_be_reserved(place: Place, start: int, end: int) -> None:
    place.disk.create(place.at("file"), 10)
    mapped = place.disk.map(place.at("file"))
    with pytest.raises(ValueError, match="not in a file of 10 bytes"):
        mapped.reserve(start, end)
    mapped.close()


def test_a_closed_map_can_do_nothing_but_close(place: Place) -> None:
    place.disk.create(place.at("file"), 10)
    mapped = place.disk.map(place.at("file"))
    mapped.close()
    mapped.close()
    actions = (mapped.sync, lambda: mapped.reserve(0, 1))
    for action in actions:
        with pytest.raises(OSError) as refused:
            action()
        assert refused.value.errno == errno.EBADF


def test_nothing_is_reserved_through_a_map_for_reading(place: Place) -> None:
    place.disk.create(place.at("file"), 10)
    mapped: MappedFile = place.disk.map(place.at("file"), writable=False)
    with pytest.raises(OSError):
        mapped.reserve(0, 1)
    mapped.close()


def test_what_is_missing_cannot_be_synced(place: Place) -> None:
    place.disk.create(place.at("file"), 1)
    with pytest.raises(FileNotFoundError):
        place.disk.sync(place.at("missing"))
    with pytest.raises(FileNotFoundError):
        place.disk.sync_many([place.at("file"), place.at("missing")], [place.root])
    with pytest.raises(FileNotFoundError):
        place.disk.sync_many([place.at("file")], [place.root, place.at("missing")])
    with pytest.raises(FileNotFoundError):
        place.disk.sync_dir(place.at("missing"))
    with pytest.raises(NotADirectoryError):
        place.disk.sync_dir(place.at("file"))


def test_a_lock_excludes_a_second_one_until_it_is_released(place: Place) -> None:
    path = place.at("store/lock")
    release = place.disk.lock(path)
    assert place.disk.read(path) == b"lock"
    with pytest.raises(BlockingIOError):
        place.disk.lock(path)
    release()
    place.disk.lock(path)()


def test_a_second_release_does_not_release_a_later_lock(place: Place) -> None:
    path = place.at("lock")
    first = place.disk.lock(path)
    first()
    second = place.disk.lock(path)
    first()
    with pytest.raises(BlockingIOError):
        place.disk.lock(path)
    second()


def test_space_is_reported_for_paths_that_do_not_exist_yet(place: Place) -> None:
    space = place.disk.space(place.at("not/there/yet"))
    assert 0 <= space.usable <= space.total
    assert space.used + space.usable <= space.total
    assert 0.0 <= space.ratio <= 1.0


@pytest.mark.parametrize(
    ("used", "usable", "ratio"),
    [(0, 100, 0.0), (1, 99, 0.01), (1, 100_000, 0.01), (899, 101, 0.9), (50, 0, 1.0), (0, 0, 1.0)],
)
def test_the_used_share_is_in_whole_per_cents_rounded_up(used: int, usable: int, ratio: float) -> None:
    assert Space(used + usable, used, usable).ratio == ratio
