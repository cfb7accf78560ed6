"""The file of the epochs on a disk that fails."""

from __future__ import annotations

import pytest

from orbitmq.store.errors import DiskFaultError
from orbitmq.store.replication.epochs import Epoch, EpochFile
from orbitmq.testing.simulation.disk import MemoryDisk

PATH = "/store/epochFileCheckpoint"
END = 1000


@pytest.mark.parametrize("operation", ["write", "sync", "rename", "sync_dir"])
def test_an_epoch_that_was_not_written_is_not_known(operation: str) -> None:
    """A log with bytes of an epoch that the file lacks cannot be compared with another after a restart."""
    disk = MemoryDisk()
    file = EpochFile(disk, PATH)
    disk.fail(operation)
    with pytest.raises(DiskFaultError):
        file.append(1, 0)
    assert list(file.epochs) == []
    file.append(1, 0)
    assert list(file.epochs) == [Epoch(1, 0)]
    read = EpochFile(disk, PATH)
    read.load(END)
    assert list(read.epochs) == [Epoch(1, 0)]


def test_a_cut_that_was_not_written_is_repeated() -> None:
    disk = MemoryDisk()
    file = EpochFile(disk, PATH)
    file.append(1, 0)
    file.append(2, 500)
    disk.fail("write")
    with pytest.raises(DiskFaultError):
        file.cut(400)
    file.cut(400)
    read = EpochFile(disk, PATH)
    read.load(END)
    assert list(read.epochs) == list(file.epochs) == [Epoch(1, 0)]
