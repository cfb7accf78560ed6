"""The checkpoint file."""

from __future__ import annotations

import errno
import os
import struct
from typing import TYPE_CHECKING

import pytest

from orbitmq.platform.local_disk import LocalDisk
from orbitmq.store.background.checkpoint import FILE_SIZE, LATEST_TIMESTAMP, Checkpoint
from orbitmq.store.errors import DiskFaultError, FlushFailedError
from support.store import golden

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def disk() -> Iterator[LocalDisk]:
    disk = LocalDisk()
    yield disk
    disk.close()


@pytest.mark.parametrize("name", golden.SETS)
def test_a_checkpoint_of_rocketmq_is_read_and_encoded_alike(name: str, disk: LocalDisk, tmp_path: Path) -> None:
    path = os.path.join(golden.unpack(name, tmp_path), "checkpoint")
    expected = golden.expected_offsets(name)["checkpoint"]
    found = Checkpoint.load(disk, path)
    assert found.physic_msg_timestamp == expected["physicMsgTimestamp"]
    assert found.logics_msg_timestamp == expected["logicsMsgTimestamp"]
    assert found.index_msg_timestamp == expected["indexMsgTimestamp"]
    assert found.master_flushed_offset == expected["masterFlushedOffset"]
    assert found.confirm_phy_offset == expected["confirmPhyOffset"]
    assert found.logics_physical_offset == expected["logicsPhysicalOffset"]
    assert found.min_timestamp == expected["minTimestamp"]
    assert found.min_timestamp_with_index == expected["minTimestampIndex"]
    raw = disk.read(path)
    found.store(disk, path)
    assert disk.read(path) == raw


def test_no_file_means_nothing_is_known(disk: LocalDisk, tmp_path: Path) -> None:
    found = Checkpoint.load(disk, str(tmp_path / "checkpoint"))
    assert found == Checkpoint()
    assert found.min_timestamp == 0


def test_a_stored_checkpoint_is_loaded_again(disk: LocalDisk, tmp_path: Path) -> None:
    path = str(tmp_path / "store" / "checkpoint")
    written = Checkpoint(10_000, 9_000, 8_000, 7, 6, 5)
    written.store(disk, path)
    assert Checkpoint.load(disk, path) == written
    assert len(disk.read(path)) == FILE_SIZE
    assert written.min_timestamp == 6_000
    assert written.min_timestamp_with_index == 6_000


def test_the_min_timestamp_is_never_negative() -> None:
    assert Checkpoint(physic_msg_timestamp=2_000, logics_msg_timestamp=5_000).min_timestamp == 0


@pytest.mark.parametrize("length", [0, 7, 8, 24, 27, 40, 47])
def test_what_a_shorter_file_lacks_is_zero(length: int, disk: LocalDisk, tmp_path: Path) -> None:
    path = str(tmp_path / "checkpoint")
    values = (11, 12, 13, 14, 15, 16)
    disk.write(path, struct.pack(">6q", *values)[:length])
    found = Checkpoint.load(disk, path)
    kept = length // 8
    assert found == Checkpoint(*values[:kept])
    found.store(disk, path)
    assert len(disk.read(path)) == FILE_SIZE
    assert Checkpoint.load(disk, path) == found


def test_impossible_values_are_read_as_unknown() -> None:
    data = struct.pack(">6q", -1, LATEST_TIMESTAMP + 1, LATEST_TIMESTAMP, -1, -(1 << 63), (1 << 63) - 1)
    assert Checkpoint.decode(data) == Checkpoint(0, 0, LATEST_TIMESTAMP, 0, 0, (1 << 63) - 1)


def test_bytes_behind_the_six_longs_are_preserved(disk: LocalDisk, tmp_path: Path) -> None:
    path = str(tmp_path / "checkpoint")
    disk.write(path, bytes(48) + b"later versions may write here".ljust(FILE_SIZE - 48, b"\0"))
    Checkpoint(1, 2, 3, 4, 5, 6).store(disk, path)
    assert disk.read(path)[48:].startswith(b"later versions may write here")


class ShortWrites(LocalDisk):
    """A disk that takes a few bytes at a time, as a system call may, and may be told to fail."""

    def __init__(self) -> None:
        super().__init__()
        self.refuse_write = False
        self.refuse_sync = False
        self.synced: list[str] = []

    def pwrite(self, path: str, offset: int, data: bytes | bytearray | memoryview) -> int:
        if self.refuse_write:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().pwrite(path, offset, data[:5])

    def sync(self, path: str) -> None:
        if self.refuse_sync:
            raise OSError(errno.EIO, "Input/output error")
        self.synced.append(path)
        super().sync(path)

    def sync_dir(self, directory: str) -> None:
        self.synced.append(directory)
        super().sync_dir(directory)


def test_short_writes_are_continued_and_the_file_and_its_new_name_are_synced(tmp_path: Path) -> None:
    disk = ShortWrites()
    path = str(tmp_path / "checkpoint")
    Checkpoint(1, 2, 3, 4, 5, 6).store(disk, path)
    assert disk.synced == [path, str(tmp_path)]
    Checkpoint(2, 3, 4, 5, 6, 7).store(disk, path)
    assert disk.synced == [path, str(tmp_path), path]
    assert Checkpoint.load(disk, path) == Checkpoint(2, 3, 4, 5, 6, 7)
    disk.close()


def test_a_disk_that_refuses_is_a_disk_fault(tmp_path: Path) -> None:
    disk = ShortWrites()
    path = str(tmp_path / "checkpoint")
    disk.refuse_sync = True
    with pytest.raises(FlushFailedError, match="Input/output error"):
        Checkpoint(1).store(disk, path)
    disk.refuse_write = True
    with pytest.raises(DiskFaultError, match="No space left"):
        Checkpoint(1).store(disk, path)


def test_an_unreadable_checkpoint_is_a_disk_fault(disk: LocalDisk, tmp_path: Path) -> None:
    (tmp_path / "checkpoint").mkdir()
    with pytest.raises(DiskFaultError, match="cannot read"):
        Checkpoint.load(disk, str(tmp_path / "checkpoint"))
