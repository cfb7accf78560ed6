"""The ``audit`` pipeline: what is lost, duplicated, out of order, stuck, slow or dead in topics, stores, archives.

It reads, and changes nothing. Messages are compared by Spark; what comes to the driver are numbers, and the first
rows of what was found.
"""

from __future__ import annotations

import dataclasses
import datetime
import time
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as sf

from orbitmq.protocol.bodies import MessageQueue
from orbitmq.protocol.names import TRACE_TOPIC
from orbitmq.spark.pipelines.audit import tables
from orbitmq.spark.pipelines.audit.checks_copies import duplicated
from orbitmq.spark.pipelines.audit.checks_dead import by_reason, dead_letters
from orbitmq.spark.pipelines.audit.checks_groups import lag, slow_consumers
from orbitmq.spark.pipelines.audit.checks_latency import consumed_messages, latency
from orbitmq.spark.pipelines.audit.checks_lost import QueueRows, complete_since, lost
from orbitmq.spark.pipelines.audit.checks_order import out_of_order
from orbitmq.spark.pipelines.audit.checks_transactions import missing_commits, outcomes, transactions, undecided
from orbitmq.spark.pipelines.audit.plan import make_plan
from orbitmq.spark.pipelines.audit.plots import check_plots
from orbitmq.spark.pipelines.audit.report import SHOWN, Report
from orbitmq.spark.pipelines.audit.request import AuditRequest, milliseconds_of
from orbitmq.spark.pipelines.audit.sources import QUEUE, Sources
from orbitmq.spark.pipelines.audit.summary import audited, summary_of
from orbitmq.spark.pipelines.audit.traces import attempts, traces
from orbitmq.spark.pipelines.audit.writing import ReportDirectory
from orbitmq.spark.pipelines.telling import Telling, silent

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame, SparkSession

    from orbitmq.spark.pipelines.audit.plan import AuditPlan
    from orbitmq.spark.pipelines.audit.tables import Check, Row, Table
    from orbitmq.spark.pipelines.telling import Summary

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
    telling: Telling | None = None,
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
    return run_audit(spark, make_plan(request), report, telling or silent())


def run_audit(spark: SparkSession, plan: AuditPlan, report: str | None, telling: Telling) -> Summary:
    """Carry out a plan. Raises OrbitMQError."""
    if report is not None:
        check_plots()
    directory = None if report is None else ReportDirectory(report)
    with Sources(spark, plan) as sources:
        return _Auditing(sources, directory, telling).run()


class _Auditing:
    """One audit, check after check."""

    def __init__(self, sources: Sources, directory: ReportDirectory | None, telling: Telling) -> None:
        self._sources = sources
        self._spark = sources.spark
        self._plan = sources.plan
        self._directory = directory
        self._telling = telling
        self._began_ms = round(time.time() * 1000)

    def run(self) -> Summary:
        telling, sources, request = self._telling, self._sources, self._plan.request
        with telling.step("Messages are read"):
            messages = sources.messages()
            queues = self._settle(tables.QUEUES_CHECK, _queues(messages), QUEUE, most=None)
        with telling.step("Traces are read"):
            told = traces(sources)
            traced = told.count()
        tried = sources.keep(attempts(told))
        complete = self._complete(queues.rows)
        now_ms = min(self._began_ms, request.until_ms or self._began_ms)
        with telling.step("Transactions are looked at"):
            halves = transactions(sources, messages, told, complete, now_ms)
            stuck = self._settle(tables.UNDECIDED_CHECK, undecided(halves), ["broker", "first_offset"])
            came_out = self._settle(tables.OUTCOMES_CHECK, outcomes(halves), ["topic", "outcome"])
        with telling.step("Lost messages are looked for"):
            frame = lost(sources, messages, told, missing_commits(halves), complete)
            missing = self._settle(tables.LOST_CHECK, frame, [*QUEUE, "first_offset"])
        with telling.step("Duplicates are looked for"):
            copies = self._settle(tables.DUPLICATED_CHECK, duplicated(messages), ["topic", "first_time"])
        with telling.step("The order of messages is looked at"):
            frame = out_of_order(messages, request.tolerance_ms)
            disorder = self._settle(tables.ORDER_CHECK, frame, [*QUEUE, "queue_offset"])
        with telling.step("Latency and lag are measured"):
            consumed = sources.keep(consumed_messages(messages, tried))
            times = self._settle(tables.LATENCY_CHECK, latency(messages, consumed), ["topic", "what", "group"])
            lags = sources.keep(lag(sources, messages))
            behind = self._settle(tables.LAG_CHECK, lags, ["group", *QUEUE], most=None)
            frame = slow_consumers(lags, consumed, request.lag_threshold, request.slow_ms)
            slow = self._settle(tables.SLOW_CHECK, frame, ["group", *QUEUE, "first_offset"])
        with telling.step("Dead letters are counted"):
            letters = sources.keep(dead_letters(sources, tried))
            dead = self._settle(tables.DEAD_CHECK, letters, ["group", "broker", "queue_offset"])
            reasons = self._settle(tables.REASONS_CHECK, by_reason(letters), ["group", "origin_topic", "reason"])
        made = Report(
            title=f"Audit of {audited(self._plan, queues.rows)}",
            facts=self._facts(queues.rows, traced),
            settings={field.name: getattr(request, field.name) for field in dataclasses.fields(request)},
            faults=[missing, copies, disorder, stuck],
            warnings=[slow, dead],
            measures={table.check.name: table for table in (times, behind, came_out, reasons, queues)},
        )
        if self._directory is not None:
            with telling.step("The report is written"):
                made.buckets = _over_time(messages, queues.rows)
                self._directory.write(made)
        return summary_of(made, self._directory)

    def _settle(self, check: Check, frame: DataFrame, order: list[str], most: int | None = SHOWN) -> Table:
        """Have a table computed, and written where there is a report. ``most`` rows of it are looked at."""
        chosen = frame.select(*check.columns)
        if self._directory is not None:
            return self._directory.table(check, chosen, order, most)
        settled = self._sources.keep(chosen)
        total = sf.coalesce(sf.sum(check.sums), sf.lit(0)) if check.sums else sf.count("*")
        counted = settled.agg(sf.count("*").alias("rows"), total.alias("messages")).first()
        assert counted is not None
        shown = settled.orderBy(*order) if most is None else settled.orderBy(*order).limit(most)
        rows = shown.collect() if counted["rows"] else []
        first = [tables.plain(row.asDict(recursive=True), None) for row in rows]
        return tables.Table(check, counted["rows"], counted["messages"], first)

    def _complete(self, queues: list[Row]) -> DataFrame:
        read = {
            MessageQueue(row["topic"], row["broker"], row["queue_id"]): QueueRows(
                row["first_offset"], row["last_offset"], round(row["first_time"].timestamp() * 1000)
            )
            for row in queues
        }
        return self._spark.createDataFrame(list(complete_since(self._plan, read).items()), _COMPLETE)

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


def _queues(messages: DataFrame) -> DataFrame:
    return messages.groupBy(*QUEUE).agg(
        sf.min("queue_offset").alias("first_offset"),
        sf.max("queue_offset").alias("last_offset"),
        sf.sum(sf.when(sf.col("log_copies") > 0, 1).otherwise(0)).alias("in_logs"),
        sf.sum(sf.when(sf.col("archive_copies") > 0, 1).otherwise(0)).alias("in_archive"),
        sf.min_by("store_timestamp", "queue_offset").alias("first_time"),
        sf.max("store_timestamp").alias("last_time"),
    )


def _over_time(messages: DataFrame, queues: list[Row]) -> list[Row]:
    """How many messages of each topic were stored in equal parts of the time."""
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
