"""The messages of stores written by Apache RocketMQ, stored again here, make the same files byte for byte."""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING

import pytest

from orbitmq.protocol.message.batch import encode_batch, is_inner_batch
from orbitmq.protocol.message.properties import parse, without
from orbitmq.protocol.message.record import CRC_PROPERTY, MAGIC_BLANK, Record, crc_property_of, decode_record
from orbitmq.store import MessageStore, StoredMessage, from_settings
from orbitmq.store.consumequeue.consume_queue import UNIT, UNIT_SIZE
from orbitmq.testing import ManualClock
from support.store import golden
from support.store.stores import tree

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

GIVEN_BY_THE_STORE = (CRC_PROPERTY, b"INNER_NUM", b"INNER_BASE", b"INNER_MULTI_QUEUE_OFFSET")
"""Properties that a message does not have when it comes to the store."""

BATCH_TOPIC = "TopicBatch"
"""What Apache's client sent here came as batches, which the broker stored as single records."""


def records_of(name: str) -> Iterator[Record]:
    log = golden.commit_log(name)
    for row in golden.expected_records(name):
        if "topic" in row:
            yield decode_record(log, row["physicalOffset"])


def store_again(name: str, root: Path) -> None:
    """Append every message of a set to a new store, at the same times."""
    config, _ = from_settings(golden.config(name), store_path_root_dir=str(root))
    clock = ManualClock()
    batch_topics = {row["topic"] for row in golden.expected_queue_units(name) if "batchNum" in row}
    with MessageStore.open(config, clock=clock, batch_topics=batch_topics) as store:
        for (topic, stored_at), records in itertools.groupby(
            records_of(name), lambda record: (record.topic, record.store_timestamp)
        ):
            clock.advance(stored_at - clock.now_ms())
            if topic == BATCH_TOPIC:
                append_as_batch(store, list(records))
            else:
                for record in records:
                    append_again(store, record)


def append_again(store: MessageStore, record: Record) -> None:
    properties = without(record.properties, GIVEN_BY_THE_STORE)
    if is_inner_batch(record.sys_flag):
        appended = store.append_inner_batch(
            StoredMessage(
                record.topic,
                record.queue_id,
                record.body,
                properties,
                born_timestamp=record.born_timestamp,
                born_host=record.born_host,
            )
        )
    else:
        appended = store.append(
            StoredMessage(
                record.topic,
                record.queue_id,
                record.body,
                properties,
                flag=record.flag,
                sys_flag=record.sys_flag,
                born_timestamp=record.born_timestamp,
                born_host=record.born_host,
                reconsume_times=record.reconsume_times,
                prepared_transaction_offset=record.prepared_transaction_offset,
            )
        )
    assert appended == (record.physical_offset, record.size, record.queue_offset, record.store_timestamp)


def append_as_batch(store: MessageStore, records: list[Record]) -> None:
    first = records[0]
    assert len(records) > 1
    appended = store.append_batch(
        StoredMessage(
            first.topic,
            first.queue_id,
            encode_batch((record.flag, record.body, record.properties) for record in records),
            sys_flag=first.sys_flag,
            born_timestamp=first.born_timestamp,
            born_host=first.born_host,
            reconsume_times=first.reconsume_times,
        )
    )
    assert [one.offset for one in appended] == [record.physical_offset for record in records]


@pytest.fixture(scope="module", params=["basic", "killed", "extra", "ipv6"])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def ours(name: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    root = tmp_path_factory.mktemp(name) / "store"
    store_again(name, root)
    return str(root)


@pytest.fixture(scope="module")
def theirs(name: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    return golden.unpack(name, tmp_path_factory.mktemp(name))


def test_the_commit_log_is_the_same(name: str, ours: str, theirs: str) -> None:
    written = tree(ours, "commitlog")
    expected = tree(theirs, "commitlog")
    if name == "killed":
        # Apache makes the next file ahead of time, and only a clean exit removes it.
        assert not any(expected.pop(max(expected)))
    assert written.keys() == expected.keys()
    for path in expected:
        if name == "extra":
            assert in_same_order(written[path]) == in_same_order(expected[path])
        else:
            assert written[path] == expected[path], path


def in_same_order(log: bytes) -> list[Record | bytes]:
    """Records and what is behind them, with properties sorted where the store adds some.

    Apache keeps properties in a hash map, so one that it adds may come to stand anywhere; the CRC property
    depends on that order.
    """
    found: list[Record | bytes] = []
    position = 0
    while int.from_bytes(log[position + 4 : position + 8], "big") not in {0, MAGIC_BLANK}:
        record = decode_record(log, position)
        raw = log[position : position + record.size]
        position += record.size
        assert raw.endswith(crc_property_of(raw[: -len(crc_property_of(b""))]))
        properties = parse(record.properties)
        if properties.keys() & {"INNER_NUM", "INNER_MULTI_QUEUE_OFFSET"}:
            del properties["__CRC32#"]
            record.properties = repr(sorted(properties.items())).encode()
            found.append(record)
        else:
            found.append(raw)
    return [*found, log[position:]]


def test_the_consume_queues_are_the_same(name: str, ours: str, theirs: str) -> None:
    written = tree(ours, "consumequeue", "batchconsumequeue")
    expected = tree(theirs, "consumequeue", "batchconsumequeue")
    if name == "killed":
        # The queues on disk lag behind the log; those of the dump were recovered.
        lagging, expected = expected, rendered(name)
        for path, units in lagging.items():
            assert expected[path].startswith(units.rstrip(b"\0"))
    assert written.keys() == expected.keys()
    for path, units in expected.items():
        if os.path.isdir(os.path.join(theirs, "consumequeue_ext", *path.split("/")[1:3])):
            assert places(written[path]) == places(units), path
        else:
            assert written[path] == units, path


def places(units: bytes) -> list[tuple[int, int]]:
    """Offset and size of every unit; the third field may be the address of an extension, which we do not write."""
    return [(offset, size) for offset, size, _ in UNIT.iter_unpack(units)]


def rendered(name: str) -> dict[str, bytes]:
    """The queue files that hold the units of the dump."""
    size = int(golden.config(name)["mappedFileSizeConsumeQueue"])
    files: dict[str, bytearray] = {}
    for row in golden.expected_queue_units(name):
        position = row["queueOffset"] * UNIT_SIZE
        base = position - position % size
        path = f"consumequeue/{row['topic']}/{row['queueId']}/{base:020d}"
        file = files.setdefault(path, bytearray(size))
        UNIT.pack_into(file, position - base, row["physicalOffset"], row["size"], row["tagsCode"])
    return {path: bytes(file) for path, file in files.items()}


def test_the_index_has_the_same_entries(name: str, ours: str) -> None:
    config, _ = from_settings(golden.config(name), store_path_root_dir=ours)
    with MessageStore.open(config, clock=ManualClock(2_000_000_000_000)) as store:
        for row in golden.expected_index(name):
            if row["type"] == "query":
                found = store.query(row["topic"], row["key"], index_type=row["indexType"])
                assert [decode_record(record).physical_offset for record in found.records] == row["messages"]


def test_index_files_of_a_store_that_was_never_interrupted_are_the_same(tmp_path: Path) -> None:
    for name in ("basic", "ipv6"):
        store_again(name, tmp_path / name)
        theirs = tree(golden.unpack(name, tmp_path / f"apache-{name}"), "index")
        ours = tree(tmp_path / name, "index")
        # They are named after the moment of their creation, which nobody recorded.
        assert [ours[path] for path in sorted(ours)] == [theirs[path] for path in sorted(theirs)]
