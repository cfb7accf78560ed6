"""Reading the log by the thousand finds what reading it record by record finds, whole or damaged."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np
import pytest

from orbitmq.store import LocalDisk, StoredMessage
from orbitmq.store.commitlog.column_scanner import CHUNK, WRONG_CRC, Chunk, scan_log
from orbitmq.store.commitlog.read_only import ReadOnlyLog
from orbitmq.store.commitlog.scanner import Damage, Seen, scan_past_damage
from orbitmq.store.tools.detect_layout import detect
from support.store import golden
from support.store.stores import edit_log, open_small, send

if TYPE_CHECKING:
    from pathlib import Path

Step = tuple[int, int, str]


def opened(root: str) -> ReadOnlyLog:
    disk = LocalDisk()
    log = ReadOnlyLog(disk, detect(disk, root))
    log.load()
    return log


def by_chunk(log: ReadOnlyLog) -> list[Step]:
    steps: list[Step] = []
    for step in scan_log(log, search_unwritten=True):
        if isinstance(step, Damage):
            steps.append((step.offset, step.size, step.reason))
        else:
            pairs = zip(step.offset.tolist(), step.size.tolist(), strict=True)
            steps += [(offset, size, "whole" if step.is_whole else "body") for offset, size in pairs]
    return steps


def by_record(log: ReadOnlyLog) -> list[Step]:
    steps: list[Step] = []
    for step in scan_past_damage(log, log.start, search_unwritten=True):
        if isinstance(step, Seen):
            steps.append((step.offset, step.size, "whole" if step.body_is_intact else "body"))
        else:
            steps.append((step.offset, step.size, step.reason))
    return steps


@pytest.mark.parametrize("name", golden.SETS)
def test_both_ways_of_reading_agree(name: str, tmp_path: Path) -> None:
    log = opened(golden.unpack(name, tmp_path))
    steps = by_chunk(log)
    assert steps == by_record(log)
    assert sum(what == "whole" for _, _, what in steps) == golden.expected_offsets(name)["records"]
    log.close()


@pytest.mark.parametrize("name", ["basic", "ipv6"])
def test_both_ways_agree_on_damage(name: str, tmp_path: Path) -> None:
    root = golden.unpack(name, tmp_path)
    rng = random.Random(11)
    rows = [row for row in golden.expected_records(name) if "topic" in row]
    for _ in range(60):
        log = opened(root)
        row = rng.choice(rows)
        at = row["physicalOffset"] + rng.randrange(row["storeSize"])
        path = log.file_at(at)
        with open(path, "r+b") as file:
            file.seek(at % log.file_size)
            before = file.read(4)
            file.seek(at % log.file_size)
            file.write(rng.choice([bytes(len(before)), rng.randbytes(len(before))]))
        assert by_chunk(log) == by_record(log)
        with open(path, "r+b") as file:
            file.seek(at % log.file_size)
            file.write(before)
        log.close()


def test_columns_are_the_fields_of_the_records(tmp_path: Path) -> None:
    log = opened(golden.unpack("ipv6", tmp_path))
    (chunk,) = (step for step in scan_log(log) if isinstance(step, Chunk))
    rows = golden.expected_records("ipv6")
    assert [topic.decode() for topic in chunk.topics()] == [row["topic"] for row in rows]
    for column, name in (
        (chunk.queue_id, "queueId"),
        (chunk.queue_offset, "queueOffset"),
        (chunk.sys_flag, "sysFlag"),
        (chunk.store_timestamp, "storeTimestamp"),
        (chunk.crc, "bodyCRC"),
        (chunk.body_size, "bodyRawLength"),
    ):
        assert column.tolist() == [row[name] for row in rows]
    log.close()


def test_a_property_crc_that_fails_is_found(tmp_path: Path) -> None:
    root = golden.unpack("extra", tmp_path)
    row = golden.expected_records("extra")[3]
    with open(f"{root}/commitlog/{0:020d}", "r+b") as file:
        # The flag is the user's own: nothing but this CRC covers it.
        file.seek(row["physicalOffset"] + 16)
        file.write(b"\x01")
    log = opened(root)
    chunks = [step for step in scan_log(log) if isinstance(step, Chunk)]
    assert [np.flatnonzero(chunk.property_crcs() == WRONG_CRC).tolist() for chunk in chunks] == [[3], []]
    log.close()


def test_a_file_with_more_records_than_a_chunk_is_read_whole(tmp_path: Path) -> None:
    count = CHUNK + 10
    with open_small(tmp_path, mapped_file_size_commit_log=8 << 20, message_index_enable=False) as store:
        send(store, count)
    log = opened(str(tmp_path))
    chunks = [step for step in scan_log(log) if isinstance(step, Chunk)]
    assert [len(chunk) for chunk in chunks] == [CHUNK, 10]
    log.close()


def test_a_range_of_the_log_is_read_in_chunks_of_the_given_size(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        offsets = send(store, 100, size=100)
    log = opened(str(tmp_path))
    chunks = [step for step in scan_log(log, offsets[10], offsets[90], most=7) if isinstance(step, Chunk)]
    assert [offset for chunk in chunks for offset in chunk.offset.tolist()] == offsets[10:90]
    assert max(map(len, chunks)) == 7
    narrow = [step for step in scan_log(log, offsets[10], offsets[90], window=1000) if isinstance(step, Chunk)]
    assert [offset for chunk in narrow for offset in chunk.offset.tolist()] == offsets[10:90]
    assert all(chunk.position[-1] - chunk.position[0] < 1000 for chunk in narrow)
    log.close()


def test_bodies_are_not_read_without_a_crc_check(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        offsets = send(store, 20, size=100)
    edit_log(tmp_path, offsets[5] + 120, b"damage")
    log = opened(str(tmp_path))
    (chunk,) = (step for step in scan_log(log, check_crc=False) if isinstance(step, Chunk))
    assert chunk.offset.tolist() == offsets
    assert np.flatnonzero(~chunk.is_intact()).tolist() == [5]
    log.close()


def test_a_fixed_part_that_does_not_fit_its_record_is_damage(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        offsets = [store.append(StoredMessage("T", 0, b"")).offset for _ in range(3)]
    # IPv6 hosts would need more bytes than these records have.
    edit_log(tmp_path, offsets[1] + 36, (0x30).to_bytes(4, "big"))
    log = opened(str(tmp_path))
    steps = by_chunk(log)
    assert steps == by_record(log)
    assert [what for _, _, what in steps][:3] == ["whole", "record size 92 is less than its fixed part", "whole"]
    log.close()
