"""Errors of queries that cannot run: an error of its own class, and in it one sentence with the reason.

Mistakes in options of tables are with the tests of the sources; here are streams, servers that are away, damaged
files, and checkpoints. Nothing waits for longer than its options allow.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException, PythonException, StreamingQueryException

from support.spark.topics import Topics, running_cluster
from support.store.stores import edit_log, open_small, send

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamReader

    from orbitmq.testing.cluster_thread import ThreadCluster

PATIENCE = 60
UNREACHABLE = "127.0.0.1:1"


@pytest.fixture(scope="module")
def cluster() -> Iterator[ThreadCluster]:
    with running_cluster() as running:
        yield running


@pytest.fixture(scope="module")
def topics(cluster: ThreadCluster) -> Topics:
    return Topics(cluster)


@pytest.fixture
def reading(spark: SparkSession, topics: Topics, topic: str) -> DataStreamReader:
    """A reader of the test's own topic, which has two queues, and three messages in the first."""
    topics.make(topic)
    topics.send(topic, ["1", "2", "3"])
    options = {"nameserver": topics.nameserver, "subscribe": topic, "startingOffsets": "earliest"}
    return spark.readStream.format("orbitmq").options(**options, retrySeconds="1")


def sentence(error: BaseException) -> str:
    """Our sentence in an error of Spark: one line, the last one of our traceback."""
    lines = {line.strip() for line in str(error).splitlines() if re.match(r"\s*orbitmq\.\S+Error: ", line)}
    assert len(lines) == 1, error
    return lines.pop().partition("Error: ")[2]


def started(frame: DataFrame, checkpoint: Path) -> StreamingQuery:
    return frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).start()


def why_it_ended(query: StreamingQuery) -> str:
    """The sentence of a query that ends by an error."""
    try:
        with pytest.raises(StreamingQueryException) as raised:
            assert query.awaitTermination(PATIENCE), f"still running: {query.status}"
    finally:
        query.stop()
    assert raised.value.getCondition() == "STREAM_FAILED"
    return sentence(raised.value)


# Streams


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("subscribe", "nothing-here", "the topic 'nothing-here' does not exist"),
        ("nameserver", UNREACHABLE, f"no name server responds .*{UNREACHABLE}"),
        (
            "startingOffsets",
            '{"TOPIC": {"broker-a": {"0": 99, "1": 0}}}',
            "startingOffsets names offset 99 of queue 0 of 'TOPIC' on broker-a, which has those from 0 to 3",
        ),
        ("startingTimestamp", "99999999999999", "is a time after everything in queue 0 of 'TOPIC'"),
        ("endingOffsets", "latest", "endingOffsets is for batches: a stream has no end"),
    ],
)
def test_a_stream_that_cannot_begin_says_why(
    reading: DataStreamReader, topic: str, option: str, value: str, message: str, tmp_path: Path
) -> None:
    query = started(reading.option(option, value.replace("TOPIC", topic)).load(), tmp_path)
    assert re.search(message.replace("TOPIC", topic), why_it_ended(query))


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("body binary, price int", "the schema has the column 'price', which messages do not have"),
        ("queue_id string", "the schema has the column 'queue_id' as string: it is int"),
    ],
)
def test_a_stream_with_a_schema_that_messages_do_not_have_says_which(
    reading: DataStreamReader, schema: str, message: str, tmp_path: Path
) -> None:
    assert why_it_ended(started(reading.schema(schema).load(), tmp_path)).startswith(message)


def test_a_mistake_in_the_options_of_a_stream_is_reported_before_it_starts(reading: DataStreamReader) -> None:
    with pytest.raises(AnalysisException) as raised:
        reading.option("maxOffsetsPerTrigger", "many").load()
    assert raised.value.getCondition() == "PYTHON_DATA_SOURCE_ERROR"
    assert "maxOffsetsPerTrigger" in sentence(raised.value)


def test_a_body_that_cannot_be_read_ends_a_stream_and_is_named(
    reading: DataStreamReader, topic: str, tmp_path: Path
) -> None:
    bodies = reading.option("bodyFormat", "json").schema("id BIGINT")
    message = why_it_ended(started(bodies.load(), tmp_path))
    assert message.startswith(f"the body at offset 0 of queue 0 of '{topic}' on broker-a cannot be read")


# Checkpoints


def run_to_its_end(frame: DataFrame, checkpoint: Path) -> None:
    writing = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    query = writing.trigger(availableNow=True).start()
    assert query.awaitTermination(PATIENCE), query.status


def test_a_checkpoint_of_another_topic_is_refused(
    reading: DataStreamReader, topics: Topics, topic: str, tmp_path: Path
) -> None:
    run_to_its_end(reading.load(), tmp_path)
    topics.make("bills")
    message = why_it_ended(started(reading.option("subscribe", "bills").load(), tmp_path))
    assert message.startswith(f"the checkpoint belongs to '{topic}', and 'bills' is subscribed")


def test_a_checkpoint_of_files_is_refused(spark: SparkSession, reading: DataStreamReader, tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "one.json").write_text('{"body": "x"}')
    run_to_its_end(spark.readStream.schema("body string").json(str(tmp_path / "rows")), tmp_path / "checkpoint")
    message = why_it_ended(started(reading.load(), tmp_path / "checkpoint"))
    assert message.startswith("the checkpoint holds an offset that is not one of topics")


# Brokers that are away


@pytest.fixture
def without_broker(cluster: ThreadCluster) -> Iterator[Callable[[], None]]:
    """Stops the broker, which is started again after the test."""
    stopped: list[str] = []

    def stop() -> None:
        cluster.stop("broker-a")
        stopped.append("broker-a")

    yield stop
    for name in stopped:
        cluster.start(name)


def test_a_stream_whose_broker_is_away_for_too_long_ends(
    reading: DataStreamReader, without_broker: Callable[[], None], topic: str, tmp_path: Path
) -> None:
    query = started(reading.load(), tmp_path)
    query.processAllAvailable()
    without_broker()
    message = why_it_ended(query)
    assert re.match(f"queue . of '{topic}' on broker-a is not there.* and that for 1 s", message)


def test_a_table_whose_broker_went_away_after_planning_fails(
    spark: SparkSession, reading: DataStreamReader, topics: Topics, topic: str, without_broker: Callable[[], None]
) -> None:
    options = {"nameserver": topics.nameserver, "subscribe": topic, "retrySeconds": "1"}
    table = spark.read.format("orbitmq").options(**options).load()
    assert table.count() == 3
    without_broker()
    with pytest.raises(PythonException) as raised:
        table.count()
    assert sentence(raised.value).startswith(
        f"queue 0 of '{topic}' on broker-a cannot be read any further than to 0"
    )
    with pytest.raises(AnalysisException) as planned:
        spark.read.format("orbitmq").options(**options).load().count()
    assert sentence(planned.value).startswith(f"the topic '{topic}' does not exist: no running broker has it")


def test_rows_for_a_broker_that_is_away_fail_their_task(
    spark: SparkSession, topics: Topics, topic: str, without_broker: Callable[[], None]
) -> None:
    rows = spark.range(3).selectExpr("string(id) AS body").write.format("orbitmq").mode("append")
    rows = rows.options(nameserver=topics.nameserver, topic=topic, retries="1", sendTimeoutMs="1000")
    without_broker()
    with pytest.raises(PythonException) as raised:
        rows.save()
    assert sentence(raised.value).startswith(f"no broker serves the topic '{topic}'")
    with pytest.raises(PythonException) as unknown:
        rows.option("nameserver", UNREACHABLE).save()
    assert f"no name server responds (cannot connect to {UNREACHABLE}" in sentence(unknown.value)


# Files


def test_a_damaged_file_of_a_store_is_named_or_its_record_left_out(spark: SparkSession, tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        offsets = send(store, 20, size=100)
    edit_log(tmp_path, offsets[7] + 120, b"damage")
    reading = spark.read.format("orbitmq-store")
    with pytest.raises(PythonException) as raised:
        reading.load(str(tmp_path)).collect()
    message = f"{tmp_path}/commitlog/{0:020d}: the record at offset {offsets[7]} has a body that fails its CRC"
    assert sentence(raised.value).startswith(message)
    left = reading.option("failOnDamage", "false").load(str(tmp_path)).collect()
    assert {row.queue_offset for row in left} == set(range(20)) - {7}


def test_bytes_that_are_no_record_are_named(spark: SparkSession, tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        offsets = send(store, 20, size=100)
    edit_log(tmp_path, offsets[7], b"\xff" * 8)
    with pytest.raises(PythonException) as raised:
        spark.read.format("orbitmq-store").load(str(tmp_path)).collect()
    message = f"{tmp_path}/commitlog/{0:020d} has no whole record at offset {offsets[7]}"
    assert sentence(raised.value).startswith(message)
