"""The options of a write and the columns of what is written: checked before any task begins."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from orbitmq.protocol.message.compression import Compression
from orbitmq.spark.errors import OptionError
from orbitmq.spark.sink.options import LOOK_AHEAD, SinkOptions
from orbitmq.spark.sink.writer import batch_writer, stream_writer
from support.spark.sink_harness import TYPES, batch_of, columns_of, sink_options

SCHEMA = from_arrow_schema(pa.schema([("body", pa.binary())]))
OPTIONS = {"nameserver": "127.0.0.1:9876", "topic": "T"}


def test_options_are_read_whatever_their_case() -> None:
    read = SinkOptions.of(
        {
            "NameServer": "a:1;b:2", "TOPIC": "T", "producergroup": "G", "batchBytes": "512k", "batchRows": "100",
            "maxInFlight": "2", "sendTimeoutMs": "1500", "retries": "0", "compress": "true", "idempotent": "False",
            "writeId": "nightly", "keepQueue": "true", "ignoreExtraColumns": "true", "maxMessageSize": "8m",
            "path": "ignored", "checkpointLocation": "ignored",
        }
    )  # fmt: skip
    assert read == SinkOptions(
        name_servers=("a:1", "b:2"), topic="T", producer_group="G", batch_bytes=512 << 10, batch_rows=100,
        max_in_flight=2, send_timeout=1.5, retries=0, compress=Compression.ZLIB, idempotent=False,
        write_id="nightly", keep_queue=True, ignore_extra_columns=True, max_message_size=8 << 20,
    )  # fmt: skip


def test_the_name_server_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "here:1")
    assert SinkOptions.of({"topic": "T"}).name_servers == ("here:1",)
    monkeypatch.delenv("NAMESRV_ADDR")
    with pytest.raises(OptionError, match="nameserver is missing"):
        SinkOptions.of({"topic": "T"})


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"batchRow": "1"}, "no option 'batchrow' for writing to topics: did you mean batchRows"),
        ({"zzz": "1"}, "there are nameserver, topic"),
        ({"topic": "a b"}, "topic cannot be used: .*illegal characters"),
        ({"topic": "%RETRY%g"}, "topic cannot be used: .*retry topic"),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, "topic cannot be used: .*forbidden"),
        ({"nameserver": " "}, "nameserver is empty"),
        ({"nameserver": ";"}, "nameserver is missing"),
        ({"producerGroup": "a b"}, "producerGroup cannot be used"),
        ({"batchRows": "0"}, "batchRows=0 is not possible: it is a whole number from 1 to 4096"),
        ({"batchRows": "4097"}, "batchRows=4097 is not possible"),
        ({"batchBytes": "1x"}, "batchBytes=1x is not possible"),
        ({"batchBytes": "10"}, "batchBytes=10 is not possible: it is from 1024"),
        ({"batchBytes": "8m"}, "is more than maxMessageSize=4194304"),
        ({"maxInFlight": str(LOOK_AHEAD + 1)}, "maxInFlight=17 is not possible: it is a whole number from 1 to 16"),
        ({"sendTimeoutMs": "-1"}, "sendTimeoutMs=-1 is not possible"),
        ({"compress": "rar"}, "compress=rar is not possible: it is one of false, true, lz4, zstd, zlib"),
        ({"idempotent": "yes"}, "idempotent=yes is not possible"),
        ({"writeId": ""}, "writeId is empty"),
    ],
)
def test_an_option_that_cannot_be_used_is_named(options: dict[str, str], why: str) -> None:
    with pytest.raises(OptionError, match=why):
        SinkOptions.of(OPTIONS | options)


def test_the_columns_of_a_topic_can_be_written_to_another() -> None:
    taken = columns_of(
        batch_of(body=[], topic=[], queue_id=[], broker=[], queue_offset=[], tags=[]), sink_options()
    )
    assert taken.taken == {"tags"}
    kept = sink_options(keepQueue="true", topic=None)
    batch = batch_of(body=[], topic=[], queue_id=[], broker=[], queue_offset=[])
    assert columns_of(batch, kept).taken == {"topic", "queue_id", "broker"}


def test_columns_that_no_message_has_are_named() -> None:
    batch = batch_of(body=[], extra=[])
    with pytest.raises(OptionError, match="no message has the column extra"):
        columns_of(batch, sink_options())
    assert columns_of(batch, sink_options(ignoreExtraColumns="true")).taken == set()


@pytest.mark.parametrize(
    ("names", "why"),
    [
        (["tags"], "no column body"),
        (["body", "value"], "a column body and a column value"),
        (["body", "broker"], "broker says nothing without the column queue_id"),
    ],
)
def test_columns_that_do_not_make_a_message_are_refused(names: list[str], why: str) -> None:
    schema = pa.schema([(name, TYPES[name]) for name in names])
    with pytest.raises(OptionError, match=why):
        batch_writer(OPTIONS, from_arrow_schema(schema), False)


@pytest.mark.parametrize(
    ("name", "kind", "why"),
    [
        ("body", pa.int32(), "the column body must be string or binary, not int"),
        ("topic", pa.binary(), "the column topic must be string, not binary"),
        ("tags", pa.list_(pa.string()), "the column tags must be string"),
        ("keys", pa.list_(pa.int64()), "the column keys must be array<string> or string, not array<bigint>"),
        ("properties", pa.map_(pa.string(), pa.int32()), "the column properties must be map<string,string>"),
        ("properties", pa.string(), "the column properties must be map<string,string>, not string"),
        ("queue_id", pa.string(), "the column queue_id must be int"),
        ("delay_level", pa.float64(), "the column delay_level must be int, not double"),
        ("delay_seconds", pa.string(), "the column delay_seconds must be bigint or double"),
        ("deliver_at", pa.int64(), "the column deliver_at must be timestamp, not bigint"),
        ("unique_id", pa.binary(), "the column unique_id must be string"),
    ],
)
def test_a_column_of_a_wrong_type_is_named(name: str, kind: pa.DataType, why: str) -> None:
    fields = {"body": pa.binary()} | {name: kind}
    with pytest.raises(OptionError, match=why):
        batch_writer(OPTIONS, from_arrow_schema(pa.schema(list(fields.items()))), False)


def test_something_has_to_say_which_topic_is_meant() -> None:
    with pytest.raises(OptionError, match="nothing says which topic"):
        batch_writer({"nameserver": "a:1"}, SCHEMA, False)


def test_a_topic_cannot_be_overwritten_but_a_stream_may_write_its_whole_result_again() -> None:
    with pytest.raises(OptionError, match='say mode\\("append"\\)'):
        batch_writer(OPTIONS, SCHEMA, True)
    stream_writer(OPTIONS, SCHEMA, True)


def test_writers_travel_to_their_tasks() -> None:
    for writer in (batch_writer(OPTIONS, SCHEMA, False), stream_writer(OPTIONS, SCHEMA, False)):
        copy = pickle.loads(pickle.dumps(writer))
        assert vars(copy) == vars(writer)


def test_two_writes_are_distinguished_unless_they_are_reported_to_be_one() -> None:
    first, second = (batch_writer(OPTIONS, SCHEMA, False) for _ in range(2))
    assert vars(first)["_write_id"] != vars(second)["_write_id"]
    named = batch_writer(OPTIONS | {"writeId": "nightly"}, SCHEMA, False)
    assert vars(named)["_write_id"] == "nightly"
