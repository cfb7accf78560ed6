"""Deduplication of messages that were written more than once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions

from orbitmq.spark.errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ID = "_orbitmq_id"


def deduplicated(df: DataFrame, watermark: str | None = "10 minutes") -> DataFrame:
    """A DataFrame of topics without the copies of a message.

    Messages of one topic with the same ``unique_id`` are one message that was written several times: by attempts of
    a Spark task that ran at the same time, or by a producer that retried a send without a response. Messages
    without such an id are identified by ``msg_id``, their physical offset, if that column is there.

    A stream keeps the ids of the last ``watermark`` of ``store_timestamp`` as its state, with None all ids. A batch
    ignores ``watermark``.
    """
    columns = set(df.columns)
    if "unique_id" not in columns:
        raise OptionError("deduplicated() needs the column unique_id, which identifies the copies of a message")
    known_by = [name for name in ("unique_id", "msg_id") if name in columns]
    keys = [_ID, *(["topic"] if "topic" in columns else [])]
    found = df.withColumn(_ID, functions.coalesce(*(functions.col(name) for name in known_by)))
    if not df.isStreaming or watermark is None:
        return found.dropDuplicates(keys).drop(_ID)
    if "store_timestamp" not in columns:
        raise OptionError("deduplicated() of a stream needs the column store_timestamp for its watermark")
    found = found.withWatermark("store_timestamp", watermark)
    return found.dropDuplicatesWithinWatermark(keys).drop(_ID)
