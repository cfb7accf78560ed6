"""A topic as one DataFrame: archived messages, and the newer ones from brokers.

The columns are always those of a topic, whatever is read of it, so that a query means the same over all of them.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

from orbitmq.spark.errors import OptionError
from orbitmq.spark.pipelines.sql.topics import RETRY_SECONDS, TopicPlaces
from orbitmq.spark.schema.columns import COLUMNS, ddl_of
from orbitmq.spark.topic_source.offset_bounds import EARLIEST

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from orbitmq.protocol.bodies import MessageQueue
    from orbitmq.spark.pipelines.sql.archive_live_boundary import ArchiveMoment, Range, Seam

log = logging.getLogger("orbitmq.spark")

VALUE = "value"
"""The column of a body's fields, where a schema of bodies is given."""
CHEAPEST = "queue_offset"
"""What is read where rows are only counted."""


def topic_view(
    spark: SparkSession,
    topic: str,
    *,
    nameserver: str | None = None,
    archive: str | None = None,
    archive_only: bool = False,
    columns: Collection[str] | None = None,
    schema: str | None = None,
) -> DataFrame:
    """The messages of a topic as of now, archived and live: no message twice, and none missing at the seam.

    ``nameserver`` defaults to ``NAMESRV_ADDR`` of the environment; with ``archive_only`` none is used.
    ``columns`` are those that will be used (others are null, and cost nothing); ``schema`` adds the column
    ``value`` with the fields of bodies that are JSON (``"amount int, city string"``). Gaps are warned of in the
    log ``orbitmq.spark``. Raises OrbitMQError.
    """
    places = TopicPlaces(nameserver, archive, archive_only=archive_only)
    return _view(spark, places, topic, columns, schema)


def register_topics(
    spark: SparkSession,
    topics: str | Iterable[str] | None = None,
    *,
    nameserver: str | None = None,
    archive: str | None = None,
    archive_only: bool = False,
    schema: str | None = None,
) -> list[str]:
    """Make a temporary view of each topic, of all unless some are named, by its own name, and give the names.

    A view shows what was there when it was made: call this again to see what came since. Raises OrbitMQError.
    """
    places = TopicPlaces(nameserver, archive, archive_only=archive_only)
    named = [topics] if isinstance(topics, str) else None if topics is None else list(topics)
    names = places.names() if named is None else named
    for name in names:
        _view(spark, places, name, None, schema).createOrReplaceTempView(quoted(name))
    return names


def _view(
    spark: SparkSession,
    places: TopicPlaces,
    topic: str,
    columns: Collection[str] | None,
    schema: str | None,
) -> DataFrame:
    seam, moment = places.look(topic)
    for warning in seam.warnings():
        log.warning("%s", warning)
    return with_value(view_of(spark, places, seam, moment, columns=columns), schema)


def quoted(name: str) -> str:
    """A name as SQL takes any."""
    return "`" + name.replace("`", "``") + "`"


def with_value(view: DataFrame, schema: str | None) -> DataFrame:
    """With the fields of bodies that are JSON, null where a body is none."""
    if schema is None:
        return view
    from pyspark.sql import functions as f  # noqa: PLC0415 - Spark may not be installed

    return view.withColumn(VALUE, f.from_json(f.col("body").cast("string"), schema))


def view_of(
    spark: SparkSession,
    places: TopicPlaces,
    seam: Seam,
    moment: ArchiveMoment | None,
    *,
    columns: Collection[str] | None = None,
    push_filters: bool = False,
) -> DataFrame:
    """The rows of a seam. ``push_filters`` only if the DataFrame is used in one place of one query."""
    wanted = wanted_columns(columns)
    parts = []
    if moment is not None and seam.archived:
        parts.append(moment.read(spark, [seam.topic]).select(*wanted))
    for layer in seam.layers:
        options = _live_options(places, seam, layer)
        options |= {"columns": ",".join(wanted), "pushFilters": "once" if push_filters else "false"}
        parts.append(spark.read.format("orbitmq").options(**options).load())
    if not parts:
        return spark.createDataFrame([], ddl_of(COLUMNS))
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.unionByName(part)
    return with_all_columns(whole, wanted)


def wanted_columns(columns: Collection[str] | None) -> list[str]:
    """In the order of the schema. Raises OptionError."""
    if columns is None:
        return list(COLUMNS)
    if unknown := sorted(set(columns) - COLUMNS.keys()):
        raise OptionError(f"there is no column {unknown[0]!r}: choose from {', '.join(COLUMNS)}")
    return [name for name in COLUMNS if name in columns] or [CHEAPEST]


def with_all_columns(part: DataFrame, wanted: Collection[str]) -> DataFrame:
    """With null for what was not read."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    return part.select(
        *(f.col(name) if name in wanted else f.lit(None).cast(of.ddl).alias(name) for name, of in COLUMNS.items())
    )


def _live_options(places: TopicPlaces, seam: Seam, ranges: Mapping[MessageQueue, Range]) -> dict[str, str]:
    assigned: dict[str, list[int]] = {}
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for queue, (start, end) in sorted(ranges.items()):
        assigned.setdefault(queue.broker_name, []).append(queue.queue_id)
        # Messages that expire while Spark plans are not a loss, unless they are the next ones after the archive.
        first = start if queue in seam.archived else EARLIEST
        starts.setdefault(queue.broker_name, {})[str(queue.queue_id)] = first
        ends.setdefault(queue.broker_name, {})[str(queue.queue_id)] = end
    assert places.nameserver is not None
    return {
        "nameserver": places.nameserver,
        "retrySeconds": f"{RETRY_SECONDS:g}",
        "assign": json.dumps({seam.topic: assigned}),
        "startingOffsets": json.dumps({seam.topic: starts}),
        "endingOffsets": json.dumps({seam.topic: ends}),
    }


def stream_start(seam: Seam) -> str:
    """The start of a stream at the brokers: the oldest message, or the end of the archive."""
    if not seam.archived:
        return "earliest"
    starts: dict[str, dict[str, int]] = {}
    ends = seam.archive_ends
    for queue in sorted(seam.queues):
        starts.setdefault(queue.broker_name, {})[str(queue.queue_id)] = ends.get(queue, EARLIEST)
    return json.dumps({seam.topic: starts})
