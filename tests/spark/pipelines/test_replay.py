"""The replay pipeline: each message once and in order, at the speed that was requested, whatever ends a run."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from orbitmq import Message, Producer
from orbitmq.protocol.bodies import MessageQueue
from orbitmq.spark.cluster import Cluster
from orbitmq.spark.errors import OptionError
from orbitmq.spark.pipelines.archive.directory import Archive
from orbitmq.spark.pipelines.archive.job import archive
from orbitmq.spark.pipelines.progress import silent
from orbitmq.spark.pipelines.replay.job import planned, replay
from orbitmq.spark.pipelines.replay.request import ReplayRequest
from orbitmq.spark.pipelines.spark_job import PipelineError
from support.spark.archive_harness import PipelineProcess, wait_for
from support.spark.replay_harness import START_MS, add_segment
from support.spark.spark_harness import standalone_cluster
from support.spark.topic_copies import differences

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

IS_LONG = bool(os.environ.get("ORBITMQ_LONG"))
WITHIN = 0.05 if IS_LONG else 0.6
"""How far a speed may be from the requested one: a machine with something else to do proves nothing."""
SECONDS = 20 if IS_LONG else 3
BROKER = "broker-a"


class Target:
    """The messages that a replay has written to a topic."""

    def __init__(self, spark: SparkSession, nameserver: str, topic: str) -> None:
        self._spark = spark
        self.nameserver = nameserver
        self.topic = topic

    def read(self) -> DataFrame:
        """Its messages, in the words of the archive where they say what they repeat."""
        options = {"nameserver": self.nameserver, "subscribe": self.topic}
        rows = self._spark.read.format("orbitmq").options(**options).load()
        return rows.selectExpr(
            "broker AS at_broker",
            "queue_id AS at_queue",
            "queue_offset AS at_offset",
            "unix_millis(store_timestamp) AS at_ms",
            "properties['REPLAY_ID'] AS replay",
            "properties['REPLAY_TOPIC'] AS topic",
            "properties['REPLAY_BROKER'] AS broker",
            "int(properties['REPLAY_QUEUE']) AS queue_id",
            "bigint(properties['REPLAY_OFFSET']) AS queue_offset",
            "int(coalesce(properties['REPLAY_LIFE'], '0')) AS life",
            "properties['REPLAY_MSG_ID'] AS unique_id",
            "bigint(properties['REPLAY_BORN']) AS born_ms",
            "bigint(properties['REPLAY_STORED']) AS stored_ms",
            "body",
            "tags",
            "keys",
            "properties['colour'] AS colour",
            "properties['__SHARDINGKEY'] AS shard",
        )

    def count(self) -> int:
        """Without Spark, so that it may be called often."""
        found = Cluster.of(self.nameserver).bounds([self.topic])[self.topic]
        return sum(bounds.max - bounds.min for bounds in found.values())

    def out_of_order(self) -> int:
        """Messages that come after one that they were before, or that lie elsewhere than others of their queue."""
        self.read().createOrReplaceTempView("replayed")
        found = self._spark.sql(
            """
            SELECT count_if(before > (life, queue_offset) OR place != here) FROM (
                SELECT life, queue_offset, (at_broker, at_queue) AS here,
                    first((at_broker, at_queue)) OVER same AS place,
                    lag((life, queue_offset)) OVER same AS before
                FROM replayed
                WINDOW same AS (
                    PARTITION BY replay, topic, broker, queue_id ORDER BY at_broker, at_queue, at_offset
                )
            )
            """
        ).first()
        assert found is not None
        return int(found[0])

    def seconds_between(self) -> tuple[float, int]:
        """From the first to the last of its messages by the broker's clock, and how many there are."""
        found = self.read().selectExpr("(max(at_ms) - min(at_ms)) / 1000", "count(*)").first()
        assert found is not None
        return float(found[0]), found[1]


COMPARED = ["topic", "broker", "queue_id", "queue_offset", "unique_id", "body", "tags", "keys", "colour", "shard"]
TIMES = ["born_ms", "stored_ms"]


def archived(spark: SparkSession, place: str) -> DataFrame:
    return (
        Archive.existing(place)
        .read(spark)
        .selectExpr(
            "*",
            "properties['colour'] AS colour",
            "properties['__SHARDINGKEY'] AS shard",
            "unix_millis(born_timestamp) AS born_ms",
            "unix_millis(store_timestamp) AS stored_ms",
        )
    )


def crafted(folder: Path, topic: str, times_ms: list[int], queues: int = 2) -> str:
    """An archive of messages that were stored at these times, in each of some queues."""
    place = Archive(str(folder / "crafted"))
    for number in range(queues):
        add_segment(place, MessageQueue(topic, BROKER, number), times_ms)
    return place.root


def test_a_replay_is_equal_to_its_archive(spark: SparkSession, nameserver: str, topic: str, tmp_path: Path) -> None:
    with Producer(nameserver, group="orders") as producer:
        for number in range(400):
            more: dict[str, Any] = {"properties": {"colour": f"c{number}"}} if number % 3 else {}
            if number % 2:
                more |= {"tags": f"t{number % 5}", "keys": [f"k{number}", "all"]}
            if number % 7 == 0:
                more["sharding_key"] = f"s{number % 4}"
            producer.send(Message(topic, f"body {number}", **more))
    place = str(tmp_path / "archive")
    archive(spark, to=place, topics=[topic], nameserver=nameserver, group=f"of-{topic}"[:100])
    target = Target(spark, nameserver, f"{topic}-copy")
    given: dict[str, Any] = {"archive": place, "nameserver": nameserver, "to_topic": target.topic, "name": "mine"}
    # What would be done.
    facts = planned(ReplayRequest(topics=(topic,), **given), silent()).facts
    assert (facts["messages"], facts["topics"], facts["replay"]) == (400, {topic: 400}, "mine")
    assert not (tmp_path / "archive" / "_orbitmq" / "replays").exists()
    # It is done.
    facts = replay(spark, topics=topic, **given).facts
    assert (facts["messages"], facts["sent_before"], facts["senders"]) == (400, 0, 2)
    original = archived(spark, place)
    assert differences(original, target.read(), COMPARED + TIMES) == (0, 0)
    assert target.out_of_order() == 0
    assert target.read().where("replay != 'mine'").count() == 0
    # It is done once, and once more only on request.
    summary = replay(spark, topics=topic, **given)
    assert "was finished already" in summary.title
    assert (summary.facts["messages"], target.count()) == (0, 400)
    with pytest.raises(
        PipelineError, match="there is a replay 'mine' of something else: its until is not set, not"
    ):
        replay(spark, topics=topic, **given, until=1)
    middle = original.selectExpr("bigint(percentile(stored_ms, 0.5))").first()[0]  # type: ignore[index]
    rest = replay(spark, topics=topic, **{**given, "name": "rest"}, start=middle).facts["messages"]
    assert rest == original.where(f"stored_ms >= {middle}").count()
    assert replay(spark, topics=topic, **given, again=True).facts["replay"] == "mine~2"
    assert target.count() == 800 + rest
    assert target.out_of_order() == 0


def test_a_clock_that_went_back_and_a_queue_that_was_recreated_keep_their_order(
    spark: SparkSession, nameserver: str, topic: str, tmp_path: Path
) -> None:
    times = [START_MS + (number * 7919) % 1000 for number in range(300)]
    place = Archive(crafted(tmp_path, topic, times, queues=3))
    add_segment(place, MessageQueue(topic, BROKER, 0), [START_MS + 500] * 50, recreated=True)
    add_segment(place, MessageQueue(topic, BROKER, 0), [START_MS] * 50, first=50)
    target = Target(spark, nameserver, topic)
    facts = replay(spark, archive=place.root, topics=[topic], nameserver=nameserver, pace=4.0).facts
    assert facts["messages"] == target.count() == 1000
    assert target.out_of_order() == 0
    assert target.read().where("life = 1").count() == 100


def test_a_rate_is_what_was_requested(
    spark: SparkSession, nameserver: str, topic: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    rate = 1000
    place = crafted(tmp_path, topic, [START_MS] * (rate * SECONDS // 2))
    target = Target(spark, nameserver, topic)
    facts = replay(spark, archive=place, topics=[topic], nameserver=nameserver, rate=rate).facts
    seconds, count = target.seconds_between()
    record_property("rate", (count - 1) / seconds)
    assert count == rate * SECONDS
    assert (count - 1) / seconds == pytest.approx(rate, rel=WITHIN)
    assert facts["reached_rate"] == pytest.approx(rate, rel=WITHIN)
    assert facts["asked_rate"] == rate
    assert facts["late_ms_p99"] > 0


def test_a_pace_is_what_was_requested(
    spark: SparkSession, nameserver: str, topic: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    # Bursts, and nothing between them.
    times = [START_MS + second * 4000 + ms for second in range(SECONDS) for ms in range(0, 2000, 10)]
    times.append(START_MS + SECONDS * 4000)
    place = crafted(tmp_path, topic, times)
    target = Target(spark, nameserver, topic)
    facts = replay(spark, archive=place, topics=[topic], nameserver=nameserver, pace=4.0).facts
    seconds, count = target.seconds_between()
    apart = target.read().selectExpr(
        "at_ms - min(at_ms) OVER () - (stored_ms - min(stored_ms) OVER ()) / 4 AS late"
    )
    late = apart.selectExpr("percentile(late, array(0.01, 0.5, 0.99))").first()
    record_property("pace", SECONDS * 4 / seconds)
    record_property("late", list(late[0] if late else ()))
    assert count == 2 * len(times)
    assert SECONDS * 4 / seconds == pytest.approx(4, rel=WITHIN)
    assert facts["reached_pace"] == pytest.approx(4, rel=WITHIN)


def test_more_senders_than_fit_are_refused(
    spark: SparkSession, nameserver: str, topic: str, tmp_path: Path
) -> None:
    place = crafted(tmp_path, topic, [START_MS], queues=3)
    with pytest.raises(OptionError, match="3 senders have to run at once, and this Spark has room for 2 tasks"):
        replay(spark, archive=place, topics=[topic], nameserver=nameserver, senders=5)


@pytest.mark.timeout(400)  # two more JVMs start
def test_a_replay_that_is_killed_and_interrupted_sends_each_message_once(
    spark: SparkSession, nameserver: str, topic: str, tmp_path: Path
) -> None:
    messages = 3000
    place = crafted(tmp_path, topic, [START_MS + ms for ms in range(messages // 2)])
    target = Target(spark, nameserver, f"{topic}-copy"[-100:])
    arguments = [place, "-t", topic, "--to-topic", target.topic, "-n", nameserver, "--master", "local[2]"]
    # A topic that is there, with something in it that is not ours.
    with Producer(nameserver, group="others") as producer:
        producer.send_batch([Message(target.topic, "other") for _ in range(10)])
    job = PipelineProcess(tmp_path / "job", "replay", *arguments, "--rate", 300)
    wait_for(lambda: target.count() > 300, "begun")
    job.kill_driver()
    second = PipelineProcess(tmp_path / "job", "replay", *arguments, "--rate", 200)
    before = target.count()
    wait_for(lambda: target.count() > before + 300, "gone on with")
    job.kill()
    assert second.interrupt() == 130
    printed = (tmp_path / "job" / "console.log").read_text()
    assert "orbitmq: interrupted: run the same command again to go on" in printed
    assert "Traceback" not in printed
    between = target.count() - 10
    assert between < messages
    facts = replay(spark, archive=place, topics=[topic], to_topic=target.topic, nameserver=nameserver).facts
    assert facts["sent_before"] >= between - 200
    assert facts["messages"] + facts["sent_before"] == messages
    ours = target.read().where("replay IS NOT NULL")
    assert differences(archived(spark, place), ours, COMPARED) == (0, 0)
    assert target.out_of_order() == 0
    assert ours.selectExpr("count(distinct replay)").first()[0] == 1  # type: ignore[index]


@pytest.mark.skipif(not IS_LONG, reason="six more JVMs: make spark-soak runs it")
@pytest.mark.timeout(400)
def test_a_standalone_cluster_replays(spark: SparkSession, nameserver: str, topic: str, tmp_path: Path) -> None:
    place = crafted(tmp_path, topic, [START_MS + ms for ms in range(1500)], queues=4)
    target = Target(spark, nameserver, topic)
    with standalone_cluster(tmp_path) as master:
        arguments = [place, "-t", topic, "-n", nameserver, "--rate", 2000, "--senders", 2, "--master", master]
        job = PipelineProcess(
            tmp_path / "driver", "replay", *arguments, "--json", "--conf", "spark.executor.memory=512m"
        )
        assert job.ended() == 0
    printed = (tmp_path / "driver" / "console.log").read_text()
    facts = json.loads(printed[printed.index("{") :])
    assert (facts["messages"], facts["senders"]) == (6000, 2)
    assert facts["reached_rate"] == pytest.approx(2000, rel=WITHIN)
    assert differences(archived(spark, place), target.read(), COMPARED) == (0, 0)
    assert target.out_of_order() == 0
