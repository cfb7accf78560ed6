"""Records as columns: buffers that are none, batches taken apart, values that Spark could not take."""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from orbitmq.protocol import ProtocolError
from orbitmq.protocol.message.batch import encode_batch
from orbitmq.protocol.message.flags import INNER_BATCH, NEED_UNWRAP
from orbitmq.protocol.message.properties import encode
from orbitmq.protocol.message.record import encode_record
from orbitmq.protocol.message.record_columns import follow_sizes
from orbitmq.spark.records import arrow_buffers as arrow_slices
from orbitmq.spark.records import to_arrow as record_arrow
from orbitmq.spark.records.arrow_buffers import BatchTooLargeError, gathered
from orbitmq.spark.records.records import Records
from orbitmq.spark.records.to_arrow import arrow_batches, keys_of, only_topic_of, tags_of, to_arrow, topics_of
from orbitmq.spark.schema.columns import COLUMNS, arrow_schema_of
from support.store import golden

if TYPE_CHECKING:
    from pathlib import Path

HOST = bytes([127, 0, 0, 1, 0, 0, 42, 159])


def record(body: bytes = b"body", **fields: Any) -> bytes:
    values: dict[str, Any] = {"topic": b"TopicA", "queue_id": 1, "born_host": HOST, "store_host": HOST}
    return encode_record(body=body, **(values | fields))


def test_no_bytes_are_no_records() -> None:
    records = Records.of(b"")
    assert len(records) == 0
    assert to_arrow(records, list(COLUMNS), broker="b").schema == arrow_schema_of(list(COLUMNS))
    assert list(arrow_batches(records, list(COLUMNS), broker="b")) == []


@pytest.mark.parametrize("cut", [1, 50, 91, 95])
def test_a_record_that_is_cut_off_is_refused(cut: int) -> None:
    data = record() + record()
    with pytest.raises(ProtocolError):
        Records.of(data[: len(record()) + cut])


def test_bytes_between_records_are_refused() -> None:
    with pytest.raises(ProtocolError, match="0x00000000 is not the magic of a record"):
        Records.of(record() + (200).to_bytes(4, "big") + bytes(196))


def test_a_size_of_nothing_does_not_stand_still() -> None:
    with pytest.raises(ProtocolError, match="is not the magic"):
        Records.of(record() + bytes(200))


def test_a_record_with_ipv6_flags_and_no_room_for_such_hosts_is_refused() -> None:
    data = bytearray(record(b""))
    data[36:40] = (0x30).to_bytes(4, "big")
    with pytest.raises(ProtocolError):
        Records.of(bytes(data))


def test_positions_that_hold_no_record_are_refused() -> None:
    with pytest.raises(ProtocolError):
        Records.of(record() + record(), np.array([0, 5], np.int64))


def test_all_kinds_of_buffers_are_read(tmp_path: Path) -> None:
    data = record(b"first") + record(b"second")
    path = tmp_path / "records"
    path.write_bytes(data)
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    for buffer in (data, bytearray(data), memoryview(data), mapped):
        batch = to_arrow(Records.of(buffer), ["body"], broker=None)
        assert batch.column(0).to_pylist() == [b"first", b"second"]


def test_following_sizes_stops_where_it_is_reported() -> None:
    data = b"".join([record() for _ in range(5)])
    size = len(record())
    assert follow_sizes(data, 0, 3).tolist() == [0, size, 2 * size]
    assert follow_sizes(data, size, 9, 2 * size + 1).tolist() == [size, 2 * size]
    assert follow_sizes(data, size, 9, 2 * size).tolist() == [size]


@pytest.mark.parametrize("alike", [1, 31, 33, 40, 400])
def test_sizes_are_followed_through_runs_of_records_that_are_alike(alike: int) -> None:
    records = [record(b"x" * size) for size in (1, 9, 4, 4, 30) for _ in range(alike)]
    data = b"".join(records)
    ends = np.cumsum([len(one) for one in records]).tolist()
    expected = [0, *ends[:-1]]
    assert follow_sizes(data, 0, len(data)).tolist() == expected
    assert follow_sizes(data, 0, alike + 7).tolist() == expected[: alike + 7]
    assert follow_sizes(data, 0, len(data), expected[-3] + 1).tolist() == expected[:-2]
    assert (
        follow_sizes(data[: ends[-1] - 1], expected[1], len(data)).tolist()[: len(expected) - 2] == expected[1:-1]
    )
    broken = bytearray(data)
    broken[expected[-2] : expected[-2] + 4] = bytes(4)
    assert follow_sizes(broken, 0, len(data)).tolist() == expected[:-2]


def test_topics_are_distinguished_whatever_their_lengths() -> None:
    for topics in (
        [b"A", b"A"],
        [b"A", b"B"],
        [b"A", b"AB"],
        [b"A\0", b"A\0"],
        [b"A\0", b"AA"],
        [b"", b""],
        [b"\xff"],
    ):
        found = Records.of(b"".join([record(topic=topic) for topic in topics]))
        assert topics_of(found).to_pylist() == [topic.decode("utf-8", "replace") for topic in topics]
        is_one = len(set(topics)) == 1 and topics[0] != b""
        assert only_topic_of(found) == (topics[0].decode("utf-8", "replace") if is_one else None)


def test_hosts_are_distinguished() -> None:
    other = bytes([10, 0, 0, 7, 0, 0, 42, 159])
    for hosts in ([HOST, HOST], [HOST, other, HOST]):
        found = Records.of(b"".join([record(born_host=host) for host in hosts]))
        texts = to_arrow(found, ["born_host"], broker=None).column(0).to_pylist()
        assert texts == [{HOST: "127.0.0.1:10911", other: "10.0.0.7:10911"}[host] for host in hosts]


def test_the_messages_of_a_batch_are_rows_of_their_own() -> None:
    items = [(0, b"one", encode({"TAGS": "a"})), (7, b"two", encode({"TAGS": "b"}))]
    batch = record(
        encode_batch(items), queue_offset=10, physical_offset=999, sys_flag=NEED_UNWRAP | INNER_BATCH, topic=b"B"
    )
    records = Records.of(record(b"before", queue_offset=9) + batch + record(b"after", queue_offset=12))
    rows = to_arrow(records, ["queue_offset", "body", "tags", "topic", "sys_flag"], broker=None).to_pylist()
    assert rows == [
        {"queue_offset": 9, "body": b"before", "tags": None, "topic": "TopicA", "sys_flag": 0},
        {"queue_offset": 10, "body": b"one", "tags": "a", "topic": "B", "sys_flag": 0},
        {"queue_offset": 11, "body": b"two", "tags": "b", "topic": "B", "sys_flag": 0},
        {"queue_offset": 12, "body": b"after", "tags": None, "topic": "TopicA", "sys_flag": 0},
    ]
    assert records.flag.tolist() == [0, 0, 7, 0]
    assert records.physical_offset.tolist() == [0, 999, 999, 0]


def test_only_columns_that_are_requested_are_decoded() -> None:
    # The sysFlag lies: reading the body would warn, and the properties are no UTF-8.
    records = Records.of(record(b"not packed", sys_flag=1, properties=b"\xff\x01\xff\x02"))
    batch = to_arrow(records, ["queue_id", "broker"], broker="b")
    assert batch.to_pylist() == [{"queue_id": 1, "broker": "b"}]


def test_a_topic_can_be_given_in_place_of_the_records_own() -> None:
    records = Records.of(record() + record())
    assert to_arrow(records, ["topic"], broker=None, topic="T").column(0).to_pylist() == ["T", "T"]
    assert topics_of(records).to_pylist() == ["TopicA", "TopicA"]


def test_a_body_that_is_not_compressed_as_it_says_is_given_as_it_is_stored(
    caplog: pytest.LogCaptureFixture,
) -> None:
    data = b"".join([record(b"plain", sys_flag=1, queue_offset=at) for at in (4, 5)]) + record(b"x")
    assert to_arrow(Records.of(data), ["body"], broker=None).column(0).to_pylist() == [b"plain", b"plain", b"x"]
    (message,) = caplog.messages
    assert message.startswith(
        "records: decompression failed for 2 bodies, which stay compressed; first: at queue offset 4: "
    )


def test_times_beyond_the_calendar_and_hosts_that_are_none_are_null() -> None:
    bad = record(store_timestamp=2**62, born_timestamp=1, born_host=b"\x01\x02\x03\x04\x00\x01\x00\x00")
    batch = to_arrow(Records.of(bad), ["store_timestamp", "born_host", "store_host"], broker=None)
    assert batch.to_pylist() == [{"store_timestamp": None, "born_host": None, "store_host": "127.0.0.1:10911"}]


def test_tags_and_keys_are_columns_for_filters() -> None:
    data = (
        record(properties=encode({"TAGS": "a", "KEYS": "k1 k2"})) + record() + record(properties=b"KEYS\x01  \x02")
    )
    records = Records.of(data)
    assert tags_of(records).to_pylist() == ["a", None, None]
    assert keys_of(records).to_pylist() == [["k1", "k2"], None, []]


def test_many_different_names_in_one_batch_are_distinguished() -> None:
    data = b"".join(
        record(properties=b"".join(b"n%d\x01%d\x02" % (number % 50, number) for number in range(at, at + 60)))
        for at in range(40)
    )
    maps = to_arrow(Records.of(data), ["properties"], broker=None).column(0).to_pylist()
    for at, found in enumerate(maps):
        assert dict(found) == {f"n{number % 50}": str(number) for number in range(at, at + 60)}
        assert len(found) == 50


def test_columns_over_two_gibibytes_are_made_in_several_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_slices, "_MAX_OFFSET", 1000)
    monkeypatch.setattr(record_arrow, "_MAX_BYTES", 1000)
    data = b"".join(record(bytes([at]) * 300) for at in range(10))
    records = Records.of(data)
    with pytest.raises(BatchTooLargeError):
        to_arrow(records, ["body"], broker=None)
    batches = list(arrow_batches(records, ["body", "msg_id"], broker=None))
    assert len(batches) > 1
    assert [body for batch in batches for body in batch.column(0).to_pylist()] == [
        bytes([at]) * 300 for at in range(10)
    ]


def test_parts_further_apart_than_offsets_reach_are_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_slices, "_MAX_OFFSET", 20)
    start, end = np.array([1, 30, 90]), np.array([4, 32, 90])
    data = bytes(range(100))
    found = gathered(data, start, end, pa.binary())
    assert found.type == pa.binary()
    assert found.to_pylist() == [data[1:4], data[30:32], b""]


@pytest.mark.parametrize("name", ["basic", "extra", "ipv6"])
def test_what_apache_wrote_reads_as_apache_reads_it(name: str) -> None:
    log = golden.commit_log(name)
    rows = [row for row in golden.expected_records(name) if "topic" in row]
    positions = np.array([row["physicalOffset"] for row in rows], np.int64)
    records = Records(log, positions)
    assert bool(records.is_consistent().all())
    assert bool(records.is_intact().all())
    found = to_arrow(records, ["msg_id", "topic", "properties", "born_host", "store_host"], broker=None).to_pylist()
    for row in found:
        row["properties"] = dict(row["properties"])
    assert found == [
        {
            "msg_id": row["msgId"],
            "topic": row["topic"],
            "properties": row["properties"],
            "born_host": row["bornHost"],
            "store_host": row["storeHost"],
        }
        for row in rows
    ]
    for column, key in (
        ("flag", "flag"),
        ("crc", "bodyCRC"),
        ("queue_offset", "queueOffset"),
        ("store_timestamp", "storeTimestamp"),
        ("reconsume_times", "reconsumeTimes"),
        ("body_size", "bodyRawLength"),
        ("size", "storeSize"),
    ):
        assert getattr(records, column).tolist() == [row[key] for row in rows]


def test_columns_have_one_builder_each() -> None:
    assert list(record_arrow._COLUMNS) == list(COLUMNS)
