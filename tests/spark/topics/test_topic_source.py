"""Topics as tables in Spark: all columns, SQL, filters that brokers get to see, bodies, and errors that speak."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException, PythonException

from orbitmq import Message
from support.spark.topics import Topics, running_cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

    from orbitmq.testing.cluster_thread import ThreadCluster

PUSH_DOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture(scope="module")
def cluster() -> Iterator[ThreadCluster]:
    with running_cluster() as running:
        yield running


@pytest.fixture(scope="module")
def topics(cluster: ThreadCluster) -> Topics:
    return Topics(cluster)


@pytest.fixture
def reading(spark: SparkSession, topics: Topics, topic: str) -> DataFrameReader:
    """A reader of the test's own topic, which has two queues."""
    topics.make(topic)
    options = {"nameserver": topics.nameserver, "subscribe": topic, "retrySeconds": "3"}
    return spark.read.format("orbitmq").options(**options)


def numbers(found: DataFrame) -> list[int]:
    return sorted(int(row.body.decode()) for row in found.select("body").collect())


def sentence(raised: pytest.ExceptionInfo[Any]) -> str:
    """The last line of what Spark says, which is ours."""
    lines = [line for line in str(raised.value).splitlines() if "orbitmq." in line and "Error:" in line]
    assert len(lines) == 1, raised.value
    return lines[0].partition("Error: ")[2]


def test_a_topic_is_a_table(reading: DataFrameReader, topics: Topics, topic: str, cluster: ThreadCluster) -> None:
    message = Message(topic, "body", tags="paid", keys=["k1", "k2"], properties={"amount": "9"})
    receipt = topics.producer.send(message)
    topics.send(topic, ["plain"], queue=1)
    table = reading.load()
    assert dict(table.dtypes)["properties"] == "map<string,string>"
    first, second = sorted(table.collect(), key=lambda row: row.tags is None)
    (stored, _) = cluster.messages(topic)
    assert (first.topic, first.broker, first.queue_offset, first.body) == (topic, "broker-a", 0, b"body")
    assert (first.tags, first["keys"], first.properties["amount"]) == ("paid", ["k1", "k2"], "9")
    assert (first.unique_id, first.msg_id) == (receipt.message_id, receipt.offset_message_id)
    assert round(first.store_timestamp.timestamp() * 1000) == stored.store_timestamp
    assert first.store_host == cluster.address("broker-a")
    assert (second.queue_id, second.tags, second["keys"], second.body) == (1, None, None, b"plain")


def test_a_topic_is_queried_with_sql(
    spark: SparkSession, reading: DataFrameReader, topics: Topics, topic: str
) -> None:
    topics.send(topic, ["1", "2", "3"], tags="a")
    topics.send(topic, ["4"], queue=1, tags="b")
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW messages USING orbitmq OPTIONS (nameserver '{topics.nameserver}', "
        f"subscribe '{topic}', columns 'tags,body,queue_offset')"
    )
    assert spark.table("messages").columns == ["tags", "body", "queue_offset"]
    found = spark.sql("SELECT tags, sum(CAST(body AS string)) AS sum FROM messages GROUP BY tags ORDER BY tags")
    assert [tuple(row) for row in found.collect()] == [("a", 6.0), ("b", 4.0)]


def test_a_topic_is_a_view_but_no_table_of_a_catalog(
    spark: SparkSession, reading: DataFrameReader, topics: Topics, topic: str
) -> None:
    where = f"USING orbitmq OPTIONS (nameserver '{topics.nameserver}', topic '{topic}', columns 'body,tags')"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW recreated {where}")
    topics.send(topic, ["1"])
    assert numbers(spark.table("recreated")) == [1]
    with pytest.raises(AnalysisException) as raised:
        spark.sql(f"CREATE TABLE of_catalog {where}")
    assert sentence(raised).startswith(
        "a table of a catalog cannot be a topic, since Spark keeps its options to itself"
    )


def test_tasks_are_as_many_as_requested(reading: DataFrameReader, topics: Topics, topic: str) -> None:
    topics.send(topic, map(str, range(100)))
    table = reading.option("minPartitions", "5").load()
    assert table.rdd.getNumPartitions() == 5
    assert numbers(table) == list(range(100))


def test_a_limit_ends_reading_early(reading: DataFrameReader, topics: Topics, topic: str) -> None:
    topics.send(topic, map(str, range(500)))
    assert len(reading.load().limit(3).collect()) == 3
    assert reading.load().count() == 500


def test_an_empty_topic_and_an_empty_choice_are_empty_tables(
    reading: DataFrameReader, topics: Topics, topic: str
) -> None:
    assert reading.load().count() == 0
    topics.send(topic, ["1"], tags="a")
    assert reading.option("tags", "b").load().count() == 0


def test_filters_are_applied_by_brokers_if_they_may_be(
    spark: SparkSession, reading: DataFrameReader, topics: Topics, topic: str
) -> None:
    topics.send(topic, map(str, range(100)), tags="many")
    topics.send(topic, ["100"], tags="rare")
    topics.send(topic, map(str, range(200, 300)), queue=1, tags="many")
    assert spark.conf.get(PUSH_DOWN) == "true"

    def requested(condition: str) -> tuple[list[int], int]:
        table = reading.option("pushFilters", "once").load().where(condition)
        before = topics.given_out()
        return numbers(table), topics.given_out() - before

    assert requested("tags = 'rare'") == ([100], 1)
    assert requested("queue_id = 1 AND queue_offset >= 95") == (list(range(295, 300)), 5)
    assert requested(f"topic = '{topic}' AND queue_offset IN (3, 5) AND queue_id = 0") == ([3, 5], 3)
    assert requested("topic <> 'this'")[1] == 201
    assert requested("topic = 'this' OR broker = 'that'") == ([], 201)
    assert requested("store_timestamp < '2020-01-01'") == ([], 0)


def test_a_plan_shows_which_filters_are_not_sparks_any_more(
    reading: DataFrameReader, topics: Topics, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    topics.send(topic, ["1"])
    table = reading.option("pushFilters", "once").load()
    table.where("tags = 'rare' AND queue_id = 1 AND length(body) > 3").explain("formatted")
    plan = capsys.readouterr().out
    pushed = re.search(r"PushedFilters: \[(.*)\]", plan)
    assert pushed is not None
    assert {"EqualTo(tags,rare)", "EqualTo(queue_id,1)"} <= set(re.findall(r"\w+\([^)]*\)", pushed[1]))
    condition = re.search(r"Condition : (.*)", plan)
    assert condition is not None
    assert "tags" not in condition[1]


def test_spark_collects_the_requests_to_brokers_in_its_worker_log(
    spark: SparkSession, reading: DataFrameReader, topics: Topics, topic: str
) -> None:
    topics.send(topic, ["1", "2"], tags="a")
    spark.conf.set("spark.sql.pyspark.worker.logging.enabled", "true")
    try:
        assert reading.option("pushFilters", "once").load().where("tags = 'a'").count() == 2
        lines = [row.msg for row in spark.tvf.python_worker_logs().collect() if row.logger == "orbitmq.spark"]
    finally:
        spark.conf.set("spark.sql.pyspark.worker.logging.enabled", "false")
    assert any(re.search(r"filters pushed down: .*tags EqualTo 'a'; left to Spark: none", line) for line in lines)
    assert any(
        f"batch of '{topic}': 2 offsets of 1 queues" in line and "expression TAG a" in line for line in lines
    )
    assert any("2 messages of the offsets 0 to 1" in line and "for TAG a; 2 rows" in line for line in lines)


def test_filters_are_sparks_where_it_hands_over_none(
    spark: SparkSession, reading: DataFrameReader, topics: Topics, topic: str
) -> None:
    topics.send(topic, ["1", "2"], tags="a")
    spark.conf.set(PUSH_DOWN, "false")
    try:
        assert numbers(reading.option("pushFilters", "once").load().where("queue_offset = 1")) == [2]
    finally:
        spark.conf.set(PUSH_DOWN, "true")


def test_a_table_with_pushed_filters_is_refused_in_a_second_query(
    reading: DataFrameReader, topics: Topics, topic: str
) -> None:
    topics.send(topic, ["1", "2", "3"])
    table = reading.option("pushFilters", "once").load()
    assert table.where("queue_offset >= 1").orderBy("queue_offset").count() == 2
    with pytest.raises(PythonException, match="pushFilters=once and is used a second time"):
        table.count()
    with pytest.raises(AnalysisException, match="give pushFilters=once if it is used in one place"):
        reading.option("pushFilters", "true").load()


def test_a_table_may_be_used_with_other_filters_and_without(
    reading: DataFrameReader, topics: Topics, topic: str
) -> None:
    topics.send(topic, ["1", "2", "3"])
    table = reading.load()
    first, second = table.where("queue_offset = 0"), table.where("queue_offset = 1")
    assert numbers(first) == [1]
    assert numbers(table) == [1, 2, 3]
    assert numbers(first.union(second)) == [1, 2]


def test_bodies_are_columns(spark: SparkSession, reading: DataFrameReader, topics: Topics, topic: str) -> None:
    topics.send(topic, ['{"id": 1, "items": [{"name": "x"}]}', "broken", '{"id": 3}'])
    schema = "id BIGINT, items ARRAY<STRUCT<name: STRING>>, _queue_offset BIGINT, _corrupt BINARY"
    table = reading.schema(schema).option("bodyFormat", "json")
    found = table.option("mode", "PERMISSIVE").load().orderBy("_queue_offset").collect()
    assert [row.id for row in found] == [1, None, 3]
    assert found[0]["items"][0].name == "x"
    assert found[1]["_corrupt"] == b"broken"
    assert table.option("mode", "DROPMALFORMED").load().count() == 2
    with pytest.raises(PythonException) as raised:
        table.option("mode", "FAILFAST").load().collect()
    assert sentence(raised).startswith(f"the body at offset 1 of queue 0 of '{topic}' on broker-a cannot be read")


def test_bodies_of_text_need_no_schema(reading: DataFrameReader, topics: Topics, topic: str) -> None:
    topics.send(topic, ["grün"])
    table = reading.option("bodyFormat", "string").load()
    assert dict(table.dtypes)["body"] == "string"
    assert [row.body for row in table.collect()] == ["grün"]


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (lambda one: one.option("subscrib", "x").load(), "there is no option 'subscrib' .* did you mean subscribe"),
        (lambda one: one.option("startingOffsets", "soon").load(), "startingOffsets=soon is not possible"),
        (lambda one: one.option("columns", "bdy").load(), "columns=bdy cannot be used: there is no column 'bdy'"),
        (lambda one: one.option("bodyFormat", "json").load(), "bodyFormat=json needs a schema"),
        (lambda one: one.option("startingOffsets", "latest").load().count(), "startingOffsets of a batch cannot"),
        (lambda one: one.schema("topic string, x int").load().count(), "the schema has the column 'x'"),
        (lambda one: one.schema("queue_id string").load().count(), "'queue_id' as string: it is int"),
        (
            lambda one: one.option("subscribe", "nothing-here").load().count(),
            "the topic 'nothing-here' does not exist",
        ),
        (
            lambda one: one.option("nameserver", "127.0.0.1:1").load().count(),
            "no name server responds .*127.0.0.1:1",
        ),
        (
            lambda one: one.option("startingTimestamp", "99999999999999").load().count(),
            "is a time after everything",
        ),
        (
            lambda one: one.option("endingOffsets", '{"x": {"broker-a": {"0": 1}}}').load().count(),
            "endingOffsets has to name every queue that is read",
        ),
    ],
)
def test_a_mistake_is_reported_in_one_sentence(
    reading: DataFrameReader, wrong: Callable[[DataFrameReader], object], reason: str
) -> None:
    with pytest.raises(AnalysisException) as raised:
        wrong(reading)
    assert raised.value.getCondition() == "PYTHON_DATA_SOURCE_ERROR"
    assert re.search(reason, sentence(raised))


def test_messages_that_are_gone_are_reported_or_left_out(
    reading: DataFrameReader, topics: Topics, topic: str
) -> None:
    topics.send(topic, [f"{number}".ljust(1000) for number in range(60)])
    strict, lax = reading.load(), reading.option("failOnDataLoss", "false").load()
    # Spark plans a table once: from here on it is known what is to be read.
    assert strict.count() == lax.count() == 60
    topics.forget_oldest()
    with pytest.raises(PythonException) as raised:
        strict.count()
    assert re.match(rf"the offsets 0 to \d+ of queue 0 of '{topic}' on broker-a no longer exist", sentence(raised))
    assert 0 < lax.count() < 60
