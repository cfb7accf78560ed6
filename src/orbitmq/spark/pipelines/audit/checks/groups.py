"""The check of consumer groups: lag in each queue, and slow handlers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as sf

from orbitmq.spark.pipelines.audit.sources import QUEUE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from orbitmq.spark.pipelines.audit.plan import AuditPlan
    from orbitmq.spark.pipelines.audit.sources import Sources

LAG_COLUMNS = ("group", "topic", "broker", "queue_id", "committed", "end", "lag", "waiting_since")
_LAG = (
    "`group` string, topic string, broker string, queue_id int, committed bigint, `end` bigint, lag bigint, "
    "waiting_since timestamp"
)
_PLACES = "topic string, broker string, queue_id int, queue_offset bigint"

BEHIND = "behind"
SLOW = "slow handler"
SLOW_COLUMNS = (
    "kind", "group", "topic", "broker", "queue_id", "first_offset", "last_offset", "messages", "waiting_since",
    "cost_ms", "message_id", "keys",
)  # fmt: skip

LagRow = tuple[str, str, str, int, int | None, int, int]


def lag_rows(plan: AuditPlan) -> list[LagRow]:
    """By group and queue, what was committed and how much is after it.

    Of a queue in which a group has not committed anything all counts, if it has in another one of the topic.
    """
    if not plan.groups:
        return []
    cluster = plan.cluster()
    found: list[LagRow] = []
    for topic, groups in sorted(plan.groups.items()):
        queues = sorted(queue for queue in plan.ends if queue.topic == topic)
        for group in groups:
            committed = cluster.committed(group, queues)
            for queue in queues if committed else ():
                at, end = committed.get(queue), plan.ends[queue]
                lag = max(end - max(plan.begins[queue] if at is None else at, plan.begins[queue]), 0)
                found.append((group, topic, queue.broker_name, queue.queue_id, at, end, lag))
    return found


def lag(sources: Sources, messages: DataFrame) -> DataFrame:
    """By ``LAG_COLUMNS``; ``waiting_since`` is when the oldest message was stored that waits for the group."""
    rows = lag_rows(sources.plan)
    places = {(topic, broker, queue_id, end - lag) for _, topic, broker, queue_id, _, end, lag in rows if lag}
    since: dict[tuple[str, str, int, int], int] = {}
    if places:
        wanted = sources.local(sorted(places), _PLACES)
        found = messages.join(sf.broadcast(wanted), [*QUEUE, "queue_offset"]).select(
            *QUEUE, "queue_offset", sf.unix_micros("store_timestamp").alias("us")
        )
        since = {tuple(row)[:4]: row["us"] for row in found.collect()}
    return sources.local(
        [(*row, since.get((*row[1:4], row[5] - row[6])) if row[6] else None) for row in rows], _LAG
    )


def slow_consumers(lags: DataFrame, consumed: DataFrame, lag_threshold: int, slow_ms: int) -> DataFrame:
    """By ``SLOW_COLUMNS``: queues in which a group is behind by more, handlers that took longer."""
    behind = lags.where(sf.col("lag") > lag_threshold).select(
        sf.lit(BEHIND).alias("kind"),
        "group",
        *QUEUE,
        (sf.col("end") - sf.col("lag")).alias("first_offset"),
        (sf.col("end") - 1).alias("last_offset"),
        sf.col("lag").alias("messages"),
        "waiting_since",
        sf.lit(None).cast("bigint").alias("cost_ms"),
        sf.lit(None).cast("string").alias("message_id"),
        sf.lit(None).cast("string").alias("keys"),
    )
    slow = consumed.where(sf.col("cost_ms") > slow_ms).select(
        sf.lit(SLOW).alias("kind"),
        "group",
        *QUEUE,
        sf.col("queue_offset").alias("first_offset"),
        sf.col("queue_offset").alias("last_offset"),
        sf.lit(1).cast("bigint").alias("messages"),
        sf.lit(None).cast("timestamp").alias("waiting_since"),
        "cost_ms",
        "message_id",
        "keys",
    )
    return behind.unionByName(slow).select(*SLOW_COLUMNS)
