"""The ``replay`` pipeline: sends archived messages again, at a rate, at their old pace or unthrottled.

Before the first message is sent it is written down what is replayed, to which queues, and where those end
(``replay_state``). Every message says what it repeats. So a run that was ended by anything is gone on with by the
next one, which finds in the target what is there: nothing twice, and nothing left out.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import time
from typing import TYPE_CHECKING

from orbitmq.client.errors import NoRouteError
from orbitmq.spark.cluster import Cluster
from orbitmq.spark.errors import SparkSourceError
from orbitmq.spark.pipelines.archive.directory import Archive, ArchiveError
from orbitmq.spark.pipelines.audit.request import milliseconds_of
from orbitmq.spark.pipelines.interruptible import interruptible
from orbitmq.spark.pipelines.progress import silent
from orbitmq.spark.pipelines.replay.counter import counted, parts_of
from orbitmq.spark.pipelines.replay.pacer import Pacing
from orbitmq.spark.pipelines.replay.plan import plan, routed
from orbitmq.spark.pipelines.replay.progress import watching
from orbitmq.spark.pipelines.replay.request import ReplayRequest
from orbitmq.spark.pipelines.replay.resume_point import written
from orbitmq.spark.pipelines.replay.rows import rows_to_send
from orbitmq.spark.pipelines.replay.sender import STATISTICS, SendingTask
from orbitmq.spark.pipelines.replay.slots import senders_for
from orbitmq.spark.pipelines.replay.state import Replays, ReplayState, numbered
from orbitmq.spark.pipelines.replay.summary import finished_before, planned_summary, summary_of
from orbitmq.spark.pipelines.spark_job import PipelineError, spark_errors
from orbitmq.spark.sink.connection import SinkConnection

if TYPE_CHECKING:
    import datetime
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from orbitmq.client.query.queue_offsets import Bounds
    from orbitmq.protocol.bodies import MessageQueue
    from orbitmq.spark.pipelines.progress import JobProgress, Summary
    from orbitmq.spark.pipelines.replay.counter import Counted
    from orbitmq.spark.pipelines.replay.plan import Plan

SETTLING_SECONDS = 3.0
"""What a run that goes on waits before it looks how far the last one came: Spark gives the Python process of a task
that it has cancelled two seconds, in which it may go on to send."""
NEEDS_PANDAS = "a replay needs pandas, by which Spark runs Python: run 'pip install \"orbitmq[pipelines]\"'"


def replay(
    spark: SparkSession,
    *,
    archive: str,
    topics: Iterable[str] | str,
    nameserver: str | None = None,
    start: datetime.datetime | int | None = None,
    until: datetime.datetime | int | None = None,
    rate: float | None = None,
    pace: float | None = None,
    to_topic: str | None = None,
    name: str | None = None,
    senders: int | None = None,
    state: str | None = None,
    again: bool = False,
    progress: JobProgress | None = None,
) -> Summary:
    """Send messages of an archive again, or go on with that after it was interrupted.

    Times are those of storing, from ``start`` on and before ``until``; an int is milliseconds since 1970. A
    ``rate`` is messages in a second, a ``pace`` of 2 twice as fast as they once came. Raises OrbitMQError, and
    OSError from the archive's file system.
    """
    request = ReplayRequest(
        archive=archive,
        topics=(topics,) if isinstance(topics, str) else tuple(topics),
        nameserver=nameserver,
        start_ms=milliseconds_of(start),
        until_ms=milliseconds_of(until),
        rate=rate,
        pace=pace,
        to_topic=to_topic,
        name=name,
        senders=senders,
        state=state,
        again=again,
    )
    progress = progress or silent()
    with opened(request, progress) as found:
        return found.run(spark) if found.is_open else found.summary()


@contextlib.contextmanager
def opened(request: ReplayRequest, progress: JobProgress) -> Iterator[Replaying]:
    """A replay, locked against a second run. Needs no Spark. Raises OrbitMQError, OSError."""
    if importlib.util.find_spec("pandas") is None:
        raise SparkSourceError(NEEDS_PANDAS)
    place = Archive.existing(request.archive)
    _check(place, request)
    replays = Replays(place, request.state)
    with replays.locked(request.name_for(place.root)):
        yield Replaying(request, place, replays, progress)


def planned(request: ReplayRequest, progress: JobProgress) -> Summary:
    """The summary of a dry run, without Spark."""
    place = Archive.existing(request.archive)
    _check(place, request)
    found = Replaying(request, place, Replays(place, request.state), progress)
    if not found.is_open:
        return found.summary()
    with found.reached():
        routes = found.routes()
    return planned_summary(request, found.name, found.counted, routes, is_begun=found.is_begun)


def _check(place: Archive, request: ReplayRequest) -> None:
    """Raises OptionError, ArchiveError for what is wrong before anything is read."""
    _ = request.writing
    there = place.topics()
    for topic in request.topics:
        if topic not in there:
            known = f"it has {', '.join(there)}" if there else "it is empty"
            raise ArchiveError(f"the archive {request.archive!r} has no topic {topic!r}: {known}")


class Replaying:
    """One replay, new, interrupted or finished."""

    def __init__(self, request: ReplayRequest, place: Archive, replays: Replays, progress: JobProgress) -> None:
        """Raises OrbitMQError, OSError."""
        self._request = request
        self._place = place
        self._replays = replays
        self._progress = progress
        base = request.name_for(place.root)
        number, self._state = replays.last(base)
        if self._state is not None and self._state.finished_ms is not None and request.again:
            self._state = None
        self.name = numbered(base, number + 1) if self._state is None else self._state.name
        self._check_same()
        segments = place.segments()
        self._last_segment = segments[-1].number if self._state is None else self._state.last_segment
        self._parts = parts_of([one for one in segments if one.number <= self._last_segment], request)
        self.counted: dict[MessageQueue, Counted] = {}
        if self.is_open:
            self.counted = self._count()
            if not self.counted:
                raise PipelineError(
                    f"there is nothing to replay: the archive {request.archive!r} has no message of "
                    f"{', '.join(request.topics)} from that time"
                )

    @property
    def is_open(self) -> bool:
        """True if there is work left."""
        return self._state is None or self._state.finished_ms is None

    @property
    def is_begun(self) -> bool:
        return self._state is not None

    def summary(self) -> Summary:
        """The summary of a replay that was finished before."""
        assert self._state is not None
        return finished_before(self._state)

    def _check_same(self) -> None:
        if self._state is None:
            return
        here = {**self._request.what, "archive": self._place.root}
        there = {**self._state.what, "archive": self._state.archive}
        for name, value in here.items():
            if there.get(name) != value:
                raise PipelineError(
                    f"there is a replay {self.name!r} of something else: its {name.replace('_', ' ')} is "
                    f"{_text_of(there.get(name))}, not {_text_of(value)}; give this one another --name"
                )

    def _count(self, done: Mapping[MessageQueue, int] | None = None) -> dict[MessageQueue, Counted]:
        files = sum(len(part.files) for part in self._parts)
        with self._progress.step("counting what there is to replay, by files", files):
            return counted(self._place, self._parts, self._request, done, self._progress.at)

    # The cluster

    @contextlib.contextmanager
    def reached(self) -> Iterator[None]:
        """Around requests to the cluster. Raises OrbitMQError."""
        try:
            yield
        finally:
            self._cluster.close()

    @property
    def _nameserver(self) -> str:
        return ";".join(self._request.writing.name_servers)

    @property
    def _cluster(self) -> Cluster:
        return Cluster.of(self._nameserver)

    def _target_topics(self) -> list[str]:
        to = self._request.to_topic
        return sorted({queue.topic for queue in self.counted}) if to is None else [to]

    def routes(self) -> Mapping[MessageQueue, MessageQueue]:
        """By source queue the one that its messages go to. Raises OrbitMQError."""
        if self._state is not None:
            return self._state.routes
        connection = SinkConnection(self._request.writing)
        try:
            targets = {topic: connection.queues(topic) for topic in self._target_topics()}
        finally:
            connection.close()
        return routed(self.counted, self._request.to_topic, targets)

    def _bounds(self) -> dict[MessageQueue, Bounds]:
        """The bounds of target queues; none for topics that do not exist yet."""
        found: dict[MessageQueue, Bounds] = {}
        for topic in self._target_topics():
            with contextlib.suppress(NoRouteError):
                found |= self._cluster.bounds([topic])[topic]
        return found

    # Running

    def run(self, spark: SparkSession) -> Summary:
        """Send what is not sent yet. Raises OrbitMQError, OSError."""
        with spark_errors(), self.reached():
            done = self._go_on(spark) if self._state is not None else self._begin()
            assert self._state is not None
            left = self._count(done) if done else self.counted
            if not left:
                return self._finish(None, ())
            senders = senders_for(spark, len(left), self._request.senders)
            made = plan(left, self._state.routes, done, senders)
            return self._finish(made, self._send(spark, made))

    def _begin(self) -> dict[MessageQueue, int]:
        self._state = ReplayState(
            name=self.name,
            archive=self._place.root,
            what=self._request.what,
            last_segment=self._last_segment,
            messages=sum(of.rows for of in self.counted.values()),
            routes=self.routes(),
            ends={queue: bounds.max for queue, bounds in self._bounds().items()},
        )
        self._replays.write(self._state)
        return {}

    def _go_on(self, spark: SparkSession) -> dict[MessageQueue, int]:
        """By source queue, how far it came before."""
        assert self._state is not None
        with self._progress.step(f"looking how far {self.name} came"):
            time.sleep(SETTLING_SECONDS)
            state, bounds = self._state, self._bounds()
            return interruptible(lambda: written(spark, self._nameserver, state, bounds))

    def _send(self, spark: SparkSession, made: Plan) -> list[Sequence[object]]:
        request, rows = self._request, made.rows_by_sender
        pacings = tuple(
            Pacing(
                None if request.rate is None else request.rate * share / made.total,
                request.pace,
                made.first_us,
            )
            for share in rows
        )
        task = SendingTask(request.writing, self.name, pacings)
        frame = rows_to_send(spark, self._place, self._parts, request, made)
        frame = frame.mapInArrow(task, STATISTICS, barrier=True)
        with (
            self._progress.step(f"replaying {self.name}", made.total),
            watching(self._nameserver, self._target_topics(), made.total, self._progress),
        ):
            return list(interruptible(frame.collect))

    def _finish(self, made: Plan | None, statistics: Sequence[Sequence[object]]) -> Summary:
        assert self._state is not None
        summary = summary_of(self._request, self._state, made, statistics)
        self._state = dataclasses.replace(self._state, finished_ms=round(time.time() * 1000))
        self._replays.write(self._state)
        return summary


def _text_of(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "not set" if value is None else str(value)
