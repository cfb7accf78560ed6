"""The ``archive`` pipeline: writes topics to Parquet files, segment by segment, each message once.

The archive itself says how far it is; nothing else is kept, so that whatever ends a run, the next one goes on at
the end of the last segment that counts. What is archived is committed to an ordinary consumer group, by which
brokers know which of their files may go (``archiveGroup``) and tools show the lag.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from typing import TYPE_CHECKING

from orbitmq.client.errors import OrbitMQError
from orbitmq.spark.errors import OptionError
from orbitmq.spark.pipelines.archive.commits import Commits
from orbitmq.spark.pipelines.archive.defaults import ARCHIVE_GROUP, EVERY_SECONDS, MAX_MESSAGES, RETRY_SECONDS
from orbitmq.spark.pipelines.archive.directory import Archive, ArchiveError, Segment
from orbitmq.spark.pipelines.archive.lock import locked
from orbitmq.spark.pipelines.archive.plan import plan, recreated_queues, refuse_recreated, waiting
from orbitmq.spark.pipelines.archive.verify import in_words
from orbitmq.spark.pipelines.archive.writer import lost_sentence, write_segment
from orbitmq.spark.pipelines.progress import Summary, silent
from orbitmq.spark.pipelines.spark_job import spark_errors
from orbitmq.spark.topic_source.offset_bounds import OffsetBound, PerQueue, QueueEdge
from orbitmq.spark.topic_source.offsets import described
from orbitmq.spark.topic_source.options import SourceOptions
from orbitmq.spark.topic_source.subscribed_queues import TopicQueues

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import SparkSession

    from orbitmq.client.query.queue_offsets import Bounds
    from orbitmq.protocol.bodies import MessageQueue
    from orbitmq.spark.pipelines.progress import JobProgress

COMMIT_ALL_SECONDS = 300.0
"""In between only what brokers do not know is committed. One that crashed may have forgotten the rest."""
PAUSE = 0.5
"""Seconds between two looks for queues that are away."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveJob:
    """The parameters of an archive job, checked."""

    to: str
    source: SourceOptions
    group: str
    max_messages: int = MAX_MESSAGES
    every: float = EVERY_SECONDS
    is_following: bool = False
    fail_on_data_loss: bool = True
    accept_recreated: bool = False

    @classmethod
    def of(
        cls,
        *,
        to: str,
        topics: Iterable[str] = (),
        pattern: str | None = None,
        nameserver: str | None = None,
        start: str = "earliest",
        group: str = ARCHIVE_GROUP,
        max_messages: int = MAX_MESSAGES,
        follow: bool = False,
        every: float = EVERY_SECONDS,
        fail_on_data_loss: bool = True,
        accept_recreated: bool = False,
        retry_seconds: float = RETRY_SECONDS,
    ) -> ArchiveJob:
        """Raises OptionError."""
        names = [topics] if isinstance(topics, str) else list(topics)
        if bool(names) == (pattern is not None):
            raise OptionError("give the topics to archive, or a pattern of their names, and not both")
        if max_messages < 1:
            raise OptionError(f"a segment of {max_messages} messages is none: give 1 or more")
        if not to:
            raise OptionError("say where the archive is to be")
        what = {"subscribePattern": pattern} if pattern is not None else {"subscribe": ",".join(names)}
        given = {**what, "startingOffsets": start, "groupId": group, "retrySeconds": f"{retry_seconds:f}"}
        if nameserver is not None:
            given["nameserver"] = nameserver
        source = SourceOptions.of(given)
        if isinstance(source.starting, PerQueue):
            raise OptionError(f"an archive starts at earliest, latest or a time, not at {start}")
        return cls(
            to=to,
            source=source,
            group=group,
            max_messages=max_messages,
            every=every,
            is_following=follow,
            fail_on_data_loss=fail_on_data_loss,
            accept_recreated=accept_recreated,
        )

    @property
    def reading(self) -> dict[str, str]:
        """The source options of a segment's reader."""
        retry = f"{self.source.retry_seconds:f}"
        return {"nameserver": self.source.nameserver, "groupId": self.group, "retrySeconds": retry}


def archive(
    spark: SparkSession,
    *,
    to: str,
    topics: Iterable[str] = (),
    pattern: str | None = None,
    nameserver: str | None = None,
    start: str = "earliest",
    group: str = ARCHIVE_GROUP,
    max_messages: int = MAX_MESSAGES,
    follow: bool = False,
    every: float = EVERY_SECONDS,
    fail_on_data_loss: bool = True,
    accept_recreated: bool = False,
    retry_seconds: float = RETRY_SECONDS,
    progress: JobProgress | None = None,
) -> Summary:
    """Archive topics up to where they end now; with ``follow`` go on until KeyboardInterrupt.

    ``start`` is for topics that the archive does not know yet: ``earliest``, ``latest`` or a time. Raises
    OrbitMQError, and OSError from the archive's file system.
    """
    job = ArchiveJob.of(
        to=to,
        topics=topics,
        pattern=pattern,
        nameserver=nameserver,
        start=start,
        group=group,
        max_messages=max_messages,
        follow=follow,
        every=every,
        fail_on_data_loss=fail_on_data_loss,
        accept_recreated=accept_recreated,
        retry_seconds=retry_seconds,
    )
    return run(spark, job, progress or silent())


def run(spark: SparkSession, job: ArchiveJob, progress: JobProgress) -> Summary:
    """Run a job that was created before."""
    place = Archive(job.to)
    place.make()
    with spark_errors(), locked(place):
        place.forget_attempts()
        archiver = Archiver(spark, place, job, progress)
        try:
            archiver.run()
        except KeyboardInterrupt:
            archiver.conclude()
            progress.say(f"{archiver.rows:,} messages were archived in {archiver.segments} segments")
            raise
        except Exception:
            archiver.conclude()
            raise
        finally:
            with contextlib.suppress(Exception):
                archiver.queues.cluster.close()
        return archiver.summary()


def planned(job: ArchiveJob) -> Summary:
    """The summary of a dry run, without Spark."""
    place = Archive(job.to)
    queues = TopicQueues(job.source)
    try:
        bounds = queues.existing_bounds()
        ends = place.ends()
        recreated = recreated_queues(ends, bounds)
        if not job.accept_recreated:
            refuse_recreated(recreated, ends, bounds)
        targets = {queue: found.max for queue, found in bounds.items()}
        starts = _starts(job, queues, ends, bounds)
        ends = {**ends, **starts, **{queue: bounds[queue].min for queue in recreated}}
        gone = {queue: ((ends[queue], found.min),) for queue, found in bounds.items() if ends[queue] < found.min}
    finally:
        queues.cluster.close()
    by_topic: dict[str, int] = {}
    for queue, target in targets.items():
        by_topic[queue.topic] = by_topic.get(queue.topic, 0) + waiting(ends, {queue: target})
    messages = sum(by_topic.values())
    return Summary(
        f"An archive run into {job.to} would add",
        {
            "messages": messages,
            "topics": dict(sorted(by_topic.items())),
            "queues": sum(1 for queue in targets if ends[queue] < targets[queue]),
            "segments": -(-messages // job.max_messages),
            "lost": in_words(gone) if gone else "nothing",
            "group": job.group,
        },
        is_good=not gone or not job.fail_on_data_loss,
    )


def _starts(
    job: ArchiveJob,
    queues: TopicQueues,
    ends: Mapping[MessageQueue, int],
    bounds: Mapping[MessageQueue, Bounds],
) -> dict[MessageQueue, int]:
    """The start of queues that are not archived yet. New queues of archived topics start at their beginning."""
    known = {queue.topic for queue in ends}
    new = {queue: found for queue, found in bounds.items() if queue.topic not in known}
    grown = {queue: found.min for queue, found in bounds.items() if queue.topic in known and queue not in ends}
    side = OffsetBound("startingOffsets", job.source.starting or QueueEdge.EARLIEST)
    return {**grown, **(side.resolve(queues.cluster, new) if new else {})}


class Archiver:
    """One run of the job: appends segments to the archive."""

    def __init__(self, spark: SparkSession, place: Archive, job: ArchiveJob, progress: JobProgress) -> None:
        self._spark = spark
        self._place = place
        self._job = job
        self._progress = progress
        self.queues = TopicQueues(job.source)
        self._commits = Commits(job.source, job.group, progress)
        found = place.segments()
        self._number = found[-1].number + 1 if found else 1
        self._ends = place.ends()
        self._recreated: frozenset[MessageQueue] = frozenset()
        self._here: frozenset[MessageQueue] = frozenset()
        """Queues that were there when they were last looked at, and are those that the archive knows."""
        self._away: set[MessageQueue] = set()
        self._committed_all_at = 0.0
        self._failing_since: float | None = None
        self._began = time.monotonic()
        self.rows = self.segments = self.files = self.size = 0
        self._missing: list[str] = []
        self._by_topic: dict[str, int] = {}

    def run(self) -> None:
        bounds = self.queues.existing_bounds()
        self._meet(bounds, is_start=True)
        if self._job.is_following:
            self._follow(bounds)
        else:
            self._catch_up(bounds)
        self._commit_all()

    def _catch_up(self, bounds: dict[MessageQueue, Bounds]) -> None:
        """Archive up to the ends that queues have now."""
        targets = {queue: found.max for queue, found in bounds.items()}
        total = waiting(self._ends, targets)
        with self._progress.step("archiving", total):
            while waiting(self._ends, targets):
                was_added = self._round(bounds, targets)
                bounds = self.queues.bounds() if was_added else self._wait_for(targets)
                self._meet(bounds)
                self._progress.at(total - waiting(self._ends, targets))
                if all(queue in self._away for queue in targets if waiting(self._ends, {queue: targets[queue]})):
                    return

    def _follow(self, bounds: dict[MessageQueue, Bounds]) -> None:
        """Archive new messages until the run is interrupted."""
        with self._progress.step("following"):
            while True:
                at = time.monotonic()
                targets = {queue: found.max for queue, found in bounds.items()}
                while self._round_or_later(bounds, targets):
                    left = waiting(self._ends, targets)
                    self._progress.at(self.rows, f"archived, {left:,} wait" if left else "archived, up to date")
                time.sleep(max(at + self._job.every - time.monotonic(), 0.0))
                bounds = self.queues.bounds()
                self._note_away(bounds)
                self._meet(bounds)
                if time.monotonic() - self._committed_all_at > COMMIT_ALL_SECONDS:
                    self._commit_all()

    # Queues come and go

    def _meet(self, bounds: Mapping[MessageQueue, Bounds], *, is_start: bool = False) -> None:
        """Take in queues that were not there before, and see that the others are the same."""
        recreated = recreated_queues(self._ends, bounds)
        # Nothing of a recreated queue is archived yet: even if this run fails, no offset of it may be committed.
        self._here = frozenset(bounds) - recreated
        if not self._job.accept_recreated:
            refuse_recreated(recreated, self._ends, bounds)
        self._recreated |= recreated
        self._ends.update((queue, bounds[queue].min) for queue in recreated)
        self._here = frozenset(bounds)
        if is_start:
            starts = _starts(self._job, self.queues, self._ends, bounds)
        else:
            starts = {queue: found.min for queue, found in bounds.items() if queue not in self._ends}
        if is_start and self._job.source.starting not in {None, QueueEdge.EARLIEST} and starts:
            # From here on it is archived: another run would find a later start.
            self._add(Segment(self._number, {queue: (start, start) for queue, start in starts.items()}, ()))
        self._ends.update(starts)
        if is_start:
            self._commit_all()

    def _note_away(self, bounds: Mapping[MessageQueue, Bounds]) -> None:
        gone = self._ends.keys() - bounds.keys() - self._away
        gone = {queue for queue in gone if self._job.source.subscribed.wants(queue)}
        if gone:
            self._progress.say(f"{described(gone)} cannot be reached, or is not there any more")
        self._away |= gone
        self._away -= bounds.keys()

    def _wait_for(self, targets: Mapping[MessageQueue, int]) -> dict[MessageQueue, Bounds]:
        """Give brokers time to come back that have queues which are not done. Raises ArchiveError if none does."""
        until = time.monotonic() + self._job.source.retry_seconds
        while True:
            bounds = self.queues.bounds()
            left = {queue for queue, target in targets.items() if self._ends[queue] < target} - self._away
            here = {queue for queue in left if queue in bounds and bounds[queue].max > self._ends[queue]}
            if here or not left:
                return bounds
            if time.monotonic() >= until:
                break
            time.sleep(PAUSE)
        lost = {queue: ((self._ends[queue], targets[queue]),) for queue in left}
        if self._job.fail_on_data_loss:
            raise ArchiveError(lost_sentence(lost))
        self._note_missing(in_words(lost))
        self._away |= left
        return bounds

    # Segments

    def _round(self, bounds: Mapping[MessageQueue, Bounds], targets: Mapping[MessageQueue, int]) -> bool:
        """Add one segment; False if there is nothing to add."""
        job = self._job
        found = plan(self._ends, bounds, targets, job.max_messages, self._recreated)
        if found is None:
            self._commits.commit_new(self._ends_here())
            return False
        if found.lost and job.fail_on_data_loss:
            raise ArchiveError(lost_sentence({queue: (lost,) for queue, lost in found.lost.items()}))
        segment = write_segment(
            self._spark, self._place, self._number, found, job.reading, fail_on_data_loss=job.fail_on_data_loss
        )
        self._count(segment)
        if segment.missing:
            self._note_missing(in_words(segment.missing))
        self._commits.commit_new(self._ends_here())
        return True

    def _round_or_later(self, bounds: Mapping[MessageQueue, Bounds], targets: Mapping[MessageQueue, int]) -> bool:
        """A round; False also after an error, since brokers may be unreachable for a while."""
        try:
            with spark_errors():
                was_added = self._round(bounds, targets)
        except ArchiveError:
            raise
        except OrbitMQError as error:
            now = time.monotonic()
            self._failing_since = now if self._failing_since is None else self._failing_since
            if now - self._failing_since >= self._job.source.retry_seconds:
                raise
            self._progress.say(f"{error}; it is tried again")
            return False
        self._failing_since = None
        return was_added

    def _add(self, segment: Segment) -> None:
        self._place.announce(segment)
        self._place.add(segment)
        self._count(segment)

    def _count(self, segment: Segment) -> None:
        # The number last of these: a segment of which only a part was noted when the run ended is noted again.
        self._ends.update((queue, end) for queue, (_, end) in segment.ranges.items())
        self._recreated -= segment.recreated
        self._number += 1
        self.segments += 1
        self.rows += segment.rows
        self.files += len(segment.files)
        self.size += sum(file.size for file in segment.files)
        for file in segment.files:
            self._by_topic[file.topic] = self._by_topic.get(file.topic, 0) + file.rows

    def _note_missing(self, what: str) -> None:
        self._missing.append(what)
        self._progress.say(f"not there any more, and left out: the offsets {what}")

    # Commits to brokers

    def _ends_here(self) -> dict[MessageQueue, int]:
        return {queue: end for queue, end in self._ends.items() if queue in self._here}

    def _commit_all(self) -> None:
        self._commits.commit_all(self._ends_here())
        self._committed_all_at = time.monotonic()

    def conclude(self) -> None:
        """Tell brokers what they do not know yet. For a run that comes to another end than its own."""
        try:
            segment = self._place.added(self._number)
            if segment is not None:
                # It counts; what ended the run came before that was noted here.
                self._count(segment)
            self._commits.commit_last(self._ends_here())
        except (OrbitMQError, OSError) as error:
            self._progress.say(f"what is archived could not be committed, which the next run does: {error}")

    def summary(self) -> Summary:
        return Summary(
            f"Archived into {self._job.to}",
            {
                "messages": self.rows,
                "topics": dict(sorted(self._by_topic.items())),
                "segments": self.segments,
                "files": self.files,
                "bytes": self.size,
                "missing": self._missing,
                "group": self._job.group,
                "seconds": round(time.monotonic() - self._began, 1),
            },
        )
