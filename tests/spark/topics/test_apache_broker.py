"""Spark with a topic of the unmodified Apache RocketMQ: written, read, streamed, and its store scanned."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as f

from orbitmq import Message, Producer
from orbitmq.spark.pipelines.migrate.job import migrate
from peers.apache import ApacheBroker, ApacheNameServer, available

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

ROWS = 5000
TOPIC = "numbers"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("apache")


@pytest.fixture(scope="module")
def apache(home: Path) -> Iterator[str]:
    if reason := available():
        pytest.skip(reason)
    settings = {"mappedFileSizeCommitLog": str(64 << 20)}
    with (
        ApacheNameServer(home / "nameserver") as nameserver,
        ApacheBroker(home / "store", settings, home=home / "broker", nameserver=nameserver.address),
    ):
        yield nameserver.address


@pytest.mark.timeout(400)
def test_a_topic_of_apache_rocketmq_is_written_read_streamed_and_scanned(
    spark: SparkSession, apache: str, home: Path, tmp_path: Path
) -> None:
    numbers = spark.range(ROWS).select(
        f.col("id").cast("string").alias("body"),
        f.when(f.col("id") % 2 == 0, "even").otherwise("odd").alias("tags"),
        f.array(f.concat(f.lit("key-"), "id")).alias("keys"),
    )
    numbers.write.format("orbitmq").mode("append").options(nameserver=apache, topic=TOPIC).save()

    options = {"nameserver": apache, "subscribe": TOPIC}
    read = spark.read.format("orbitmq").options(**options).load()
    assert read.selectExpr("string(body) as body", "tags", "keys").exceptAll(numbers).count() == 0
    assert read.count() == ROWS

    even = spark.read.format("orbitmq").options(**options, tags="even").load()
    assert even.count() == ROWS // 2

    query = (
        spark.readStream.format("orbitmq")
        .options(**options, startingOffsets="earliest", maxOffsetsPerTrigger=2000, groupId="spark-stream")
        .load()
        .select("body", "keys", "tags")
        .writeStream.format("orbitmq")
        .options(nameserver=apache, topic="copy", checkpointLocation=str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    copy = spark.read.format("orbitmq").options(nameserver=apache, subscribe="copy").load()
    assert copy.selectExpr("string(body) as body", "tags", "keys").exceptAll(numbers).count() == 0
    assert copy.count() == ROWS

    scanned = spark.read.format("orbitmq-store").option("topics", TOPIC).load(str(home / "store"))
    reported = ("broker", "properties")  # what a store does not know, and what Spark cannot compare
    assert scanned.drop(*reported).exceptAll(read.drop(*reported)).count() == 0
    assert scanned.count() == ROWS


@pytest.mark.timeout(400)
def test_a_topic_of_apache_rocketmq_is_migrated_to_here_and_verified(
    spark: SparkSession, apache: str, nameserver: str, topic: str, tmp_path: Path
) -> None:
    with Producer(apache, group="orders") as producer:
        for number in range(200):
            keys, properties = [f"k{number}", "all"], {"colour": f"c{number % 7}"}
            producer.send(Message(topic, f"body {number}", tags=f"t{number % 3}", keys=keys, properties=properties))
    summary = migrate(
        spark, source=f"rocketmq://{apache}", target=f"rocketmq://{nameserver}", topics=topic, state=str(tmp_path)
    )
    assert summary.is_good, summary.facts
    assert (summary.facts["verified"], summary.facts["in_target"]) == ({topic: 200}, {topic: 200})
    there, here = (
        spark.read.format("orbitmq")
        .options(nameserver=address, subscribe=topic)
        .load()
        .selectExpr(
            "queue_id", "queue_offset", "unique_id", "body", "tags", "keys", "properties['colour'] AS colour"
        )
        for address in (apache, nameserver)
    )
    assert here.count() == there.count() == 200
    assert here.exceptAll(there).count() == 0
