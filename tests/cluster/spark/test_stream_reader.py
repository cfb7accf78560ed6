"""The reader of streams that Spark drives, driven by hand over a cluster in this process."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from orbitmq.protocol.bodies import MessageQueue
from orbitmq.spark.cluster import Cluster
from orbitmq.spark.errors import DataLossError, OptionError
from orbitmq.spark.schema.row_schema import RowSchema
from orbitmq.spark.topic_source.stream_reader import TopicStreamReader
from support.spark.topics import (
    BODIES,
    Query,
    Topics,
    batch,
    bodies,
    numbered,
    options,
    running_cluster,
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


def stream(topics: Topics, **given: str) -> TopicStreamReader:
    given.setdefault("startingOffsets", "earliest")
    read = options(topics, **given).for_stream()
    return TopicStreamReader(read, RowSchema.of(read, BODIES))


def test_a_stream_reads_what_comes_and_nothing_twice(topics: Topics) -> None:
    topics.make("orders")
    topics.send("orders", numbered(0, 3))
    query = Query(stream(topics))
    assert query.next() == numbered(0, 3)
    assert query.next() == []
    topics.send("orders", numbered(3, 5), queue=1)
    topics.send("orders", numbered(5, 7), queue=0)
    assert query.next() == [*numbered(5, 7), *numbered(3, 5)]
    assert not query.plan()


def test_a_stream_begins_with_the_newest_message(topics: Topics) -> None:
    topics.make("orders", 1)
    topics.send("orders", ["old"])
    query = Query(stream(topics, startingOffsets="latest"))
    assert query.next() == []
    topics.send("orders", ["new"])
    assert query.next() == ["new"]


def test_a_first_batch_that_failed_is_read_again_from_the_same_start(topics: Topics) -> None:
    topics.make("orders", 1)
    topics.send("orders", ["old"])
    query = Query(stream(topics, startingOffsets="latest"))
    query.start()
    topics.send("orders", ["first", "second"])
    assert query.plan()
    topics.send("orders", ["third"])
    again = Query(stream(topics, startingOffsets="latest"), query.log)
    assert again.run() == ["first", "second"]
    assert again.next() == ["third"]


def test_a_first_batch_without_messages_can_be_read_again(topics: Topics) -> None:
    topics.make("orders", 1)
    query = Query(stream(topics, startingOffsets="latest"))
    assert query.next() == []
    topics.send("orders", ["later"])
    again = Query(stream(topics, startingOffsets="latest"), query.log)
    assert again.run() == []
    assert again.next() == ["later"]
    third = Query(stream(topics, startingOffsets="latest"), again.log)
    assert third.run() == ["later"]


def test_a_batch_is_as_large_as_allowed_and_shared_by_the_queues(topics: Topics) -> None:
    topics.make("orders")
    topics.send("orders", numbered(0, 60), queue=0)
    topics.send("orders", numbered(60, 80), queue=1)
    query = Query(stream(topics, maxOffsetsPerTrigger="40"))
    assert query.reader.getDefaultReadLimit() == ReadMaxRows(40)
    assert query.next() == [*numbered(0, 30), *numbered(60, 70)]
    assert query.next() == [*numbered(30, 60), *numbered(70, 80)]
    assert not query.plan()
    assert Query(stream(topics, maxOffsetsPerTrigger="40")).next(ReadAllAvailable()) == numbered(0, 80)


def test_a_batch_waits_for_enough_messages_but_not_forever(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    topics.make("orders", 1)
    topics.send("orders", ["first"])
    query = Query(stream(topics, minOffsetsPerTrigger="3", maxTriggerDelay="1h"))
    assert query.reader.getDefaultReadLimit() == ReadMinRows(3)
    assert query.next() == ["first"]
    topics.send("orders", numbered(0, 2))
    assert not query.plan()
    topics.send("orders", ["third"])
    assert query.next() == ["0", "1", "third"]
    topics.send("orders", ["late"])
    assert not query.plan()
    monkeypatch.setattr(query.reader, "_planned_at", time.monotonic() - 3601)
    assert query.next() == ["late"]


def test_new_queues_and_topics_are_read_from_their_beginning(topics: Topics) -> None:
    topics.make("orders", 1)
    query = Query(stream(topics, subscribePattern="orders.*", startingOffsets="latest"))
    query.next()
    topics.make("orders", 2)
    topics.send("orders", ["new queue"], queue=1)
    assert query.next() == ["new queue"]
    topics.make("orders-too", 1)
    topics.send("orders-too", ["new topic"])
    query.reader._queues._listed_at = None
    assert query.next() == ["new topic"]
    again = Query(stream(topics, subscribePattern="orders.*"), query.log)
    assert again.run() == ["new topic"]


def test_a_pattern_may_have_no_topics_yet(topics: Topics) -> None:
    query = Query(stream(topics, subscribePattern="orders.*"))
    assert query.next() == []
    topics.make("orders", 1)
    topics.send("orders", ["x"])
    query.reader._queues._listed_at = None
    assert query.next() == ["x"]


def test_a_query_that_reads_what_is_there_ends_with_it(topics: Topics) -> None:
    topics.make("orders", 1)
    topics.send("orders", numbered(0, 5))
    query = Query(stream(topics, maxOffsetsPerTrigger="3", minOffsetsPerTrigger="3"))
    query.reader.prepareForTriggerAvailableNow()
    assert query.next() == numbered(0, 3)
    topics.send("orders", ["after"])
    topics.make("orders", 2)
    topics.send("orders", ["after"], queue=1)
    assert query.next() == numbered(3, 5)
    assert not query.plan()
    assert Query(stream(topics), query.log).next() == ["after", "after"]


def test_the_newest_offsets_are_reported(topics: Topics) -> None:
    topics.make("orders")
    topics.send("orders", numbered(0, 5))
    query = Query(stream(topics, maxOffsetsPerTrigger="2"))
    query.plan()
    assert query.reader.reportLatestOffset() == {"orders": {"broker-a": {"0": 5, "1": 0}}}
    assert json.loads(query.log[-1])["orders"] == {"broker-a": {"0": 2, "1": 0}}


def test_finished_offsets_are_committed_for_the_group(topics: Topics) -> None:
    topics.make("orders", 1)
    topics.send("orders", numbered(0, 5))
    query = Query(stream(topics, groupId="spark-orders", maxOffsetsPerTrigger="3"))
    query.next()
    assert topics.committed("spark-orders") == {}
    query.next()
    assert topics.committed("spark-orders") == {0: 3}
    assert not query.plan()
    assert topics.committed("spark-orders") == {0: 5}
    query.reader.commit(json.loads(query.log[0]))
    assert topics.committed("spark-orders") == {0: 3}


def test_a_stream_without_a_group_commits_nothing(topics: Topics) -> None:
    topics.make("orders", 1)
    topics.send("orders", ["x"])
    query = Query(stream(topics))
    query.next()
    query.plan()
    assert topics.committed("orbitmq-spark") == {}


def test_messages_deleted_before_they_were_read_are_an_error_or_left_out(
    topics: Topics, caplog: pytest.LogCaptureFixture
) -> None:
    topics.make("orders", 1)
    topics.send("orders", [f"{number}".ljust(1000) for number in range(40)])
    strict = Query(stream(topics, maxOffsetsPerTrigger="1"))
    lax = Query(stream(topics, maxOffsetsPerTrigger="1", failOnDataLoss="false"))
    assert [body.strip() for body in strict.next() + lax.next()] == ["0", "0"]
    topics.forget_oldest()
    with pytest.raises(DataLossError, match=r"the offsets 1 to .* of queue 0 of 'orders' on broker-a were deleted"):
        strict.plan()
    (body,) = lax.next()
    assert int(body) > 1
    assert "stream: messages expired, skipping them: the offsets " in caplog.text
    assert lax.run() == [body]
    assert [int(one) for one in lax.next()] == [int(body) + 1]


def plan_for_ever(query: Query) -> None:
    while True:
        query.plan()


def test_a_topic_that_is_deleted_ends_a_query_or_is_left_behind(
    topics: Topics, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("orders", "bills"):
        topics.make(name, 1)
        topics.send(name, [name])
    strict = Query(stream(topics, subscribe="orders,bills", retrySeconds="0.2"))
    lax = Query(stream(topics, subscribe="orders,bills", retrySeconds="0.2", failOnDataLoss="false"))
    assert strict.next() == lax.next() == ["bills", "orders"]
    topics.delete("orders")
    assert not strict.plan()
    topics.send("bills", ["more"])
    with pytest.raises(DataLossError, match=r"queue 0 of 'orders' on broker-a is not there, and that for 0.2 s"):
        plan_for_ever(strict)
    assert lax.next() == ["more"]
    while "stream: queue missing, continuing without it: " not in caplog.text:
        lax.plan()
    assert json.loads(lax.log[-1]) == {"bills": {"broker-a": {"0": 2}}, "orders": {"broker-a": {"0": 1}}}


def test_a_query_that_ends_waits_for_a_broker_that_is_away(topics: Topics, cluster: ThreadCluster) -> None:
    topics.make("orders", 1)
    topics.send("orders", ["x"])
    query = Query(stream(topics, retrySeconds="0.2"))
    query.next()
    topics.delete("orders")
    again = Query(stream(topics, retrySeconds="0.2"), query.log)
    again.reader.prepareForTriggerAvailableNow()
    with pytest.raises(DataLossError, match="is not there"):
        again.plan()


def test_a_recreated_topic_is_an_error_or_read_on_from_its_end(topics: Topics) -> None:
    topics.make("orders", 1)
    topics.send("orders", numbered(0, 5))
    strict = Query(stream(topics, retrySeconds="0"))
    lax = Query(stream(topics, retrySeconds="0", failOnDataLoss="false"))
    strict.next()
    lax.next()
    topics.delete("orders")
    topics.make("orders", 1)
    topics.send("orders", ["anew"])
    with pytest.raises(DataLossError, match="queue 0 of 'orders' on broker-a ends at 1, before the offset 5"):
        strict.plan()
    assert lax.next() == []
    topics.send("orders", ["on"])
    assert lax.next() == ["on"]


def test_a_restarted_broker_is_waited_for(topics: Topics, cluster: ThreadCluster) -> None:
    topics.make("orders", 1)
    topics.send("orders", ["before"])
    query = Query(stream(topics))
    assert query.next() == ["before"]
    cluster.restart("broker-a")
    topics.send("orders", ["after"])
    assert next(filter(None, iter(query.next, None))) == ["after"]


def test_a_checkpoint_of_another_query_is_refused(topics: Topics) -> None:
    topics.make("orders", 1)
    reader = stream(topics)
    other = {"bills": {"broker-a": {"0": 5}}}
    with pytest.raises(OptionError, match="the checkpoint belongs to 'bills', and 'orders' is subscribed"):
        reader.latestOffset(other, ReadAllAvailable())
    with pytest.raises(OptionError, match="the checkpoint belongs to 'bills'"):
        reader.partitions({}, other)
    with pytest.raises(OptionError, match="holds an offset that is not one of topics"):
        reader.latestOffset({"logOffset": 3}, ReadAllAvailable())


def test_a_stream_of_a_topic_that_does_not_exist_is_refused(topics: Topics) -> None:
    with pytest.raises(OptionError, match=r"^the topic 'orders' does not exist"):
        stream(topics).initialOffset()


def test_an_idle_stream_asks_brokers_seldom(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    topics.make("orders", 1)
    query = Query(stream(topics, pollMillis="700"))
    slept: list[float] = []
    monkeypatch.setattr("orbitmq.spark.topic_source.stream_reader.time.sleep", slept.append)
    query.plan()
    query.plan()
    query.plan()
    assert len(slept) == 2
    assert all(0 < seconds <= 0.7 for seconds in slept)


def test_queues_of_several_brokers_are_read() -> None:
    with running_cluster(brokers=2) as cluster:
        topics = Topics(cluster)
        for broker in ("broker-a", "broker-b"):
            topics.make("orders", 1, broker)
            topics.send("orders", [broker], broker=broker)
        assert bodies(batch(topics)) == ["broker-a", "broker-b"]
        assert MessageQueue("orders", "broker-b", 0) in Cluster.of(topics.nameserver).bounds(["orders"])["orders"]
        query = Query(stream(topics))
        assert query.next() == ["broker-a", "broker-b"]
        assert json.loads(query.log[-1])["orders"] == {"broker-a": {"0": 1}, "broker-b": {"0": 1}}
