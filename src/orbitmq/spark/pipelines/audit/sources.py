"""The rows of an audit: messages of live topics, store directories and the archive, each place in a queue once."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Self

import orjson
from pyspark.sql import functions as sf

from orbitmq.protocol import property_names as names
from orbitmq.protocol.flags import TRANSACTION_COMMIT, TRANSACTION_MASK
from orbitmq.protocol.names import DLQ_PREFIX, RETRY_PREFIX
from orbitmq.spark.columns import ddl_of
from orbitmq.spark.pipelines.archive.directory import Archive

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

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

_PARKED = (
    names.DELAY_LEVEL, names.TIMER_DELAY_SEC, names.TIMER_DELAY_MS, names.TIMER_DELIVER_MS, names.TIMER_OUT_MS,
    names.TRANSACTION_PREPARED,
)  # fmt: skip
"""What messages have that were stored again long after they were born, because they were asked to be."""

MOST_IN_A_TASK = 1_000_000


class Sources:
    """What can be read for a plan. Use as a context: what Spark keeps of it is let go at the end."""

    def __init__(self, spark: SparkSession, plan: AuditPlan) -> None:
        self.spark = spark
        self.plan = plan
        self._kept: list[DataFrame] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # After Ctrl-C Spark may be gone already.
        with contextlib.suppress(Exception):
            for frame in self._kept:
                frame.unpersist()

    def keep(self, frame: DataFrame) -> DataFrame:
        """Have Spark read something once only."""
        kept = frame.persist()
        self._kept.append(kept)
        return kept

    # Messages

    def messages(self) -> DataFrame:
        """One row for each place in a queue of the audited topics, and how often it is in the logs and the archive.

        ``id`` is by what clients know a message. ``differs`` where log and archive have different ones in a place.
        """
        plan = self.plan
        logs = list(self._logs(plan.messages, plan.request.topics, READ))
        is_archived = plan.request.archive is not None
        if not logs and not is_archived:
            logs = [self.spark.createDataFrame([], ddl_of(READ))]
        if len(logs) == 1 and not is_archived:
            # The usual case needs no shuffle: a queue has each of its offsets once.
            counted = logs[0].withColumns(
                {"log_copies": sf.lit(1), "archive_copies": sf.lit(0), "differs": sf.lit(False)}
            )
        else:
            counted = _placed([*((log, 1) for log in logs), *([(self._archive(), 0)] if is_archived else [])])
        return self.keep(_described(self._asked_for(counted)))

    def _asked_for(self, rows: DataFrame) -> DataFrame:
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
            return self.spark.createDataFrame([], ddl_of(columns))
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
                maxRecordsPerPartition=MOST_IN_A_TASK,
                # What is not there is what an audit is to find.
                failOnDataLoss=False,
            )
            .load()
        )

    def _store(self, path: str, topics: Iterable[str], columns: str) -> DataFrame:
        request = self.plan.request
        options: dict[str, str | int | bool] = {"columns": columns, "failOnDamage": False}
        if names_ := ",".join(topics):
            options["topics"] = names_
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
        anew = {queue: segment.number for segment in archive.segments() for queue in segment.anew}
        if not anew:
            return rows
        begun = self.spans({queue: (number, number) for queue, number in anew.items()})
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
        return self.spark.createDataFrame(rows, SPAN)


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
    """What checks need to know, and nothing else: it is kept while the audit runs."""
    property_of = sf.col("properties").getItem
    is_parked: Column = sf.lit(False)
    for name in _PARKED:
        is_parked = is_parked | property_of(name).isNotNull()
    is_commit = sf.col("sys_flag").bitwiseAND(TRANSACTION_MASK) == TRANSACTION_COMMIT
    return rows.select(
        *PLACE,
        "msg_id",
        "unique_id",
        sf.coalesce("unique_id", "msg_id").alias("id"),
        sf.array_join("keys", " ").alias("keys"),
        sf.coalesce(property_of(names.SHARDING_KEY), property_of(names.NODE_SHARDING_KEY)).alias("sharding_key"),
        (is_parked | is_commit).alias("is_parked"),
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
