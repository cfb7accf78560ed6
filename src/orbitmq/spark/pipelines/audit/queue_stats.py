"""Statistics of each queue from one pass over its messages: they show which checks have anything to look for."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as sf

from orbitmq.protocol.bodies import MessageQueue
from orbitmq.spark.pipelines.audit.sources import QUEUE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import Column, DataFrame

    from orbitmq.spark.pipelines.audit.plan import Spans

TABLE = (
    "topic string, broker string, queue_id int, first_offset bigint, last_offset bigint, in_logs bigint, "
    "in_archive bigint, first_time timestamp, last_time timestamp"
)


@dataclasses.dataclass(frozen=True, slots=True)
class QueueStats:
    """The statistics of one queue. Times are in microseconds."""

    first: int
    last: int
    first_us: int
    last_us: int
    in_logs: int
    in_archive: int
    log_bounds: tuple[int | None, int | None]
    archive_bounds: tuple[int | None, int | None]
    different: int
    """Offsets at which log and archive have different messages."""
    repeated: int
    """Offsets that the archive has more than once."""
    with_key: int
    """Messages with a sharding key that were not deferred: their order by birth is checked."""

    @property
    def first_ms(self) -> int:
        return round(self.first_us / 1000)

    def row(self, queue: MessageQueue) -> tuple[Any, ...]:
        """The row of ``TABLE``."""
        return (
            queue.topic, queue.broker_name, queue.queue_id, self.first, self.last, self.in_logs, self.in_archive,
            self.first_us, self.last_us,
        )  # fmt: skip


def queue_stats(messages: DataFrame) -> dict[MessageQueue, QueueStats]:
    """Read all messages once, which fills the cache, and count."""
    offset = sf.col("queue_offset")
    in_log, in_archive = sf.col("log_copies") > 0, sf.col("archive_copies") > 0
    rows = (
        messages.groupBy(*QUEUE)
        .agg(
            sf.min(offset).alias("first"),
            sf.max(offset).alias("last"),
            sf.unix_micros(sf.min_by("store_timestamp", offset)).alias("first_us"),
            sf.unix_micros(sf.max("store_timestamp")).alias("last_us"),
            sf.count_if(in_log).alias("in_logs"),
            sf.count_if(in_archive).alias("in_archive"),
            *_bounds("log", in_log, offset),
            *_bounds("archive", in_archive, offset),
            sf.count_if("differs").alias("different"),
            sf.count_if(sf.col("archive_copies") > 1).alias("repeated"),
            sf.count_if(sf.col("sharding_key").isNotNull() & ~sf.col("is_deferred")).alias("with_key"),
        )
        .collect()
    )
    found = {
        MessageQueue(row["topic"], row["broker"], row["queue_id"]): QueueStats(
            row["first"], row["last"], row["first_us"], row["last_us"], row["in_logs"], row["in_archive"],
            (row["log_first"], row["log_last"]), (row["archive_first"], row["archive_last"]), row["different"],
            row["repeated"], row["with_key"],
        )
        for row in rows
    }  # fmt: skip
    return dict(sorted(found.items()))


def _bounds(name: str, condition: Column, offset: Column) -> list[Column]:
    chosen = sf.when(condition, offset)
    return [sf.min(chosen).alias(f"{name}_first"), sf.max(chosen).alias(f"{name}_last")]


def with_holes(
    counts: Mapping[MessageQueue, tuple[int, int | None, int | None]], spans: Spans
) -> set[MessageQueue]:
    """The queues in which an offset is missing.

    ``counts`` are the number of offsets that are there, the first and the last of them. A queue is whole if these
    are as many as there are numbers from the first to the last, and reach from end to end of its span.
    """
    queues: Iterable[MessageQueue] = {*counts, *spans}
    return {queue for queue in queues if not _is_whole(*counts.get(queue, (0, None, None)), spans.get(queue))}


def _is_whole(count: int, first: int | None, last: int | None, span: tuple[int, int] | None) -> bool:
    if first is None or last is None:
        return span is None or span[0] >= span[1]
    reaches = span is None or (first <= span[0] and last >= span[1] - 1)
    return reaches and count == last - first + 1
