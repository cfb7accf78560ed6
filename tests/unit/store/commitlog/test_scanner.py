"""Walking the log: what is a record, what is torn, and how damage is passed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.protocol.message.record import MIN_RECORD_SIZE, blank, encode_record
from orbitmq.store import LocalDisk
from orbitmq.store.commitlog.mapped_files import LogFiles
from orbitmq.store.commitlog.scanner import SECTOR, Blank, Damage, LogView, Seen, scan_past_damage, walk
from orbitmq.testing import MemoryDisk
from support.store.stores import LOG_FILE, T0

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

V4, V6 = bytes(8), bytes(20)


def record(
    offset: int = 0, size: int = 200, *, time: int = T0, properties: bytes = b"", crc_property: bool = False
) -> bytes:
    """A record of exactly this size, for this place in the log."""
    rest = size - MIN_RECORD_SIZE - 1 - len(properties) - 20 * crc_property
    return encode_record(
        topic=b"T",
        queue_id=3,
        queue_offset=offset,
        physical_offset=offset,
        body=b"b" * rest,
        properties=properties,
        store_timestamp=time,
        born_host=V4,
        store_host=V4,
        crc_property=crc_property,
    )


def view_of(*pieces: bytes, size: int = LOG_FILE, base: int = 0) -> LogView:
    return LogView(base, bytearray(b"".join(pieces).ljust(size, b"\0")))


# One place


@pytest.mark.parametrize("hosts", [(V4, V4), (V6, V4), (V4, V6), (V6, V6)])
@pytest.mark.parametrize("version_2", [False, True])
def test_a_record_is_seen_with_what_dispatching_needs(hosts: tuple[bytes, bytes], version_2: bool) -> None:
    topic = b"%RETRY%" + b"g" * 200 if version_2 else b"Topic"
    raw = encode_record(
        topic=topic,
        queue_id=7,
        queue_offset=55,
        physical_offset=LOG_FILE + 100,
        body=b"body",
        properties=b"k\x01v\x02",
        sys_flag=0x8,
        store_timestamp=T0,
        born_host=hosts[0],
        store_host=hosts[1],
        version_2=version_2,
    )
    seen = view_of(bytes(100), raw, base=LOG_FILE).look(100)
    host_bits = 0x10 * (len(hosts[0]) == 20) | 0x20 * (len(hosts[1]) == 20)
    assert seen == Seen(LOG_FILE + 100, len(raw), topic, 7, 55, 0x8 | host_bits, T0, b"k\x01v\x02", True)


def test_a_blank_is_the_rest_of_the_file() -> None:
    assert view_of(blank(LOG_FILE)).look(0) == Blank(0, LOG_FILE)
    assert view_of(bytes(LOG_FILE - 8), blank(8)).look(LOG_FILE - 8) == Blank(LOG_FILE - 8, 8)


@pytest.mark.parametrize("position", range(LOG_FILE - 7, LOG_FILE))
def test_too_few_bytes_for_a_blank_are_damage(position: int) -> None:
    found = view_of().look(position)
    assert isinstance(found, Damage)
    assert f"only {LOG_FILE - position} bytes" in found.reason


@pytest.mark.parametrize(
    ("at", "data", "reason"),
    [
        (0, bytes(8), "no record was written here"),
        (4, b"\x00\x00\x00\x00", "no record starts here"),
        (0, (90).to_bytes(4, "big"), "record size 90 is impossible"),
        (0, (LOG_FILE + 1).to_bytes(4, "big"), "is impossible with 4096 bytes left"),
        (0, b"\xff\xff\xff\xff", "record size -1 is impossible"),
        (28, (1).to_bytes(8, "big"), "it belongs at offset 1"),
        (84, (1 << 20).to_bytes(4, "big"), "body size 1048576 does not fit"),
        (84, b"\xff\xff\xff\xff", "body size -1 does not fit"),
        (84, (107).to_bytes(4, "big"), "topic size|do not add up"),
        (0, (201).to_bytes(4, "big"), "do not add up"),
        (36, (0x30).to_bytes(4, "big"), "impossible|does not fit|do not add up|belongs"),
        (198, b"\x01\x00", "do not add up"),
        (198, b"\xff\xff", "do not add up"),
        (196, b"\x80", "topic size 128 is impossible"),
    ],
)
def test_bytes_that_are_no_record_say_why(at: int, data: bytes, reason: str) -> None:
    raw = bytearray(record())
    raw[at : at + len(data)] = data
    found = view_of(bytes(raw)).look(0)
    assert isinstance(found, Damage)
    assert any(part in found.reason for part in reason.split("|")), found.reason


@given(st.binary(max_size=300), st.integers(0, 299), st.booleans())
def test_no_bytes_make_the_parser_fail(noise: bytes, at: int, on_a_record: bool) -> None:
    raw = bytearray(record(size=300) if on_a_record else bytes(300))
    raw[at : at + len(noise)] = noise
    view = LogView(0, raw)
    for position in (0, at):
        found = view.look(position, check_property_crc=True)
        assert found.offset == position
        if isinstance(found, Seen):
            assert 0 < found.size <= view.size - position


def test_a_changed_body_fails_its_crc() -> None:
    raw = bytearray(record())
    raw[100] ^= 1
    found = view_of(bytes(raw)).look(0)
    assert isinstance(found, Seen)
    assert not found.body_is_intact
    unchecked = view_of(bytes(raw)).look(0, check_crc=False)
    assert isinstance(unchecked, Seen)
    assert unchecked.body_is_intact


def test_a_property_crc_covers_what_the_body_crc_does_not() -> None:
    for at, is_intact in ((None, True), (20, False), (57, False), (110, False), (190, False), (199, False)):
        raw = bytearray(record(size=200, properties=b"k\x01" + b"v" * 30 + b"\x02", crc_property=True))
        if at is not None:
            raw[at] ^= 1
        found = view_of(bytes(raw)).look(0, check_property_crc=True)
        assert not isinstance(found, Seen) or found.body_is_intact is is_intact, at
        assert isinstance(found, Seen) or not is_intact
    without = view_of(record()).look(0, check_property_crc=True)
    assert isinstance(without, Seen)
    assert without.body_is_intact  # its writer promised no more than the CRC of the body


# Torn records


def torn(raw: bytes, start: int, stop: int) -> bool:
    """Whether a record is found torn whose bytes in this range were never written."""
    lost = raw[:start] + bytes(max(0, min(stop, len(raw)) - start)) + raw[stop:]
    view = view_of(bytes(100), lost)
    found = view.look(100)
    return not isinstance(found, Seen) or not found.body_is_intact or view.is_torn(found)


def test_a_record_without_all_its_sectors_is_never_whole() -> None:
    raw = record(100, 3000, properties=b"k\x01" + b"v" * 2000 + b"\x02")
    assert not torn(raw, 0, 0)
    sectors = range(0, 3100 + SECTOR, SECTOR)
    for first in sectors:
        for last in sectors:
            start, stop = max(0, first - 100), max(0, last - 100)
            if start < min(stop, len(raw)):
                assert torn(raw, start, stop), (start, stop)


def test_zeros_in_a_message_do_not_make_its_record_torn() -> None:
    for properties in (b"k\x01" + bytes(400) + b"\x02", b"k\x01a\0\0\0b\x02"):
        view = view_of(record(0, 2000, properties=properties))
        seen = view.look(0)
        assert isinstance(seen, Seen)
        assert not view.is_torn(seen)


# Many files


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk(check_reservations=False)


def files_of(disk: MemoryDisk, *contents: bytes, base: int = 0) -> LogFiles:
    for number, content in enumerate(contents):
        disk.write(f"/log/{base + number * LOG_FILE:020d}", content.ljust(LOG_FILE, b"\0"))
    files = LogFiles(disk, ("/log",), LOG_FILE)
    files.load()
    return files


def log_file(base: int, count: int, *, size: int = 400, time: int = T0, ended: bool = True) -> bytes:
    content = b"".join(record(base + number * size, size, time=time) for number in range(count))
    return content + blank(LOG_FILE - len(content)) if ended else content


def steps(found: Iterator[Seen | Damage]) -> list[tuple[str, int, int]]:
    return [(type(one).__name__, one.offset, one.size) for one in found]


def test_a_scan_crosses_the_ends_of_files(disk: MemoryDisk) -> None:
    files = files_of(disk, log_file(0, 3), log_file(LOG_FILE, 2), log_file(2 * LOG_FILE, 1, ended=False))
    places = [0, 400, 800, LOG_FILE, LOG_FILE + 400, 2 * LOG_FILE]
    for number, start in enumerate(places):
        found = steps(walk(files, start))
        assert found[:-1] == [("Seen", offset, 400) for offset in places[number:]]
        assert found[-1] == ("Damage", 2 * LOG_FILE + 400, 0)
    assert steps(walk(files, 400, LOG_FILE)) == [("Seen", 400, 400), ("Seen", 800, 400)]
    assert steps(walk(files, 400, 400)) == []
    # From a place before the log it begins where the log does.
    files.remove(0)
    assert steps(walk(files, 0))[0] == ("Seen", LOG_FILE, 400)


def test_a_walk_ends_at_damage(disk: MemoryDisk) -> None:
    content = bytearray(log_file(0, 3))
    content[404] = 0
    assert steps(walk(files_of(disk, bytes(content)), 0)) == [("Seen", 0, 400), ("Damage", 400, 0)]


def test_damage_with_records_behind_it_is_passed(disk: MemoryDisk) -> None:
    content = bytearray(log_file(0, 5))
    content[404] = content[804] = 0
    found = steps(scan_past_damage(files_of(disk, bytes(content)), 0))
    assert found == [("Seen", 0, 400), ("Damage", 400, 800), ("Seen", 1200, 400), ("Seen", 1600, 400)]


def test_a_body_that_fails_its_crc_is_shown_if_records_follow(disk: MemoryDisk) -> None:
    content = bytearray(log_file(0, 4, ended=False))
    content[500] ^= 1
    content[1300] ^= 1
    found = list(scan_past_damage(files_of(disk, bytes(content)), 0))
    assert [one.body_is_intact for one in found if isinstance(one, Seen)] == [True, False, True]
    assert found[-1] == Damage(1200, 0, "the body fails its CRC")


def test_a_file_that_begins_well_is_reached_over_a_damaged_end(disk: MemoryDisk) -> None:
    first = bytearray(log_file(0, 5))
    first[1204:] = bytes(len(first) - 1204)
    files = files_of(disk, bytes(first), log_file(LOG_FILE, 1, ended=False))
    found = steps(scan_past_damage(files, 0))
    assert found == [
        *[("Seen", offset, 400) for offset in (0, 400, 800)],
        ("Damage", 1200, LOG_FILE - 1200),
        ("Seen", LOG_FILE, 400),
        ("Damage", LOG_FILE + 400, 0),
    ]


def test_records_behind_zeros_are_searched_only_on_request(disk: MemoryDisk) -> None:
    content = bytearray(log_file(0, 4, ended=False))
    content[400:800] = bytes(400)
    files = files_of(disk, bytes(content))
    assert steps(scan_past_damage(files, 0)) == [("Seen", 0, 400), ("Damage", 400, 0)]
    assert ("Seen", 800, 400) in steps(scan_past_damage(files, 0, search_unwritten=True))


def test_old_records_of_a_reused_file_do_not_follow_damage(disk: MemoryDisk) -> None:
    """What was written before the damage is newer than what a file held before it was used again."""
    older = log_file(0, 4, time=T0 - 1, ended=False)
    content = bytearray(record(0, 400, time=T0) + older[400:])
    content[404] = 0
    found = steps(scan_past_damage(files_of(disk, bytes(content)), 0, search_unwritten=True))
    assert found == [("Seen", 0, 400), ("Damage", 400, 0)]


def test_records_with_another_offset_do_not_follow_damage(disk: MemoryDisk) -> None:
    inner = record(0, 200)
    content = bytearray(record(0, 400) + b"damaged!" + inner)
    found = steps(scan_past_damage(files_of(disk, bytes(content)), 0))
    assert found == [("Seen", 0, 400), ("Damage", 400, 0)]


def test_only_records_not_known_to_be_on_disk_are_checked_for_tears(disk: MemoryDisk) -> None:
    def with_hole(time: int) -> bytes:
        raw = bytearray(record(0, 2000, time=time, properties=b"k\x01" + b"v" * 1500 + b"\x02"))
        raw[1024:1536] = bytes(512)
        return bytes(raw) + record(2000, 400, time=time)

    for time, is_torn in ((T0 - 1, False), (T0, True), (T0 + 1, True)):
        found = steps(scan_past_damage(files_of(disk, with_hole(time)), 0, torn_from=T0))
        assert found[0] == ("Damage" if is_torn else "Seen", 0, 2000)
        assert found[1] == ("Seen", 2000, 400)


# Finding the files


def test_files_are_found_in_several_directories_and_created_round_robin(tmp_path: Path) -> None:
    directories = tuple(str(tmp_path / name / "log") for name in "abc")
    disk = LocalDisk()
    files = LogFiles(disk, directories, LOG_FILE, read_only_dirs=frozenset(directories[2:]))
    for number in range(5):
        files.adopt(number * LOG_FILE, files.create(number * LOG_FILE))
    files.close()
    assert [len(disk.list(directory)) for directory in directories] == [3, 2, 0]
    again = LogFiles(disk, directories, LOG_FILE)
    again.load()
    assert again.bases == [number * LOG_FILE for number in range(5)]
    assert (again.start, again.limit) == (0, 5 * LOG_FILE)
    assert os.path.dirname(again.path(LOG_FILE)) == directories[1]
    disk.close()


def test_other_files_are_not_read_as_log_files(disk: MemoryDisk) -> None:
    for name in ("readme", "00000000000000000000.bak", "123"):
        disk.write(f"/log/{name}", b"x")
    assert files_of(disk).bases == []
