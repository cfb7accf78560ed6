"""DataFrames written to topics by Spark: as a batch, as a stream, and by tasks that are tried again."""

from __future__ import annotations

import collections
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions

from orbitmq import LitePullConsumer
from orbitmq.spark.errors import OptionError
from orbitmq.spark.topic_source.dedup import deduplicated
from support.spark.spark_harness import run_program

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from orbitmq import ReceivedMessage

PROGRAM = Path(__file__).with_name("retried_write_program.py")
PATIENCE = 30


def read_all(nameserver: str, topic: str, count: int) -> list[ReceivedMessage]:
    """The messages of a topic, as soon as there are so many; none is left over."""
    found: list[ReceivedMessage] = []
    with LitePullConsumer(
        nameserver, group=f"of-{topic}"[:100], auto_commit=False, consume_from_where="CONSUME_FROM_FIRST_OFFSET"
    ) as reader:
        reader.assign(reader.fetch_message_queues(topic))
        deadline = time.monotonic() + PATIENCE
        while len(found) < count:
            found += reader.poll(1)
            assert time.monotonic() < deadline, f"only {len(found)} of {count} messages of {topic}"
        found += reader.poll(0.2)
    assert len(found) == count
    return found


def write(frame: DataFrame, nameserver: str, **options: Any) -> None:
    frame.write.format("orbitmq").options(nameserver=nameserver, **options).mode("append").save()


def numbers(spark: SparkSession, count: int, partitions: int = 2) -> DataFrame:
    return spark.range(0, count, numPartitions=partitions).selectExpr("string(id) AS body")


def test_a_dataframe_is_written_to_a_topic(spark: SparkSession, nameserver: str, topic: str) -> None:
    frame = spark.range(0, 5000, numPartitions=2).selectExpr(
        "CAST(concat('order ', id) AS BINARY) AS body",
        "IF(id % 2 = 0, 'even', NULL) AS tags",
        "array(string(id), IF(id = 7, NULL, 'k')) AS keys",
        "map('id', string(id)) AS properties",
    )
    write(frame, nameserver, topic=topic)
    found = {message.properties["id"]: message for message in read_all(nameserver, topic, 5000)}
    assert len(found) == 5000
    seven, eight = found["7"], found["8"]
    assert (seven.body, seven.tags, seven.keys) == (b"order 7", None, ["7"])
    assert (eight.body, eight.tags, eight.keys) == (b"order 8", "even", ["8", "k"])
    assert len({message.message_id for message in found.values()}) == 5000


def test_rows_go_to_the_topics_that_they_name(spark: SparkSession, nameserver: str, topic: str) -> None:
    frame = spark.range(0, 300).selectExpr("string(id) AS value", f"concat('{topic}-', id % 3) AS topic")
    write(frame, nameserver)
    for number in range(3):
        bodies = {int(message.body) for message in read_all(nameserver, f"{topic}-{number}", 100)}
        assert bodies == set(range(number, 300, 3))


def test_a_table_takes_rows_by_sql(spark: SparkSession, nameserver: str, topic: str) -> None:
    # Spark passes the options of a statement to the source, but not those of a table.
    spark.sql("CREATE TABLE orders_out (body STRING) USING orbitmq")
    try:
        numbers(spark, 10).createOrReplaceTempView("some_numbers")
        options = f"'nameserver' = '{nameserver}', 'topic' = '{topic}'"
        spark.sql(f"INSERT INTO orders_out WITH ({options}) SELECT body FROM some_numbers")
    finally:
        spark.sql("DROP TABLE orders_out")
    assert {message.body for message in read_all(nameserver, topic, 10)} == {b"%d" % number for number in range(10)}


def test_a_topic_is_copied_with_what_its_messages_carry(spark: SparkSession, nameserver: str, topic: str) -> None:
    frame = spark.range(0, 100).selectExpr(
        "string(id) AS body", "'t' AS tags", "map('a', string(id)) AS properties"
    )
    write(frame, nameserver, topic=topic)
    source = spark.read.format("orbitmq").options(nameserver=nameserver, subscribe=topic).load()
    write(source, nameserver, topic=f"{topic}-copy")
    first = {message.message_id: message for message in read_all(nameserver, topic, 100)}
    for copy in read_all(nameserver, f"{topic}-copy", 100):
        original = first[copy.message_id]
        assert (copy.body, copy.tags, copy.properties["a"]) == (original.body, "t", original.properties["a"])


def test_a_mistake_is_reported_before_any_task_begins(spark: SparkSession, nameserver: str, topic: str) -> None:
    frame = numbers(spark, 1).withColumn("extra", functions.lit(1))
    with pytest.raises(PySparkException, match="no message has the column extra"):
        write(frame, nameserver, topic=topic)
    with pytest.raises(PySparkException, match="a topic cannot be overwritten"):
        numbers(spark, 1).write.format("orbitmq").options(nameserver=nameserver, topic=topic).mode(
            "overwrite"
        ).save()
    with pytest.raises(PySparkException, match="row 0 of its partition: the column body is empty"):
        write(spark.sql("SELECT '' AS body"), nameserver, topic=topic)


# Streams


def stream_of(spark: SparkSession, folder: Path) -> DataFrame:
    folder.mkdir(exist_ok=True)
    return spark.readStream.schema("body string").option("maxFilesPerTrigger", 1).json(str(folder))


def put_rows(folder: Path, name: str, start: int, count: int) -> None:
    folder.mkdir(exist_ok=True)
    lines = [f'{{"body": "{number}"}}\n' for number in range(start, start + count)]
    (folder / f"{name}.json").write_text("".join(lines))


def run_to_end(frame: DataFrame, checkpoint: Path, nameserver: str, topic: str, **options: Any) -> StreamingQuery:
    query = (
        frame.writeStream.format("orbitmq")
        .options(nameserver=nameserver, topic=topic, checkpointLocation=str(checkpoint), **options)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return query


def test_a_stream_is_written_batch_by_batch(
    spark: SparkSession, nameserver: str, topic: str, tmp_path: Path
) -> None:
    rows = tmp_path / "rows"
    for number in range(3):
        put_rows(rows, str(number), 100 * number, 100)
    query = run_to_end(stream_of(spark, rows), tmp_path / "checkpoint", nameserver, topic)
    assert len([progress for progress in query.recentProgress if progress.numInputRows]) == 3
    assert {int(message.body) for message in read_all(nameserver, topic, 300)} == set(range(300))


def test_a_batch_that_was_written_but_not_noted_is_not_written_again(
    spark: SparkSession, nameserver: str, topic: str, tmp_path: Path
) -> None:
    rows, checkpoint = tmp_path / "rows", tmp_path / "checkpoint"
    put_rows(rows, "0", 0, 100)
    run_to_end(stream_of(spark, rows), checkpoint, nameserver, topic, batchRows=30)
    # As if the driver had ended between the last task and the note that the batch is done.
    for noted in (checkpoint / "commits").iterdir():
        noted.unlink()
    put_rows(rows, "1", 100, 100)
    run_to_end(stream_of(spark, rows), checkpoint, nameserver, topic, batchRows=30)
    found = collections.Counter(int(message.body) for message in read_all(nameserver, topic, 200))
    assert found == dict.fromkeys(range(200), 1)


def test_a_query_from_its_beginning_is_another_query(
    spark: SparkSession, nameserver: str, topic: str, tmp_path: Path
) -> None:
    rows, checkpoint = tmp_path / "rows", tmp_path / "checkpoint"
    put_rows(rows, "0", 0, 10)
    for _ in range(2):
        run_to_end(stream_of(spark, rows), checkpoint, nameserver, topic)
        shutil.rmtree(checkpoint)
    assert len(read_all(nameserver, topic, 20)) == 20


# Tasks that are tried again


def test_a_task_that_failed_once_writes_each_of_its_rows_once(
    java_and_pyspark: None, nameserver: str, topic: str, tmp_path: Path
) -> None:
    ran = run_program(PROGRAM, tmp_path, nameserver, topic, 10_000, tmp_path, "true")
    assert ran.code == 0, ran.err
    assert ran.json["failed"] == ["failed-0"]
    found = collections.Counter(int(message.body) for message in read_all(nameserver, topic, 10_000))
    assert found == dict.fromkeys(range(10_000), 1)


# What is written more than once all the same


def test_copies_of_a_message_are_read_once(spark: SparkSession, nameserver: str, topic: str) -> None:
    for _ in range(2):
        write(numbers(spark, 50).selectExpr("body", "concat('id-', body) AS unique_id"), nameserver, topic=topic)
    source = spark.read.format("orbitmq").options(nameserver=nameserver, subscribe=topic).load()
    assert source.count() == 100
    once = deduplicated(source)
    assert once.columns == source.columns
    assert {row.unique_id for row in once.select("unique_id").collect()} == {f"id-{number}" for number in range(50)}
    assert once.count() == 50


def test_copies_in_a_stream_are_read_once(spark: SparkSession, nameserver: str, topic: str, tmp_path: Path) -> None:
    for _ in range(2):
        write(numbers(spark, 50).selectExpr("body", "concat('id-', body) AS unique_id"), nameserver, topic=topic)
    source = spark.readStream.format("orbitmq").options(
        nameserver=nameserver, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=60
    )
    once = deduplicated(source.load(), "1 hour").select("body")
    run_to_end(once, tmp_path / "checkpoint", nameserver, f"{topic}-once")
    assert len({message.body for message in read_all(nameserver, f"{topic}-once", 50)}) == 50


def test_messages_without_an_id_are_no_copies_of_each_other(spark: SparkSession) -> None:
    frame = spark.createDataFrame(
        [(None, "p1"), (None, "p2"), ("u", "p3"), ("u", "p4")], "unique_id string, msg_id string"
    )
    assert deduplicated(frame).count() == 3
    with pytest.raises(OptionError, match="needs the column unique_id"):
        deduplicated(frame.drop("unique_id"))
