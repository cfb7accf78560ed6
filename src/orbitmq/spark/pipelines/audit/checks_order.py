"""Messages out of order: born before one that stands before them, or stored before it."""

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


def out_of_order(messages: DataFrame, tolerance_ms: int) -> DataFrame:
    """By ``COLUMNS``."""
    # A message that was parked was stored again when its time had come, with the birthday it had.
    keyed = messages.where(sf.col("sharding_key").isNotNull() & ~sf.col("is_parked"))
    born = _behind(keyed, [*QUEUE, "sharding_key"], "born_timestamp", tolerance_ms, BORN)
    stored = _behind(messages, QUEUE, "store_timestamp", tolerance_ms, STORED)
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
