"""The archive pipeline: every message once, whatever happens to the job and whatever retention would like."""

from __future__ import annotations

import datetime
import os
import random
import re
from typing import TYPE_CHECKING, Any

import pytest

from orbitmq.protocol.bodies import MessageQueue
from orbitmq.spark.cluster import Cluster
from orbitmq.spark.pipelines.archive.directory import Archive, ArchiveError
from orbitmq.spark.pipelines.archive.job import ArchiveJob, archive, planned
from orbitmq.spark.pipelines.archive.lock import locked
from support.spark.archive_harness import (
    PipelineProcess,
    Sending,
    counts_by_spark,
    files_without_a_segment,
    numbers_by_pyarrow,
    wait_for,
)
from support.spark.spark_harness import server
from support.spark.topics import Topics, running_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from orbitmq.testing.cluster_thread import ThreadCluster

IS_LONG = bool(os.environ.get("ORBITMQ_LONG"))
MESSAGES = 1_000_000 if IS_LONG else 24_000
SEGMENTS = 40 if IS_LONG else 8
"""About so many, some of which are there before each kill."""
KILLS = 10 if IS_LONG else 2
"""Of all that belongs to a job, and of its driver alone, in turn. After each a JVM starts, which takes its time."""
SENDING_SECONDS = 120.0 if IS_LONG else 20.0
TOPICS = ("orders", "clicks", "payments")
SHORT_RETENTION = {
    "mappedFileSizeCommitLog": "4194304" if IS_LONG else "131072",
    "fileReservedTime": "0",
    "deleteWhen": ";".join(f"{hour:02d}" for hour in range(24)),
    "cleanResourceInterval": "200",
    "archiveGroup": "ORBITMQ_ARCHIVE",
}


@pytest.mark.timeout(1800 if IS_LONG else 400)  # JVMs start, one more than are killed
def test_a_job_that_is_killed_again_and_again_archives_each_message_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    to = tmp_path / "archive"
    place = Archive(str(to))
    chance = random.Random(8)
    with server(tmp_path, **SHORT_RETENTION) as nameserver:
        sending = Sending(nameserver, TOPICS, MESSAGES, SENDING_SECONDS)
        sending.start()
        wait_for(lambda: len(_log_files(tmp_path)) > 2, "some files long")
        arguments = ["-n", nameserver, "--pattern", "|".join(TOPICS), "--to", to]
        arguments += ["--follow", "--every", "200ms", "--max-messages", str(MESSAGES // SEGMENTS)]
        for number in range(KILLS):
            job = PipelineProcess(tmp_path / "job", "archive", "--master", "local[2]", *arguments)
            # Somewhere within a segment, or between two.
            _wait_for_more(place, sending)
            wait_for(lambda: chance.random() < 0.1, "killed")
            job.kill_driver() if number % 2 else job.kill()
            _assert_brokers_have_what_is_not_archived(nameserver, place)
            job.kill()
        job = PipelineProcess(tmp_path / "job", "archive", "--master", "local[2]", *arguments)
        sending.finished()
        wait_for(lambda: _rows(place) >= MESSAGES, "all archived")
        assert job.interrupt() == 130
        *_, archived, interrupted = (tmp_path / "job" / "console.log").read_text().splitlines()
        assert re.fullmatch(r"[\d,]+ messages were archived in \d+ segments", archived)
        assert interrupted == "orbitmq: interrupted: run the same command again to go on"
        # What is archived goes. The newest files may hold what came last.
        wait_for(lambda: len(_log_files(tmp_path)) <= 3, "short again")
        again = archive(spark, to=str(to), topics=TOPICS, nameserver=nameserver)
        assert again.facts["messages"] == 0
    assert min(_log_files(tmp_path)) > 0
    assert sorted(numbers_by_pyarrow(to)) == list(range(MESSAGES))
    assert counts_by_spark(spark, to) == (MESSAGES, MESSAGES, MESSAGES)
    assert files_without_a_segment(to) == []
    assert not [segment.missing for segment in place.segments() if segment.missing]


def _log_files(home: Path) -> list[int]:
    """Where the files of a broker's log begin."""
    return [int(path.name) for path in (home / "data").rglob("commitlog/*")]


def _rows(place: Archive) -> int:
    return sum(segment.rows for segment in place.segments())


def _wait_for_more(place: Archive, sending: Sending) -> None:
    """Wait for another segment, unless there is nothing left for one."""
    enough = min(_rows(place) + 1, MESSAGES)
    wait_for(lambda: sending.goes_on() and _rows(place) >= enough, "longer")


def _assert_brokers_have_what_is_not_archived(nameserver: str, place: Archive) -> None:
    """Without an archiver, retention goes on as far as it may."""
    cluster = Cluster.of(nameserver)
    for _ in range(5):
        ends = place.ends()
        for of in cluster.bounds(TOPICS).values():
            assert {queue: found.min for queue, found in of.items() if found.min > ends.get(queue, 0)} == {}
    cluster.close()


# In the session of this ring


@pytest.fixture(scope="module")
def cluster() -> Iterator[ThreadCluster]:
    with running_cluster() as running:
        yield running


@pytest.fixture(scope="module")
def topics(cluster: ThreadCluster) -> Topics:
    return Topics(cluster)


class Archiving:
    """Runs into an archive of a test's own."""

    def __init__(self, spark: SparkSession, topics: Topics, topic: str, folder: Path) -> None:
        self._spark = spark
        self._given: dict[str, Any] = {
            "to": str(folder / "archive"),
            "topics": [topic],
            "nameserver": topics.nameserver,
            "group": f"archive-{topic}"[:100],
            "retry_seconds": 2,
        }
        self.place = Archive(self._given["to"])

    def run(self, **more: Any) -> dict[str, Any]:
        return archive(self._spark, **{**self._given, **more}).facts

    def plan(self, **more: Any) -> dict[str, Any]:
        return planned(ArchiveJob.of(**{**self._given, **more})).facts

    def bodies(self) -> list[str]:
        rows = self.place.read(self._spark).orderBy("queue_id", "queue_offset").select("body").collect()
        return [row.body.decode() for row in rows]


@pytest.fixture
def archiving(spark: SparkSession, topics: Topics, topic: str, tmp_path: Path) -> Archiving:
    return Archiving(spark, topics, topic, tmp_path)


def test_an_archive_has_all_that_a_topic_has(
    spark: SparkSession, topics: Topics, topic: str, archiving: Archiving
) -> None:
    topics.make(topic)
    for queue in range(2):
        topics.send(
            topic,
            [f"{queue}-{number}" for number in range(30)],
            queue,
            tags="t",
            keys=["a", "b"],
            properties={"x": "y"},
        )
    assert archiving.plan(max_messages=50)["messages"] == 60
    assert archiving.plan(max_messages=50)["segments"] == 2
    assert not archiving.place.is_there
    spark.conf.set("spark.sql.session.timeZone", "Pacific/Kiritimati")  # where it is tomorrow for half of the day
    try:
        facts = archiving.run(max_messages=50)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert (facts["messages"], facts["segments"], facts["missing"]) == (60, 2, [])
    assert facts["topics"] == {topic: 60}
    kept = archiving.place.read(spark)
    live = spark.read.format("orbitmq").options(nameserver=topics.nameserver, subscribe=topic).load()
    columns = live.columns
    assert columns == [name for name in columns if name in kept.columns]
    as_text = [f"string({name})" for name in columns]
    assert sorted(map(str, kept.selectExpr(*as_text).collect())) == sorted(
        map(str, live.selectExpr(*as_text).collect())
    )
    days = {row.day for row in kept.selectExpr("day = date(store_timestamp) AS day").distinct().collect()}
    assert days == {True}
    assert isinstance(kept.select("day").head()[0], datetime.date)  # type: ignore[index]
    assert topics.committed(f"archive-{topic}") == {0: 30, 1: 30}
    # Again: nothing to do, until something comes.
    assert archiving.run()["messages"] == 0
    topics.send(topic, ["later"], 1)
    assert archiving.run()["messages"] == 1
    assert len(archiving.bodies()) == 61


class KilledError(BaseException):
    """Ends a run wherever it is, as nothing that a program expects does."""


def test_a_run_that_ends_at_any_step_is_gone_on_with(
    topics: Topics, topic: str, archiving: Archiving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics.make(topic, 1)
    # The segment is announced; its files are in place; it counts; offsets are committed.
    steps = [(Archive, "announce", 1), (Archive, "make_durable", 4), (Archive, "add", 1), (Cluster, "commit", 2)]
    for number, (owner, name, time) in enumerate(steps):
        topics.send(topic, [f"{number}-{one}" for one in range(10)])
        with monkeypatch.context() as patched:
            _kill_after(patched, owner, name, time)
            with pytest.raises(KilledError):
                archiving.run()
    assert archiving.run()["missing"] == []
    assert archiving.bodies() == [f"{number}-{one}" for number in range(len(steps)) for one in range(10)]
    assert files_without_a_segment(tmp_path / "archive") == []
    assert topics.committed(f"archive-{topic}") == {0: 40}


def _kill_after(patched: pytest.MonkeyPatch, owner: type, name: str, time: int) -> None:
    original = getattr(owner, name)
    calls = []

    def killing(self: Any, *arguments: Any) -> None:
        original(self, *arguments)
        calls.append(arguments)
        if len(calls) == time:
            raise KilledError

    patched.setattr(owner, name, killing)


def test_messages_that_are_gone_are_an_error_or_noted(
    topics: Topics, topic: str, archiving: Archiving, tmp_path: Path
) -> None:
    topics.make(topic, 1)
    topics.send(topic, ["first"])
    archiving.run()
    topics.send(topic, [str(number).ljust(1000) for number in range(40)])
    topics.forget_oldest()
    queue = MessageQueue(topic, "broker-a", 0)
    gone = Cluster.of(topics.nameserver).bounds([topic])[topic][queue].min
    assert 1 < gone < 41
    sentence = f"the offsets 1 to {gone - 1} of queue 0 of {topic!r} on broker-a are not there any more"
    with pytest.raises(ArchiveError, match=re.escape(sentence)):
        archiving.run()
    assert archiving.plan()["lost"] != "nothing"
    facts = archiving.run(fail_on_data_loss=False)
    assert facts["messages"] == 41 - gone
    assert facts["missing"] == [f"1 to {gone - 1} of queue 0 of {topic!r} on broker-a"]
    assert archiving.place.segments()[-1].missing == {queue: ((1, gone),)}
    assert archiving.place.ranges() == {queue: (0, 41)}


def test_a_topic_that_was_made_again_is_an_error_or_archived_again(
    topics: Topics, topic: str, archiving: Archiving
) -> None:
    topics.make(topic, 1)
    topics.send(topic, ["a", "b", "c"])
    archiving.run()
    topics.delete(topic)
    topics.make(topic, 1)
    topics.send(topic, ["d"])
    with pytest.raises(ArchiveError, match="is archived up to 3 but ends at 1: if the topic was deleted"):
        archiving.run()
    assert archiving.run(accept_recreated=True)["messages"] == 1
    topics.send(topic, ["e"])
    archiving.run()
    assert sorted(archiving.bodies()) == ["a", "b", "c", "d", "e"]
    assert archiving.place.ends() == {MessageQueue(topic, "broker-a", 0): 2}


def test_a_start_at_the_end_is_kept_and_new_queues_start_at_their_beginning(
    topics: Topics, topic: str, archiving: Archiving
) -> None:
    topics.make(topic, 1)
    topics.send(topic, ["before"])
    assert archiving.run(start="latest")["messages"] == 0
    assert topics.committed(f"archive-{topic}") == {0: 1}
    topics.send(topic, ["after"])
    topics.make(topic, 2)
    topics.send(topic, ["new queue"], 1)
    archiving.run(start="latest")
    assert archiving.bodies() == ["after", "new queue"]


def test_a_second_run_into_the_same_archive_is_refused(topics: Topics, topic: str, archiving: Archiving) -> None:
    topics.send(topic, ["one"])
    archiving.place.make()
    with locked(archiving.place), pytest.raises(ArchiveError, match="is being written by process"):
        archiving.run()
