"""What recovery takes for the end of the log, and what becomes of what lies behind it."""

from __future__ import annotations

import errno
import logging
import os
from typing import TYPE_CHECKING

import pytest

from orbitmq.store import StoredMessage
from orbitmq.testing import ManualClock, MemoryDisk
from support.store.stores import LOG_FILE, T0, TOPIC, edit_log, offsets_of, open_small, read_all, send

if TYPE_CHECKING:
    from pathlib import Path

KEPT = "quarantine"


def kept(root: Path) -> dict[str, bytes]:
    """The quarantined files by the offset in their names."""
    found = {}
    for path in sorted((root / KEPT).iterdir()) if (root / KEPT).exists() else []:
        kind, offset, _ = path.name.split("-")
        assert kind == "commitlog"
        found[int(offset)] = path.read_bytes()
    return {f"{offset}": data for offset, data in found.items()}


# What a record is judged by


@pytest.mark.parametrize("files", [1, 3])
def test_records_without_the_property_are_judged_by_their_body(tmp_path: Path, files: int) -> None:
    store = open_small(tmp_path)
    offsets = send(store, 3 * files, size=1000)
    store.flush()
    store.abandon()
    with open_small(tmp_path, force_verify_prop_crc=True) as again:
        assert offsets_of(read_all(again)) == offsets
        assert again.recovery.damages == []
        assert again.append(StoredMessage(TOPIC, 0, b"next")).queue_offset == len(offsets)
    assert kept(tmp_path) == {}


def test_a_log_with_and_without_the_property_is_judged_record_by_record(tmp_path: Path) -> None:
    store = open_small(tmp_path)
    plain = send(store, 2)
    store.flush()
    store.abandon()
    store = open_small(tmp_path, enabled_append_prop_crc=True)
    promised = send(store, 3, k="v")
    store.flush()
    store.abandon()
    # Of the second one that promises a CRC, one letter of the topic.
    at = promised[1] + 84 + 4 + len(b"%d:" % promised[1]) + 1
    edit_log(tmp_path, at, b"X")
    with open_small(tmp_path, force_verify_prop_crc=True) as again:
        assert [damage.offset for damage in again.recovery.damages] == [promised[1]]
        assert offsets_of(read_all(again)) == [*plain, promised[0], promised[2]]


# What is behind the end


def test_a_torn_record_is_cut_off_logged_and_quarantined(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = open_small(tmp_path)
    offsets = send(store, 3, size=500)
    store.flush()
    end = store.log.end
    store.abandon()
    edit_log(tmp_path, end - 300, bytes(300))
    before = (tmp_path / "commitlog" / f"{0:020d}").read_bytes()
    with caplog.at_level(logging.ERROR), open_small(tmp_path) as again:
        assert again.recovery.log_end == offsets[2]
        assert len(again.recovery.quarantined) == 1
        assert offsets_of(read_all(again)) == offsets[:2]
    size = len(before[offsets[2] :].rstrip(b"\0"))
    assert kept(tmp_path) == {f"{offsets[2]}": before[offsets[2] : offsets[2] + size]}
    [line] = [record.getMessage() for record in caplog.records if "cut" in record.getMessage()]
    assert line.startswith(f"recovery: cut {size} bytes off the log at offset {offsets[2]}: ")
    assert f"{size} bytes kept in {again.recovery.quarantined[0]}" in line


def test_unwritten_space_is_not_quarantined(tmp_path: Path) -> None:
    store = open_small(tmp_path)
    send(store, 3, size=1000)
    spare = store.log.wants_next_file()
    assert spare is not None
    store.log.keep_next_file(spare())
    store.flush()
    store.abandon()
    with open_small(tmp_path) as again:
        assert again.recovery.quarantined == []
    assert not (tmp_path / KEPT).exists()


def test_whole_files_behind_the_end_are_quarantined_too(tmp_path: Path) -> None:
    clock = ManualClock(T0)
    store = open_small(tmp_path, clock=clock)
    offsets = send(store, 9, size=1000)
    store.flush()
    store.abandon()
    log = tmp_path / "commitlog"
    second = f"{LOG_FILE:020d}"
    third = f"{2 * LOG_FILE:020d}"
    for name in (second, third):
        # Every record claims another place than its own.
        data = bytearray((log / name).read_bytes())
        for offset in offsets:
            if offset // LOG_FILE * LOG_FILE == int(name):
                data[offset - int(name) + 28] ^= 1
        (log / name).write_bytes(data)
    expected = {f"{int(name)}": (log / name).read_bytes().rstrip(b"\0") for name in (second, third)}
    with open_small(tmp_path, clock=clock) as again:
        assert again.recovery.log_end == 3 * (offsets[1] - offsets[0])
        assert offsets_of(read_all(again)) == offsets[:3]
    found = kept(tmp_path)
    assert {key: found[key] for key in expected} == expected


def test_a_record_damaged_in_a_closed_store_is_quarantined(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        offsets = send(store, 3)
    edit_log(tmp_path, offsets[2] + 4, b"\0\0\0\0")
    with open_small(tmp_path) as again:
        assert again.recovery.log_end == offsets[2]
        send(again)
    assert list(kept(tmp_path)) == [f"{offsets[2]}"]


def crashed(disk: MemoryDisk, sizes: list[int], **settings: int) -> MemoryDisk:
    """A disk on which a store lost its last record of each of these sizes, one crash after the other."""
    clock = ManualClock(T0)
    for size in sizes:
        store = open_small("/store", disk=disk, clock=clock, **settings)
        [offset] = send(store, size=size)
        store.flush()
        disk.pwrite("/store/commitlog/" + "0" * 20, offset + 4, bytes(4))
        store.abandon()
        disk = disk.kill()
        clock.advance(1000)
    open_small("/store", disk=disk, clock=clock, **settings).close()
    return disk


def test_the_oldest_copies_go_when_there_are_too_many() -> None:
    disk = crashed(MemoryDisk(), [500, 600, 700], quarantine_max_bytes=1700)
    sizes = [len(disk.read(f"/store/{KEPT}/{name}")) for name in disk.list(f"/store/{KEPT}")]
    assert sizes == [695, 795]


def test_of_a_cut_over_the_limit_the_beginning_is_quarantined() -> None:
    disk = crashed(MemoryDisk(), [1000], quarantine_max_bytes=100)
    [name] = disk.list(f"/store/{KEPT}")
    assert len(disk.read(f"/store/{KEPT}/{name}")) == 100


def test_a_disk_that_refuses_the_copy_does_not_keep_the_store_closed(caplog: pytest.LogCaptureFixture) -> None:
    disk = MemoryDisk()
    store = open_small("/store", disk=disk)
    offsets = send(store, 2)
    store.flush()
    disk.pwrite("/store/commitlog/" + "0" * 20, offsets[1] + 4, bytes(4))
    store.abandon()
    disk = disk.kill()
    disk.fail("create", error=errno.ENOSPC, path_contains=KEPT)
    with caplog.at_level(logging.ERROR), open_small("/store", disk=disk) as again:
        assert offsets_of(read_all(again)) == offsets[:1]
    assert f"no copy of the log from offset {offsets[1]}" in caplog.text
    assert os.strerror(errno.ENOSPC) in caplog.text


def test_damage_that_is_skipped_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = open_small(tmp_path)
    offsets = send(store, 3, size=200)
    store.flush()
    store.abandon()
    edit_log(tmp_path, offsets[1] + 100, b"XXXX")
    with caplog.at_level(logging.ERROR), open_small(tmp_path) as again:
        assert offsets_of(read_all(again)) == [offsets[0], offsets[2]]
    assert f"recovery: skipped 297 bytes of the log at offset {offsets[1]}: the body fails its CRC" in caplog.text
