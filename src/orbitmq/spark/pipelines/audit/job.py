"""The ``audit`` pipeline: checks topics, stores and archives for lost, duplicated, disordered and dead messages.

It reads, and changes nothing. Messages are compared by Spark; what comes to the driver are numbers, and the first
rows of what was found.
"""

from __future__ import annotations

import dataclasses
import datetime
import time
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as sf

from orbitmq.protocol.names import TRACE_TOPIC
from orbitmq.spark.pipelines.audit import tables
from orbitmq.spark.pipelines.audit.checks.copies import duplicated
from orbitmq.spark.pipelines.audit.checks.dead_letters import by_reason, dead_letters
from orbitmq.spark.pipelines.audit.checks.groups import lag, slow_consumers
from orbitmq.spark.pipelines.audit.checks.latency import consumed_messages, latency
from orbitmq.spark.pipelines.audit.checks.lost import Claims, complete_since, lost
from orbitmq.spark.pipelines.audit.checks.order import out_of_order
from orbitmq.spark.pipelines.audit.checks.transactions import missing_commits, outcomes, transactions, undecided
from orbitmq.spark.pipelines.audit.plan import make_plan
from orbitmq.spark.pipelines.audit.plots import check_plots
from orbitmq.spark.pipelines.audit.queue_stats import TABLE as QUEUE_TABLE
from orbitmq.spark.pipelines.audit.queue_stats import queue_stats
from orbitmq.spark.pipelines.audit.report import MAX_ROWS, Report
from orbitmq.spark.pipelines.audit.request import AuditRequest, milliseconds_of
from orbitmq.spark.pipelines.audit.sources import QUEUE, Sources
from orbitmq.spark.pipelines.audit.summary import audited, summary_of
from orbitmq.spark.pipelines.audit.traces import attempts, traces
from orbitmq.spark.pipelines.audit.writer import ReportDirectory
from orbitmq.spark.pipelines.progress import JobProgress, silent

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame, SparkSession

    from orbitmq.spark.pipelines.audit.plan import AuditPlan
    from orbitmq.spark.pipelines.audit.tables import Check, Row, Table
    from orbitmq.spark.pipelines.progress import Summary

BUCKETS = 60
_COMPLETE = "topic string, complete_since_ms bigint"


def audit(
    spark: SparkSession,
    *,
    nameserver: str | None = None,
    topics: Iterable[str] = (),
    archive: str | None = None,
    stores: Iterable[str] = (),
    since: datetime.datetime | int | None = None,
    until: datetime.datetime | int | None = None,
    groups: Iterable[str] = (),
    trace_topic: str = TRACE_TOPIC,
    tolerance_ms: int = 1000,
    stuck_seconds: int = 300,
    lag_threshold: int = 1000,
    slow_ms: int = 1000,
    report: str | None = None,
    progress: JobProgress | None = None,
) -> Summary:
    """Find what is wrong in topics (all of them unless some are named), and write a report into a directory.

    Messages are those of live topics, of store directories and of an archive, as far as these are given, stored
    ``since`` and before ``until`` (times, or milliseconds). Raises OrbitMQError.
    """
    request = AuditRequest(
        nameserver=nameserver,
        topics=tuple(topics),
        archive=archive,
        stores=tuple(stores),
        since_ms=milliseconds_of(since),
        until_ms=milliseconds_of(until),
        groups=tuple(groups),
        trace_topic=trace_topic,
        tolerance_ms=tolerance_ms,
        stuck_seconds=stuck_seconds,
        lag_threshold=lag_threshold,
        slow_ms=slow_ms,
    )
    return run_audit(spark, make_plan(request), report, progress or silent())


def run_audit(spark: SparkSession, plan: AuditPlan, report: str | None, progress: JobProgress) -> Summary:
    """Carry out a plan. Raises OrbitMQError."""
    if report is not None:
        check_plots()
    directory = None if report is None else ReportDirectory(report)
    with Sources(spark, plan) as sources:
        return _Audit(sources, directory, progress).run()


class _Audit:
    """One audit, check after check."""

    def __init__(self, sources: Sources, directory: ReportDirectory | None, progress: JobProgress) -> None:
        self._sources = sources
        self._spark = sources.spark
        self._plan = sources.plan
        self._directory = directory
        self._progress = progress
        self._began_ms = round(time.time() * 1000)

    def run(self) -> Summary:
        progress, sources, request = self._progress, self._sources, self._plan.request
        with progress.step("Messages are read"):
            messages = sources.messages()
            stats = queue_stats(messages)
            count = sum(max(one.in_logs, one.in_archive) for one in stats.values())
            progress.say(f"{count:,} messages of {len(stats):,} queues were read")
            table = sources.local([one.row(queue) for queue, one in stats.items()], QUEUE_TABLE)
            queues = self._table(tables.QUEUES_CHECK, table, QUEUE, most=None)
        with progress.step("Traces are read"):
            records = traces(sources)
            traced = records.count()
            progress.say(f"{traced:,} trace records were read")
        tried = attempts(records)
        complete = sources.local(list(complete_since(self._plan, stats).items()), _COMPLETE)
        now_ms = min(self._began_ms, request.until_ms or self._began_ms)
        with progress.step("Transactions are checked"):
            halves = transactions(sources, messages, records, complete, now_ms)
            stuck = self._table(tables.UNDECIDED_CHECK, undecided(halves), ["broker", "first_offset"])
            came_out = self._table(tables.OUTCOMES_CHECK, outcomes(halves), ["topic", "outcome"])
        with progress.step(f"Lost messages are searched for among {count:,}"):
            claims = Claims(records, missing_commits(halves), traced)
            frame = lost(sources, messages, stats, claims, complete)
            missing = self._table(tables.LOST_CHECK, frame, [*QUEUE, "first_offset"])
        with progress.step(f"Duplicates are searched for among {count:,} messages"):
            frame = duplicated(sources, messages, stats)
            copies = self._table(tables.DUPLICATED_CHECK, frame, ["topic", "first_time"])
        with progress.step(f"The order of {count:,} messages is checked"):
            has_keys = any(one.with_key for one in stats.values())
            frame = out_of_order(messages, request.tolerance_ms, has_keys=has_keys)
            disorder = self._table(tables.ORDER_CHECK, frame, [*QUEUE, "queue_offset"])
        with progress.step("Latency and lag are measured"):
            consumed = consumed_messages(sources, messages, tried, traced)
            times = self._table(tables.LATENCY_CHECK, latency(messages, consumed), ["topic", "what", "group"])
            lags = lag(sources, messages)
            behind = self._table(tables.LAG_CHECK, lags, ["group", *QUEUE], most=None)
            frame = slow_consumers(lags, consumed, request.lag_threshold, request.slow_ms)
            slow = self._table(tables.SLOW_CHECK, frame, ["group", *QUEUE, "first_offset"])
        with progress.step("Dead letters are counted"):
            letters = dead_letters(sources, tried)
            dead = self._table(tables.DEAD_CHECK, letters, ["group", "broker", "queue_offset"])
            reasons = self._table(tables.REASONS_CHECK, by_reason(letters), ["group", "origin_topic", "reason"])
        made = Report(
            title=f"Audit of {audited(self._plan, queues.rows)}",
            facts=self._facts(queues.rows, traced),
            settings={field.name: getattr(request, field.name) for field in dataclasses.fields(request)},
            faults=[missing, copies, disorder, stuck],
            warnings=[slow, dead],
            measures={table.check.name: table for table in (times, behind, came_out, reasons, queues)},
        )
        if self._directory is not None:
            with progress.step("The report is written"):
                made.buckets = _over_time(messages, queues.rows)
                self._directory.write(made)
        return summary_of(made, self._directory)

    def _table(self, check: Check, frame: DataFrame, order: list[str], most: int | None = MAX_ROWS) -> Table:
        """Compute a table, and write it if there is a report. Up to ``most`` rows of it come to the driver."""
        chosen = frame.select(*check.columns)
        if self._directory is not None:
            return self._directory.table(check, chosen, order, most)
        rows = (chosen if most is None else chosen.orderBy(*order).limit(most + 1)).collect()
        if most is None:
            rows.sort(key=lambda row: tuple(row[name] for name in order))
        first = [tables.plain(row.asDict(recursive=True), None) for row in rows[:most]]
        count = len(rows)
        messages = count if check.sums is None else sum(row[check.sums] for row in rows)
        if most is not None and count > most:
            # Only a table that is longer than its excerpt is computed a second time.
            total = sf.coalesce(sf.sum(check.sums), sf.lit(0)) if check.sums else sf.count("*")
            counted = chosen.agg(sf.count("*").alias("rows"), total.alias("messages")).first()
            assert counted is not None
            count, messages = counted["rows"], counted["messages"]
        return tables.Table(check, count, messages, first)

    def _facts(self, queues: list[Row], traced: int) -> dict[str, Any]:
        request = self._plan.request
        facts: dict[str, Any] = {
            "topics": len({row["topic"] for row in queues}),
            "queues": len(queues),
            "messages in logs": sum(row["in_logs"] for row in queues),
        }
        if request.archive is not None:
            facts["messages in the archive"] = sum(row["in_archive"] for row in queues)
        facts["trace records"] = traced
        for name, ms in (("stored since", request.since_ms), ("stored before", request.until_ms)):
            if ms is not None:
                facts[name] = tables.time_text(datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC))
        return facts


def _over_time(messages: DataFrame, queues: list[Row]) -> list[Row]:
    """The number of stored messages of each topic in equal time buckets."""
    if not queues:
        return []
    first = round(min(row["first_time"] for row in queues).timestamp() * 1000)
    last = round(max(row["last_time"] for row in queues).timestamp() * 1000)
    width = max((last - first) // BUCKETS + 1, 1)
    number = sf.floor((sf.unix_millis("store_timestamp") - first) / width)
    counted = messages.groupBy("topic", number.alias("number")).agg(sf.count("*").alias("messages")).collect()
    return [
        {"topic": row["topic"], "at": first + width * row["number"], "width": width, "messages": row["messages"]}
        for row in counted
    ]
