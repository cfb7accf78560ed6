"""Reading each message once, where it may have been written more than once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions

from orbitmq.spark.errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ID = "_orbitmq_id"


def deduplicated(df: DataFrame, watermark: str | None = "10 minutes") -> DataFrame:
    """The messages of a DataFrame read from topics, each of them once.

    Messages of one topic with the same ``unique_id`` are one message that was written several times: by attempts of
    a Spark task that ran at the same time, or by a producer that sent again what it had no answer to. Messages
    without such an id are told apart by ``msg_id``, the place where they lie, if that column is there.

    A stream remembers the ids of the last ``watermark`` of ``store_timestamp``; with None it remembers all of them
    for ever. For a batch it means nothing.
    """
    columns = set(df.columns)
    if "unique_id" not in columns:
        raise OptionError("deduplicated() needs the column unique_id, by which copies of a message are known")
    known_by = [name for name in ("unique_id", "msg_id") if name in columns]
    keys = [_ID, *(["topic"] if "topic" in columns else [])]
    found = df.withColumn(_ID, functions.coalesce(*(functions.col(name) for name in known_by)))
    if not df.isStreaming or watermark is None:
        return found.dropDuplicates(keys).drop(_ID)
    if "store_timestamp" not in columns:
        raise OptionError("deduplicated() of a stream needs the column store_timestamp for its watermark")
    found = found.withWatermark("store_timestamp", watermark)
    return found.dropDuplicatesWithinWatermark(keys).drop(_ID)
