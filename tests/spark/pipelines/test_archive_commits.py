"""Brokers know what is archived, whatever ends a run: their logs become short. No Spark is started for this."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from orbitmq.client.errors import BrokerError, OrbitMQError
from orbitmq.protocol.bodies import MessageQueue
from orbitmq.spark.cluster import Cluster
from orbitmq.spark.pipelines.archive import writer as archive_writing
from orbitmq.spark.pipelines.archive.commits import Commits
from orbitmq.spark.pipelines.archive.directory import Archive, ArchiveError
from orbitmq.spark.pipelines.archive.job import ArchiveJob, run
from orbitmq.spark.pipelines.progress import silent
from orbitmq.testing import LocalCluster
from support.spark.topics import SMALL_FILES, Topics, batch, close_clusters, schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from orbitmq.spark.pipelines.archive.directory import Range
    from orbitmq.testing.cluster_thread import ThreadCluster

GROUP = "ARCHIVERS"
ROWS = schema("broker", "queue_id", "queue_offset", "body")


@pytest.fixture(scope="module")
def cluster() -> Iterator[ThreadCluster]:
    with LocalCluster(settings={**SMALL_FILES, "archiveGroup": GROUP}) as running:
        try:
            yield running
        finally:
            close_clusters()


@pytest.fixture
def topics(cluster: ThreadCluster, topic: str) -> Iterator[Topics]:
    made = Topics(cluster)
    made.make(topic)
    yield made
    # One topic that is not archived to its end keeps the log for all others.
    made.delete(topic)


class Archiving:
    """An archive that is written by pyarrow where Spark would do so."""

    def __init__(self, topics: Topics, topic: str, folder: Path) -> None:
        self.topics = topics
        self.topic = topic
        self.place = Archive(str(folder / "archive"))

    def stage(
        self, _: Any, ranges: Mapping[MessageQueue, Range], reading: Mapping[str, str], directory: str
    ) -> None:
        for number, (queue, (start, end)) in enumerate(ranges.items()):
            of = {queue.topic: {queue.broker_name: {str(queue.queue_id): start}}}
            until = {queue.topic: {queue.broker_name: {str(queue.queue_id): end}}}
            reader = batch(
                self.topics,
                ROWS,
                assign=json.dumps({queue.topic: {queue.broker_name: [queue.queue_id]}}),
                startingOffsets=json.dumps(of),
                endingOffsets=json.dumps(until),
                groupId=reading["groupId"],
            )
            batches = [some for part in reader.partitions() for some in reader.read(part)]
            path = directory.removeprefix("file://") + f"/topic={queue.topic}/day=2026-11-16/part-{number}.parquet"
            self.place.files.create_dir(path.rpartition("/")[0])
            pq.write_table(pa.Table.from_batches(batches), path)

    def run(self, *more: str, **given: Any) -> dict[str, Any]:
        job = ArchiveJob.of(
            to=self.place.path,
            topics=[self.topic, *more],
            nameserver=self.topics.nameserver,
            group=GROUP,
            **{"retry_seconds": 2, **given},
        )
        return run(None, job, silent()).facts  # type: ignore[arg-type]

    def committed(self, topic: str | None = None) -> dict[int, int]:
        """By queue, what brokers know to be archived."""
        topic = topic or self.topic
        found = Cluster.of(self.topics.nameserver)
        queues = found.queues(topic)
        return {queue.queue_id: offset for queue, offset in found.committed(GROUP, queues).items()}


@pytest.fixture
def archiving(topics: Topics, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Archiving:
    made = Archiving(topics, topic, tmp_path)
    monkeypatch.setattr(archive_writing, "_stage", made.stage)
    return made


def at_call(
    patched: pytest.MonkeyPatch,
    owner: Any,
    name: str,
    number: int,
    act: Callable[[], object],
    *,
    is_before: bool = False,
) -> list[Any]:
    """Do something after, or instead of, the call of that number; gives the list of calls so far."""
    original = getattr(owner, name)
    calls: list[Any] = []

    def called(*arguments: Any) -> Any:
        calls.append(arguments)
        if is_before and len(calls) == number:
            act()
        answer = original(*arguments)
        if not is_before and len(calls) == number:
            act()
        return answer

    patched.setattr(owner, name, called)
    return calls


def raising(error: BaseException) -> Callable[[], object]:
    def act() -> None:
        raise error

    return act


ENDS = [KeyboardInterrupt(), OrbitMQError("a broker is away"), OSError("the disk is away")]
STEPS = [
    # The segment is announced; it counts; the same, before it is known to be on the disk.
    (Archive, "announce", 1, False, 0),
    (Archive, "add", 1, False, 10),
    (Archive, "make_durable", 7, True, 10),
    # Offsets are being committed, or are committed.
    (Cluster, "commit", 2, True, 10),
    (Cluster, "commit", 2, False, 10),
]


@pytest.mark.parametrize("error", ENDS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize(("owner", "name", "number", "is_before", "archived"), STEPS)
def test_whatever_ends_a_run_brokers_know_what_is_archived(
    archiving: Archiving,
    monkeypatch: pytest.MonkeyPatch,
    owner: Any,
    name: str,
    number: int,
    is_before: bool,
    archived: int,
    error: BaseException,
) -> None:
    archiving.topics.send(archiving.topic, map(str, range(10)))
    with monkeypatch.context() as patched:
        at_call(patched, owner, name, number, raising(error), is_before=is_before)
        with pytest.raises(type(error)):
            archiving.run()
    ends = {queue.queue_id: end for queue, end in archiving.place.ends().items()}
    assert ends == ({0: archived} if archived else {})
    assert archiving.committed() == {0: archived, 1: 0}
    # What is not archived yet is, by the next run, and nothing twice.
    assert archiving.run()["messages"] == 10 - archived
    assert archiving.committed() == {0: 10, 1: 0}


def test_a_log_becomes_short_after_ctrl_c(archiving: Archiving, monkeypatch: pytest.MonkeyPatch) -> None:
    archiving.topics.send(archiving.topic, [str(number).ljust(1000) for number in range(100)])
    with monkeypatch.context() as patched:
        at_call(patched, Archive, "add", 1, raising(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            archiving.run()
    # The archiver does not run any more.
    archiving.topics.forget_oldest()
    (first, _) = Cluster.of(archiving.topics.nameserver).bounds([archiving.topic])[archiving.topic].values()
    assert first.min > 80
    assert first.max == 100


def test_a_topic_that_goes_leaves_the_others_committed(
    archiving: Archiving, topics: Topics, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = f"{topic}-other"
    topics.make(other, 1)
    topics.send(topic, ["a", "b", "c"])
    topics.send(other, ["d"])
    at_call(monkeypatch, Archive, "add", 1, lambda: topics.delete(other))
    assert archiving.run(other)["messages"] == 4
    assert archiving.committed() == {0: 3, 1: 0}


def test_what_could_not_be_committed_is_retried_though_nothing_comes(
    archiving: Archiving, monkeypatch: pytest.MonkeyPatch
) -> None:
    archiving.topics.send(archiving.topic, ["a", "b", "c"])
    refused = BrokerError(1, "not now", "broker-a")
    at_call(monkeypatch, Cluster, "commit", 2, raising(refused), is_before=True)
    found = []

    def sleep(_: float) -> None:
        found.append(archiving.committed())
        if len(found) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr("orbitmq.spark.pipelines.archive.job.time.sleep", sleep)
    with pytest.raises(KeyboardInterrupt):
        archiving.run(follow=True)
    assert found == [{0: 0, 1: 0}, {0: 3, 1: 0}]


def test_only_new_offsets_are_committed(
    archiving: Archiving, topics: Topics, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = MessageQueue(topic, "broker-a", 0), MessageQueue(topic, "broker-a", 1)
    job = ArchiveJob.of(to="/archive", topics=[topic], nameserver=topics.nameserver, group=GROUP, retry_seconds=2)
    commits = Commits(job.source, GROUP, silent())
    calls = at_call(monkeypatch, Cluster, "commit", 0, lambda: None)
    commits.commit_new({first: 1, second: 2})
    commits.commit_new({first: 1, second: 2})
    commits.commit_last({first: 1, second: 2})
    commits.commit_new({first: 1, second: 3})
    commits.commit_last({first: 4, second: 3})
    assert [ends for _, _, ends in calls] == [{first: 1, second: 2}, {second: 3}, {first: 4}]
    commits.commit_all({first: 4, second: 3})
    assert calls[-1][2] == {first: 4, second: 3}
    assert archiving.committed() == {0: 4, 1: 3}


def test_of_a_topic_that_was_recreated_nothing_is_committed(
    archiving: Archiving, topics: Topics, topic: str
) -> None:
    topics.send(topic, ["a", "b", "c"])
    archiving.run()
    topics.delete(topic)
    topics.make(topic)
    topics.send(topic, ["d"])
    with pytest.raises(ArchiveError, match="is archived up to 3 but ends at 1"):
        archiving.run()
    assert archiving.committed() == {}


def test_brokers_that_are_away_do_not_hold_up_an_end(archiving: Archiving, monkeypatch: pytest.MonkeyPatch) -> None:
    archiving.topics.send(archiving.topic, ["a"])

    def commit(*_: Any) -> None:
        raise OrbitMQError("a broker did not answer")

    with monkeypatch.context() as patched:
        at_call(patched, Archive, "add", 1, lambda: patched.setattr(Cluster, "commit", commit))
        with pytest.raises(OrbitMQError, match="a broker did not answer"):
            archiving.run()
    assert archiving.committed() == {0: 0, 1: 0}
    archiving.run()
    assert archiving.committed() == {0: 1, 1: 0}
