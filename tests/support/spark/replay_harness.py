"""Harness of the replay tests: archives of a few messages without a broker, and the job as a process."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from orbitmq.spark.pipelines.archive.directory import Archive, ArchivedFile, Segment
from orbitmq.spark.schema.columns import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orbitmq.protocol.bodies import MessageQueue

DAY_MS = 24 * 3600 * 1000
START_MS = 20_000 * DAY_MS
"""A midnight in UTC."""
PATIENCE = 240.0


def add_segment(
    archive: Archive,
    queue: MessageQueue,
    times_ms: Sequence[int],
    *,
    first: int = 0,
    recreated: bool = False,
    properties: dict[str, str] | None = None,
) -> None:
    """Add messages of one queue that were stored at these times on one day, from an offset on."""
    archive.make()
    number = len(archive.segments()) + 1
    day = datetime.datetime.fromtimestamp(times_ms[0] / 1000, datetime.UTC).date().isoformat()
    path = f"topic={queue.topic}/day={day}/segment-{number:08d}-0.parquet"
    archive.files.create_dir(archive.within(f"topic={queue.topic}/day={day}"), recursive=True)
    rows = [_row(queue, first + at, ms, properties or {}) for at, ms in enumerate(times_ms)]
    schema = pa.schema([pa.field(name, column.arrow) for name, column in COLUMNS.items() if name != "topic"])
    pq.write_table(pa.Table.from_pylist(rows, schema), archive.within(path))
    file = ArchivedFile(path, queue.topic, day, len(rows), 1)
    ranges = {queue: (first, first + len(rows))}
    archive.add(Segment(number, ranges, (file,), recreated=frozenset([queue]) if recreated else frozenset()))


def _row(queue: MessageQueue, offset: int, ms: int, properties: dict[str, str]) -> dict[str, Any]:
    time = datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC)
    return {
        "broker": queue.broker_name,
        "queue_id": queue.queue_id,
        "queue_offset": offset,
        "msg_id": f"M{offset}",
        "unique_id": f"U{offset}",
        "body": f"{queue.queue_id}-{offset}".encode(),
        "properties": list(properties.items()),
        "born_timestamp": time,
        "store_timestamp": time,
    }
