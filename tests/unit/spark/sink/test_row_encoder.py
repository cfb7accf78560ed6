"""Rows of a DataFrame as messages: what each column becomes, and which rows are refused."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from orbitmq.client.errors import InvalidMessageError
from orbitmq.protocol.message.compression import decompress
from orbitmq.protocol.message.message_id import decode_unique_id
from support.spark.sink_harness import batch_of, bodies, chunks_of, messages_in, sent

if TYPE_CHECKING:
    from collections.abc import Sequence

MADE_ID = "UNIQ_KEY"


def properties_of(batch: pa.RecordBatch, **options: object) -> list[dict[str, str]]:
    """The properties of the messages of these rows, without their ids."""
    found = [properties for _, properties in sent(chunks_of(batch, **options))]
    return [{name: value for name, value in each.items() if name != MADE_ID} for each in found]


def test_a_row_is_its_body_and_an_id() -> None:
    (chunk,) = chunks_of(batch_of(body=bodies(3)))
    assert [body for body, _ in messages_in(chunk)] == bodies(3)
    ids = [properties[MADE_ID] for _, properties in messages_in(chunk)]
    assert [each[-12:] for each in ids] == ["000000000000", "000000000001", "000000000002"]
    assert len({each[:-12] for each in ids}) == 1
    assert (chunk.rows, chunk.unique_key, chunk.topic, chunk.queue) == (3, ids[2], "Orders", None)


def test_a_made_id_is_one_that_java_tools_can_read() -> None:
    (chunk,) = chunks_of(batch_of(body=bodies(2)))
    read = decode_unique_id(chunk.unique_key)
    assert (read.month_millis, read.counter) == (0, 1)
    assert chunk.unique_key == chunk.unique_key.upper()


def test_text_is_sent_as_utf_8() -> None:
    assert sent(chunks_of(batch_of(value=["größer ✓"])))[0][0] == "größer ✓".encode()


def test_columns_become_properties() -> None:
    batch = batch_of(
        body=bodies(3),
        tags=["paid", None, ""],
        keys=[["a", "b"], [], None],
        properties=[{"k": "v", "я": "✓"}, {}, None],
    )
    assert properties_of(batch) == [{"TAGS": "paid", "KEYS": "a b", "k": "v", "я": "✓"}, {}, {}]


def test_keys_may_be_one_text() -> None:
    batch = batch_of(body=bodies(2), keys=pa.array(["a b", None]))
    assert properties_of(batch) == [{"KEYS": "a b"}, {}]


def test_keys_and_properties_may_be_of_types_that_hold_no_null() -> None:
    keys = pa.array([["a", "b"], ["c"]], pa.list_(pa.field("element", pa.string(), nullable=False)))
    values = pa.field("value", pa.string(), nullable=False)
    properties = pa.array([{"x": "1"}, {"y": "2"}], pa.map_(pa.string(), values))
    batch = batch_of(body=bodies(2), keys=keys, properties=properties)
    assert properties_of(batch) == [{"KEYS": "a b", "x": "1"}, {"KEYS": "c", "y": "2"}]


def test_keys_that_are_null_or_empty_are_left_out() -> None:
    batch = batch_of(body=bodies(2), keys=[["a", None, "", "b"], [None]])
    assert properties_of(batch) == [{"KEYS": "a b"}, {}]


def test_properties_without_a_value_are_left_out() -> None:
    batch = batch_of(body=bodies(1), properties=[{"a": "", "b": None, "c": "1"}])
    assert properties_of(batch) == [{"c": "1"}]


def test_what_a_broker_has_written_on_a_message_is_not_copied() -> None:
    read = {"UNIQ_KEY": "X", "MSG_REGION": "R", "CLUSTER": "C", "WAIT": "true", "ORBITMQ_ROW_ID": "Y", "mine": "1"}
    batch = batch_of(body=bodies(1), properties=[read])
    assert properties_of(batch) == [{"mine": "1"}]
    assert sent(chunks_of(batch))[0][1][MADE_ID] != "X"


def test_tags_and_keys_among_properties_count_where_there_is_no_such_column() -> None:
    read = {"TAGS": "t", "KEYS": "k", "a": "1"}
    assert properties_of(batch_of(body=bodies(1), properties=[read])) == [read]
    batch = batch_of(body=bodies(1), tags=[None], keys=[["x"]], properties=[read])
    assert properties_of(batch) == [{"KEYS": "x", "a": "1"}]


@pytest.mark.parametrize("rows", [slice(0, 2), slice(2, 5), slice(4, 5)])
def test_a_part_of_a_batch_is_like_a_batch_of_its_own(rows: slice) -> None:
    columns: dict[str, list[Any]] = {
        "body": bodies(5),
        "tags": ["a", None, "c", "d", ""],
        "keys": [["a"], None, ["c", "d"], [], ["e"]],
        "properties": [{"a": "1"}, None, {"c": "3", "d": "4"}, {}, {"e": "5"}],
    }
    whole = batch_of(**columns)
    part = batch_of(**{name: values[rows] for name, values in columns.items()})
    assert sent(chunks_of(whole.slice(rows.start, rows.stop - rows.start))) == sent(chunks_of(part))


def test_entries_of_a_map_that_is_null_are_not_seen() -> None:
    entries = pa.array(["a", "b"]), pa.array(["1", "2"])
    maps = pa.MapArray.from_arrays(pa.array([0, 1, 2], pa.int32()), *entries, mask=pa.array([True, False]))
    assert maps.null_count == 1
    assert properties_of(batch_of(body=bodies(2), properties=maps)) == [{}, {"b": "2"}]


def test_rows_with_an_id_of_their_own_keep_it() -> None:
    (chunk,) = chunks_of(batch_of(body=bodies(4), unique_id=["its", None, "", "mine"]))
    first, second, third, last = [properties for _, properties in messages_in(chunk)]
    assert (first[MADE_ID], last[MADE_ID], chunk.unique_key) == ("its", "mine", "mine")
    assert chunk.mark is not None
    assert (second[MADE_ID], third[MADE_ID]) == (chunk.mark[:-1] + "1", chunk.mark[:-1] + "2")
    # Only the last one is looked for, and marked for it.
    assert [each.get("ORBITMQ_ROW_ID") for each in (first, second, third, last)] == [None] * 3 + [chunk.mark]


def test_generated_ids_need_no_mark() -> None:
    (chunk,) = chunks_of(batch_of(body=bodies(2), unique_id=[None, ""]))
    assert chunk.mark is None
    assert chunk.unique_key == sent([chunk])[1][1][MADE_ID]


def test_a_delayed_row_is_sent_alone() -> None:
    batch = batch_of(body=bodies(3), delay_level=[None, 3, 0])
    plain, delayed = chunks_of(batch)
    assert [body for body, _ in messages_in(plain)] == [b"row 0", b"row 2"]
    assert not plain.alone
    (message,) = delayed.alone
    assert (message.body, messages_in(delayed)[0][1]["DELAY"]) == (b"row 1", "3")
    assert delayed.is_delayed


def test_a_delay_may_be_reported_in_seconds_or_as_a_time() -> None:
    moment = datetime.datetime(2030, 1, 2, 3, 4, 5, 678901, tzinfo=datetime.UTC)
    batch = batch_of(body=bodies(3), delay_seconds=[90, None, None], deliver_at=[None, moment, None])
    assert properties_of(batch) == [{"TIMER_DELAY_SEC": "90"}, {"TIMER_DELIVER_MS": "1893553445678"}, {}]
    parts = batch_of(body=bodies(2), delay_seconds=pa.array([1.5, None], pa.float64()))
    assert properties_of(parts) == [{"TIMER_DELAY_MS": "1500"}, {}]


def test_bodies_are_compressed_where_that_is_requested() -> None:
    long = [b"a" * 1000, b"b"]
    (chunk,) = chunks_of(batch_of(body=long), compress="zstd")
    assert [decompress(body, chunk.sys_flag) for body, _ in messages_in(chunk)] == long
    assert len(chunk.body) < 300


def test_no_rows_are_no_chunk() -> None:
    batch = batch_of(body=[], tags=[], keys=[], properties=[], unique_id=[], topic=[], delay_level=[])
    assert chunks_of(batch, topic=None) == []
    assert chunks_of(batch_of(body=[])) == []


# Rows that cannot be sent


@pytest.mark.parametrize(
    ("columns", "options", "why"),
    [
        ({"body": [b"a", None]}, {}, "row 1 of its partition: the column body is null"),
        ({"body": [b"a", b""]}, {}, "row 1 .*: the column body is empty"),
        ({"value": ["a", None]}, {}, "row 1 .*: the column value is null"),
        (
            {"body": [b"a", b"b" * 5000]},
            {"maxMessageSize": "4k", "batchBytes": "4k"},
            "row 1 .*body has 5000 bytes",
        ),
        ({"body": [b"a"] * 2, "topic": ["T", None]}, {"topic": None}, "row 1 .*: the column topic is null"),
        ({"body": [b"a"] * 2, "topic": ["T", "a b"]}, {"topic": None}, "row 1 .*'a b' contains illegal characters"),
        ({"body": [b"a"] * 2, "topic": ["T", "%RETRY%g"]}, {"topic": None}, "row 1 .*retry topic"),
        ({"body": [b"a"], "topic": ["SCHEDULE_TOPIC_XXXX"]}, {"topic": None}, "row 0 .*is forbidden"),
        ({"body": [b"a"] * 2, "tags": ["a", "b\x02"]}, {}, "row 1 .*: the column tags contains the character 2"),
        (
            {"body": [b"a"] * 2, "keys": [["a"], ["b\x02"]]},
            {},
            "row 1 .*: the column keys contains the character 2",
        ),
        ({"body": [b"a"] * 2, "unique_id": ["a", "\x02"]}, {}, "row 1 .*unique_id contains the character 2"),
        ({"body": [b"a"] * 2, "sharding_key": ["a", "\x02"]}, {}, "row 1 .*sharding_key contains the character 2"),
        ({"body": [b"a"] * 2, "properties": [{"a": "b"}, {"c": "\x02"}]}, {}, "row 1 .*the character 2"),
        ({"body": [b"a"] * 2, "properties": [{"a": "b"}, {"c\x01": "d"}]}, {}, "row 1 .*the character 1"),
        ({"body": [b"a"] * 2, "properties": [{}, {"": "d"}]}, {}, "row 1 .*a property without a name"),
        ({"body": [b"a"] * 2, "properties": [{}, {"a": "v" * 40000}]}, {}, "row 1 .*properties have 40045 bytes"),
        ({"body": [b"a"] * 2, "delay_level": [1, -1]}, {}, "row 1 .*: the column delay_level is less than 0"),
        ({"body": [b"a"] * 2, "delay_level": [1, 1], "delay_seconds": [0, 5]}, {}, "row 1 .*waits for one thing"),
        ({"body": [b"a"] * 2, "queue_id": [1, -2]}, {}, "row 1 .*: the column queue_id is -2"),
        ({"body": [b"a"] * 2, "queue_id": [1, 4]}, {}, "row 1 .*the topic 'Orders' has no queue 4"),
    ],
)
def test_a_row_that_cannot_be_sent_is_named(
    columns: dict[str, Sequence[Any]], options: dict[str, object], why: str
) -> None:
    with pytest.raises(InvalidMessageError, match=why):
        chunks_of(batch_of(**columns), **options)


def test_rows_are_numbered_through_all_batches_of_a_task() -> None:
    with pytest.raises(InvalidMessageError, match="row 7 of its partition"):
        chunks_of([batch_of(body=bodies(5)), batch_of(body=[b"a", b"b", None])])


def test_a_separator_in_a_value_that_is_no_separator_there_is_taken() -> None:
    assert properties_of(batch_of(body=bodies(1), properties=[{"a": "b\x01c"}])) == [{"a": "b\x01c"}]
