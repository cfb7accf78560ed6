"""The end of a log that is only looked at: behind its last whole record, whatever follows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from orbitmq.store import LocalDisk
from orbitmq.store.commitlog.find_end import find_end
from orbitmq.store.commitlog.read_only import ReadOnlyLog
from orbitmq.store.tools.detect_layout import NotAStoreError, detect_log
from support.store import golden
from support.store.stores import LOG_FILE, edit_log, open_small, send

if TYPE_CHECKING:
    from pathlib import Path


def end_of(path: str | Path) -> int:
    disk = LocalDisk()
    log = ReadOnlyLog(disk, detect_log(disk, str(path)))
    log.load()
    try:
        return find_end(log)
    finally:
        log.close()


@pytest.mark.parametrize("name", golden.SETS)
def test_the_end_is_where_apache_continues(name: str, tmp_path: Path) -> None:
    root = golden.unpack(name, tmp_path)
    assert end_of(root) == golden.expected_offsets(name)["maxPhyOffset"]
    assert end_of(f"{root}/commitlog") == golden.expected_offsets(name)["maxPhyOffset"]


def test_a_new_store_ends_where_it_starts(tmp_path: Path) -> None:
    with open_small(tmp_path):
        pass
    assert end_of(tmp_path) == 0


def test_a_record_that_is_half_written_is_behind_the_end(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        offsets = send(store, 50, size=100)
        end = store.log.end
    assert end_of(tmp_path) == end
    edit_log(tmp_path, offsets[-1] + 120, bytes(20))
    assert end_of(tmp_path) == offsets[-1]
    edit_log(tmp_path, offsets[-2] + 120, bytes(20))
    assert end_of(tmp_path) == offsets[-2]


def test_properties_that_were_never_written_end_the_log(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        offsets = send(store, 3, TAGS="tag", KEYS="key")
        end = store.log.end
    edit_log(tmp_path, end - 4, bytes(4))
    assert end_of(tmp_path) == offsets[-1]


def test_damage_in_the_middle_is_no_end(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        offsets = send(store, 80, size=100)
        end = store.log.end
    last_file = [offset for offset in offsets if offset >= end - end % LOG_FILE]
    edit_log(tmp_path, last_file[1], bytes(8))
    edit_log(tmp_path, last_file[3] + 120, b"damage")
    assert end_of(tmp_path) == end


def test_all_bodies_lost_since_the_last_file_began_is_found_by_reading_them(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        offsets = send(store, 80, size=100)
        end = store.log.end
    last_file = [offset for offset in offsets if offset >= end - end % LOG_FILE]
    for offset in last_file[1:]:
        edit_log(tmp_path, offset + 120, bytes(20))
    assert end_of(tmp_path) == last_file[1]


def test_a_directory_that_is_no_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotAStoreError, match="is not a store"):
        end_of(tmp_path)
    with pytest.raises(NotAStoreError, match="there is no directory"):
        end_of(tmp_path / "nothing")
