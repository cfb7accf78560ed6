"""Filters that a reader accepts from Spark: ranges and queues that are then not requested from brokers."""

from __future__ import annotations

import datetime
import logging
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, In, LessThan, Not, StringContains
from pyspark.sql.types import IntegerType, LongType, StructField, StructType

from orbitmq.spark.errors import OptionError
from orbitmq.spark.schema.row_schema import RowSchema
from orbitmq.spark.topic_source.batch_reader import FilteringBatchReader, TopicBatchReader
from orbitmq.spark.topic_source.datasource import OrbitMQSource, takes_filters
from orbitmq.spark.topic_source.stream_reader import TopicStreamReader
from orbitmq.testing import LocalCluster
from support.spark.topics import (
    BODIES,
    FILTERED,
    SMALL_FILES,
    Topics,
    bodies,
    close_clusters,
    numbered,
    options,
    rows,
    running_cluster,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from orbitmq.testing.cluster_thread import ThreadCluster


@pytest.fixture
def cluster() -> Iterator[ThreadCluster]:
    with running_cluster() as running:
        yield running


@pytest.fixture
def topics(cluster: ThreadCluster) -> Topics:
    return Topics(cluster)


def filtering(topics: Topics, *filters: Filter, of: StructType = FILTERED, **given: str) -> FilteringBatchReader:
    read = options(topics, **given).for_batch()
    reader = FilteringBatchReader(read, RowSchema.of(read, of))
    left = list(reader.pushFilters(list(filters)))
    assert left == []
    return reader


def planned(reader: TopicBatchReader) -> list[tuple[str, int, int, int]]:
    ranges = [partition.value for partition in reader.partitions()]
    return [(one.queue.topic, one.queue.queue_id, one.start, one.end) for one in ranges]


def test_filters_leave_out_queues_and_offsets_before_anything_is_read(topics: Topics) -> None:
    topics.make("orders", 3)
    for queue in range(3):
        topics.send("orders", numbered(0, 20), queue=queue)
    found = filtering(
        topics, In(("queue_id",), (0, 2)), GreaterThan(("queue_offset",), 4), LessThan(("queue_offset",), 8)
    )
    assert planned(found) == [("orders", 0, 5, 8), ("orders", 2, 5, 8)]
    assert bodies(found) == numbered(5, 8) * 2
    odd = filtering(topics, EqualTo(("queue_id",), 1), In(("queue_offset",), (3, 17)))
    assert planned(odd) == [("orders", 1, 3, 18)]
    assert bodies(odd) == ["3", "17"]


def test_filters_leave_out_topics_and_brokers(topics: Topics) -> None:
    topics.make("orders", 1)
    topics.make("bills", 1)
    topics.send("orders", ["x"])
    topics.send("bills", ["y"])
    assert planned(filtering(topics, EqualTo(("topic",), "bills"), subscribe="orders,bills")) == [
        ("bills", 0, 0, 1)
    ]
    assert planned(filtering(topics, Not(EqualTo(("broker",), "broker-a")))) == []


def test_filters_on_times_leave_out_what_is_far_away(cluster: ThreadCluster, topics: Topics) -> None:
    topics.make("orders", 1)
    for hour in range(4):
        topics.send("orders", [f"{hour}"])
        cluster.advance(3600)
    times = [message.store_timestamp for message in cluster.messages("orders")]
    second, third = (datetime.datetime.fromtimestamp(times[at] / 1000, datetime.UTC) for at in (1, 2))
    since = filtering(topics, GreaterThan(("store_timestamp",), second))
    assert planned(since) == [("orders", 0, 1, 4)]
    assert bodies(since) == ["2", "3"]
    before = filtering(topics, LessThan(("store_timestamp",), third))
    assert planned(before) == [("orders", 0, 0, 3)]
    assert bodies(before) == ["0", "1"]


def test_filters_on_tags_are_the_brokers_to_apply(cluster: ThreadCluster, topics: Topics) -> None:
    topics.make("orders", 1)
    topics.send("orders", numbered(0, 50), tags="many")
    topics.send("orders", ["rare"], tags="rare")
    reader = filtering(topics, EqualTo(("tags",), "rare"))
    assert reader._reading.expression == "rare"
    assert bodies(reader) == ["rare"]
    both = filtering(topics, In(("tags",), ("rare", "many")), tags="rare || other")
    assert (both._reading.expression, bodies(both)) == ("rare", ["rare"])
    assert planned(filtering(topics, EqualTo(("tags",), "many"), tags="rare")) == []
    odd = filtering(topics, In(("tags",), ("a || b", "rare")))
    assert (odd._reading.expression, bodies(odd)) == ("*", ["rare"])
    part = filtering(topics, StringContains(("tags",), "ar"))
    assert (part._reading.expression, bodies(part)) == ("*", ["rare"])


def test_filters_know_columns_by_their_names_beside_bodies(topics: Topics) -> None:
    topics.make("orders")
    topics.send("orders", ['{"queue_id": 7}'], queue=0)
    topics.send("orders", ['{"queue_id": 8}'], queue=1)
    of = StructType([StructField("queue_id", LongType()), StructField("_queue_id", IntegerType())])
    read = options(topics, bodyFormat="json").for_batch()
    reader = FilteringBatchReader(read, RowSchema.of(read, of))
    theirs = EqualTo(("queue_id",), 8)
    assert list(reader.pushFilters([EqualTo(("_queue_id",), 1), theirs])) == [theirs]
    assert rows(reader) == [(8, 1)]


def test_what_was_requested_is_logged(topics: Topics, caplog: pytest.LogCaptureFixture) -> None:
    topics.make("orders", 1)
    topics.send("orders", numbered(0, 9), tags="t")
    with caplog.at_level(logging.INFO, "orbitmq.spark"):
        rows(filtering(topics, EqualTo(("tags",), "t"), LessThan(("queue_offset",), 4)))
    text = caplog.text
    assert "filters pushed down: tags EqualTo 't' and queue_offset LessThan 4; left to Spark: none" in text
    assert "batch of 'orders': 4 offsets of 1 queues in 1 partitions; expression TAG t" in text
    assert "queue 0 of 'orders' on broker-a: 4 messages of the offsets 0 to 3" in text


def test_a_reader_takes_filters_only_from_the_planner_that_has_them(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"nameserver": topics.nameserver, "subscribe": "orders"}
    source = OrbitMQSource({**given, "pushFilters": "once"})
    assert not takes_filters()
    assert type(source.reader(BODIES)) is TopicBatchReader
    monkeypatch.setitem(__import__("sys").modules, "pyspark.sql.worker.data_source_pushdown_filters", pytest)
    assert type(source.reader(BODIES)) is FilteringBatchReader
    assert type(OrbitMQSource(given).reader(BODIES)) is TopicBatchReader


@pytest.mark.parametrize("kind", ["batch", "stream"])
def test_a_broker_without_property_filters_refuses_sql92_before_any_task(kind: str) -> None:
    with LocalCluster(settings={**SMALL_FILES, "enablePropertyFilter": "false"}) as running:
        refuses_sql92(Topics(running), kind)
        close_clusters()


def refuses_sql92(topics: Topics, kind: str) -> None:
    topics.make("orders")
    given = {"sql92": "amount > 5", "startingOffsets": "earliest"}
    message = r"^sql92=amount > 5 cannot be used: .*SQL92.*, set enablePropertyFilter=true$"
    read = options(topics, **given)
    shape = RowSchema.of(read, BODIES)
    plan: Callable[[], object] = TopicBatchReader(read.for_batch(), shape).partitions
    if kind == "stream":
        plan = TopicStreamReader(read.for_stream(), shape).initialOffset
    with pytest.raises(OptionError, match=message):
        plan()


def test_a_broker_with_property_filters_takes_sql92() -> None:
    with LocalCluster(settings={**SMALL_FILES, "enablePropertyFilter": "true"}) as running:
        topics = Topics(running)
        topics.make("orders")
        read = options(topics, sql92="amount > 5").for_batch()
        assert TopicBatchReader(read, RowSchema.of(read, BODIES)).partitions() == []
        close_clusters()
