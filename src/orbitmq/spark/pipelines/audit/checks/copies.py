"""The check for duplicates: one id at several offsets of a topic, or one offset several times in an archive."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as sf

from orbitmq.spark.pipelines.audit.sources import QUEUE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

    from orbitmq.protocol.bodies import MessageQueue
    from orbitmq.spark.pipelines.audit.queue_stats import QueueStats
    from orbitmq.spark.pipelines.audit.sources import Sources

SAME_ID = "same id"
ARCHIVED_TWICE = "same offset in the archive"

COLUMNS = ("kind", "topic", "message_id", "copies", "places", "keys", "first_time", "last_time")


def duplicated(sources: Sources, messages: DataFrame, stats: Mapping[MessageQueue, QueueStats]) -> DataFrame:
    """By ``COLUMNS``; ``places`` are broker, queue and offset of each copy, the first stored first."""
    # Places are collected of few: a group of one costs a number.
    ids = sources.keep(
        messages.where(sf.col("unique_id").isNotNull())
        .groupBy("topic", "unique_id")
        .agg(sf.count("*").alias("copies"))
        .where("copies > 1")
        .select("topic", "unique_id")
    )
    count = ids.count()
    repeated = sources.small(ids, count) if count else sources.local([], "topic string, unique_id string")
    place = sf.struct("store_timestamp", "broker", "queue_id", "queue_offset")
    places = sf.transform(
        sf.sort_array(sf.collect_list(place)),
        lambda one: sf.struct(one["broker"].alias("broker"), one["queue_id"].alias("queue_id"),
                              one["queue_offset"].alias("queue_offset")),
    )  # fmt: skip
    same = (
        messages.join(repeated, ["topic", "unique_id"])
        .groupBy("topic", "unique_id")
        .agg(
            sf.count("*").alias("copies"),
            places.alias("places"),
            sf.min("keys").alias("keys"),
            sf.min("store_timestamp").alias("first_time"),
            sf.max("store_timestamp").alias("last_time"),
        )
        .select(
            sf.lit(SAME_ID).alias("kind"), "topic", sf.col("unique_id").alias("message_id"), "copies", "places",
            "keys", "first_time", "last_time",
        )
    )  # fmt: skip
    if not any(one.repeated for one in stats.values()):
        return same.select(*COLUMNS)
    here = sf.struct(*(name for name in [*QUEUE, "queue_offset"] if name != "topic"))
    twice = messages.where("archive_copies > 1").select(
        sf.lit(ARCHIVED_TWICE).alias("kind"),
        "topic",
        sf.col("id").alias("message_id"),
        sf.col("archive_copies").cast("bigint").alias("copies"),
        sf.array(here).alias("places"),
        "keys",
        sf.col("store_timestamp").alias("first_time"),
        sf.col("store_timestamp").alias("last_time"),
    )
    return same.unionByName(twice).select(*COLUMNS)
