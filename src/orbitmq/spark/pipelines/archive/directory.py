"""The directory of an archive: Parquet files by topic and day, and the manifests of committed segments.

``topic=orders/day=2026-11-16/segment-00000012-0.parquet`` are the files. An archive grows by segments: each is the
messages of some ranges of queues, as Parquet files and one small JSON file in ``_orbitmq/segments``, which is
written last and at once. What no segment names is not there; what ranges were archived is known exactly; and the
ranges of a queue lie end to end, so that nothing is in it twice. Readers that know nothing of segments see the same
rows but for the moments in which one is being added.

A segment is announced in ``_orbitmq/adding-…`` before its files are written: the next run finds and removes the
files of an interrupted attempt by that. Offsets of a range that had expired before they were read are its
``missing`` ranges. A recreated queue (its topic was deleted and created again) is archived from its new start.

Any place that pyarrow knows will do: a path, ``s3://…``, ``hdfs://…``.
"""

from __future__ import annotations

import dataclasses
import os
import posixpath
import time
from typing import TYPE_CHECKING, Any, TypeAlias

import orjson
import pyarrow.fs as pafs

from orbitmq.protocol.bodies import MessageQueue
from orbitmq.spark.pipelines.spark_job import PipelineError
from orbitmq.spark.schema.columns import COLUMNS, ddl_of

if TYPE_CHECKING:
    import datetime
    from collections.abc import Iterable, Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession

OWN = "_orbitmq"
SEGMENTS = f"{OWN}/segments"
STAGING = f"{OWN}/staging"
ADDING = "adding-"
DAY = "day"
"""The day, in UTC, of the store timestamp."""
SCHEMA = f"{ddl_of(name for name in COLUMNS if name != 'topic')}, topic string, {DAY} date"
"""Of an archive's rows: the partition columns come last, as Spark has them."""


Range: TypeAlias = tuple[int, int]
"""Of offsets: from the first up to, and without, the second."""


class ArchiveError(PipelineError):
    """An archive is missing or damaged."""


@dataclasses.dataclass(frozen=True, slots=True)
class ArchivedFile:
    """One Parquet file, by its path in the archive."""

    path: str
    topic: str
    day: str
    rows: int
    size: int


@dataclasses.dataclass(frozen=True, slots=True)
class Segment:
    """One commit to an archive: ranges of queues, and the files that contain them."""

    number: int
    ranges: Mapping[MessageQueue, Range]
    files: tuple[ArchivedFile, ...]
    written_ms: int = dataclasses.field(default_factory=lambda: round(time.time() * 1000))
    missing: Mapping[MessageQueue, tuple[Range, ...]] = dataclasses.field(default_factory=dict)
    """Those offsets of the ranges that no message was found for."""
    recreated: frozenset[MessageQueue] = frozenset()
    """Queues that were deleted and created again before this segment; ``anew`` in the file."""

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    def to_json(self) -> bytes:
        fields: dict[str, Any] = {
            "segment": self.number,
            "written": self.written_ms,
            "ranges": _nested(self.ranges),
            "files": [dataclasses.asdict(file) for file in self.files],
        }
        if self.missing:
            fields["missing"] = _nested(self.missing)
        if self.recreated:
            fields["anew"] = _nested(dict.fromkeys(self.recreated, True))
        return orjson.dumps(fields, option=orjson.OPT_INDENT_2)

    @classmethod
    def from_json(cls, data: bytes) -> Segment:
        """Raises ArchiveError."""
        try:
            fields: dict[str, Any] = orjson.loads(data)
            ranges = {queue: _range(ends) for queue, ends in _flat(fields["ranges"])}
            missing = {queue: tuple(map(_range, some)) for queue, some in _flat(fields.get("missing", {}))}
            recreated = frozenset(queue for queue, _ in _flat(fields.get("anew", {})))
            files = tuple(ArchivedFile(**file) for file in fields["files"])
            return cls(int(fields["segment"]), ranges, files, int(fields["written"]), missing, recreated)
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise ArchiveError(f"a segment of the archive is damaged: {error!r}") from error


class Archive:
    """One archive. Every call reads the directory again: another process may be adding to it."""

    def __init__(self, path: str) -> None:
        """Raises ArchiveError for a path that nothing can be at."""
        self.path = path
        self._read: dict[str, Segment] = {}
        """By path. A segment never changes once it is there."""
        try:
            self.files: pafs.FileSystem
            self.root: str
            self.files, self.root = pafs.FileSystem.from_uri(path) if "://" in path else _local(path)
        except (OSError, ValueError) as error:
            raise ArchiveError(f"there can be no archive at {path!r}: {error}") from error

    @classmethod
    def existing(cls, path: str) -> Archive:
        """Raises ArchiveError if there is none."""
        archive = cls(path)
        if not archive.is_there:
            raise ArchiveError(f"there is no archive at {path!r}: 'orbitmq pipeline archive' makes one")
        return archive

    @property
    def is_there(self) -> bool:
        return bool(self.files.get_file_info(self.within(SEGMENTS)).type == pafs.FileType.Directory)

    def within(self, *parts: str) -> str:
        """A path in the archive, for its file system."""
        return posixpath.join(self.root, *parts)

    def location(self, file: ArchivedFile) -> str:
        """Where Spark finds a file."""
        return self.for_spark(file.path)

    @property
    def is_local(self) -> bool:
        return isinstance(self.files, pafs.LocalFileSystem)

    def for_spark(self, *parts: str) -> str:
        """A path in the archive in the words of Spark, whose own idea of a default may be another file system."""
        # Hadoop takes a path as it is: what is encoded in it stays encoded.
        return f"file://{self.within(*parts)}" if self.is_local else posixpath.join(self.path, *parts)

    # What is there

    def segments(self) -> list[Segment]:
        """In the order in which they were added. Raises ArchiveError and OSError."""
        if not self.is_there:
            return []
        found = self.files.get_file_info(pafs.FileSelector(self.within(SEGMENTS)))
        names = sorted(one.path for one in found if one.base_name.endswith(".json"))
        return [self._segment(name) for name in names]

    def _segment(self, path: str) -> Segment:
        if path not in self._read:
            with self.files.open_input_stream(path) as source:
                data = source.read()
            try:
                self._read[path] = Segment.from_json(data)
            except ArchiveError as error:
                raise ArchiveError(f"{path}: {error}") from error
        return self._read[path]

    def ranges(self) -> dict[MessageQueue, Range]:
        """By queue, from where to where it is archived."""
        return _joined(self.segments())

    def ends(self) -> dict[MessageQueue, int]:
        """By queue, the offset of the first message that is not archived."""
        return {queue: end for queue, (_, end) in self.ranges().items()}

    def topics(self) -> list[str]:
        return sorted({queue.topic for queue in self.ranges()})

    def archived_files(
        self,
        topics: Iterable[str] | None = None,
        first_day: datetime.date | None = None,
        last_day: datetime.date | None = None,
    ) -> list[ArchivedFile]:
        """The files of some topics and days; by default all."""
        wanted = None if topics is None else set(topics)
        return [
            file
            for segment in self.segments()
            for file in segment.files
            if (wanted is None or file.topic in wanted)
            and (first_day is None or file.day >= first_day.isoformat())
            and (last_day is None or file.day <= last_day.isoformat())
        ]

    def read(
        self,
        spark: SparkSession,
        topics: Iterable[str] | None = None,
        first_day: datetime.date | None = None,
        last_day: datetime.date | None = None,
    ) -> DataFrame:
        """The messages of these topics and days: the columns of a topic, and ``day``. Raises ArchiveError."""
        files = self.archived_files(topics, first_day, last_day)
        if not files:
            return spark.createDataFrame([], SCHEMA)
        reader = spark.read.schema(SCHEMA).option("basePath", self.for_spark())
        return reader.parquet(*(self.location(file) for file in files))

    # Adding to it. Only by who has locked it: see ``lock``.

    def make(self) -> None:
        """Make the directory, if there is none. Raises OSError."""
        self.files.create_dir(self.within(SEGMENTS), recursive=True)
        # What a run did last before it was killed may not be on the disk yet, and is about to be relied on.
        self.make_durable(self.within(SEGMENTS))

    def announce(self, segment: Segment) -> None:
        """Say which files a segment will have, before they are there. Raises OSError."""
        self._write(self._adding(segment.number), segment.to_json())

    def add(self, segment: Segment) -> None:
        """Make a segment that was announced count, at once or not at all. Its files are there already.

        Raises ArchiveError if another process has added a segment of that number, and OSError.
        """
        final = self._segment_path(segment.number)
        if self.has(final):
            raise ArchiveError(
                f"another process is adding to the archive {self.path!r}: only one run may add to it at a time"
            )
        if not self.has(self._adding(segment.number)):
            self.announce(segment)
        self.files.move(self._adding(segment.number), final)
        self.make_durable(posixpath.dirname(final))

    def added(self, number: int) -> Segment | None:
        """The segment of this number if it counts, whatever became of who has added it. Raises as ``segments``."""
        path = self._segment_path(number)
        if not self.has(path):
            return None
        self.make_durable(posixpath.dirname(path))
        return self._segment(path)

    def forget_attempts(self) -> int:
        """Remove what attempts have left that came to no end; returns how many files. Raises OSError."""
        removed = 0
        for one in self.files.get_file_info(pafs.FileSelector(self.within(OWN))):
            if not one.base_name.startswith(ADDING):
                continue
            try:
                with self.files.open_input_stream(one.path) as source:
                    segment = Segment.from_json(source.read())
            except ArchiveError:
                # Not written to its end, and so none of its files is there.
                segment = None
            if segment is not None and not self.has(self._segment_path(segment.number)):
                for path in map(self.within, (file.path for file in segment.files)):
                    if self.has(path):
                        self.files.delete_file(path)
                        removed += 1
            self.files.delete_file(one.path)
        if self.has(self.within(STAGING)):
            self.files.delete_dir(self.within(STAGING))
        return removed

    def has(self, path: str) -> bool:
        return bool(self.files.get_file_info(path).type != pafs.FileType.NotFound)

    def make_durable(self, path: str) -> None:
        """Wait until a file or a directory is on the disk: brokers forget what is archived. Raises OSError."""
        if self.is_local:
            number = os.open(path, os.O_RDONLY)
            try:
                os.fsync(number)
            finally:
                os.close(number)

    def _write(self, path: str, data: bytes) -> None:
        with self.files.open_output_stream(path) as out:
            out.write(data)
        self.make_durable(path)

    def _adding(self, number: int) -> str:
        return self.within(OWN, f"{ADDING}{number:08d}")

    def _segment_path(self, number: int) -> str:
        return self.within(SEGMENTS, f"{number:08d}.json")


def _local(path: str) -> tuple[pafs.FileSystem, str]:
    return pafs.LocalFileSystem(), os.path.abspath(os.path.expanduser(path))


def _joined(segments: Iterable[Segment]) -> dict[MessageQueue, Range]:
    """Raises ArchiveError if something is in two ranges of a queue, or between them."""
    found: dict[MessageQueue, Range] = {}
    for segment in segments:
        for queue, (start, end) in segment.ranges.items():
            begun, ended = found.get(queue, (start, start))
            if queue in segment.recreated:
                begun = ended = start
            if start != ended:
                raise ArchiveError(
                    f"segment {segment.number} archives {queue.topic} queue {queue.queue_id} of {queue.broker_name}"
                    f" from {start}, which is archived up to {ended}: the archive is damaged"
                )
            found[queue] = (begun, end)
    return found


def _nested(values: Mapping[MessageQueue, Any]) -> dict[str, dict[str, dict[str, Any]]]:
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for queue, value in sorted(values.items(), key=lambda item: item[0]):
        found.setdefault(queue.topic, {}).setdefault(queue.broker_name, {})[str(queue.queue_id)] = value
    return found


def _flat(nested: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Iterator[tuple[MessageQueue, Any]]:
    for topic, brokers in nested.items():
        for broker, queues in brokers.items():
            for queue_id, value in queues.items():
                yield MessageQueue(topic, broker, int(queue_id)), value


def _range(value: Any) -> Range:
    start, end = value
    return int(start), int(end)
