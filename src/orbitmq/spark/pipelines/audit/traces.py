"""Trace records as rows: the trace topic, decoded in Spark's tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as sf

from orbitmq.client.trace.encoding import (
    ConsumeBegun,
    ConsumeEnded,
    Published,
    Recalled,
    TransactionEnded,
    decode_trace,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from orbitmq.client.trace.encoding import TraceRecord
    from orbitmq.spark.pipelines.audit.sources import Sources

PUBLISHED, BEGUN, ENDED, TRANSACTION, RECALLED = "published", "begun", "ended", "transaction", "recalled"

FIELDS = {
    "what": "string",
    "at_ms": "bigint",
    "group": "string",
    "topic": "string",
    "message_id": "string",
    "keys": "string",
    "request_id": "string",
    "cost_ms": "bigint",
    "succeeded": "boolean",
    "outcome": "string",
    "kind": "string",
    "msg_id": "string",
}
"""``outcome`` is the result of a handler, or the decision of a producer about a transaction."""

_DDL = ",".join(f"`{name}` {kind}" for name, kind in FIELDS.items())
_ROWS = f"array<struct<{','.join(f'`{name}`:{kind}' for name, kind in FIELDS.items())}>>"


def traces(sources: Sources) -> DataFrame:
    """Every record of the trace topic once: a message of it may have been sent twice."""
    topic = sources.plan.request.trace_topic
    if not sources.has([topic]):
        return sources.local([], _DDL)
    bodies = sources.own([topic], ("topic", "broker", "queue_id", "queue_offset", "body"))
    # Not by Arrow: for that Spark wants pandas as well.
    parsed = sf.udf(records_of, _ROWS, useArrow=False)
    return sources.keep(bodies.select(sf.inline(parsed("body"))).distinct())


def records_of(body: bytes | None) -> list[tuple[Any, ...]]:
    """The records of a trace message, with the ``FIELDS`` of each."""
    return [
        tuple(map(row_of(record).get, FIELDS))
        for record in decode_trace(bytes(body or b"").decode("utf-8", "replace"))
    ]


def row_of(record: TraceRecord) -> dict[str, Any]:
    """A record as a row; fields that it does not have are left out."""
    row: dict[str, Any] = {"message_id": record.message_id, "at_ms": getattr(record, "timestamp", None)}
    row |= {"group": record.group, "keys": getattr(record, "keys", None), "topic": getattr(record, "topic", None)}
    if isinstance(record, Published):
        row |= {"what": PUBLISHED, "cost_ms": record.cost_ms, "succeeded": record.succeeded}
        row |= {"kind": record.kind.name, "msg_id": record.offset_message_id}
    elif isinstance(record, ConsumeBegun):
        row |= {"what": BEGUN, "request_id": record.request_id}
    elif isinstance(record, ConsumeEnded):
        row |= {"what": ENDED, "request_id": record.request_id, "cost_ms": record.cost_ms}
        row |= {"succeeded": record.succeeded, "outcome": record.outcome.name}
    elif isinstance(record, TransactionEnded):
        row |= {"what": TRANSACTION, "outcome": record.state, "kind": record.kind.name}
    elif isinstance(record, Recalled):
        row |= {"what": RECALLED, "succeeded": record.succeeded}
    return row


def attempts(records: DataFrame) -> DataFrame:
    """Finished handler calls: group, message, end time, duration and outcome."""
    begun = records.where(sf.col("what") == BEGUN).select(
        "request_id", "message_id", sf.col("group").alias("began_group"), sf.col("at_ms").alias("began_ms")
    )
    ended = records.where(sf.col("what") == ENDED).select(
        "request_id", "message_id", "group", "at_ms", "cost_ms", "succeeded", "outcome"
    )
    # C++ writes neither time nor group at the end.
    at = sf.when(sf.col("at_ms") > 0, sf.col("at_ms")).otherwise(sf.col("began_ms") + sf.col("cost_ms"))
    return (
        ended.join(begun, ["request_id", "message_id"], "left")
        .select(
            sf.coalesce("group", "began_group").alias("group"),
            "message_id",
            at.alias("ended_ms"),
            "cost_ms",
            "succeeded",
            "outcome",
        )
        .where(sf.col("group").isNotNull() & sf.col("ended_ms").isNotNull())
    )
