"""Store directories as tables in Spark: SQL over Apache's store, filters pushed down, schemas, errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.store import golden
from support.store.stores import open_small, send

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def test_a_store_of_apache_is_a_table(spark: SparkSession, tmp_path: Path) -> None:
    root = golden.unpack("basic", tmp_path)
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW log USING `orbitmq-store` OPTIONS (path '{root}', splitSize '100k')"
    )
    expected: dict[str, int] = {}
    for row in golden.expected_records("basic"):
        if "topic" in row and not row["sysFlag"] & 0x4:
            expected[row["topic"]] = expected.get(row["topic"], 0) + 1
    counts = spark.sql("SELECT topic, count(*), count(DISTINCT msg_id) FROM log GROUP BY topic").collect()
    assert all(count == ids == expected[topic] for topic, count, ids in counts)
    assert {topic for topic, _, _ in counts} >= {"TopicBulk", "TopicTags", "%DLQ%g_retry"}
    rows = spark.sql(
        "SELECT properties['KEYS'], array_join(keys, ' '), length(body), year(store_timestamp), broker FROM log "
        "WHERE topic = 'TopicKeys' AND keys IS NOT NULL"
    ).collect()
    assert rows
    assert all(" ".join(text.split()) == joined for text, joined, _, _, _ in rows)
    assert {broker for *_, broker in rows} == {"broker-gold"}


def test_filters_and_chosen_columns_give_what_spark_alone_gives(spark: SparkSession, tmp_path: Path) -> None:
    root = golden.unpack("basic", tmp_path)
    reading = spark.read.format("orbitmq-store").options(
        columns="topic,queue_id,queue_offset,tags", pushFilters="once"
    )
    condition = "topic = 'TopicBulk' AND queue_id IN (0, 1) AND queue_offset BETWEEN 10 AND 400"
    answers = []
    setting = "spark.sql.python.filterPushdown.enabled"
    before = spark.conf.get(setting)
    for is_on in ("true", "false"):
        spark.conf.set(setting, is_on)
        table = reading.load(root)
        assert table.columns == ["topic", "queue_id", "queue_offset", "tags"]
        answers.append(sorted(map(tuple, table.where(condition).collect())))
    spark.conf.set(setting, str(before))
    expected = sorted(
        (row["topic"], row["queueId"], row["queueOffset"], row["properties"].get("TAGS"))
        for row in golden.expected_records("basic")
        if row.get("topic") == "TopicBulk" and row["queueId"] in {0, 1} and 10 <= row["queueOffset"] <= 400
    )
    assert answers == [expected, expected]


def test_a_schema_chooses_columns(spark: SparkSession, tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        send(store, 20)
    table = spark.read.format("orbitmq-store").schema("queue_offset bigint, topic string").load(str(tmp_path))
    assert [tuple(row) for row in table.collect()] == [(at, "TopicA") for at in range(20)]


def test_a_store_without_messages_is_an_empty_table(spark: SparkSession, tmp_path: Path) -> None:
    with open_small(tmp_path):
        pass
    assert spark.read.format("orbitmq-store").load(str(tmp_path)).count() == 0


def test_mistakes_are_reported_in_one_sentence(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="there is no option 'topik' for reading a store: did you mean topic"):
        spark.read.format("orbitmq-store").option("topik", "x").load(str(tmp_path))
    with pytest.raises(Exception, match="is not a store"):
        spark.read.format("orbitmq-store").load(str(tmp_path)).count()
