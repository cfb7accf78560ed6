"""Topics as streams in Spark: batches and their limits, restarts, queues that come and go, groups, losses."""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from support.spark.topics import Topics, running_cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from orbitmq.testing.cluster_thread import ThreadCluster

PATIENCE = 60


@pytest.fixture(scope="module")
def cluster() -> Iterator[ThreadCluster]:
    with running_cluster() as running:
        yield running


@pytest.fixture(scope="module")
def topics(cluster: ThreadCluster) -> Topics:
    return Topics(cluster)


class Stream:
    """A query over a topic of a test's own, with its checkpoint and the bodies that it gave."""

    def __init__(self, spark: SparkSession, nameserver: str, topic: str, folder: Path) -> None:
        self._spark = spark
        self._given = {
            "nameserver": nameserver,
            "subscribe": topic,
            "startingOffsets": "earliest",
            "retrySeconds": "3",
        }
        self.checkpoint = folder / "checkpoint"
        self.batches: dict[int, list[str]] = {}
        self.running: list[StreamingQuery] = []

    def start(self, *, now: bool = False, fail: bool = False, **options: str) -> StreamingQuery:
        given = {**self._given, **options}
        if "subscribePattern" in options:
            del given["subscribe"]

        def take(rows: DataFrame, number: int) -> None:
            found = [row.body.decode().strip() for row in rows.select("body").collect()]
            if fail:
                raise ValueError("the sink fails")
            self.batches[number] = found

        writing = self._spark.readStream.format("orbitmq").options(**given).load().writeStream.foreachBatch(take)
        writing = writing.trigger(availableNow=True) if now else writing.trigger(processingTime="0 seconds")
        query = writing.option("checkpointLocation", self.checkpoint.as_uri()).start()
        self.running.append(query)
        return query

    def finish(self, **options: Any) -> StreamingQuery:
        """Read what there is."""
        query = self.start(now=True, **options)
        assert query.awaitTermination(PATIENCE)
        return query

    def bodies(self) -> list[str]:
        return [body for number in sorted(self.batches) for body in self.batches[number]]

    def until(self, bodies: list[str]) -> None:
        eventually(lambda: sorted(self.bodies()) == sorted(bodies), lambda: f"{self.bodies()} instead of {bodies}")


def eventually(
    condition: Callable[[], object], reported: Callable[[], str] = lambda: "it did not come to that"
) -> None:
    until = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < until, reported()
        time.sleep(0.02)


@pytest.fixture
def stream(spark: SparkSession, topics: Topics, topic: str, tmp_path: Path) -> Iterator[Stream]:
    topics.make(topic)
    made = Stream(spark, topics.nameserver, topic, tmp_path)
    yield made
    for query in made.running:
        query.stop()


def failure(query: StreamingQuery) -> str:
    """Our one sentence in the error of a query."""
    with pytest.raises(StreamingQueryException) as raised:
        query.awaitTermination(PATIENCE)
    assert raised.value.getCondition() == "STREAM_FAILED"
    lines = {line for line in str(raised.value).splitlines() if line.startswith("orbitmq.") and "Error: " in line}
    assert len(lines) == 1, raised.value
    return lines.pop().partition("Error: ")[2]


def numbered(start: int, end: int) -> list[str]:
    return [str(number) for number in range(start, end)]


def test_what_is_there_is_read_in_batches_and_the_next_run_goes_on(
    stream: Stream, topics: Topics, topic: str
) -> None:
    topics.send(topic, numbered(0, 30), queue=0)
    topics.send(topic, numbered(30, 40), queue=1)
    limit = {"maxOffsetsPerTrigger": "16", "groupId": "g-runs"}
    query = stream.finish(**limit)
    assert [len(batch) for batch in stream.batches.values()] == [16, 16, 8]
    assert sorted(map(int, stream.bodies())) == list(range(40))
    assert topics.committed("g-runs") == {0: 30, 1: 10}
    (progress,) = json.loads(query.recentProgress[0].json)["sources"]
    assert progress["endOffset"][topic] == {"broker-a": {"0": 12, "1": 4}}
    assert progress["latestOffset"][topic] == {"broker-a": {"0": 30, "1": 10}}
    topics.send(topic, numbered(40, 43), queue=1)
    stream.finish(**limit)
    assert stream.bodies()[40:] == numbered(40, 43)
    stream.finish(**limit)
    assert len(stream.batches) == 4
    assert topics.committed("g-runs") == {0: 30, 1: 13}


def test_messages_queues_and_topics_that_come_are_read(stream: Stream, topics: Topics, topic: str) -> None:
    topics.send(topic, ["old"])
    query = stream.start(subscribePattern=f"{topic}.*", startingOffsets="latest")
    eventually(lambda: query.lastProgress is not None)
    assert stream.bodies() == []
    topics.send(topic, ["a"])
    stream.until(["a"])
    topics.make(topic, 3)
    topics.send(topic, ["b"], queue=2)
    stream.until(["a", "b"])
    topics.make(f"{topic}-too", 1)
    topics.send(f"{topic}-too", ["c", "d"])
    stream.until(["a", "b", "c", "d"])


def test_a_batch_that_failed_is_read_again_and_nothing_is_missing(
    stream: Stream, topics: Topics, topic: str
) -> None:
    query = stream.start(startingOffsets="latest")
    eventually(lambda: query.lastProgress is not None)
    query.stop()
    topics.send(topic, ["first"])
    query = stream.start(fail=True, startingOffsets="latest")
    with pytest.raises(StreamingQueryException, match="the sink fails"):
        query.awaitTermination(PATIENCE)
    topics.send(topic, ["second"])
    stream.finish(startingOffsets="latest")
    assert [batch for batch in stream.batches.values() if batch] == [["first"], ["second"]]


def test_a_first_batch_that_failed_starts_where_it_started(stream: Stream, topics: Topics, topic: str) -> None:
    topics.send(topic, numbered(0, 5))
    query = stream.start(fail=True, startingOffsets=json.dumps({topic: {"broker-a": {"0": 3, "1": 0}}}))
    with pytest.raises(StreamingQueryException, match="the sink fails"):
        query.awaitTermination(PATIENCE)
    topics.send(topic, ["5"])
    stream.finish(startingOffsets="latest")
    assert stream.batches == {0: ["3", "4"], 1: ["5"]}


def test_a_restarted_broker_does_not_end_a_query(
    stream: Stream, topics: Topics, topic: str, cluster: ThreadCluster
) -> None:
    topics.send(topic, ["before"])
    query = stream.start(retrySeconds="30")
    stream.until(["before"])
    cluster.restart("broker-a")
    topics.send(topic, ["after"])
    stream.until(["before", "after"])
    assert query.isActive


def test_messages_deleted_before_they_were_read_end_a_query_or_are_left_out(
    stream: Stream, topics: Topics, topic: str
) -> None:
    topics.send(topic, ["0"])
    stream.finish()
    topics.send(topic, [f"{number}".ljust(1000) for number in range(1, 60)])
    topics.forget_oldest()
    message = failure(stream.start())
    assert re.match(rf"the offsets 1 to \d+ of queue 0 of '{topic}' on broker-a were deleted before", message)
    stream.finish(failOnDataLoss="false")
    left = [int(body) for body in stream.bodies()[1:]]
    assert left == list(range(left[0], 60))
    assert 1 < left[0] < 60


def test_a_deleted_topic_ends_a_query_or_is_left_behind(stream: Stream, topics: Topics, topic: str) -> None:
    other = f"{topic}-other"
    topics.make(other, 1)
    topics.send(topic, ["1"])
    query = stream.start(subscribe=f"{topic},{other}")
    stream.until(["1"])
    topics.delete(topic)
    message = failure(query)
    assert message.startswith(f"queue 0 of '{topic}' on broker-a is not there, nor are 1 more")
    stream.start(subscribe=f"{topic},{other}", failOnDataLoss="false")
    topics.send(other, ["2"])
    stream.until(["1", "2"])


def test_bodies_and_tags_are_those_of_a_batch(
    stream: Stream, spark: SparkSession, topics: Topics, topic: str
) -> None:
    topics.send(topic, ['{"id": 1}'], tags="a")
    topics.send(topic, ['{"id": 2}'], tags="b")
    options = {"nameserver": topics.nameserver, "subscribe": topic, "startingOffsets": "earliest"}
    reading = spark.readStream.format("orbitmq").options(**options, bodyFormat="json", tags="b")
    found = reading.schema("id BIGINT, _tags STRING").load()
    query = found.writeStream.format("memory").queryName("streamed").trigger(availableNow=True).start()
    assert query.awaitTermination(PATIENCE)
    assert [tuple(row) for row in spark.table("streamed").collect()] == [(2, "b")]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": "nothing-here"}, "the topic 'nothing-here' does not exist"),
        ({"endingOffsets": "latest"}, "endingOffsets is for batches: a stream has no end"),
        ({"nameserver": "127.0.0.1:1"}, "no name server responds"),
        ({"startingTimestamp": "99999999999999"}, "startingOffsets is a time after everything"),
    ],
)
def test_a_mistake_ends_a_query_with_one_sentence(stream: Stream, options: dict[str, Any], message: str) -> None:
    assert failure(stream.start(**options)).startswith(message)


def test_a_checkpoint_of_another_query_is_refused(stream: Stream, topics: Topics, topic: str) -> None:
    topics.send(topic, ["1"])
    stream.finish()
    topics.make(f"{topic}-other")
    message = failure(stream.start(subscribe=f"{topic}-other"))
    assert message.startswith(f"the checkpoint belongs to '{topic}', and '{topic}-other' is subscribed")
