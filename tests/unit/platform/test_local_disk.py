"""This machine's disk: what it keeps open, whom its lock excludes, and what a full or read-only one says."""

from __future__ import annotations

import errno
import os
import pathlib
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from orbitmq.platform.local_disk import SYNCFS_FROM, LocalDisk

if TYPE_CHECKING:
    from collections.abc import Iterator


def open_descriptors() -> set[str]:
    """What this process has open, by the path it was opened under."""
    links = []
    for name in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{name}"))
        except FileNotFoundError:
            continue  # the descriptor that listed the directory
    return set(links)


def test_reading_keeps_no_more_files_open_than_it_may(tmp_path: pathlib.Path) -> None:
    disk = LocalDisk(max_open_files=3)
    paths = [str(tmp_path / str(number)) for number in range(10)]
    for path in paths:
        disk.write(path, path.encode())
    for path in paths[:3] + paths[:1] + paths[3:5]:
        assert disk.pread(path, 0, 1000) == path.encode()
    assert open_descriptors() & set(paths) == {paths[0], paths[3], paths[4]}
    disk.close()
    assert not open_descriptors() & set(paths)


def test_at_least_one_file_may_be_open() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        LocalDisk(max_open_files=0)


def test_remove_and_rename_close_cached_descriptors(tmp_path: pathlib.Path) -> None:
    disk = LocalDisk()
    paths = [str(tmp_path / name) for name in ("removed", "source", "target", "d/below", "other")]
    for path in paths:
        disk.write(path, b"x")
        disk.pread(path, 0, 1)
    disk.remove(paths[0])
    disk.rename(paths[1], paths[2])
    disk.rename(str(tmp_path / "d"), str(tmp_path / "e"))
    left = {path for path in open_descriptors() if path.startswith(str(tmp_path))}
    assert left == {paths[4]}
    disk.close()


def test_a_forgotten_disk_closes_its_files(tmp_path: pathlib.Path) -> None:
    path = str(tmp_path / "file")
    disk = LocalDisk()
    disk.write(path, b"x")
    disk.pread(path, 0, 1)
    assert path in open_descriptors()
    del disk
    assert path not in open_descriptors()


def test_a_file_that_cannot_be_mapped_is_closed_once(tmp_path: pathlib.Path) -> None:
    # Closing twice would close a descriptor that another thread has opened in between.
    with pytest.raises(OSError):
        LocalDisk().map(str(tmp_path), writable=False)
    assert str(tmp_path) not in open_descriptors()


def test_files_are_read_in_one_thread_while_another_removes_them(tmp_path: pathlib.Path) -> None:
    disk = LocalDisk(max_open_files=2)
    paths = [str(tmp_path / str(number)) for number in range(300)]
    wrong: list[bytes] = []
    is_done = threading.Event()

    def read_all() -> None:
        while not is_done.is_set():
            for path in paths:
                found = disk.pread(path, 0, 1000)
                if found not in (b"", path.encode()):
                    wrong.append(found)

    for path in paths:
        disk.write(path, path.encode())
    reader = threading.Thread(target=read_all)
    reader.start()
    for path in paths:
        disk.remove(path)
    is_done.set()
    reader.join()
    assert not wrong
    assert [disk.pread(path, 0, 1) for path in paths] == [b""] * len(paths)
    disk.close()


def test_a_lock_excludes_another_process(tmp_path: pathlib.Path) -> None:
    path = str(tmp_path / "lock")
    script = (
        "import sys\n"
        "from orbitmq.platform.local_disk import LocalDisk\n"
        "try:\n"
        "    LocalDisk().lock(sys.argv[1])\n"
        "except BlockingIOError:\n"
        "    sys.exit(42)\n"
    )
    command = [sys.executable, "-c", script, path]
    release = LocalDisk().lock(path)
    assert subprocess.run(command, check=False, timeout=60).returncode == 42
    release()
    assert subprocess.run(command, check=False, timeout=60).returncode == 0


def test_the_space_of_a_relative_path_is_that_of_the_working_directory(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert LocalDisk().space("not/there/yet").total == LocalDisk().space(str(tmp_path)).total


@pytest.fixture
def small_file_system(tmp_path: pathlib.Path) -> Iterator[str]:
    """A file system of one megabyte, which only root can make."""
    where = tmp_path / "small"
    where.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(where)]
    if os.geteuid() != 0 or subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("mounting a small tmpfs needs root")
    yield str(where)
    subprocess.run(["umount", str(where)], check=True)


def test_a_full_file_system_refuses_to_reserve(small_file_system: str) -> None:
    disk = LocalDisk()
    path = os.path.join(small_file_system, "file")
    disk.create(path, 4 << 20)
    mapped = disk.map(path)
    mapped.reserve(0, 1 << 19)
    with pytest.raises(OSError) as refused:
        mapped.reserve(1 << 19, 4 << 20)
    assert refused.value.errno == errno.ENOSPC
    mapped.buffer[: 1 << 19] = b"x" * (1 << 19)
    mapped.close()
    assert disk.space(path).ratio >= 0.5
    disk.remove(path)
    disk.close()


def test_many_files_are_synced_at_once(small_file_system: str) -> None:
    # On a file system of its own: a sync of many files is one of everything on theirs.
    disk = LocalDisk()
    paths = [os.path.join(small_file_system, f"d/{number}") for number in range(SYNCFS_FROM)]
    for path in paths:
        disk.create(path, 1)
    disk.sync_many(paths, [os.path.join(small_file_system, "d")])
    disk.close()
    assert all(os.path.getsize(path) == 1 for path in paths)


def test_what_is_fetched_is_in_memory(tmp_path: pathlib.Path) -> None:
    disk = LocalDisk()
    path = str(tmp_path / "file")
    disk.write(path, os.urandom(1 << 20))
    disk.sync(path)
    mapped = disk.map(path)
    mapped.reserve(0, 1 << 20)
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    mapped.fetch([(0, 4096), (100_001, 300_001)])
    assert mapped.is_in_memory(0, 4096)
    assert mapped.is_in_memory(100_001, 300_001)
    mapped.close()
    mapped.fetch([(0, 4096)])
    disk.close()


def test_residency_of_a_read_only_map_is_unknown(tmp_path: pathlib.Path) -> None:
    disk = LocalDisk()
    path = str(tmp_path / "file")
    disk.write(path, b"x" * 10_000)
    mapped = disk.map(path, writable=False)
    mapped.fetch([(0, 10_000)])
    assert mapped.is_in_memory(0, 10_000)
    mapped.close()
    disk.close()


@pytest.fixture
def read_only_directory(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Iterator[str]:
    """A directory that may not be changed. Root is stopped by no permission, but by a read-only mount."""
    if os.geteuid() == 0:
        where = str(request.getfixturevalue("small_file_system"))
        (pathlib.Path(where) / "file").write_bytes(b"x")
        subprocess.run(["mount", "-o", "remount,ro", where], check=True)
        yield where
        return
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "file").chmod(0o444)
    tmp_path.chmod(0o555)
    yield str(tmp_path)
    tmp_path.chmod(0o755)


def test_a_read_only_directory_refuses_every_change_with_the_true_reason(read_only_directory: str) -> None:
    disk = LocalDisk()
    file = os.path.join(read_only_directory, "file")
    new = os.path.join(read_only_directory, "new")
    changes = (
        lambda: disk.create(new, 1),
        lambda: disk.write(new, b"x"),
        lambda: disk.write(os.path.join(new, "below"), b"x"),
        lambda: disk.pwrite(file, 0, b"x"),
        lambda: disk.rename(file, new),
        lambda: disk.remove(file),
        lambda: disk.lock(new),
        lambda: disk.map(file),
    )
    for change in changes:
        with pytest.raises(OSError) as refused:
            change()
        assert refused.value.errno in (errno.EROFS, errno.EACCES)
    assert disk.pread(file, 0, 1) == b"x"
    assert disk.list(read_only_directory) == ["file"]
    disk.close()
