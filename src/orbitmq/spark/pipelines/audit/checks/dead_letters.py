"""The check for dead letters: group, origin and reason, as far as a trace has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as sf

from orbitmq.protocol.message import property_names as names
from orbitmq.protocol.names import DLQ_PREFIX

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from orbitmq.spark.pipelines.audit.sources import Sources

COLUMNS = (
    "group", "origin_topic", "reason", "attempts", "topic", "broker", "queue_id", "queue_offset", "message_id",
    "origin_msg_id", "keys", "time",
)  # fmt: skip

OUTCOMES = {
    "TIME_OUT": "the handler timed out",
    "EXCEPTION": "the handler raised an exception",
    "RETURNED_NOTHING": "the handler returned nothing",
    "FAILED": "the handler reported a failure",
    "SUCCESS": "sent there by hand",
}
"""What traces say of the last attempt."""


def dead_letters(sources: Sources, tried: DataFrame) -> DataFrame:
    """By ``COLUMNS``."""
    request = sources.plan.request
    property_of = sf.col("properties").getItem
    origin = sf.coalesce(property_of(names.DLQ_ORIGIN_TOPIC), property_of(names.RETRY_TOPIC))
    origin_id = sf.coalesce(property_of(names.ORIGIN_MESSAGE_ID), property_of(names.DLQ_ORIGIN_MESSAGE_ID))
    letters = sources.dead_letters().select(
        "topic",
        "broker",
        "queue_id",
        "queue_offset",
        sf.substring("topic", len(DLQ_PREFIX) + 1, 1000).alias("group"),
        origin.alias("origin_topic"),
        origin_id.alias("origin_msg_id"),
        sf.coalesce("unique_id", origin_id, "msg_id").alias("message_id"),
        sf.array_join("keys", " ").alias("keys"),
        sf.col("reconsume_times").alias("attempts"),
        sf.col("store_timestamp").alias("time"),
    )
    if request.topics:
        letters = letters.where(sf.col("origin_topic").isin(*request.topics))
    if request.until_ms is not None:
        letters = letters.where(sf.unix_millis("time") < request.until_ms)
    last = tried.groupBy("group", "message_id").agg(sf.max_by("outcome", "ended_ms").alias("outcome"))
    traced = sf.lit(None).cast("string")
    for name, text in OUTCOMES.items():
        traced = sf.when(sf.col("outcome") == name, sf.lit(text)).otherwise(traced)
    untraced = sf.when(
        sf.col("attempts") > 1, sf.concat(sf.lit("given up after "), sf.col("attempts"), sf.lit(" attempts"))
    ).otherwise(sf.lit("given up at the first attempt"))
    found = (
        letters.join(last, ["group", "message_id"], "left")
        .withColumn("reason", sf.coalesce(traced, untraced))
        .select(*COLUMNS)
    )
    topics = [topic for topic in sources.plan.own if topic.startswith(DLQ_PREFIX)]
    return sources.keep(found) if sources.has(topics) else found


def by_reason(found: DataFrame) -> DataFrame:
    return found.groupBy("group", "origin_topic", "reason").agg(
        sf.count("*").alias("messages"),
        sf.min("attempts").alias("least_attempts"),
        sf.max("attempts").alias("most_attempts"),
        sf.min("queue_offset").alias("first_offset"),
        sf.max("queue_offset").alias("last_offset"),
    )
