"""The check of order: messages that are older, by birth or store time, than one before them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as sf

from orbitmq.spark.pipelines.audit.sources import QUEUE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BORN = "born before an earlier one of its sharding key"
STORED = "stored before an earlier one of its queue"

COLUMNS = (
    "kind", "topic", "broker", "queue_id", "queue_offset", "after_offset", "behind_ms", "sharding_key",
    "message_id", "keys", "time",
)  # fmt: skip
"""``after_offset`` is that of the message which is newer and stands before it."""


def out_of_order(messages: DataFrame, tolerance_ms: int, *, has_keys: bool = True) -> DataFrame:
    """By ``COLUMNS``. Without sharding keys (``has_keys``) only the order of store times is checked."""
    stored = _behind(messages, QUEUE, "store_timestamp", tolerance_ms, STORED)
    if not has_keys:
        return stored.select(*COLUMNS)
    # A deferred message is stored again when it is due, and keeps its birth time.
    keyed = messages.where(sf.col("sharding_key").isNotNull() & ~sf.col("is_deferred"))
    born = _behind(keyed, [*QUEUE, "sharding_key"], "born_timestamp", tolerance_ms, BORN)
    return born.unionByName(stored).select(*COLUMNS)


def _behind(rows: DataFrame, among: list[str], time: str, tolerance_ms: int, kind: str) -> DataFrame:
    """Rows that are older, by a time, than the newest before them."""
    before = Window.partitionBy(*among).orderBy("queue_offset").rowsBetween(Window.unboundedPreceding, -1)
    newest = sf.max(sf.struct(sf.col(time).alias("time"), sf.col("queue_offset").alias("queue_offset")))
    behind = sf.unix_millis("newest.time") - sf.unix_millis(time)
    return (
        rows.withColumn("newest", newest.over(before))
        .withColumn("behind_ms", behind)
        .where(sf.col("behind_ms") > tolerance_ms)
        .select(
            sf.lit(kind).alias("kind"), *QUEUE, "queue_offset", sf.col("newest.queue_offset").alias("after_offset"),
            "behind_ms", "sharding_key", sf.col("id").alias("message_id"), "keys", sf.col(time).alias("time"),
        )
    )  # fmt: skip
