"""The writer of a segment: read by Spark, written, verified, moved into place and committed."""

from __future__ import annotations

import contextlib
import json
import posixpath
import uuid
from typing import TYPE_CHECKING, Any

from orbitmq.spark.pipelines.archive.directory import DAY, STAGING, ArchivedFile, ArchiveError, Segment
from orbitmq.spark.pipelines.archive.verify import in_words, missing_of, written_files

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

    from orbitmq.protocol.bodies import MessageQueue
    from orbitmq.spark.pipelines.archive.directory import Archive, Range
    from orbitmq.spark.pipelines.archive.plan import Planned
    from orbitmq.spark.pipelines.archive.verify import WrittenFile

ROWS_PER_TASK = 50_000
"""Fewer are not worth a task and a file of their own."""
ROWS_PER_FILE = 2_000_000
SLICES_PER_TASK = 4
"""Queues are not equally long: a task reads some neighbouring slices, so that all have about the same to do."""
DAY_OF = f"date_from_unix_date(int(unix_micros(store_timestamp) div {24 * 3600 * 1_000_000}))"
"""The day in UTC, whatever the time zone of the session."""
ORDER = ("topic", DAY, "broker", "queue_id", "queue_offset")

_PARQUET = {
    # Spark's default, INT96, is read by Hive, Impala and Spark only.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.fieldId.write.enabled": "false",
}


def write_segment(
    spark: SparkSession,
    archive: Archive,
    number: int,
    planned: Planned,
    reading: Mapping[str, str],
    *,
    fail_on_data_loss: bool,
) -> Segment:
    """Add a segment with all that is planned. ``reading`` are options of the source.

    Raises ArchiveError if messages are missing and that may not be, and OSError; Spark's own errors pass.
    """
    # A random name: tasks that outlive their driver for a moment write where no other run reads.
    staging = posixpath.join(STAGING, f"{number:08d}-{uuid.uuid4().hex[:8]}")
    try:
        if planned.readable:
            _stage(spark, planned.readable, reading, archive.for_spark(staging))
        written = written_files(archive.files, archive.within(staging))
        missing = missing_of(planned.ranges, written)
        if missing and planned.messages and not written:
            raise ArchiveError(
                f"nothing of what Spark wrote is in {archive.within(staging)}: it has to be a place that the "
                "driver and all executors share"
            )
        if missing and fail_on_data_loss:
            raise ArchiveError(lost_sentence(missing))
        segment = Segment(
            number, planned.ranges, _named(number, written), missing=missing, recreated=planned.recreated
        )
        archive.announce(segment)
        _move(archive, written, segment)
        archive.add(segment)
    finally:
        with contextlib.suppress(OSError):
            archive.files.delete_dir(archive.within(staging))
    return segment


def lost_sentence(missing: Mapping[MessageQueue, tuple[Range, ...]]) -> str:
    return (
        f"the offsets {in_words(missing)} are not there any more, so that they cannot be archived; with "
        "--allow-data-loss they are left out and noted"
    )


def _stage(
    spark: SparkSession, ranges: Mapping[MessageQueue, Range], reading: Mapping[str, str], directory: str
) -> None:
    rows = sum(end - start for start, end in ranges.values())
    tasks = max(min(_parallelism(spark), rows // ROWS_PER_TASK), 1)
    options = {
        **reading,
        # The check of the files finds and reports missing offsets.
        "failOnDataLoss": "false",
        "assign": _assigned(ranges),
        "startingOffsets": _by_queue({queue: start for queue, (start, _) in ranges.items()}),
        "endingOffsets": _by_queue({queue: end for queue, (_, end) in ranges.items()}),
        "maxRecordsPerPartition": str(-(-rows // (tasks * SLICES_PER_TASK))),
    }
    read = spark.read.format("orbitmq").options(**options).load()
    # Without a shuffle: neighbouring slices stay together, and with them the messages of a topic.
    rows_of_files = read.selectExpr("*", f"{DAY_OF} AS {DAY}").coalesce(tasks).sortWithinPartitions(*ORDER)
    with _settings(spark, _PARQUET):
        (
            rows_of_files.write.partitionBy("topic", DAY)
            .options(compression="zstd", maxRecordsPerFile=ROWS_PER_FILE)
            .parquet(directory)
        )


def _parallelism(spark: SparkSession) -> int:
    """The number of tasks that run at once."""
    try:
        return int(spark.sparkContext.defaultParallelism)
    except Exception:
        # A session of Spark Connect has no context, and says so in its own way.
        return int(spark.conf.get("spark.sql.shuffle.partitions") or 1)


@contextlib.contextmanager
def _settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Change settings of a session temporarily: the session may belong to the caller."""
    before = {name: spark.conf.get(name, None) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)


def _assigned(ranges: Mapping[MessageQueue, Range]) -> str:
    found: dict[str, dict[str, list[int]]] = {}
    for queue in ranges:
        found.setdefault(queue.topic, {}).setdefault(queue.broker_name, []).append(queue.queue_id)
    return json.dumps(found)


def _by_queue(offsets: Mapping[MessageQueue, int]) -> str:
    found: dict[str, Any] = {}
    for queue, offset in offsets.items():
        found.setdefault(queue.topic, {}).setdefault(queue.broker_name, {})[str(queue.queue_id)] = offset
    return json.dumps(found)


def _named(number: int, written: list[WrittenFile]) -> tuple[ArchivedFile, ...]:
    return tuple(
        ArchivedFile(
            f"{file.folder}/segment-{number:08d}-{place}.parquet", file.topic, file.day, file.rows, file.size
        )
        for place, file in enumerate(written)
    )


def _move(archive: Archive, written: list[WrittenFile], segment: Segment) -> None:
    """Put files where they belong, in a way that no power failure undoes."""
    folders = set()
    for file, named in zip(written, segment.files, strict=True):
        target = archive.within(named.path)
        folder = posixpath.dirname(target)
        if folder not in folders:
            archive.files.create_dir(folder, recursive=True)
            folders.add(folder)
        archive.make_durable(file.path)
        archive.files.move(file.path, target)
    for folder in folders:
        for place in (folder, posixpath.dirname(folder)):
            archive.make_durable(place)
    archive.make_durable(archive.root)
