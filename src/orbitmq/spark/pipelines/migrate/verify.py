"""Verification of a migration: each message is in the target once, equal, and in order.

Spark reads both ends, and joins them by where messages come from. Nothing here relies on how they were copied.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from orbitmq.spark.pipelines.migrate.endpoints import Queue, Span
from orbitmq.spark.pipelines.migrate.rows import COMPARED, FOUND, Expecting, Finding
from orbitmq.spark.pipelines.spark_job import PipelineError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from orbitmq.spark.pipelines.migrate.endpoints import Endpoint
    from orbitmq.spark.pipelines.migrate.state import Round

WRONG = {
    "missing": "is_missing",
    "extra": "is_extra",
    "different": "is_different",
    "out_of_order": "is_displaced",
}
"""What may be wrong with a message, and the column that says so."""


@dataclasses.dataclass(slots=True)
class Verdict:
    """The result of a verification."""

    source: dict[str, int]
    target: dict[str, int]
    """Messages by source topic."""
    wrong: dict[str, int]
    first: list[str]
    """For each queue and kind of fault the first offset that has it."""

    @property
    def is_good(self) -> bool:
        return not any(self.wrong.values())

    def facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = {"verified": self.source, "in_target": self.target, **self.wrong}
        return facts if self.is_good else {**facts, "first": self.first}


def found_in(spark: SparkSession, target: Endpoint, spans: Sequence[Span], name: str) -> DataFrame:
    """The messages that a migration has written within spans of the target."""
    return target.read(spark, spans).mapInArrow(Finding(target.kind, name), FOUND)


def since(ends: Mapping[Queue, int], target: Endpoint, topics: Iterable[str], name: str) -> list[Span]:
    """The messages of target queues after these ends. Raises PipelineError if some have expired."""
    spans = []
    for topic in sorted(topics):
        for queue, (first, end) in (target.bounds(topic) or {}).items():
            start = ends.get(queue, 0)
            if end < start:
                raise PipelineError(
                    f"{queue} of the target is shorter than it was when it was written to: it was made again; "
                    f"begin another migration than {name!r} with --name"
                )
            if max(first, start) < end:
                spans.append(Span(queue, max(first, start), end))
    return sorted(spans, key=lambda span: span.queue.order)


def written(spark: SparkSession, target: Endpoint, one: Round, name: str) -> dict[Queue, int]:
    """By source queue the offset of its last message of a round that was written."""
    spans = since(one.ends, target, {to.topic for to in one.routes.values()}, name)
    for span in spans:
        if span.start > one.ends.get(span.queue, 0):
            raise PipelineError(
                f"{span.queue} of the target has nothing before {span.start} any more, and round {one.number} "
                f"began at {one.ends.get(span.queue, 0)}: what it wrote has expired; begin another migration than "
                f"{name!r} with --name"
            )
    if not spans:
        return {}
    found = found_in(spark, target, spans, name).groupBy("topic", "queue").agg({"offset": "max"})
    rows = found.collect()
    return {Queue(row[0], row[1]): row[2] for row in rows}


def verify(
    spark: SparkSession,
    source: Endpoint,
    target: Endpoint,
    rounds: Sequence[Round],
    topics: Iterable[str],
    name: str,
) -> Verdict:
    """Compare what some rounds that follow each other have copied. Raises OrbitMQError."""
    expected = source.read(spark, joined(rounds)).mapInArrow(Expecting(source.kind, target.kind), COMPARED)
    spans = since(rounds[0].ends, target, topics, name)
    found = found_in(spark, target, spans, name) if spans else spark.createDataFrame([], FOUND)
    return _verdict(_compared(spark, expected, found).collect())


def joined(rounds: Iterable[Round]) -> list[Span]:
    """The spans of rounds, as one for each queue."""
    found: dict[Queue, Span] = {}
    for one in rounds:
        for span in one.spans:
            before = found.get(span.queue)
            found[span.queue] = span if before is None else dataclasses.replace(before, end=span.end)
    return sorted(found.values(), key=lambda span: span.queue.order)


def _compared(spark: SparkSession, expected: DataFrame, found: DataFrame) -> DataFrame:
    """By source queue how much there is, and of each fault how many messages have it and the first one's offset."""
    counts = ", ".join(
        f"count_if({column}) AS {name}, min(offset) FILTER (WHERE {column}) AS {name}_at"
        for name, column in WRONG.items()
    )
    return spark.sql(
        f"""
        WITH placed AS (
            SELECT *,
                coalesce(lag(offset) OVER there >= offset, false)
                    OR (at_topic, at_queue) != first((at_topic, at_queue)) OVER there AS is_displaced,
                row_number() OVER (PARTITION BY topic, queue, offset ORDER BY at_topic, at_queue, at_offset) AS copy
            FROM {{found}}
            WINDOW there AS (PARTITION BY topic, queue ORDER BY at_topic, at_queue, at_offset)
        ), compared AS (
            SELECT
                coalesce(source.topic, placed.topic) AS topic,
                coalesce(source.queue, placed.queue) AS queue,
                coalesce(source.offset, placed.offset) AS offset,
                source.offset IS NOT NULL AND coalesce(copy, 1) = 1 AS is_source,
                placed.offset IS NOT NULL AS is_target,
                placed.offset IS NULL AS is_missing,
                source.offset IS NULL OR coalesce(copy, 1) > 1 AS is_extra,
                coalesce(source.digest != placed.digest OR source.id != placed.id, false) AS is_different,
                coalesce(is_displaced, false) AS is_displaced
            FROM {{expected}} AS source FULL OUTER JOIN placed
            ON source.topic = placed.topic AND source.queue = placed.queue AND source.offset = placed.offset
        )
        SELECT topic, queue, count_if(is_source) AS source, count_if(is_target) AS target, {counts}
        FROM compared GROUP BY topic, queue
        """,  # noqa: S608 - no value of anybody's is in it
        found=found,
        expected=expected,
    )


def _verdict(rows: Sequence[Any]) -> Verdict:
    verdict = Verdict({}, {}, dict.fromkeys(WRONG, 0), [])
    for row in sorted(rows, key=lambda row: (row["topic"], row["queue"])):
        topic = row["topic"]
        verdict.source[topic] = verdict.source.get(topic, 0) + row["source"]
        verdict.target[topic] = verdict.target.get(topic, 0) + row["target"]
        for name in WRONG:
            if row[name]:
                verdict.wrong[name] += row[name]
                words = name.replace("_", " ")
                verdict.first.append(
                    f"{topic} {row['queue']} offset {row[f'{name}_at']}: {words} ({row[name]} in all)"
                )
    return verdict
