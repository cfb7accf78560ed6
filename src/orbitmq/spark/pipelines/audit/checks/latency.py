"""The latency of messages: from birth to store, and to consumption where traces exist."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as sf

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from orbitmq.spark.pipelines.audit.sources import Sources

BORN_TO_STORED = "born to stored"
STORED_TO_CONSUMED = "stored to consumed"
BORN_TO_CONSUMED = "born to consumed"

PERCENTILES = {"p50_ms": 0.5, "p90_ms": 0.9, "p99_ms": 0.99, "p999_ms": 0.999}
ACCURACY = 10_000
COLUMNS = ("what", "topic", "group", "messages", *PERCENTILES, "max_ms")


def latency(messages: DataFrame, consumed: DataFrame) -> DataFrame:
    """By ``COLUMNS``, in milliseconds. Delayed and timed messages do not count."""
    soon = messages.where(~sf.col("is_deferred"))
    stored = soon.select(
        sf.lit(BORN_TO_STORED).alias("what"),
        "topic",
        sf.lit(None).cast("string").alias("group"),
        (sf.unix_millis("store_timestamp") - sf.unix_millis("born_timestamp")).alias("ms"),
    )
    found = _percentiles(stored)
    for what, since in ((STORED_TO_CONSUMED, "store_timestamp"), (BORN_TO_CONSUMED, "born_timestamp")):
        took = (sf.col("consumed_ms") - sf.unix_millis(since)).alias("ms")
        rows = consumed.where(~sf.col("is_deferred")).select(sf.lit(what).alias("what"), "topic", "group", took)
        found = found.unionByName(_percentiles(rows))
    return found.select(*COLUMNS)


def consumed_messages(sources: Sources, messages: DataFrame, tried: DataFrame, traced: int) -> DataFrame:
    """Messages with the groups that consumed them, the time of the first success, and the longest handler call."""
    done = tried.groupBy("group", "message_id").agg(
        sf.min(sf.when(sf.col("succeeded"), sf.col("ended_ms"))).alias("consumed_ms"),
        sf.max("cost_ms").alias("cost_ms"),
    )
    ids = sources.small(done.select(sf.col("message_id").alias("id")), traced)
    # Of several messages with one id the first counts: the check of duplicates reports the others.
    once = (
        messages.join(ids, ["id"], "left_semi")
        .groupBy("id")
        .agg(
            sf.min_by(
                sf.struct(
                    "topic",
                    "broker",
                    "queue_id",
                    "queue_offset",
                    "born_timestamp",
                    "store_timestamp",
                    "keys",
                    "is_deferred",
                ),
                "store_timestamp",
            ).alias("one")
        )
    )
    consumed = done.join(once, done["message_id"] == once["id"]).select(
        "group", "message_id", "consumed_ms", "cost_ms", "one.*"
    )
    return sources.keep(consumed) if traced else consumed


def _percentiles(rows: DataFrame) -> DataFrame:
    wanted = sf.array(*(sf.lit(part) for part in PERCENTILES.values()))
    named: list[Column] = [
        sf.col("found")[number].cast("bigint").alias(name) for number, name in enumerate(PERCENTILES)
    ]
    return (
        rows.where(sf.col("ms").isNotNull())
        .groupBy("what", "topic", "group")
        .agg(
            sf.count("*").alias("messages"),
            sf.percentile_approx("ms", wanted, ACCURACY).alias("found"),
            sf.max("ms").alias("max_ms"),
        )
        .select("what", "topic", "group", "messages", *named, "max_ms")
    )
