"""The rows of the senders: the rest of the archive, per sender in the order of due times."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from orbitmq.spark.pipelines.archive.directory import SCHEMA
from orbitmq.spark.pipelines.replay.counter import LIFE_BITS
from orbitmq.spark.pipelines.replay.properties import LIFE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    from orbitmq.protocol.bodies import MessageQueue
    from orbitmq.spark.pipelines.archive.directory import Archive
    from orbitmq.spark.pipelines.replay.counter import Part
    from orbitmq.spark.pipelines.replay.plan import Plan
    from orbitmq.spark.pipelines.replay.request import ReplayRequest

DUE = "due_us"
"""The time that a row counts as stored at. Where a clock went back, that is the latest one up to it in its queue:
sending by time must not change the order."""

_PLAN = (
    "topic string, broker string, queue_id int, part int, "
    f"{LIFE} int, sender int, to_topic string, to_broker string, to_queue int, done bigint"
)
_PLACE = ("topic", "broker", "queue_id", "part")


def rows_to_send(
    spark: SparkSession, archive: Archive, parts: Sequence[Part], request: ReplayRequest, plan: Plan
) -> DataFrame:
    """One partition for each sender. Columns are those of a message to write, and where it comes from."""
    from pyspark.sql import Window  # noqa: PLC0415 - counting does without Spark
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    rows = _archived(spark, archive, parts)
    if request.start_ms is not None:
        rows = rows.where(f"store_timestamp >= timestamp_millis({request.start_ms})")
    if request.until_ms is not None:
        rows = rows.where(f"store_timestamp < timestamp_millis({request.until_ms})")
    rows = rows.join(F.broadcast(_planned(spark, parts, plan)), list(_PLACE))
    rows = rows.withColumn("position", F.expr(f"shiftleft(bigint({LIFE}), {LIFE_BITS}) + queue_offset"))
    rows = rows.where("position > done").withColumn(DUE, F.expr("unix_micros(store_timestamp)"))
    if plan.has_gone_back:
        before = Window.partitionBy("topic", "broker", "queue_id").orderBy("position")
        rows = rows.withColumn(DUE, F.max(DUE).over(before))
    rows = rows.repartitionById(len(plan.rows_by_sender), "sender")
    return rows.sortWithinPartitions(DUE, "topic", "broker", "queue_id", "position").selectExpr(
        "to_topic AS topic",
        "to_broker AS broker",
        "to_queue AS queue_id",
        "body",
        "properties",
        "topic AS source_topic",
        "broker AS source_broker",
        "queue_id AS source_queue",
        "queue_offset AS source_offset",
        LIFE,
        "coalesce(unique_id, msg_id, '') AS source_id",
        "unix_millis(born_timestamp) AS born_ms",
        "unix_millis(store_timestamp) AS stored_ms",
        DUE,
    )


def _archived(spark: SparkSession, archive: Archive, parts: Sequence[Part]) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    frames = [
        spark.read.schema(SCHEMA)
        .option("basePath", archive.for_spark())
        .parquet(*map(archive.location, part.files))
        .withColumn("part", F.lit(number))
        for number, part in enumerate(parts)
    ]
    return functools.reduce(lambda left, right: left.unionByName(right), frames)


def _planned(spark: SparkSession, parts: Sequence[Part], plan: Plan) -> DataFrame:
    rows = []
    for source, sender in plan.senders.items():
        target, done = plan.routes[source], plan.done.get(source, -1)
        for number, part in enumerate(parts):
            rows.append((*_of(source), number, part.life(source), sender, *_of(target), done))
    return spark.createDataFrame(rows, _PLAN)


def _of(queue: MessageQueue) -> tuple[str, str, int]:
    return queue.topic, queue.broker_name, queue.queue_id
