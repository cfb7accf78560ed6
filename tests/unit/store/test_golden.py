"""Stores written by Apache RocketMQ open here and hold what its own classes read in them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from orbitmq.protocol.hosts import host_text
from orbitmq.protocol.message.record import decode_record
from orbitmq.store.consumequeue.consume_queue import ConsumeQueue
from orbitmq.store.consumequeue.ext import is_ext_address, read_ext
from support.store import golden
from support.store.stores import open_golden, read_all, record_at, tree

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from orbitmq.store import MessageStore

FOREVER = (1 << 63) - 1

CLEAN = ("basic", "extra", "ipv6")
CRASHED = ("killed", "torn")


@pytest.fixture(scope="module", params=golden.SETS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def store(name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MessageStore]:
    with open_golden(name, tmp_path_factory.mktemp(name)) as store:
        yield store


def surviving(name: str) -> list[golden.Row]:
    return [row for row in golden.expected_records(name) if "topic" in row and row.get("survives", True)]


def test_the_log_has_the_bounds_of_rocketmq(store: MessageStore, name: str) -> None:
    expected = golden.expected_offsets(name)
    assert store.log.start == expected["minPhyOffset"]
    assert store.log.end == expected["maxPhyOffset"]
    assert store.recovery.clean is not expected["abortFilePresent"]
    assert not store.recovery.damages


def test_every_record_is_read_by_its_offset_and_by_its_id(store: MessageStore, name: str) -> None:
    for row in surviving(name):
        record = record_at(store, row["physicalOffset"])
        assert record.size == row["storeSize"]
        assert (record.topic, record.queue_id, record.queue_offset) == (
            row["topic"],
            row["queueId"],
            row["queueOffset"],
        )
        assert record.store_timestamp == row["storeTimestamp"]
        assert host_text(record.store_host) == row["storeHost"]
        by_id = store.reader.by_message_id(row["msgId"])
        assert by_id is not None
        assert by_id == store.record(row["physicalOffset"])
        assert store.message_id(row["physicalOffset"]) == row["msgId"]


def test_a_dropped_record_is_not_read(store: MessageStore, name: str) -> None:
    dropped = [row for row in golden.expected_records(name) if not row.get("survives", True)]
    assert bool(dropped) is (name == "torn")
    for row in dropped:
        assert store.record(row["physicalOffset"]) is None


def test_every_queue_has_the_bounds_of_rocketmq(store: MessageStore, name: str) -> None:
    expected = {
        (row["topic"], row["queueId"]): (row["min"], row["max"]) for row in golden.expected_offsets(name)["queues"]
    }
    found = {(queue.topic, queue.queue_id): (queue.min_offset, queue.max_offset) for queue in store.queues.all()}
    assert found == expected
    for topic, queue_id in expected:
        assert store.queues.get(topic, queue_id).next_offset == expected[topic, queue_id][1]


def test_every_queue_unit_is_the_one_rocketmq_reads(store: MessageStore, name: str) -> None:
    rows = golden.expected_queue_units(name)
    queues = {key: units_of(store, *key) for key in {(row["topic"], row["queueId"]) for row in rows}}
    assert len(rows) == sum(len(units) for units in queues.values())
    for row in rows:
        unit = queues[row["topic"], row["queueId"]][row["queueOffset"]]
        assert unit == {key: row[key] for key in unit}


def units_of(store: MessageStore, topic: str, queue_id: int) -> dict[int, dict[str, int | str]]:
    """The units of a queue by queue offset, with the names of the dump."""
    queue = store.queues.get(topic, queue_id)
    if not isinstance(queue, ConsumeQueue):
        return {
            unit.base_offset: {
                "physicalOffset": unit.physical_offset,
                "size": unit.size,
                "tagsCode": unit.tags_code,
                "batchNum": unit.message_count,
                "compactedOffset": unit.compacted_offset,
            }
            for unit in queue.all_units()
        }
    units: dict[int, dict[str, int | str]] = {}
    for queue_offset in range(queue.min_offset, queue.max_offset):
        found = queue.unit(queue_offset)
        assert found is not None
        offset, size, code = found
        units[queue_offset] = {"physicalOffset": offset, "size": size, "tagsCode": code}
        if is_ext_address(code):
            config = store.config
            ext_file = config.mapped_file_size_consume_queue_ext
            ext = read_ext(store.disk, config.store_path_root_dir, topic, queue_id, ext_file, code)
            assert ext is not None
            units[queue_offset] |= {"tagsCode": ext.tags_code, "extMsgStoreTime": ext.store_timestamp}
            if ext.bit_map:
                units[queue_offset]["extBitMap"] = ext.bit_map.hex()
    return units


def test_a_consumer_reads_every_record_of_every_queue(store: MessageStore, name: str) -> None:
    rows = golden.expected_queue_units(name)
    for topic, queue_id in {(row["topic"], row["queueId"]) for row in rows}:
        expected = [row["physicalOffset"] for row in rows if (row["topic"], row["queueId"]) == (topic, queue_id)]
        records = read_all(store, topic, queue_id)
        assert [record.physical_offset for record in records] == expected


def test_a_tag_filter_sees_the_tags_code_behind_an_extension(tmp_path: Path) -> None:
    with open_golden("extra", tmp_path) as store:
        rows = [row for row in golden.expected_queue_units("extra") if "extTagsCode" in row]
        assert rows
        asked = rows[0]
        seen: list[int] = []

        def matches(code: int) -> bool:
            seen.append(code)
            return bool(code == asked["tagsCode"])

        result = store.get(asked["topic"], asked["queueId"], asked["queueOffset"], 1, matches_code=matches)
        assert seen[0] == asked["tagsCode"]
        assert [decode_record(piece).physical_offset for piece in result.slices] == [asked["physicalOffset"]]


def test_every_key_finds_what_it_finds_in_rocketmq(store: MessageStore, name: str) -> None:
    assert store.index is not None
    queries = [row for row in golden.expected_index(name) if row["type"] == "query"]
    assert queries
    for row in queries:
        hits = store.index.query(row["topic"], row["key"], 64, 0, FOREVER, row["indexType"])
        assert hits.offsets == row["indexOffsets"]
        found = store.query(row["topic"], row["key"], index_type=row["indexType"])
        assert [decode_record(record).physical_offset for record in found.records] == row["messages"]
        assert found.last_update_timestamp == row["indexLastUpdateTimestamp"]
        assert found.last_update_offset == row["indexLastUpdatePhyoffset"]


def test_the_index_files_of_a_clean_store_are_kept(tmp_path: Path) -> None:
    for name in CLEAN:
        with open_golden(name, tmp_path / name) as store:
            assert store.index is not None
            headers = [row for row in golden.expected_index(name) if row["type"] == "header"]
            assert [file for file, _ in store.index.files()] == [row["file"] for row in headers]
            assert not store.recovery.removed_index_files


@pytest.mark.parametrize("crashed", CRASHED)
def test_a_recovered_index_has_every_entry_once_where_rocketmq_doubles_one(crashed: str, tmp_path: Path) -> None:
    """RocketMQ writes all keys of a record again whose first keys were in the file before."""
    headers = [row for row in golden.expected_index(crashed) if row["type"] == "headerAfterRecovery"]
    doubled = headers[-1]["beginPhyOffset"]
    assert doubled == headers[-2]["endPhyOffset"]
    theirs = sum(row["indexCount"] - 1 for row in headers)
    with open_golden(crashed, tmp_path) as store:
        assert store.index is not None
        entries = [entry for _, entry in store.index.entries()]
        assert len(entries) == theirs - 1
        keys = 0
        for row in golden.expected_records(crashed):
            if row.get("physicalOffset") == doubled:
                properties = row["properties"]
                keys = len(properties.get("KEYS", "").split()) + ("UNIQ_KEY" in properties) + ("TAGS" in properties)
        assert [entry.offset for entry in entries].count(doubled) == keys > 1


@pytest.mark.parametrize("crashed", CRASHED)
def test_a_crashed_store_closed_here_is_a_clean_one(crashed: str, tmp_path: Path) -> None:
    with open_golden(crashed, tmp_path) as store:
        root = store.config.store_path_root_dir
        before = {(queue.topic, queue.queue_id): queue.max_offset for queue in store.queues.all()}
        end = store.log.end
        assert os.path.exists(os.path.join(root, "abort"))
    assert not os.path.exists(os.path.join(root, "abort"))
    with store.open(store.config, clock=store.clock) as again:
        assert again.recovery.clean
        assert again.log.end == end
        assert not again.recovery.rebuilt_queues
        assert {(queue.topic, queue.queue_id): queue.max_offset for queue in again.queues.all()} == before


@pytest.mark.parametrize("clean", CLEAN)
def test_opening_and_closing_a_store_of_rocketmq_changes_no_message_file(clean: str, tmp_path: Path) -> None:
    folders = ("commitlog", "consumequeue", "consumequeue_ext", "batchconsumequeue", "index")
    untouched = golden.unpack(clean, tmp_path / "untouched")
    with open_golden(clean, tmp_path / "opened") as store:
        root = store.config.store_path_root_dir
    assert tree(root, *folders) == tree(untouched, *folders)
