"""The ``migrate`` pipeline: copies topics between Kafka and RocketMQ clusters, and compares them afterwards.

It copies in rounds. Each is written down before it begins (``migrate_state``), and every message says where it
comes from. So a run that was ended by anything is gone on with by the next one, which finds in the target what is
there: nothing twice, and nothing left out. A queue goes to one queue, in its order.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import threading
import time
from typing import TYPE_CHECKING, Any

from orbitmq.client.errors import OrbitMQError
from orbitmq.spark.errors import SparkSourceError
from orbitmq.spark.pipelines.interruptible import interruptible
from orbitmq.spark.pipelines.migrate.endpoints import opened as opened_end
from orbitmq.spark.pipelines.migrate.plan import left_of, narrowed, next_spans, routed
from orbitmq.spark.pipelines.migrate.request import MAX_MESSAGES, MigrateRequest
from orbitmq.spark.pipelines.migrate.rows import WRITTEN, Copying
from orbitmq.spark.pipelines.migrate.state import Migration, Round
from orbitmq.spark.pipelines.migrate.verify import verify, written
from orbitmq.spark.pipelines.progress import Summary, silent
from orbitmq.spark.pipelines.spark_job import PipelineError, spark_errors

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql import SparkSession

    from orbitmq.spark.pipelines.migrate.endpoints import Endpoint, Queue, Span
    from orbitmq.spark.pipelines.migrate.verify import Verdict
    from orbitmq.spark.pipelines.progress import JobProgress

SETTLING_SECONDS = 3.0
"""What a run that goes on waits before it looks how far the last one came: Spark gives the Python process of a task
that it has cancelled two seconds, in which it may go on to send."""
MAKING_SECONDS = 30.0
"""How long a new topic may take to be known to everybody."""
WATCH_SECONDS = 1.0
NEEDS_PANDAS = "a migration needs pandas, by which Spark runs Python: run 'pip install \"orbitmq[pipelines]\"'"


def migrate(
    spark: SparkSession,
    *,
    source: str,
    target: str,
    topics: Iterable[str] | str,
    state: str | None = None,
    name: str | None = None,
    max_messages: int = MAX_MESSAGES,
    verify: bool = True,
    progress: JobProgress | None = None,
) -> Summary:
    """Copy topics from one cluster to another, or go on with that, up to where they end now.

    Ends are ``kafka://host:9092`` or ``rocketmq://host:9876``; a topic is ``name`` or ``name:other``. Raises
    OrbitMQError, and OSError from the file system that has the state.
    """
    request = MigrateRequest(
        source=source,
        target=target,
        topics=(topics,) if isinstance(topics, str) else tuple(topics),
        state=state,
        name=name,
        max_messages=max_messages,
        verify=verify,
    )
    with opened(request, progress or silent()) as found:
        return found.run(spark)


@contextlib.contextmanager
def opened(request: MigrateRequest, progress: JobProgress) -> Iterator[Migrating]:
    """A migration, locked against a second run. Needs no Spark. Raises OrbitMQError, OSError."""
    if importlib.util.find_spec("pandas") is None:
        raise SparkSourceError(NEEDS_PANDAS)
    with _ends(request) as (source, target):
        found = Migrating(request, source, target, progress)
        with found.state.locked():
            found.look()
            yield found


def planned(request: MigrateRequest, progress: JobProgress) -> Summary:
    """The summary of a dry run, without Spark."""
    with _ends(request) as (source, target):
        found = Migrating(request, source, target, progress)
        found.look()
        return found.plan()


@contextlib.contextmanager
def _ends(request: MigrateRequest) -> Iterator[tuple[Endpoint, Endpoint]]:
    with contextlib.ExitStack() as stack:
        ends = []
        for address in (request.source_address, request.target_address):
            end = opened_end(address)
            stack.callback(end.close)
            ends.append(end)
        yield ends[0], ends[1]


class Migrating:
    """One migration, new or continued."""

    def __init__(self, request: MigrateRequest, source: Endpoint, target: Endpoint, progress: JobProgress) -> None:
        self.name = request.known_as
        self.state = Migration(request.state_directory, self.name)
        self._request = request
        self._source = source
        self._target = target
        self._progress = progress
        self._becomes = request.becomes
        self._rounds: list[Round] = []
        self._bounds: dict[Queue, tuple[int, int]] = {}

    def look(self) -> None:
        """See what there is, and how far it came. Raises OrbitMQError, OSError."""
        self.state.check(self._request.what)
        self._rounds = self.state.rounds()
        for topic in self._becomes:
            found = self._source.bounds(topic)
            if found is None:
                raise PipelineError(f"there is no topic {topic!r} in {self._request.source_address}")
            self._bounds |= found

    # What is to be done

    @property
    def _done(self) -> dict[Queue, int]:
        """By source queue where the next round begins."""
        return {span.queue: span.end for one in self._rounds for span in one.spans}

    @property
    def _left(self) -> dict[Queue, tuple[int, int]]:
        return left_of(self._bounds, self._done, self.name)

    @property
    def _unfinished(self) -> Round | None:
        return self._rounds[-1] if self._rounds and not self._rounds[-1].is_done else None

    @property
    def _unverified(self) -> list[Round]:
        """The rounds after the last verified one, which are read at once."""
        verified = [one.number for one in self._rounds if one.is_verified]
        return [one for one in self._rounds if one.number > max(verified, default=0)]

    @property
    def needs_spark(self) -> bool:
        """True if there is work left."""
        return bool(self._left or self._unfinished or (self._request.verify and self._unverified))

    def plan(self) -> Summary:
        """The summary of a dry run."""
        left = self._left
        unfinished = self._unfinished
        messages = dict.fromkeys(self._becomes, 0)
        for queue, (start, end) in left.items():
            messages[queue.topic] += end - start
        made = {
            to: len([queue for queue in self._bounds if queue.topic == topic])
            for topic, to in self._becomes.items()
            if self._target.bounds(to) is None
        }
        facts: dict[str, Any] = {
            "migration": self.name,
            "from": str(self._request.source_address),
            "to": str(self._request.target_address),
            "topics": dict(self._becomes),
            "messages": messages,
            "rounds": -(-sum(messages.values()) // self._request.max_messages),
        }
        if made:
            facts["topics_to_make"] = {topic: f"{count} queues" for topic, count in made.items()}
        if unfinished is not None:
            facts["unfinished_round"] = f"{unfinished.number}: what is not in the target of it is copied first"
        if self._request.verify and self._unverified:
            facts["rounds_to_verify"] = len(self._unverified)
        return Summary("A migration would copy at most", facts)

    # Running

    def run(self, spark: SparkSession | None) -> Summary:
        """Copy what is left, and compare. Without Spark if there is nothing to do. Raises OrbitMQError, OSError."""
        began = time.monotonic()
        facts: dict[str, Any] = {
            "migration": self.name,
            "from": str(self._request.source_address),
            "to": str(self._request.target_address),
        }
        if spark is None or not self.needs_spark:
            facts |= {"rounds": len(self._rounds), "messages": 0}
            return Summary("Nothing has come since the migration was last run", facts)
        first = len(self._rounds) - (self._unfinished is not None)
        with spark_errors():
            copied, verdict = interruptible(lambda: self._work(spark))
        facts |= {"topics": dict(self._becomes), "rounds": len(self._rounds) - first, "offsets": copied}
        if verdict is None:
            facts["verified"] = "no"
        else:
            facts |= verdict.facts()
        facts["seconds"] = round(time.monotonic() - began, 3)
        is_good = verdict is None or verdict.is_good
        title = "Migrated" if is_good else "The target is not what it should be after the migration"
        return Summary(title, facts, is_good)

    def _work(self, spark: SparkSession) -> tuple[int, Verdict | None]:
        """Copy and compare, in one thread for a quiet Ctrl-C. Returns the copied offsets and the verdict."""
        # Spark looks for data sources of Python in the session of the thread, which this one has not had yet.
        spark.createDataFrame([], "nothing int")
        try:
            if self.state.what() is None:
                self.state.begin(self._request.what)
            copied = 0
            if (one := self._unfinished) is not None:
                copied += self._go_on(spark, one)
            while left := self._left:
                copied += self._copy(spark, self._next(left))
            return copied, self._verify(spark) if self._request.verify and self._unverified else None
        finally:
            # Connections are a thread's own.
            self._source.close()
            self._target.close()

    def _next(self, left: dict[Queue, tuple[int, int]]) -> Round:
        """Write the next round down."""
        spans = next_spans(left, self._request.max_messages)
        targets = {to: self._ready(topic, to) for topic, to in self._becomes.items()}
        routes = routed(self._bounds, targets, self._becomes)
        for before in self._rounds:
            routes |= before.routes
        ends = {queue: end for to in targets for queue, (_, end) in (self._target.bounds(to) or {}).items()}
        one = Round(
            number=len(self._rounds) + 1,
            spans=tuple(spans),
            routes={span.queue: routes[span.queue] for span in spans},
            ends=ends,
        )
        self.state.write(one)
        self._rounds.append(one)
        return one

    def _ready(self, topic: str, to: str) -> list[Queue]:
        """The queues of a target topic, which is made if it is not there."""
        wanted = len([queue for queue in self._bounds if queue.topic == topic])
        until = time.monotonic() + MAKING_SECONDS
        if self._target.bounds(to) is None:
            self._target.create(to, wanted)
            self._progress.say(f"the topic {to} was made with {wanted} queues")
        while self._target.bounds(to) is None or not self._target.writable(to):
            if time.monotonic() > until:
                raise PipelineError(f"the topic {to!r} of {self._request.target_address} cannot be written to")
            time.sleep(0.2)
        return self._target.writable(to)

    def _go_on(self, spark: SparkSession, one: Round) -> int:
        with self._progress.step(f"looking how far round {one.number} came"):
            time.sleep(SETTLING_SECONDS)
            there = written(spark, self._target, one, self.name)
        return self._copy(spark, one, narrowed(one.spans, there))

    def _copy(self, spark: SparkSession, one: Round, spans: Sequence[Span] | None = None) -> int:
        """Copy what a round has, or these spans of it; how many offsets that was."""
        spans = one.spans if spans is None else spans
        total = sum(span.length for span in spans)
        if spans:
            copying = Copying(self._source.kind, self._target.kind, self.name, one.routes)
            rows = self._source.read(spark, spans).mapInArrow(copying, WRITTEN[self._target.kind])
            with self._progress.step(f"copying, round {one.number}", total), self._watching(one, total):
                self._target.write(rows, f"{self.name}/{one.number}", one.ends)
        self._replace(dataclasses.replace(one, is_done=True))
        return total

    def _verify(self, spark: SparkSession) -> Verdict:
        rounds = self._unverified
        with self._progress.step("comparing both ends"):
            verdict = verify(spark, self._source, self._target, rounds, self._becomes.values(), self.name)
        if verdict.is_good:
            for one in rounds:
                self._replace(dataclasses.replace(one, is_verified=True))
        return verdict

    def _replace(self, one: Round) -> None:
        self.state.write(one)
        self._rounds[one.number - 1] = one

    @contextlib.contextmanager
    def _watching(self, one: Round, total: int) -> Iterator[None]:
        """Report the growth of the target meanwhile. Other producers' messages count too: it is an estimate."""
        is_over = threading.Event()

        def watch() -> None:
            # What goes wrong here goes wrong for those who write too, and they know what to do.
            with contextlib.suppress(OrbitMQError):
                end = opened_end(self._request.target_address)
                try:
                    first = _total(end, one)
                    while not is_over.wait(WATCH_SECONDS):
                        self._progress.at(min(max(_total(end, one) - first, 0), total))
                finally:
                    end.close()

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            is_over.set()
            watcher.join()


def _total(end: Endpoint, one: Round) -> int:
    topics = {queue.topic for queue in one.routes.values()}
    return sum(last for topic in topics for _, last in (end.bounds(topic) or {}).values())
