"""The check for lost messages: holes in queues and archive, differences, and sends that only traces have."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as sf

from orbitmq.spark.pipelines.audit.plan import DEFERRED_TOPICS
from orbitmq.spark.pipelines.audit.queue_stats import with_holes
from orbitmq.spark.pipelines.audit.sources import PLACE, QUEUE
from orbitmq.spark.pipelines.audit.traces import PUBLISHED, RECALLED
from orbitmq.spark.topic_source.offset_bounds import CLOCK_SLACK_MS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame

    from orbitmq.protocol.bodies import MessageQueue
    from orbitmq.spark.pipelines.audit.plan import AuditPlan, Spans
    from orbitmq.spark.pipelines.audit.queue_stats import QueueStats
    from orbitmq.spark.pipelines.audit.sources import Sources

    Stats = Mapping[MessageQueue, QueueStats]

_QUEUE = "topic string, broker string, queue_id int"

NOT_IN_LOG = "not in the log"
NOT_IN_ARCHIVE = "not in the archive"
DIFFERENT = "different in log and archive"
NEVER_STORED = "sent by its trace"
COMMITTED = "committed by its trace"

COLUMNS = (
    "kind", "topic", "broker", "queue_id", "first_offset", "last_offset", "messages", "elsewhere", "message_id",
    "msg_id", "keys", "after_time", "before_time",
)  # fmt: skip
"""``elsewhere``: how many of them are in the other of log and archive, or in one of the two."""


@dataclasses.dataclass(frozen=True, slots=True)
class Claims:
    """Messages that clients report as stored: trace records, and commits of transactions that are missing."""

    records: DataFrame
    commits: DataFrame
    count: int
    """Of the trace records."""


def lost(sources: Sources, messages: DataFrame, stats: Stats, claims: Claims, complete: DataFrame) -> DataFrame:
    """All lost messages, by ``COLUMNS``."""
    found = _never_stored(sources, messages, claims, complete)
    found = found.unionByName(_holes_of_logs(sources, messages, stats))
    if sources.plan.request.archive is not None:
        found = found.unionByName(_holes_of_archive(sources, messages, stats))
        if any(one.different for one in stats.values()):
            found = found.unionByName(_different(messages))
    return found.select(*COLUMNS)


# Holes


def _holes_of_logs(sources: Sources, messages: DataFrame, stats: Stats) -> DataFrame:
    plan = sources.plan
    now = plan.begins_now()
    # What retention took while messages were read is not lost.
    spans = {
        queue: (max(start, now.get(queue, start)), end)
        for queue, (start, end) in plan.messages.items()
        if end > max(start, now.get(queue, start))
    }
    queues = with_holes({queue: (one.in_logs, *one.log_bounds) for queue, one in stats.items()}, spans)
    messages = _of_queues(sources, messages, queues)
    rows = messages.where(sf.col("log_copies") > 0)
    found = _explained(plan, holes(rows, sources.spans({queue: spans[queue] for queue in queues & spans.keys()})))
    others = messages.where((sf.col("log_copies") == 0) & (sf.col("archive_copies") > 0))
    return _lost_places(found, NOT_IN_LOG, others)


def _holes_of_archive(sources: Sources, messages: DataFrame, stats: Stats) -> DataFrame:
    plan = sources.plan
    spans = _within_window(plan)
    queues = with_holes({queue: (one.in_archive, *one.archive_bounds) for queue, one in stats.items()}, spans)
    messages = _of_queues(sources, messages, queues)
    rows = messages.where(sf.col("archive_copies") > 0)
    found = _explained(plan, holes(rows, sources.spans({queue: spans[queue] for queue in queues & spans.keys()})))
    others = messages.where((sf.col("archive_copies") == 0) & (sf.col("log_copies") > 0))
    return _lost_places(found, NOT_IN_ARCHIVE, others)


def _of_queues(sources: Sources, messages: DataFrame, queues: set[MessageQueue]) -> DataFrame:
    """The messages of some queues; of none, which is usual, a table that Spark knows to be empty."""
    names = sources.local([(one.topic, one.broker_name, one.queue_id) for one in sorted(queues)], _QUEUE)
    return messages.join(sf.broadcast(names), QUEUE, "left_semi")


def _explained(plan: AuditPlan, found: DataFrame) -> DataFrame:
    """Without the holes that compaction makes."""
    return found.where(~sf.col("topic").isin(*sorted(plan.compacted))) if plan.compacted else found


def _within_window(plan: AuditPlan) -> Spans:
    """The ranges that the archive has to hold of a time: archived ranges, cut to what brokers stored in that time.

    Queues of which brokers know no such range are left out: the archive then has to be without holes between its
    first and its last row.
    """
    if not plan.request.has_window:
        return plan.archived
    found = {}
    for queue, (start, end) in plan.archived.items():
        if queue in plan.messages:
            first, last = plan.messages[queue]
            if max(start, first) < min(end, last):
                found[queue] = max(start, first), min(end, last)
    return found


def holes(rows: DataFrame, spans: DataFrame) -> DataFrame:
    """The offsets that are missing in queues, between rows and within the spans that should be full.

    A span puts a post at each of its ends among the rows. Before the first row or post of a queue nothing is
    missing; what lies before a span that rows do not reach up to is retention's.
    """
    at = [*QUEUE, "queue_offset", "store_timestamp", "is_row", "is_start"]
    no_time = sf.lit(None).cast("timestamp").alias("store_timestamp")
    starts = spans.select(
        *QUEUE, (sf.col("start") - 1).alias("queue_offset"), no_time, sf.lit(False).alias("is_row"),
        sf.lit(True).alias("is_start"),
    )  # fmt: skip
    ends = spans.select(
        *QUEUE, sf.col("end").alias("queue_offset"), no_time, sf.lit(False).alias("is_row"),
        sf.lit(False).alias("is_start"),
    )  # fmt: skip
    placed = rows.select(*PLACE, "store_timestamp", sf.lit(True).alias("is_row"), sf.lit(False).alias("is_start"))
    everything = placed.select(*at).unionByName(starts).unionByName(ends)
    before = Window.partitionBy(*QUEUE).orderBy("queue_offset").rowsBetween(Window.unboundedPreceding, -1)
    counts = sf.col("is_row") | sf.col("is_start")
    known = sf.last(sf.when(counts, sf.col("queue_offset")), ignorenulls=True).over(before)
    since = sf.last(sf.when(sf.col("is_row"), sf.col("store_timestamp")), ignorenulls=True).over(before)
    return (
        everything.withColumn("known", known)
        .withColumn("after_time", since)
        .where(~sf.col("is_start") & (sf.col("queue_offset") > sf.col("known") + 1))
        .select(
            *QUEUE,
            (sf.col("known") + 1).alias("first_offset"),
            (sf.col("queue_offset") - 1).alias("last_offset"),
            "after_time",
            sf.col("store_timestamp").alias("before_time"),
        )
    )


def _lost_places(found: DataFrame, kind: str, others: DataFrame) -> DataFrame:
    """Holes with what is known of what should be in them."""
    other = others.select(*QUEUE, "queue_offset", "id", "msg_id", "keys")
    inside = (sf.col("queue_offset") >= sf.col("first_offset")) & (sf.col("queue_offset") <= sf.col("last_offset"))
    held = (
        found.join(other, QUEUE)
        .where(inside)
        .groupBy(*QUEUE, "first_offset")
        .agg(
            sf.count("*").alias("elsewhere"),
            sf.min_by("id", "queue_offset").alias("message_id"),
            sf.min_by("msg_id", "queue_offset").alias("msg_id"),
            sf.min_by("keys", "queue_offset").alias("keys"),
        )
    )
    return found.join(held, [*QUEUE, "first_offset"], "left").select(
        sf.lit(kind).alias("kind"),
        *QUEUE,
        "first_offset",
        "last_offset",
        (sf.col("last_offset") - sf.col("first_offset") + 1).alias("messages"),
        sf.coalesce("elsewhere", sf.lit(0)).cast("bigint").alias("elsewhere"),
        "message_id",
        "msg_id",
        "keys",
        "after_time",
        "before_time",
    )


def _different(messages: DataFrame) -> DataFrame:
    return messages.where("differs").select(
        sf.lit(DIFFERENT).alias("kind"),
        *QUEUE,
        sf.col("queue_offset").alias("first_offset"),
        sf.col("queue_offset").alias("last_offset"),
        sf.lit(1).cast("bigint").alias("messages"),
        sf.lit(1).cast("bigint").alias("elsewhere"),
        sf.col("id").alias("message_id"),
        "msg_id",
        "keys",
        sf.col("store_timestamp").alias("after_time"),
        sf.col("store_timestamp").alias("before_time"),
    )


# What producers say


def _never_stored(sources: Sources, messages: DataFrame, claims: Claims, complete: DataFrame) -> DataFrame:
    """Messages that a trace names as sent or committed, and that are in no log, in no archive and not deferred.

    ``complete`` has for each topic the time from which on all its messages have to be there.
    """
    records = claims.records
    sent = records.where(
        (sf.col("what") == PUBLISHED) & sf.col("succeeded") & sf.col("kind").isin("NORMAL", "DELAY", "ORDER")
    )
    # Java writes one record for a whole batch.
    claimed = sent.select(
        sf.lit(NEVER_STORED).alias("kind"),
        "topic",
        sf.explode(sf.split("message_id", ",")).alias("message_id"),
        "msg_id",
        "keys",
        "at_ms",
    ).unionByName(claims.commits.withColumn("kind", sf.lit(COMMITTED)))
    recalled = records.where((sf.col("what") == RECALLED) & sf.col("succeeded")).select("message_id")
    deferred = sources.own(DEFERRED_TOPICS).select(sf.coalesce("unique_id", "msg_id").alias("message_id"))
    claimed = claimed.join(complete, "topic").where(_is_within(sources.plan, sf.col("at_ms")))
    ids = sources.small(claimed.select("topic", "message_id"), claims.count)
    # Of many messages and few claims first those that are claimed at all.
    there = messages.select("topic", sf.col("id").alias("message_id")).join(
        ids, ["topic", "message_id"], "left_semi"
    )
    missing = (
        claimed.join(there, ["topic", "message_id"], "left_anti")
        .join(recalled, ["message_id"], "left_anti")
        .join(deferred, ["message_id"], "left_anti")
    )
    unknown = sf.lit(None).cast("bigint")
    when = sf.timestamp_millis("at_ms")
    return missing.select(
        "kind",
        "topic",
        sf.lit(None).cast("string").alias("broker"),
        sf.lit(None).cast("int").alias("queue_id"),
        unknown.alias("first_offset"),
        unknown.alias("last_offset"),
        sf.lit(1).cast("bigint").alias("messages"),
        sf.lit(0).cast("bigint").alias("elsewhere"),
        "message_id",
        "msg_id",
        "keys",
        when.alias("after_time"),
        sf.lit(None).cast("timestamp").alias("before_time"),
    ).dropDuplicates(["topic", "message_id"])


def _is_within(plan: AuditPlan, at_ms: Column) -> Column:
    """True for times whose messages must have been read, with slack for the clocks of producers."""
    within = at_ms >= sf.col("complete_since_ms")
    if plan.request.since_ms is not None:
        within = within & (at_ms >= plan.request.since_ms + CLOCK_SLACK_MS)
    if plan.request.until_ms is not None:
        within = within & (at_ms < plan.request.until_ms - CLOCK_SLACK_MS)
    return within


def complete_since(plan: AuditPlan, read: Stats) -> dict[str, int]:
    """By topic, the time (ms) since which no message may be missing; topics without a known time are left out.

    A queue that is there from its first offset is complete. One whose beginning has expired is so from its first
    message on. One of which nothing is left says nothing.
    """
    found: dict[str, int] = {}
    unknown = set()
    for queue in {*plan.begins, *plan.archived, *read}:
        rows = read.get(queue)
        if _begin(plan, queue, rows) == 0 or _begins_with_window(plan, queue):
            since = 0
        elif rows is not None:
            since = rows.first_ms + CLOCK_SLACK_MS
        else:
            unknown.add(queue.topic)
            continue
        found[queue.topic] = max(found.get(queue.topic, 0), since)
    return {topic: since for topic, since in found.items() if topic not in unknown}


def _begin(plan: AuditPlan, queue: MessageQueue, rows: QueueStats | None) -> int:
    """The first offset of a queue that is to be had somewhere, without a gap after it."""
    begins = [] if rows is None else [rows.first]
    if queue in plan.begins:
        begins = [plan.begins[queue]]
    if queue in plan.archived:
        start, end = plan.archived[queue]
        # What has expired before it was archived is in neither.
        if not begins or end >= begins[0]:
            begins.append(start)
    return min(begins)


def _begins_with_window(plan: AuditPlan, queue: MessageQueue) -> bool:
    """True if the queue has messages that are older than the audited time."""
    return queue in plan.messages and plan.messages[queue][0] > plan.begins[queue]
