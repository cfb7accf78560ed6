"""Pipelines: archives and streaming queries of Spark, what they ran and how far they are behind the brokers.

Both keep their progress in a directory that the console reads: an archive in its segments, a streaming query in its
checkpoint. Nothing of Spark itself is needed.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import re
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orbitmq.admin.errors import AdminError, InvalidRequestError
from orbitmq.spark.errors import OptionError
from orbitmq.spark.topic_source.offsets import Position

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from orbitmq.dashboard.clusters import ManagedCluster
    from orbitmq.dashboard.config import DashboardConfig, PipelineTarget
    from orbitmq.protocol.bodies import MessageQueue

MAX_RUNS = 100
"""Runs of a pipeline that are shown."""
SECONDS = 10.0
"""Lifetime of what was read."""
_NUMBER = re.compile(r"\d{1,18}")
_HOLDER = re.compile(r"process (\d{1,9}) on (\S+) ")
ARCHIVE, STREAM = "archive", "stream"


@dataclasses.dataclass(frozen=True, slots=True)
class Run:
    """One segment of an archive, or one batch of a streaming query."""

    number: int
    time_ms: int
    messages: int
    bytes: int
    """Of the files written; 0 for a batch, whose sink is not known."""
    is_done: bool


@dataclasses.dataclass(frozen=True, slots=True)
class TopicProgress:
    """Progress of a pipeline in a topic."""

    topic: str
    queues: int
    done: int
    """Messages from where the pipeline began."""
    left: int | None
    """Messages that the brokers have beyond that; None if they do not say."""


@dataclasses.dataclass(frozen=True, slots=True)
class Pipeline:
    """One pipeline with its newest runs first."""

    name: str
    kind: str
    place: str
    runs: tuple[Run, ...] = ()
    run_count: int = 0
    messages: int = 0
    bytes: int = 0
    topics: tuple[TopicProgress, ...] = ()
    held_by: str = ""
    """The process that writes the archive now."""
    problem: str = ""

    @property
    def last_ms(self) -> int:
        return max((run.time_ms for run in self.runs if run.is_done), default=0)

    @property
    def left(self) -> int | None:
        known = [one.left for one in self.topics if one.left is not None]
        return sum(known) if known else None


@dataclasses.dataclass(slots=True)
class _Found:
    """Content of a directory: begins and ends by queue, and the runs in their order."""

    kind: str
    begins: dict[MessageQueue, int] = dataclasses.field(default_factory=dict)
    ends: dict[MessageQueue, int] = dataclasses.field(default_factory=dict)
    runs: list[Run] = dataclasses.field(default_factory=list)
    held_by: str = ""


async def pipelines(config: DashboardConfig, cluster: ManagedCluster) -> list[Pipeline]:
    """The pipelines of a cluster, in the order of the configuration."""
    targets = [one for one in config.pipelines if one.cluster == cluster.name]

    async def read() -> list[Pipeline]:
        return [await _pipeline(cluster, target) for target in targets]

    return await cluster.cache.get("pipelines", SECONDS, read)


async def _pipeline(cluster: ManagedCluster, target: PipelineTarget) -> Pipeline:
    try:
        found = await asyncio.to_thread(_read, target.place)
    except (OSError, ValueError, OptionError, InvalidRequestError) as error:
        return Pipeline(target.name, "", target.place, problem=str(error))
    runs = found.runs
    return Pipeline(
        target.name,
        found.kind,
        target.place,
        tuple(reversed(runs[-MAX_RUNS:])),
        len(runs),
        sum(run.messages for run in runs),
        sum(run.bytes for run in runs),
        tuple(await _progress(cluster, found.begins, found.ends)),
        found.held_by,
    )


async def _progress(
    cluster: ManagedCluster, begins: Mapping[MessageQueue, int], ends: Mapping[MessageQueue, int]
) -> list[TopicProgress]:
    found = []
    for topic in sorted({queue.topic for queue in ends}):
        own = {queue: end for queue, end in ends.items() if queue.topic == topic}
        done = sum(end - begins.get(queue, end) for queue, end in own.items())
        found.append(TopicProgress(topic, len(own), done, await _left(cluster, topic, own)))
    return found


async def _left(cluster: ManagedCluster, topic: str, ends: Mapping[MessageQueue, int]) -> int | None:
    """Messages beyond these ends. A queue that the pipeline has not begun counts from its first message."""
    try:
        table = (await cluster.admin.topics.stats(topic)).offset_table
    except AdminError:
        return None
    return sum(max(one.max_offset - ends.get(queue, one.min_offset), 0) for queue, one in table.items())


def _read(place: str) -> _Found:
    """Raises OSError, ValueError, OptionError, InvalidRequestError."""
    path = Path(place)
    if "://" not in place:
        if (path / "offsets").is_dir():
            return _checkpoint(path)
        if not (path / "_orbitmq").is_dir():
            raise InvalidRequestError(f"{place} is neither an archive nor the checkpoint of a streaming query")
    return _archive(place)


# Archives


def _archive(place: str) -> _Found:
    try:
        from orbitmq.spark.pipelines.archive.directory import Archive, ArchiveError  # noqa: PLC0415 - needs pyarrow
    except ImportError as error:
        raise InvalidRequestError("archives need pyarrow: pip install 'orbitmq[pipelines]'") from error
    try:
        archive = Archive.existing(place)
        segments, ranges = archive.segments(), archive.ranges()
    except ArchiveError as error:
        raise InvalidRequestError(str(error)) from error
    runs = [
        Run(one.number, one.written_ms, one.rows, sum(file.size for file in one.files), is_done=True)
        for one in segments
    ]
    return _Found(
        ARCHIVE,
        {queue: begin for queue, (begin, _) in ranges.items()},
        {queue: end for queue, (_, end) in ranges.items()},
        runs,
        _holder(Path(archive.within("_orbitmq/lock"))) if archive.is_local else "",
    )


def _holder(path: Path) -> str:
    """Holder of the lock file of an archive. It is read only: locking it could keep an archiver from starting."""
    try:
        text = path.read_text("utf-8")[:200].strip()
    except FileNotFoundError:
        return ""
    found = _HOLDER.match(text)
    if found is None or found[2] != socket.gethostname():
        return text
    try:
        os.kill(int(found[1]), 0)
    except ProcessLookupError:
        # It was killed, and left its name.
        return ""
    except PermissionError:
        pass
    return text


# Checkpoints of streaming queries


def _checkpoint(path: Path) -> _Found:
    found = _Found(STREAM)
    before: dict[int, Position] = {}
    for number in _numbers(path / "offsets"):
        time_ms, positions = _batch(path / "offsets" / str(number))
        is_done, messages = (path / "commits" / str(number)).exists(), 0
        for at, position in positions.items():
            last = before.get(at, Position({}))
            messages += sum(one.end - one.start for one in last.ranges_to(position))
            # The first batch that is still there goes on from one that Spark has removed.
            starts = {**position.next, **last.next, **position.began}
            for queue, start in starts.items():
                found.begins.setdefault(queue, start)
            if is_done:
                found.ends.update(position.next)
        before = positions
        found.runs.append(Run(number, time_ms, messages, 0, is_done=is_done))
    return found


def _numbers(folder: Path) -> list[int]:
    return sorted(int(one.name) for one in folder.iterdir() if _NUMBER.fullmatch(one.name))


def _batch(path: Path) -> tuple[int, dict[int, Position]]:
    """The time of a batch, and the position of each of its sources that is ours. Raises ValueError."""
    lines = path.read_text("utf-8").splitlines()
    if len(lines) < 2:
        raise ValueError(f"{path} is not a batch of a checkpoint")
    metadata: Any = json.loads(lines[1])
    return int(metadata.get("batchTimestampMs", 0)), dict(_positions(lines[2:]))


def _positions(lines: Iterable[str]) -> Iterable[tuple[int, Position]]:
    for at, line in enumerate(lines):
        try:
            yield at, Position.of_json(json.loads(line))
        except (ValueError, OptionError):
            # The offset of another kind of source.
            continue
