"""The check of transactions: the outcome of each half message, and the undecided ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as sf

from orbitmq.protocol.message import property_names as names
from orbitmq.protocol.names import TRANSACTION_GIVEN_UP_TOPIC, TRANSACTION_HALF_TOPIC, TRANSACTION_OP_TOPIC
from orbitmq.spark.pipelines.audit.traces import TRANSACTION

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from orbitmq.spark.pipelines.audit.sources import Sources

COMMITTED = "committed"
ROLLED_BACK = "rolled back"
UNKNOWN = "committed or rolled back"
PENDING = "pending"
STUCK = "stuck"
GIVEN_UP = "given up"

COLUMNS = (
    "outcome", "topic", "broker", "queue_id", "first_offset", "last_offset", "offsets", "message_id", "msg_id",
    "keys", "producer_group", "checks", "began", "age_seconds",
)  # fmt: skip
"""Offsets are those of the half message and of its copies, which a broker makes when it asks about it."""


def transactions(
    sources: Sources, messages: DataFrame, records: DataFrame, complete: DataFrame, now_ms: int
) -> DataFrame:
    """One row per transaction, by ``COLUMNS``, with ``is_ended`` and the outcome that producers ``reported``."""
    halves = _halves(sources)
    committed = messages.where("is_commit").select(
        "topic", sf.col("id").alias("message_id"), sf.lit(True).alias("is_committed")
    ).distinct()  # fmt: skip
    reported = (
        records.where(sf.col("what") == TRANSACTION)
        .groupBy("message_id")
        .agg(sf.max_by("outcome", "at_ms").alias("reported"), sf.max("at_ms").alias("reported_ms"))
    )
    given_up = (
        sources.own([TRANSACTION_GIVEN_UP_TOPIC])
        .select(sf.coalesce("unique_id", "msg_id").alias("message_id"), sf.lit(True).alias("is_given_up"))
        .distinct()
    )
    joined = (
        halves.join(committed, ["topic", "message_id"], "left")
        .join(reported, ["message_id"], "left")
        .join(given_up, ["message_id"], "left")
        .join(complete, ["topic"], "left")
    )
    age = (sf.lit(now_ms) - sf.unix_millis("began")) / 1000
    # What is not in its topic though nothing of that has expired was not committed.
    is_gone = (sf.col("reported") == "ROLLBACK_MESSAGE") | (sf.unix_millis("began") >= sf.col("complete_since_ms"))
    outcome = (
        sf.when(sf.col("is_committed"), COMMITTED)
        .when(sf.col("is_ended") & (sf.col("reported") == "COMMIT_MESSAGE"), COMMITTED)
        .when(sf.col("is_ended") & is_gone, ROLLED_BACK)
        .when(sf.col("is_ended"), UNKNOWN)
        .when(sf.col("is_given_up"), GIVEN_UP)
        .when(age > sources.plan.request.stuck_seconds, STUCK)
        .otherwise(PENDING)
    )
    found = joined.withColumns({"outcome": outcome, "age_seconds": age.cast("bigint")}).select(
        *COLUMNS, "is_ended", "is_committed", "reported", "reported_ms"
    )
    return sources.keep(found) if sources.has([TRANSACTION_HALF_TOPIC]) else found


def _halves(sources: Sources) -> DataFrame:
    """Transactions with their half messages, and whether an op message ends one of these."""
    request = sources.plan.request
    property_of = sf.col("properties").getItem
    copies = sources.own([TRANSACTION_HALF_TOPIC]).select(
        property_of(names.REAL_TOPIC).alias("topic"),
        "broker",
        "queue_id",
        "queue_offset",
        sf.coalesce("unique_id", property_of(names.TRANSACTION_ID), "msg_id").alias("message_id"),
        "msg_id",
        sf.array_join("keys", " ").alias("keys"),
        property_of(names.PRODUCER_GROUP).alias("producer_group"),
        sf.coalesce(property_of(names.TRANSACTION_CHECK_TIMES).try_cast("int"), sf.lit(0)).alias("checks"),
        sf.explode(
            sf.array_compact(
                sf.array(
                    "queue_offset",
                    # A copy may be ended by the number of the message that it is a copy of.
                    property_of(names.TRANSACTION_PREPARED_QUEUE_OFFSET).try_cast("bigint"),
                )
            )
        ).alias("half_offset"),
        "store_timestamp",
    )
    if request.topics:
        copies = copies.where(sf.col("topic").isin(*request.topics))
    if request.until_ms is not None:
        copies = copies.where(sf.unix_millis("store_timestamp") < request.until_ms)
    return (
        copies.join(_ended(sources), ["broker", "queue_id", "half_offset"], "left")
        .groupBy("topic", "broker", "queue_id", "message_id")
        .agg(
            sf.min("queue_offset").alias("first_offset"),
            sf.max("queue_offset").alias("last_offset"),
            sf.sort_array(sf.collect_set("queue_offset")).alias("offsets"),
            sf.min_by("msg_id", "queue_offset").alias("msg_id"),
            sf.first("keys").alias("keys"),
            sf.first("producer_group").alias("producer_group"),
            sf.max("checks").alias("checks"),
            sf.min("store_timestamp").alias("began"),
            sf.max(sf.coalesce("is_op", sf.lit(False))).alias("is_ended"),
        )
    )


def _ended(sources: Sources) -> DataFrame:
    """The half messages that op messages name: numbers with commas behind them."""
    columns = ("topic", "broker", "queue_id", "queue_offset", "tags", "body")
    ops = sources.own([TRANSACTION_OP_TOPIC], columns).where(sf.col("tags") == "d")
    texts = sf.split(sf.col("body").cast("string"), ",")
    return (
        ops.select("broker", "queue_id", sf.explode(texts).alias("text"))
        .select("broker", "queue_id", sf.col("text").try_cast("bigint").alias("half_offset"))
        .where(sf.col("half_offset").isNotNull())
        .distinct()
        .withColumn("is_op", sf.lit(True))
    )


def missing_commits(found: DataFrame) -> DataFrame:
    """Transactions that were committed, as their producers say and brokers have noted, and are nowhere."""
    is_missing = sf.col("is_ended") & (sf.col("reported") == "COMMIT_MESSAGE") & sf.col("is_committed").isNull()
    return found.where(is_missing).select(
        "topic", "message_id", "msg_id", "keys", sf.col("reported_ms").alias("at_ms")
    )


def undecided(found: DataFrame) -> DataFrame:
    """Those that are stuck, or were given up."""
    return found.where(sf.col("outcome").isin(STUCK, GIVEN_UP)).select(*COLUMNS)


def outcomes(found: DataFrame) -> DataFrame:
    """The number of transactions by topic and outcome."""
    return found.groupBy("topic", "outcome").agg(sf.count("*").alias("transactions"))
