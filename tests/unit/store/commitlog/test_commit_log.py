"""The commit log: where records go, how files end, what is readable and what a disk can refuse."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest

from orbitmq.protocol.message.record import MAGIC_BLANK, blank, decode_record, iter_records, topic_field
from orbitmq.store import AppendRefusedError, LocalDisk, PutStatus, StoredMessage
from orbitmq.store.commitlog import commit_log
from orbitmq.store.commitlog.commit_log import CommitLog
from orbitmq.store.commitlog.mapped_files import LogFiles
from orbitmq.testing import MemoryDisk
from support.store.stores import LOG_FILE, SMALLEST_RECORD, T0, TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from orbitmq.platform.disk import Disk

HOST = bytes((127, 0, 0, 1, 0, 0, 0x2A, 0x9F))
HOST_V6 = bytes(15) + b"\x01" + (10911).to_bytes(4, "big")


def new_log(disk: Disk, directory: str, pool_size: int = 0) -> CommitLog:
    files = LogFiles(disk, (directory,), LOG_FILE)
    files.load()
    log = CommitLog(files, HOST, pool_size=pool_size)
    log.open_at(0)
    return log


@pytest.fixture
def directory(tmp_path: Path) -> str:
    return str(tmp_path / "commitlog")


@pytest.fixture
def log(directory: str) -> Iterator[CommitLog]:
    log = new_log(LocalDisk(), directory)
    yield log
    log.close()


@pytest.fixture
def pooled(directory: str) -> Iterator[CommitLog]:
    log = new_log(LocalDisk(), directory, pool_size=2)
    yield log
    log.close()


def append(log: CommitLog, size: int = 200, **fields: bytes) -> tuple[int, int]:
    """Append a record of exactly this size."""
    body = b"b" * (size - SMALLEST_RECORD)
    host = fields.get("born_host", HOST)
    return log.append(topic_field(TOPIC.encode()), 0, StoredMessage(TOPIC, 0, body, b"", 0, 0, T0, host), T0)


def file_bytes(directory: str, base: int) -> bytes:
    with open(os.path.join(directory, f"{base:020d}"), "rb") as file:
        return file.read()


# Where files end


@pytest.mark.parametrize("rest", [8, 9, 10, 500])
def test_a_record_goes_where_it_leaves_room_for_a_blank(log: CommitLog, directory: str, rest: int) -> None:
    append(log)
    assert append(log, LOG_FILE - 200 - rest) == (200, LOG_FILE - 200 - rest)
    assert log.end == LOG_FILE - rest
    assert log.files.bases == [0]
    assert append(log, 600) == (LOG_FILE, 600)
    assert file_bytes(directory, 0)[-rest:] == blank(rest) + bytes(rest - 8)


@pytest.mark.parametrize("rest", range(8))
def test_a_record_that_would_leave_no_room_for_a_blank_opens_the_next_file(
    log: CommitLog, directory: str, rest: int
) -> None:
    append(log)
    assert append(log, LOG_FILE - 200 - rest) == (LOG_FILE, LOG_FILE - 200 - rest)
    assert log.files.bases == [0, LOG_FILE]
    ended = file_bytes(directory, 0)
    assert ended[200:208] == blank(LOG_FILE - 200)
    assert int.from_bytes(ended[204:208], "big") == MAGIC_BLANK
    assert not any(ended[208:])


def test_the_largest_record_fills_a_file_up_to_the_blank(log: CommitLog) -> None:
    assert append(log, LOG_FILE - 8) == (0, LOG_FILE - 8)
    assert append(log, LOG_FILE - 8) == (LOG_FILE, LOG_FILE - 8)
    assert log.end == 2 * LOG_FILE - 8


@pytest.mark.parametrize("excess", [1, 7, 8, 5000])
def test_a_record_larger_than_a_file_is_refused_and_leaves_everything_as_it_was(
    log: CommitLog, directory: str, excess: int
) -> None:
    append(log)
    with pytest.raises(AppendRefusedError, match="does not fit a log file of 4096") as refused:
        append(log, LOG_FILE - 8 + excess)
    assert refused.value.status is PutStatus.MESSAGE_ILLEGAL
    assert log.end == 200
    assert os.listdir(directory) == [f"{0:020d}"]
    assert not any(file_bytes(directory, 0)[200:])


def test_a_refused_first_record_makes_no_file(log: CommitLog, directory: str) -> None:
    with pytest.raises(AppendRefusedError):
        append(log, LOG_FILE)
    assert not os.path.exists(directory)


def test_room_made_ahead_keeps_the_next_records_together(log: CommitLog) -> None:
    append(log, 3000)
    log.make_room(1088)
    assert log.end == 3000
    log.make_room(1089)
    assert log.end == LOG_FILE
    assert append(log, 300) == (LOG_FILE, 300)


@pytest.mark.parametrize("born_host", [HOST, HOST_V6])
def test_the_host_bits_say_how_long_the_hosts_are(directory: str, born_host: bytes) -> None:
    for store_host in (HOST, HOST_V6):
        files = LogFiles(LocalDisk(), (directory + str(len(store_host)),), LOG_FILE)
        log = CommitLog(files, store_host)
        log.open_at(0)
        # Bits that a client sent wrongly do not survive.
        offset, size = log.append(
            topic_field(b"T"), 0, StoredMessage("T", 0, b"", b"", 0, 0x30 | 0x2, T0, born_host), T0
        )
        found = log.slice(offset, size)
        assert found is not None
        record = decode_record(found)
        assert record.sys_flag == 0x2 | (len(born_host) == 20) * 0x10 | (len(store_host) == 20) * 0x20
        assert (record.born_host, record.store_host) == (born_host, store_host)
        del found
        log.close()


# Bytes of a master


@pytest.mark.parametrize("piece", [1, 7, 100, 199, 200, 4096, 10_000])
def test_bytes_of_a_master_go_to_the_same_offsets_however_they_are_split(
    log: CommitLog, directory: str, tmp_path: Path, piece: int
) -> None:
    for size in (200, 1500, 3000, 4088, 150):
        append(log, size)
    data = b"".join(file_bytes(directory, base) for base in log.files.bases)[: log.end]
    replica = new_log(LocalDisk(), str(tmp_path / "replica"))
    for start in range(0, len(data), piece):
        assert replica.append_raw(data[start : start + piece]) == start
    assert replica.end == log.end
    copied = [file_bytes(str(tmp_path / "replica"), base) for base in replica.files.bases]
    assert copied == [file_bytes(directory, base) for base in log.files.bases]
    # It can become a master at any whole record.
    assert append(replica) == append(log)
    replica.close()


# The transient pool


def test_a_pooled_record_is_not_readable_before_it_is_committed(pooled: CommitLog, directory: str) -> None:
    offset, size = append(pooled)
    assert (pooled.end, pooled.committed) == (200, 0)
    assert pooled.slice(offset, size) is None
    assert not any(file_bytes(directory, 0))
    assert pooled.commit() == 200
    assert pooled.slice(offset, size) is not None
    assert file_bytes(directory, 0)[:4] == (200).to_bytes(4, "big")


def test_only_what_is_committed_is_to_be_flushed(pooled: CommitLog) -> None:
    append(pooled)
    assert pooled.flush_targets()[0] == 0
    pooled.commit()
    append(pooled)
    end, _, files = pooled.flush_targets()
    assert end == 200
    assert [os.path.basename(file.path) for file in files] == [f"{0:020d}"]


def test_a_full_pool_is_committed_by_the_append_that_needs_room(pooled: CommitLog, directory: str) -> None:
    for number in range(3):
        assert append(pooled, 4000)[0] == number * LOG_FILE
    # Two buffers: that of the newest file, and one before it.
    assert pooled.committed == LOG_FILE + 4000
    pooled.commit()
    assert pooled.committed == pooled.end == 2 * LOG_FILE + 4000
    for base in (0, LOG_FILE, 2 * LOG_FILE):
        content = file_bytes(directory, base)
        assert decode_record(content).physical_offset == base
    assert file_bytes(directory, 0)[4000:] == blank(96) + bytes(88)


def test_pooled_records_go_on_behind_what_was_committed(pooled: CommitLog, directory: str) -> None:
    for size in (200, 300, 400):
        append(pooled, size)
        pooled.commit()
    append(pooled, 500)
    pooled.commit()
    assert [record.size for record in iter_records(file_bytes(directory, 0)[:1400])] == [200, 300, 400, 500]


# The file after this one


def test_a_preallocated_file_becomes_the_next_one(log: CommitLog, directory: str) -> None:
    append(log, 1000)
    assert log.wants_next_file() is None
    append(log, 2000)
    create = log.wants_next_file()
    assert create is not None
    spare = create()
    log.keep_next_file(spare)
    assert log.wants_next_file() is None
    assert log.files.bases == [0]
    append(log, 2000)
    assert log.files.bases == [0, LOG_FILE]
    assert log.files.mapped(LOG_FILE) is spare[1]


def test_a_file_made_ahead_is_removed_by_a_clean_exit_and_left_by_a_crash(directory: str) -> None:
    for is_clean in (True, False):
        log = new_log(LocalDisk(), directory + str(is_clean))
        append(log, 3000)
        create = log.wants_next_file()
        assert create is not None
        log.keep_next_file(create())
        if is_clean:
            log.drop_next_file()
        log.close()
        assert len(os.listdir(directory + str(is_clean))) == (1 if is_clean else 2)


def test_a_file_preallocated_too_late_is_discarded(log: CommitLog, directory: str) -> None:
    append(log, 3000)
    create = log.wants_next_file()
    assert create is not None
    append(log, 3000)
    late = create()
    log.keep_next_file(late)
    assert sorted(os.listdir(directory)) == [f"{0:020d}", f"{LOG_FILE:020d}"]
    append(log, 3000)
    assert log.files.bases == [0, LOG_FILE, 2 * LOG_FILE]
    late[1].close()


def test_of_a_file_made_ahead_a_part_is_owned_already(directory: str) -> None:
    disk = MemoryDisk()
    log = new_log(disk, directory)
    append(log, 3000)
    create = log.wants_next_file()
    assert create is not None
    log.keep_next_file(create())
    disk.fail("reserve", times=5)
    append(log, 2000)
    assert log.files.bases == [0, LOG_FILE]
    disk.heal()
    log.close()


def test_a_file_preallocated_on_a_full_disk_is_used_all_the_same(directory: str) -> None:
    disk = MemoryDisk()
    log = new_log(disk, directory)
    append(log, 3000)
    create = log.wants_next_file()
    assert create is not None
    disk.fail("reserve", error=errno.ENOSPC)
    log.keep_next_file(create())
    append(log, 2000)
    assert log.files.bases == [0, LOG_FILE]
    log.close()


# Space ahead


@pytest.fixture
def _small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in (("RESERVE_STEP", 1000), ("AHEAD_STEP", 2000), ("BUSY_BYTES", 500), ("LARGE_PAGE", 1)):
        monkeypatch.setattr(commit_log, name, size)


@pytest.mark.usefixtures("_small_steps")
def test_space_is_preallocated_for_a_busy_log(directory: str) -> None:
    disk = MemoryDisk()
    log = new_log(disk, directory)
    assert log.wants_space() is None
    append(log, 400)
    assert log.wants_space() is None
    append(log, 400)
    own = log.wants_space()
    assert own is not None
    log.keep_space(own())
    assert log.wants_space() is None
    disk.fail("reserve", times=5)
    room = log.room
    assert room > 1500
    append(log, room)
    disk.heal()
    own = log.wants_space()
    assert own is not None
    log.keep_space(own())
    assert log.room == LOG_FILE - 8 - log.end
    assert log.wants_space() is None
    log.close()


@pytest.mark.usefixtures("_small_steps")
def test_late_preallocation_changes_nothing(directory: str) -> None:
    log = new_log(MemoryDisk(), directory)
    append(log, 800)
    own = log.wants_space()
    assert own is not None
    for _ in range(3):
        append(log, 1000)
    room = log.room
    log.keep_space(own())
    assert log.room == room
    late = log.wants_space()
    assert late is not None
    append(log, 1000)
    assert log.files.bases == [0, LOG_FILE]
    room = log.room
    log.keep_space(late())
    assert log.room == room
    log.close()


# Slices


def test_a_slice_is_the_map_itself_and_outlives_its_file(log: CommitLog) -> None:
    offset, size = append(log)
    append(log, 4000)
    found = log.slice(offset, size)
    assert found is not None
    assert found.obj is log.files.mapped(0).buffer
    log.files.remove(0)
    assert log.slice(offset, size) is None
    assert decode_record(found).size == size


def test_nothing_is_sliced_that_is_not_in_one_file_of_the_log(log: CommitLog) -> None:
    append(log, 4000)
    append(log, 4000)
    assert log.slice(LOG_FILE - 100, 200) is None
    assert log.slice(LOG_FILE + 3900, 101) is None
    assert log.slice(9 * LOG_FILE, 1) is None


# What a disk refuses


def test_a_full_disk_refuses_a_record_and_accepts_it_with_free_space() -> None:
    disk = MemoryDisk(capacity=2 * 4096)
    log = new_log(disk, "/store/commitlog")
    append(log, 3000)
    append(log, 3000)
    with pytest.raises(AppendRefusedError, match="is full: free space or shorten fileReservedTime") as refused:
        append(log, 3000)
    assert refused.value.status is PutStatus.CREATE_MAPPED_FILE_FAILED
    # The file before has ended, but nothing of the record was written.
    assert log.end == 2 * LOG_FILE
    assert not any(log.files.mapped(2 * LOG_FILE).buffer[:])
    disk.capacity = 4 * 4096
    assert append(log, 3000) == (2 * LOG_FILE, 3000)
    log.close()


def test_a_file_that_cannot_be_made_leaves_the_one_before_open() -> None:
    disk = MemoryDisk()
    log = new_log(disk, "/store/commitlog")
    append(log, 3000)
    disk.fail("create", error=errno.EMFILE)
    with pytest.raises(AppendRefusedError, match="no log file could be made") as refused:
        append(log, 3000)
    assert refused.value.status is PutStatus.CREATE_MAPPED_FILE_FAILED
    assert log.end == 3000
    assert not any(log.files.mapped(0).buffer[3000:])
    assert append(log, 1000) == (3000, 1000)
    log.close()


def test_a_record_is_stored_only_in_reserved_space() -> None:
    disk = MemoryDisk()
    log = new_log(disk, "/store/commitlog")
    for _ in range(30):
        append(log, 700)
    for base in log.files.bases:
        log.files.mapped(base).sync()
    log.close()
    disk.kill()


# Going on after recovery


@pytest.mark.parametrize("end", [0, 200, 4000, LOG_FILE, LOG_FILE + 200])
def test_appends_continue_at_the_end_and_files_behind_it_are_removed(directory: str, end: int) -> None:
    log = new_log(LocalDisk(), directory)
    for size in (200, 3800, 200, 3800, 200):
        append(log, size)
    log.close()
    files = LogFiles(LocalDisk(), (directory,), LOG_FILE)
    files.load()
    log = CommitLog(files, HOST)
    log.open_at(end)
    assert log.end == log.flushed == end
    assert files.bases == ([0] if end <= LOG_FILE else [0, LOG_FILE])
    offset, _ = append(log, 300)
    assert offset == (LOG_FILE if end in {4000, LOG_FILE} else end)
    log.close()


def test_an_empty_log_may_begin_at_another_offset(directory: str) -> None:
    log = CommitLog(LogFiles(LocalDisk(), (directory,), LOG_FILE), HOST)
    log.open_at(5 * LOG_FILE + 300)
    assert append(log) == (5 * LOG_FILE + 300, 200)
    assert os.listdir(directory) == [f"{5 * LOG_FILE:020d}"]
    log.close()
