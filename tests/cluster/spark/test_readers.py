"""The reader of batches that Spark drives, driven by hand over a cluster in this process."""

from __future__ import annotations

import datetime
import json
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from orbitmq import OrbitMQError
from orbitmq.spark.errors import DataLossError, OptionError, SparkSourceError
from orbitmq.spark.schema.row_schema import RowSchema
from orbitmq.spark.topic_source.batch_reader import TopicBatchReader
from orbitmq.spark.topic_source.options import SourceOptions
from support.spark.topics import (
    BODIES,
    Topics,
    batch,
    bodies,
    close_clusters,
    numbered,
    rows,
    running_cluster,
    schema,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orbitmq.testing.cluster_thread import ThreadCluster


@pytest.fixture
def cluster() -> Iterator[ThreadCluster]:
    with running_cluster() as running:
        yield running


@pytest.fixture
def topics(cluster: ThreadCluster) -> Topics:
    return Topics(cluster)


def test_a_batch_reads_all_queues_of_a_topic(topics: Topics) -> None:
    topics.make("orders")
    topics.send("orders", numbered(0, 3), queue=0)
    topics.send("orders", numbered(3, 5), queue=1)
    assert rows(batch(topics)) == [
        (0, 0, b"0"), (0, 1, b"1"), (0, 2, b"2"), (1, 0, b"3"), (1, 1, b"4"),
    ]  # fmt: skip


def test_a_topic_without_messages_gives_no_rows(topics: Topics) -> None:
    topics.make("orders")
    reader = batch(topics)
    assert reader.partitions() == []
    assert list(reader.read(InputPartition(None))) == []


def test_several_topics_and_a_pattern_of_them_are_read(topics: Topics) -> None:
    for name in ("orders", "orders-old", "bills"):
        topics.make(name, 1)
        topics.send(name, [name])
    of = schema("topic", "queue_offset", "body")
    assert {row[0] for row in rows(batch(topics, of, subscribe="orders,bills"))} == {"orders", "bills"}
    found = rows(batch(topics, of, subscribePattern="orders.*"))
    assert found == [("orders", 0, b"orders"), ("orders-old", 0, b"orders-old")]
    assert rows(batch(topics, of, subscribePattern="nothing.*")) == []


def test_single_queues_are_read(topics: Topics) -> None:
    topics.make("orders", 3)
    for queue in range(3):
        topics.send("orders", [f"in {queue}"], queue=queue)
    assert bodies(batch(topics, assign='{"orders": [0, 2]}')) == ["in 0", "in 2"]
    assert bodies(batch(topics, assign='{"orders": {"broker-a": [1]}}')) == ["in 1"]
    with pytest.raises(OptionError, match=r"^assign names queue 7 of 'orders', which does not exist"):
        batch(topics, assign='{"orders": [0, 7]}').partitions()
    with pytest.raises(OptionError, match=r"assign names queue 0 on broker-z of 'orders'"):
        batch(topics, assign='{"orders": {"broker-a": [1], "broker-z": [0]}}').partitions()


def test_a_batch_begins_and_ends_at_the_given_offsets(topics: Topics) -> None:
    topics.make("orders", 1)
    topics.send("orders", numbered(0, 10))
    where = '{{"orders": {{"broker-a": {{"0": {}}}}}}}'
    assert bodies(batch(topics, startingOffsets=where.format(3), endingOffsets=where.format(6))) == numbered(3, 6)
    assert bodies(batch(topics, startingOffsets=where.format(-2), endingOffsets=where.format(-1))) == numbered(
        0, 10
    )
    assert bodies(batch(topics, startingOffsets='{"orders": -2}')) == numbered(0, 10)
    with pytest.raises(OptionError, match="startingOffsets is after endingOffsets"):
        batch(topics, startingOffsets=where.format(6), endingOffsets=where.format(3)).partitions()
    with pytest.raises(DataLossError, match=r"startingOffsets names offset 11 .* has those from 0 to 10"):
        batch(topics, startingOffsets=where.format(11)).partitions()
    with pytest.raises(DataLossError, match="endingOffsets names offset 99"):
        batch(topics, endingOffsets=where.format(99)).partitions()
    assert bodies(batch(topics, endingOffsets=where.format(99), failOnDataLoss="false")) == numbered(0, 10)
    with pytest.raises(OptionError, match=r"startingOffsets has to name every queue .* queue 0 of 'orders'"):
        batch(topics, startingOffsets='{"orders": {"broker-a": {"1": 0}}}').partitions()
    with pytest.raises(OptionError, match="startingOffsets names orders/broker-a/1, which is not read"):
        batch(topics, startingOffsets='{"orders": {"broker-a": {"0": 0, "1": 0}}}').partitions()


def test_a_batch_begins_and_ends_at_times(cluster: ThreadCluster, topics: Topics) -> None:
    topics.make("orders")
    topics.send("orders", ["early"], queue=0)
    cluster.advance(3600)
    topics.send("orders", ["late"], queue=0)
    topics.send("orders", ["late too"], queue=1)
    late = cluster.messages("orders")[1].store_timestamp
    assert bodies(batch(topics, startingTimestamp=str(late))) == ["late", "late too"]
    assert bodies(batch(topics, endingTimestamp=str(late))) == ["early"]
    iso = datetime.datetime.fromtimestamp(late / 1000, datetime.UTC).isoformat()
    assert bodies(batch(topics, startingOffsets=iso)) == ["late", "late too"]
    by_queue = json.dumps({"orders": {"broker-a": {"0": late, "1": 0}}})
    assert bodies(batch(topics, startingOffsetsByTimestamp=by_queue)) == ["late", "late too"]
    after = str(late + 10_000)
    with pytest.raises(OptionError, match="startingOffsets is a time after everything in queue 0 of 'orders'"):
        batch(topics, startingTimestamp=after).partitions()
    lenient = batch(topics, startingTimestamp=after, startingOffsetsByTimestampStrategy="latest")
    assert bodies(lenient) == []


def test_a_queue_is_cut_for_more_tasks(topics: Topics) -> None:
    topics.make("orders", 1)
    topics.send("orders", numbered(0, 100))
    for reader in (batch(topics, minPartitions="4"), batch(topics, maxRecordsPerPartition="30")):
        assert len(reader.partitions()) == 4
        assert bodies(reader) == numbered(0, 100)


def test_tags_sql_and_keys_choose_messages(topics: Topics) -> None:
    topics.make("orders", 1)
    topics.send("orders", ["paid"], tags="paid", keys=["k1", "k2"], properties={"amount": "7"})
    topics.send("orders", ["open"], tags="open", keys="k3", properties={"amount": "9"})
    topics.send("orders", ["plain"])
    assert bodies(batch(topics, tags="paid || gone")) == ["paid"]
    assert bodies(batch(topics, keys="k2,k3")) == ["paid", "open"]
    assert bodies(batch(topics, keys="nobody")) == []
    assert bodies(batch(topics, tags="open", keys="k2")) == []


def test_a_tag_of_the_same_hash_is_another_tag(topics: Topics) -> None:
    topics.make("orders", 1)
    topics.send("orders", ["one"], tags="Aa")
    topics.send("orders", ["other"], tags="BB")
    assert bodies(batch(topics, tags="Aa")) == ["one"]


def test_a_schema_names_the_columns_that_are_read(topics: Topics) -> None:
    topics.make("orders", 1)
    topics.send("orders", ["x"], tags="t")
    assert rows(batch(topics, schema("tags", "topic"))) == [("t", "orders")]


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        (
            [("topic", StringType()), ("bdy", BinaryType())],
            "the schema has the column 'bdy', .* did you mean 'body'",
        ),
        ([("queue_id", LongType())], "the schema has the column 'queue_id' as bigint: it is int"),
        ([("topic", StringType()), ("topic", StringType())], "the schema has the column 'topic' twice"),
        ([], "the schema has no columns"),
    ],
)
def test_a_schema_that_messages_do_not_have_is_refused(
    topics: Topics, fields: list[tuple[str, Any]], sentence: str
) -> None:
    with pytest.raises(OptionError, match=sentence):
        batch(topics, StructType([StructField(name, kind) for name, kind in fields]))


def test_a_column_may_be_required(topics: Topics) -> None:
    topics.make("orders", 1)
    topics.send("orders", ["x"], tags="t")
    of = StructType([StructField("topic", StringType(), False), StructField("tags", StringType(), False)])
    assert rows(batch(topics, of)) == [("orders", "t")]
    topics.send("orders", ["y"])
    with pytest.raises(SparkSourceError, match="tags is NOT NULL, but messages of queue 0 of 'orders'"):
        rows(batch(topics, of))


def test_columns_and_schema_have_to_agree(topics: Topics) -> None:
    with pytest.raises(OptionError, match="columns=topic,tags and the schema do not agree"):
        batch(topics, schema("topic"), columns="topic,tags")


@pytest.mark.parametrize("topic", ["nothing", "orders,nothing"])
def test_a_topic_that_does_not_exist_is_named(topics: Topics, topic: str) -> None:
    topics.make("orders")
    with pytest.raises(OptionError, match=r"^the topic 'nothing' does not exist"):
        batch(topics, subscribe=topic).partitions()


def test_a_name_server_that_is_not_there_is_named() -> None:
    read = SourceOptions.of({"nameserver": "127.0.0.1:1", "subscribe": "orders"}).for_batch()
    try:
        with pytest.raises(OrbitMQError, match=r"127\.0\.0\.1:1"):
            TopicBatchReader(read, RowSchema.of(read, BODIES)).partitions()
    finally:
        close_clusters()


def test_what_was_deleted_after_planning_is_an_error_or_left_out(topics: Topics) -> None:
    topics.make("orders", 1)
    topics.send("orders", [f"{number}".ljust(1000) for number in range(40)])
    strict, lax = batch(topics), batch(topics, failOnDataLoss="false")
    partitions = strict.partitions()
    topics.forget_oldest()
    with pytest.raises(DataLossError, match=r"the offsets 0 to .* of queue 0 of 'orders' .* failOnDataLoss=false"):
        rows(strict, partitions)
    left = [int(body) for body in bodies(lax, partitions)]
    assert 0 < len(left) < 40
    assert left == list(range(left[0], 40))


def test_bodies_are_read_in_the_given_format(topics: Topics) -> None:
    topics.make("orders", 1)
    topics.send("orders", ['{"amount": 5}', "no json", '{"amount": 7}'])
    amount = StructType([StructField("amount", LongType()), StructField("_queue_offset", LongType())])
    with pytest.raises(SparkSourceError, match=r"the body at offset 1 of queue 0 of 'orders' .* cannot be read"):
        rows(batch(topics, amount, bodyFormat="json"))
    assert rows(batch(topics, amount, bodyFormat="json", mode="DROPMALFORMED")) == [(5, 0), (7, 2)]
    kept = StructType([*amount, StructField("_corrupt", BinaryType())])
    assert rows(batch(topics, kept, bodyFormat="json", mode="permissive")) == [
        (5, 0, None), (None, 1, b"no json"), (7, 2, None),
    ]  # fmt: skip
    with pytest.raises(OptionError, match="the column _corrupt is binary, not string"):
        batch(topics, StructType([*amount, StructField("_corrupt", StringType())]), bodyFormat="json")
    with pytest.raises(OptionError, match="the schema has no field of the bodies"):
        batch(topics, StructType([StructField("_topic", StringType())]), bodyFormat="json")


def test_bodies_of_text_are_columns_among_the_others(topics: Topics) -> None:
    topics.make("orders", 1)
    topics.send("orders", ["grün"])
    of = StructType([StructField("queue_offset", LongType()), StructField("body", StringType())])
    assert rows(batch(topics, of, bodyFormat="string")) == [(0, "grün")]
    named = StructType([StructField("text", StringType()), StructField("_topic", StringType())])
    assert rows(batch(topics, named, bodyFormat="string")) == [("grün", "orders")]
