"""Duplicated messages: one id in several places of a topic, one place several times in an archive."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as sf

from orbitmq.spark.pipelines.audit.sources import QUEUE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SAME_ID = "same id"
ARCHIVED_TWICE = "same offset in the archive"

COLUMNS = ("kind", "topic", "message_id", "copies", "places", "keys", "first_time", "last_time")


def duplicated(messages: DataFrame) -> DataFrame:
    """By ``COLUMNS``; ``places`` are broker, queue and offset of each copy, the first stored first."""
    place = sf.struct("store_timestamp", "broker", "queue_id", "queue_offset")
    places = sf.transform(
        sf.sort_array(sf.collect_list(place)),
        lambda one: sf.struct(one["broker"].alias("broker"), one["queue_id"].alias("queue_id"),
                              one["queue_offset"].alias("queue_offset")),
    )  # fmt: skip
    same = (
        messages.where(sf.col("unique_id").isNotNull())
        .groupBy("topic", "unique_id")
        # Places are collected of few: a group of one costs a number.
        .agg(sf.count("*").alias("copies"))
        .where("copies > 1")
        .join(messages, ["topic", "unique_id"])
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
