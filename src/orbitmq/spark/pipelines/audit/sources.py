"""The rows of an audit: messages of live topics, stores and the archive, one row per queue offset."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any, Self, cast

import orjson
import pyarrow as pa
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from orbitmq.platform.local_disk import LocalDisk
from orbitmq.protocol.message import property_names as names
from orbitmq.protocol.message.flags import TRANSACTION_COMMIT, TRANSACTION_MASK
from orbitmq.protocol.names import DLQ_PREFIX, RETRY_PREFIX
from orbitmq.spark.pipelines.archive.directory import Archive
from orbitmq.spark.schema.columns import ddl_of
from orbitmq.spark.store_source.datasource import stored_topics
from orbitmq.store.tools.detect_layout import detect_log

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from orbitmq.protocol.bodies import MessageQueue
    from orbitmq.spark.pipelines.audit.plan import AuditPlan, Spans

QUEUE = ["topic", "broker", "queue_id"]
PLACE = [*QUEUE, "queue_offset"]

READ = (
    "topic", "broker", "queue_id", "queue_offset", "msg_id", "unique_id", "keys", "properties", "born_timestamp",
    "store_timestamp", "sys_flag", "reconsume_times",
)  # fmt: skip
"""Bodies are left out: they are most of the bytes, and say nothing here."""

SPAN = "topic string, broker string, queue_id int, start bigint, end bigint"

_DEFERRED = (
    names.DELAY_LEVEL, names.TIMER_DELAY_SEC, names.TIMER_DELAY_MS, names.TIMER_DELIVER_MS, names.TIMER_OUT_MS,
    names.TRANSACTION_PREPARED,
)  # fmt: skip
"""Properties of deferred messages, which were stored a second time long after they were born."""

MAX_TASK_RECORDS = 1_000_000

MAX_SMALL_MESSAGES = 5_000_000
"""Up to here an audit runs with the settings for small inputs. The fixed cost of each job is what it takes then."""
ROWS_PER_PARTITION = 250_000
"""Of a shuffle of a small input."""
MAX_BROADCAST_ROWS = 200_000
"""Trace records and duplicated ids are joined by a broadcast up to here: 20 to 40 MB in each executor."""


class Sources:
    """The DataFrames of a plan. A context manager: caches are released at the end."""

    def __init__(self, spark: SparkSession, plan: AuditPlan) -> None:
        self.spark = spark
        self.plan = plan
        self._kept: list[DataFrame] = []
        self._rows = plan.messages_at_most

    def __enter__(self) -> Self:
        if self.is_small:
            # A session of its own, so that the settings of the caller's stay what they are.
            given, self.spark = self.spark, _session_like(self.spark)
            cores = int(given.conf.get("spark.sql.shuffle.partitions") or 1)
            partitions = min(max(self._rows // ROWS_PER_PARTITION, 1), cores)
            # Without adaptive execution a query is one job, and not one for each shuffle and broadcast.
            self.spark.conf.set("spark.sql.adaptive.enabled", "false")
            # No filter of an audit narrows what is read: asking for each takes a Python process.
            self.spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
            self.spark.conf.set("spark.sql.shuffle.partitions", str(partitions))
        return self

    @property
    def is_small(self) -> bool:
        """Few enough messages for plans without adaptive execution and with few partitions."""
        return self._rows <= MAX_SMALL_MESSAGES

    def __exit__(self, *_: object) -> None:
        # After Ctrl-C Spark may be gone already.
        with contextlib.suppress(Exception):
            for frame in self._kept:
                frame.unpersist()

    def keep(self, frame: DataFrame) -> DataFrame:
        """Cache a DataFrame, so that Spark reads it only once."""
        kept = frame.persist()
        self._kept.append(kept)
        return kept

    def local(self, rows: Sequence[Sequence[Any]], ddl: str) -> DataFrame:
        """A DataFrame of rows that the driver has.

        Spark knows the size of such a table: it broadcasts it in joins, and an empty one removes whatever depends
        on it from a plan, so that no job runs for it. Of ``createDataFrame`` of a list it knows neither.
        """
        schema = to_arrow_schema(cast("StructType", StructType.fromDDL(ddl)), timezone="UTC")
        columns = zip(*rows, strict=True) if rows else ((),) * len(schema)
        arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
        return self.spark.createDataFrame(pa.Table.from_arrays(arrays, schema=schema))

    def has(self, topics: Iterable[str]) -> bool:
        """False if no source has a message of these topics of RocketMQ's own. Of stores it is not known."""
        found = (ends for topic in topics for ends in self.plan.own.get(topic, {}).values())
        return bool(self.plan.request.stores) or any(start < end for start, end in found)

    def small(self, frame: DataFrame, rows: int) -> DataFrame:
        """A DataFrame of about ``rows`` rows, with a broadcast hint if they are few."""
        return sf.broadcast(frame) if rows <= MAX_BROADCAST_ROWS else frame

    # Messages

    def messages(self) -> DataFrame:
        """One row for each place in a queue of the audited topics, and how often it is in the logs and the archive.

        ``id`` is by what clients know a message. ``differs`` where log and archive have different ones in a place.
        """
        plan = self.plan
        logs = list(self._logs(plan.messages, plan.request.topics, READ))
        is_archived = plan.request.archive is not None
        if not logs and not is_archived:
            logs = [self.local([], ddl_of(READ))]
        if len(logs) == 1 and not is_archived:
            # The usual case needs no shuffle: a queue has each of its offsets once.
            counted = logs[0].withColumns(
                {"log_copies": sf.lit(1), "archive_copies": sf.lit(0), "differs": sf.lit(False)}
            )
        else:
            counted = _placed([*((log, 1) for log in logs), *([(self._archive(), 0)] if is_archived else [])])
        return self.keep(self._clustered(_described(self._selected(counted))))

    def _clustered(self, rows: DataFrame) -> DataFrame:
        """By queue and in order, if they are few: the cache keeps that, and no check sorts them once more."""
        if not self.is_small:
            return rows
        return rows.repartition(*QUEUE).sortWithinPartitions(*QUEUE, "queue_offset")

    def _selected(self, rows: DataFrame) -> DataFrame:
        request = self.plan.request
        rows = rows.where(~sf.col("topic").startswith(RETRY_PREFIX) & ~sf.col("topic").startswith(DLQ_PREFIX))
        if not request.topics:
            rows = rows.where(sf.col("topic") != request.trace_topic)
        return rows

    def own(self, topics: Iterable[str], columns: Iterable[str] = READ) -> DataFrame:
        """The messages of topics of RocketMQ's own, as far as there are any."""
        names_ = list(topics)
        spans = {queue: ends for topic in names_ for queue, ends in self.plan.own.get(topic, {}).items()}
        found = list(self._logs(spans, names_, columns))
        return self._united(found, columns)

    def dead_letters(self) -> DataFrame:
        """Those of all groups."""
        topics = [topic for topic in self.plan.own if topic.startswith(DLQ_PREFIX)]
        spans = {queue: ends for topic in topics for queue, ends in self.plan.own[topic].items()}
        found = [log.where(sf.col("topic").startswith(DLQ_PREFIX)) for log in self._logs(spans, (), READ)]
        return self._united(found, READ)

    def _united(self, found: list[DataFrame], columns: Iterable[str]) -> DataFrame:
        if not found:
            return self.local([], ddl_of(columns))
        rows = found[0]
        for more in found[1:]:
            rows = rows.unionByName(more)
        return rows if len(found) == 1 else rows.dropDuplicates(PLACE)

    def _logs(self, spans: Spans, topics: Iterable[str], columns: Iterable[str]) -> Iterator[DataFrame]:
        read = ",".join(columns)
        if any(start < end for start, end in spans.values()):
            yield self._live(spans, read)
        for path in self.plan.request.stores:
            yield self._store(path, topics, read)

    def _live(self, spans: Spans, columns: str) -> DataFrame:
        wanted = {queue: ends for queue, ends in spans.items() if ends[0] < ends[1]}
        queues: dict[str, dict[str, list[int]]] = {}
        for queue in wanted:
            queues.setdefault(queue.topic, {}).setdefault(queue.broker_name, []).append(queue.queue_id)
        return (
            self.spark.read.format("orbitmq")
            .options(
                nameserver=self.plan.request.nameserver,
                assign=orjson.dumps(queues).decode(),
                startingOffsets=_offsets({queue: start for queue, (start, _) in wanted.items()}),
                endingOffsets=_offsets({queue: end for queue, (_, end) in wanted.items()}),
                columns=columns,
                maxRecordsPerPartition=MAX_TASK_RECORDS,
                # What is not there is what an audit is to find.
                failOnDataLoss=False,
            )
            .load()
        )

    def _store(self, path: str, topics: Iterable[str], columns: str) -> DataFrame:
        request = self.plan.request
        options: dict[str, str | int | bool] = {"columns": columns, "failOnDamage": False}
        if given := list(topics):
            disk = LocalDisk()
            known = stored_topics(disk, detect_log(disk, os.path.abspath(path)))
            if known and not known.intersection(given):
                return self.local([], ddl_of(columns.split(",")))
            options["topics"] = ",".join(name for name in given if not known or name in known)
        if request.since_ms is not None:
            options["startingTimestamp"] = request.since_ms
        if request.until_ms is not None:
            options["endingTimestamp"] = request.until_ms
        rows = self.spark.read.format("orbitmq-store").options(**options).load(os.path.abspath(path))
        return rows.withColumn("broker", sf.coalesce("broker", sf.lit(os.path.basename(os.path.abspath(path)))))

    def _archive(self) -> DataFrame:
        request = self.plan.request
        assert request.archive is not None
        archive = Archive.existing(request.archive)
        rows = self._of_last_life(archive, archive.read(self.spark, request.topics or None)).select(*READ)
        if request.since_ms is not None:
            rows = rows.where(sf.unix_millis("store_timestamp") >= request.since_ms)
        if request.until_ms is not None:
            rows = rows.where(sf.unix_millis("store_timestamp") < request.until_ms)
        return rows

    def _of_last_life(self, archive: Archive, rows: DataFrame) -> DataFrame:
        """Without what queues held before their topic was deleted and made again: other messages, same offsets."""
        recreated = {queue: segment.number for segment in archive.segments() for queue in segment.recreated}
        if not recreated:
            return rows
        begun = self.spans({queue: (number, number) for queue, number in recreated.items()})
        number = sf.regexp_extract("_metadata.file_name", r"segment-(\d+)", 1).cast("bigint")
        since = begun.select(*QUEUE, sf.col("start").alias("first_segment"))
        return (
            rows.withColumn("segment", number)
            .join(sf.broadcast(since), QUEUE, "left")
            .where(sf.col("first_segment").isNull() | (sf.col("segment") >= sf.col("first_segment")))
        )

    # Spans

    def spans(self, spans: Spans) -> DataFrame:
        rows = [(queue.topic, queue.broker_name, queue.queue_id, *ends) for queue, ends in spans.items()]
        return self.local(rows, SPAN)


def _session_like(spark: SparkSession) -> SparkSession:
    """Another session of the same application, with the same settings."""
    made = spark.newSession()
    for name, value in spark.conf.getAll.items():
        if made.conf.isModifiable(name):
            made.conf.set(name, value)
    return made


def _placed(sources: list[tuple[DataFrame, int]]) -> DataFrame:
    """Rows of several sources, each place once; of logs with 1, of the archive with 0."""
    rows = None
    for frame, is_log in sources:
        flagged = frame.select(*READ).withColumn("is_log", sf.lit(is_log))
        rows = flagged if rows is None else rows.unionByName(flagged)
    assert rows is not None, "nothing to read"
    rest = [name for name in READ if name not in PLACE]
    # Of a topic that was deleted and made again old records may still lie in a log.
    newest = sf.max_by(sf.struct(*rest), "store_timestamp").alias("one")
    identity = sf.coalesce("unique_id", "msg_id")
    grouped = rows.groupBy(*PLACE).agg(
        newest,
        sf.sum("is_log").cast("int").alias("log_copies"),
        sf.sum(1 - sf.col("is_log")).cast("int").alias("archive_copies"),
        sf.max_by(sf.when(sf.col("is_log") == 1, identity), "store_timestamp").alias("in_log"),
        sf.max_by(sf.when(sf.col("is_log") == 0, identity), "store_timestamp").alias("in_archive"),
    )
    differs = sf.coalesce(sf.col("in_log") != sf.col("in_archive"), sf.lit(False))
    return grouped.select(*PLACE, "one.*", "log_copies", "archive_copies", differs.alias("differs"))


def _described(rows: DataFrame) -> DataFrame:
    """Only the columns that checks need: they are cached while the audit runs."""
    property_of = sf.col("properties").getItem
    is_deferred: Column = sf.lit(False)
    for name in _DEFERRED:
        is_deferred = is_deferred | property_of(name).isNotNull()
    is_commit = sf.col("sys_flag").bitwiseAND(TRANSACTION_MASK) == TRANSACTION_COMMIT
    return rows.select(
        *PLACE,
        "msg_id",
        "unique_id",
        sf.coalesce("unique_id", "msg_id").alias("id"),
        sf.array_join("keys", " ").alias("keys"),
        sf.coalesce(property_of(names.SHARDING_KEY), property_of(names.NODE_SHARDING_KEY)).alias("sharding_key"),
        (is_deferred | is_commit).alias("is_deferred"),
        is_commit.alias("is_commit"),
        "born_timestamp",
        "store_timestamp",
        "log_copies",
        "archive_copies",
        "differs",
    )


def _offsets(by_queue: Mapping[MessageQueue, int]) -> str:
    found: dict[str, dict[str, dict[str, int]]] = {}
    for queue, offset in by_queue.items():
        found.setdefault(queue.topic, {}).setdefault(queue.broker_name, {})[str(queue.queue_id)] = offset
    return orjson.dumps(found).decode()
