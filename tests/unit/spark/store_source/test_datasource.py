"""The format ``orbitmq-store`` without Spark: rows, options, damage, and stores that are being written to."""

from __future__ import annotations

import datetime
import hashlib
import itertools
import os
import pickle
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual, In, InputPartition, IsNotNull, LessThan
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from orbitmq.protocol.message.batch import encode_batch
from orbitmq.protocol.message.crc import body_crc
from orbitmq.protocol.message.flags import INNER_BATCH
from orbitmq.protocol.names import is_system_topic
from orbitmq.spark.errors import DataLossError, OptionError
from orbitmq.spark.schema.columns import COLUMNS
from orbitmq.spark.store_source.datasource import StoreSource
from orbitmq.spark.store_source.options import StoreOptions
from orbitmq.spark.store_source.partition_reader import DamagedLogError
from orbitmq.spark.store_source.partitioning import StorePartition
from orbitmq.store import StoredMessage
from orbitmq.testing import ManualClock
from support.spark.store_rows import filtered_rows_of, reader_of, rows_of, struct_of, table_of
from support.store import golden
from support.store.stores import LOG_FILE, T0, TOPIC, all_queues, edit_log, open_golden, open_small, send, tree

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql.datasource import Filter

TRANSACTION_BITS = 0xC


def expected_rows(name: str) -> dict[str, dict[str, Any]]:
    """The messages in queues of a store, as Apache reads them, by their ids."""
    return {
        row["msgId"]: row
        for row in golden.expected_records(name)
        if "topic" in row and row.get("survives", True) and not row["sysFlag"] & 0x4
    }


def bodies(rows: list[dict[str, Any]]) -> list[bytes]:
    return [row["body"] for row in rows]


@pytest.mark.parametrize("name", ["basic", "killed", "torn", "ipv6"])
def test_rows_are_what_apache_reads_in_its_store(name: str, tmp_path: Path) -> None:
    root = golden.unpack(name, tmp_path)
    expected = expected_rows(name)
    rows = rows_of(root, includeSystemTopics="true")
    assert [row["msg_id"] for row in rows] == list(expected)
    for row, apache in zip(rows, expected.values(), strict=True):
        digest = hashlib.sha256(row["body"]).hexdigest()
        assert digest == apache.get("bodyDecompressedSha256", apache["bodySha256"])
        properties = apache["properties"]
        assert {name: value for name, value in row.items() if name != "body"} == {
            "topic": apache["topic"],
            "broker": "broker-gold",
            "queue_id": apache["queueId"],
            "queue_offset": apache["queueOffset"],
            "msg_id": apache["msgId"],
            "unique_id": properties.get("UNIQ_KEY"),
            "tags": properties.get("TAGS"),
            "keys": [key for key in properties["KEYS"].split(" ") if key] if "KEYS" in properties else None,
            "properties": properties,
            "born_timestamp": datetime.datetime.fromtimestamp(apache["bornTimestamp"] / 1000, datetime.UTC),
            "store_timestamp": datetime.datetime.fromtimestamp(apache["storeTimestamp"] / 1000, datetime.UTC),
            "born_host": apache["bornHost"],
            "store_host": apache["storeHost"],
            "sys_flag": apache["sysFlag"],
            "reconsume_times": apache["reconsumeTimes"],
        }


def test_messages_in_batches_are_rows_of_their_own(tmp_path: Path) -> None:
    root = golden.unpack("extra", tmp_path)
    rows = rows_of(root, includeSystemTopics="true")
    batches = {row["msgId"] for row in golden.expected_records("extra") if row.get("sysFlag", 0) & INNER_BATCH}
    parts = [row for row in rows if row["msg_id"] in batches]
    units = [unit for unit in golden.expected_queue_units("extra") if unit.get("batchNum", -1) > 0]
    offsets = {(row["topic"], row["queue_id"], row["queue_offset"]) for row in parts}
    wanted = {
        (unit["topic"], unit["queueId"], unit["queueOffset"] + number)
        for unit in units
        for number in range(unit["batchNum"])
    }
    assert len(parts) > len(batches)
    assert offsets <= wanted
    assert {row["msg_id"] for row in rows} == set(expected_rows("extra"))


@pytest.mark.parametrize("name", golden.SETS)
def test_rows_are_what_the_queues_of_the_store_serve(name: str, tmp_path: Path) -> None:
    with open_golden(name, tmp_path) as store:
        served = {
            (topic, queue_id, record.queue_offset, record.physical_offset)
            for (topic, queue_id), records in all_queues(store).items()
            for record in records
            if not record.sys_flag & INNER_BATCH and record.topic == topic
        }
    rows = rows_of(tmp_path / "store", includeSystemTopics="true", columns="topic,queue_id,queue_offset,msg_id")
    found = {(row["topic"], row["queue_id"], row["queue_offset"], int(row["msg_id"][-16:], 16)) for row in rows}
    assert served
    assert served <= found


def test_system_topics_are_left_out_unless_they_are_named(tmp_path: Path) -> None:
    root = golden.unpack("basic", tmp_path)
    topics = {row["topic"] for row in expected_rows("basic").values()}
    assert any(is_system_topic(topic) for topic in topics)
    everything = {row["topic"] for row in rows_of(root, columns="topic")}
    assert everything == {topic for topic in topics if not is_system_topic(topic)}
    assert any(topic.startswith("%RETRY%") for topic in everything)
    named = rows_of(root, columns="topic", topics="SCHEDULE_TOPIC_XXXX, TopicTx")
    assert {row["topic"] for row in named} == {"SCHEDULE_TOPIC_XXXX", "TopicTx"}
    assert {row["topic"] for row in rows_of(root, columns="topic", topic="TopicKeys")} == {"TopicKeys"}


def test_rolled_back_and_prepared_messages_are_no_rows(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        for sys_flag in (0x0, 0x4, 0x8, 0xC):
            store.append(StoredMessage(TOPIC, 0, b"%d" % sys_flag, sys_flag=sys_flag))
    rows = rows_of(tmp_path)
    assert [(row["body"], row["sys_flag"] & TRANSACTION_BITS) for row in rows] == [(b"0", 0), (b"8", 8)]


def test_columns_are_those_requested_in_their_order(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        send(store, 2)
    assert StoreSource({"path": str(tmp_path), "columns": "queue_offset, topic"}).schema() == (
        "queue_offset bigint, topic string"
    )
    assert table_of(reader_of(tmp_path, columns="queue_offset,topic")).schema.names == ["queue_offset", "topic"]
    assert table_of(reader_of(tmp_path)).schema.names == list(COLUMNS)
    without = table_of(reader_of(tmp_path, includeProperties="false")).schema.names
    assert without == [name for name in COLUMNS if name != "properties"]


def test_a_schema_of_the_user_is_followed_if_it_is_one_of_messages(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        send(store, 3)
    source = StoreSource({"path": str(tmp_path)})
    chosen = StructType(
        [StructField("topic", StringType(), nullable=False), StructField("queue_id", IntegerType())]
    )
    table = table_of(source.reader(chosen))
    assert [(field.name, field.nullable) for field in table.schema] == [("topic", False), ("queue_id", True)]
    with pytest.raises(OptionError, match="there is no column 'offset'"):
        source.reader(StructType([StructField("offset", IntegerType())]))
    with pytest.raises(OptionError, match="has the column 'queue_id' as string: it is int"):
        source.reader(StructType([StructField("queue_id", StringType())]))


def test_rows_are_cut_at_store_times(tmp_path: Path) -> None:
    clock = ManualClock(T0)
    with open_small(tmp_path, clock=clock) as store:
        for _ in range(100):
            send(store, 1, size=50)
            clock.advance(1000)
    rows = rows_of(tmp_path, columns="store_timestamp", startingTimestamp=str(T0 + 5000), splitSize="1k")
    assert len(rows) == 95
    rows = rows_of(tmp_path, startingTimestamp=str(T0 + 5000), endingTimestamp=str(T0 + 7000), splitSize="1k")
    times = [row["store_timestamp"].timestamp() * 1000 for row in rows]
    assert times == [T0 + 5000, T0 + 6000]


def test_parts_follow_each_other_and_the_last_are_smaller(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        send(store, 200, size=100)
        end = store.log.end
    parts = [part for part in reader_of(tmp_path, splitSize="4k").partitions() if isinstance(part, StorePartition)]
    assert (parts[0].start, parts[-1].end) == (0, end)
    assert all(before.end == after.start for before, after in itertools.pairwise(parts))
    sizes = [part.end - part.start for part in parts]
    assert max(sizes) == 4096
    assert max(sizes[-4:]) == 1024


def test_parts_of_another_time_are_not_read(tmp_path: Path) -> None:
    clock = ManualClock(T0)
    hour = 3_600_000
    with open_small(tmp_path, clock=clock) as store:
        for _ in range(100):
            send(store, 1, size=50)
            clock.advance(hour)
    everything = reader_of(tmp_path, splitSize="1k").partitions()
    options = {"startingTimestamp": str(T0 + 40 * hour), "endingTimestamp": str(T0 + 50 * hour), "splitSize": "1k"}
    parts = reader_of(tmp_path, **options).partitions()
    assert 0 < len(parts) <= len(everything) / 5
    assert len(rows_of(tmp_path, **options)) == 10
    at = datetime.datetime.fromtimestamp((T0 + 40 * hour) / 1000, datetime.UTC)
    later = at + datetime.timedelta(hours=10)
    column = ("store_timestamp",)
    rows, left = filtered_rows_of(
        tmp_path, [GreaterThanOrEqual(column, at), LessThan(column, later)], splitSize="1k"
    )
    assert len(rows) == 10
    assert left == []


def test_filters_are_applied_where_records_are_read(tmp_path: Path) -> None:
    root = golden.unpack("basic", tmp_path)
    everything = rows_of(root)
    cases: list[tuple[list[Filter], Callable[[dict[str, Any]], bool]]] = [
        ([EqualTo(("topic",), "TopicTags")], lambda row: row["topic"] == "TopicTags"),
        (
            [IsNotNull(("tags",)), In(("queue_id",), (1, 2))],
            lambda row: bool(row["tags"]) and row["queue_id"] in {1, 2},
        ),
        ([GreaterThanOrEqual(("queue_offset",), 100)], lambda row: row["queue_offset"] >= 100),
        ([EqualTo(("broker",), "another")], lambda _: False),
    ]
    for filters, holds in cases:
        rows, left = filtered_rows_of(root, filters, splitSize="50k")
        for row in rows:
            row["properties"] = dict(row["properties"])
        assert rows == [row for row in everything if holds(row)]
        assert left == []


def test_only_messages_with_one_of_the_keys_are_rows(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        send(store, 3, KEYS="a b")
        send(store, 2, KEYS="c")
        send(store, 2)
    assert [row["keys"] for row in rows_of(tmp_path, keys="b")] == [["a", "b"]] * 3
    assert len(rows_of(tmp_path, keys="b, c")) == 5


def test_reader_and_parts_travel_to_other_processes(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        send(store, 30)
    reader = pickle.loads(pickle.dumps(reader_of(tmp_path)))
    parts = pickle.loads(pickle.dumps(reader.partitions()))
    assert sum(batch.num_rows for part in parts for batch in reader.read(part)) == 30


def test_a_store_without_messages_has_no_rows(tmp_path: Path) -> None:
    with open_small(tmp_path):
        pass
    reader = reader_of(tmp_path)
    assert reader.partitions() == []
    # What Spark makes of no partitions.
    assert list(reader.read(InputPartition(None))) == []


# Damage


def filled(root: Path, count: int = 80) -> list[int]:
    with open_small(root) as store:
        return send(store, count, size=100)


@pytest.mark.parametrize("split", ["300", "1k", "64m"])
def test_a_damaged_body_fails_the_query_or_is_left_out(
    split: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    offsets = filled(tmp_path)
    whole = bodies(rows_of(tmp_path))
    edit_log(tmp_path, offsets[20] + 120, b"damage")
    path = os.path.join(tmp_path, "commitlog", f"{offsets[20] // LOG_FILE * LOG_FILE:020d}")
    with pytest.raises(DamagedLogError, match=f"{path}: the record at offset {offsets[20]} has a body that fails"):
        rows_of(tmp_path, splitSize=split)
    assert bodies(rows_of(tmp_path, splitSize=split, failOnDamage="false")) == whole[:20] + whole[21:]
    assert "store reader: damaged record, skipping it: " in caplog.text
    assert f"offset {offsets[20]} has a body that fails its CRC" in caplog.text
    unchecked = bodies(rows_of(tmp_path, splitSize=split, checkCrc="false"))
    assert len(unchecked) == 80
    assert b"damage" in unchecked[20]


@pytest.mark.parametrize("split", ["200", "300", "1k", "64m"])
@pytest.mark.parametrize("damage", [bytes(8), bytes(150), b"\xff" * 4])
def test_bytes_that_are_no_record_fail_the_query_or_are_left_out(split: str, damage: bytes, tmp_path: Path) -> None:
    offsets = filled(tmp_path)
    whole = bodies(rows_of(tmp_path))
    edit_log(tmp_path, offsets[20], damage)
    with pytest.raises(DamagedLogError, match=f"no whole record at offset {offsets[20]}"):
        rows_of(tmp_path, splitSize=split)
    assert bodies(rows_of(tmp_path, splitSize=split, failOnDamage="false")) == whole[:20] + whole[21:]


def test_damage_up_to_the_end_of_a_file_is_damage_if_another_follows(tmp_path: Path) -> None:
    offsets = filled(tmp_path)
    whole = bodies(rows_of(tmp_path))
    lost = [offset for offset in offsets if LOG_FILE <= offset < 2 * LOG_FILE][5:]
    edit_log(tmp_path, lost[0], bytes(2 * LOG_FILE - lost[0]))
    with pytest.raises(DamagedLogError, match=f"no whole record at offset {lost[0]}"):
        rows_of(tmp_path)
    kept = [body for body, offset in zip(whole, offsets, strict=True) if offset not in lost]
    for split in ("100", "1k", "64m"):
        assert bodies(rows_of(tmp_path, failOnDamage="false", splitSize=split)) == kept


def test_a_torn_end_is_the_end(tmp_path: Path) -> None:
    offsets = filled(tmp_path)
    whole = bodies(rows_of(tmp_path))
    edit_log(tmp_path, offsets[-1] + 60, bytes(100))
    for split in ("100", "1k", "64m"):
        assert bodies(rows_of(tmp_path, splitSize=split)) == whole[:-1]


def test_a_missing_file_fails_the_query_or_is_left_out(tmp_path: Path) -> None:
    offsets = filled(tmp_path)
    whole = bodies(rows_of(tmp_path))
    os.remove(os.path.join(tmp_path, "commitlog", f"{LOG_FILE:020d}"))
    with pytest.raises(DamagedLogError, match=f"{LOG_FILE:020d}: nothing is there up to offset {2 * LOG_FILE}"):
        rows_of(tmp_path)
    kept = [body for body, at in zip(whole, offsets, strict=True) if not LOG_FILE <= at < 2 * LOG_FILE]
    assert bodies(rows_of(tmp_path, failOnDamage="false")) == kept


def test_a_batch_that_is_none_fails_the_query_or_is_left_out(tmp_path: Path) -> None:
    batch = encode_batch([(0, b"one", b""), (0, b"two", b"")])
    with open_small(tmp_path, batch_topics={"B"}) as store:
        send(store, 1)
        store.append_inner_batch(StoredMessage("B", 0, batch))
        at = store.append_inner_batch(StoredMessage("B", 0, batch)).offset
        send(store, 1)
    assert len(rows_of(tmp_path)) == 6
    broken = batch[:16] + (999).to_bytes(4, "big") + batch[20:]
    edit_log(tmp_path, at + 88, broken)
    edit_log(tmp_path, at + 8, body_crc(broken).to_bytes(4, "big"))
    with pytest.raises(DamagedLogError, match=f"the record at offset {at} is not a batch"):
        rows_of(tmp_path)
    rows = rows_of(tmp_path, failOnDamage="false")
    assert [(row["topic"], row["queue_offset"]) for row in rows] == [(TOPIC, 0), ("B", 0), ("B", 1), (TOPIC, 1)]


def test_records_of_an_earlier_life_behind_the_blank_are_no_rows(tmp_path: Path) -> None:
    filled(tmp_path, 40)
    log = tmp_path / "commitlog" / f"{0:020d}"
    data = bytearray(log.read_bytes())
    first = rows_of(tmp_path, columns="msg_id,body")
    positions = [int(row["msg_id"][-16:], 16) for row in first if int(row["msg_id"][-16:], 16) < LOG_FILE]
    cut = positions[3]
    # A longer blank, as if the file had been filled recreated up to here, with the old records still behind it.
    data[cut : cut + 8] = (LOG_FILE - cut).to_bytes(4, "big") + bytes.fromhex("CBD43194")
    log.write_bytes(data)
    kept = [row["body"] for row in first if not cut <= int(row["msg_id"][-16:], 16) < LOG_FILE]
    for split in ("200", "1k", "64m"):
        assert bodies(rows_of(tmp_path, splitSize=split)) == kept


# Stores that are being written to


def test_a_store_is_read_while_it_is_written_to(tmp_path: Path) -> None:
    with open_small(tmp_path, mapped_file_size_commit_log=1 << 20) as store:
        sent = send(store, 500, size=300)
        reader = reader_of(tmp_path, splitSize="20k", columns="msg_id")
        parts = reader.partitions()
        found = []
        for part in parts:
            found += [text for batch in reader.read(part) for text in batch.column(0).to_pylist()]  # type: ignore[union-attr]
            send(store, 50, size=300)
        assert [int(text[-16:], 16) for text in found] == sent
        assert len(rows_of(tmp_path, columns="msg_id")) == 500 + 50 * len(parts)


def test_a_record_that_is_being_written_is_no_row_yet(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        send(store, 3, size=100, TAGS="t")
        end = store.log.end
        (at,) = send(store, 1, size=100, TAGS="t")
    assert at == end
    path = tmp_path / "commitlog" / f"{0:020d}"
    whole = path.read_bytes()
    record = whole[at : at + int.from_bytes(whole[at : at + 4], "big")]
    for written in range(0, len(record), 7):
        path.write_bytes(whole[:at] + record[:written] + bytes(len(whole) - at - written))
        assert len(rows_of(tmp_path)) == 3
    path.write_bytes(whole)
    assert len(rows_of(tmp_path)) == 4


def test_a_file_that_retention_took_since_fails_the_query_or_is_left_out(tmp_path: Path) -> None:
    filled(tmp_path)
    for options in ({}, {"failOnDamage": "false"}):
        reader = reader_of(tmp_path, **options)
        parts = reader.partitions()
        oldest = min(os.listdir(tmp_path / "commitlog"))
        os.remove(tmp_path / "commitlog" / oldest)
        if options:
            assert list(reader.read(parts[0])) == []
        else:
            with pytest.raises(DataLossError, match=f"{oldest} was there when the query began and is not any more"):
                list(reader.read(parts[0]))


def test_nothing_is_written_and_nothing_locked(tmp_path: Path) -> None:
    filled(tmp_path)
    before = tree(tmp_path, "")
    for path in (tmp_path, tmp_path / "commitlog"):
        assert len(rows_of(path)) == 80
    assert tree(tmp_path, "") == before


# Options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "path is missing"),
        ({"path": "p", "topik": "a"}, "there is no option 'topik' for reading a store: did you mean topic"),
        ({"path": "p", "topic": "a", "topics": "b"}, "topic and topics are both given"),
        ({"path": "p", "topic": " , "}, "topic=, names nothing"),
        ({"path": "p", "splitSize": "64x"}, "splitSize=64x is not possible"),
        ({"path": "p", "splitSize": "0"}, "splitSize=0 is not possible"),
        ({"path": "p", "checkCrc": "yes"}, "checkCrc=yes is not possible: it is one of true, false"),
        ({"path": "p", "startingTimestamp": "today"}, "startingTimestamp=today is not a time"),
        ({"path": "p", "startingTimestamp": "9", "endingTimestamp": "8"}, "startingTimestamp=9 is after"),
        ({"path": "p", "columns": "topic,offset"}, "there is no column 'offset'"),
        ({"path": "s3://bucket/store"}, "is not on a file system"),
    ],
)
def test_a_mistake_in_the_options_is_one_sentence(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        StoreOptions.of(options)


def test_options_are_read_whatever_their_case() -> None:
    options = StoreOptions.of(
        {
            "path": "file:///data/my%20store",
            "SPLITSIZE": "2k",
            "CheckCRC": "FALSE",
            "topics": "a, b,a",
            "broker": "x",
        }
    )
    assert options.path == "/data/my store"
    assert options.split_size == 2048
    assert not options.check_crc
    assert options.topics == frozenset({"a", "b"})
    assert options.broker == "x"


def test_a_path_that_is_no_store_is_one_sentence(tmp_path: Path) -> None:
    source = StoreSource({"path": str(tmp_path / "nothing")})
    with pytest.raises(OptionError, match="cannot be read: there is no directory"):
        source.reader(struct_of(source.schema()))


def test_the_broker_is_the_one_that_is_named(tmp_path: Path) -> None:
    filled(tmp_path, 1)
    assert rows_of(tmp_path)[0]["broker"] is None
    assert rows_of(tmp_path, broker="broker-b")[0]["broker"] == "broker-b"


def test_a_topic_that_a_store_does_not_have_is_refused(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        send(store, 3)
    assert len(rows_of(tmp_path, topic=TOPIC)) == 3
    with pytest.raises(OptionError, match=rf"^the store .* has no topic 'TopicB'; did you mean {TOPIC}\?"):
        rows_of(tmp_path, topic="TopicB")
