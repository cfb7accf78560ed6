"""The origin properties of replayed messages, encoded for many rows at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from orbitmq.client.errors import InvalidMessageError
from orbitmq.protocol.message.record import MAX_PROPERTIES_SIZE
from orbitmq.spark.sink.columns import SinkColumns
from orbitmq.spark.sink.row_encoder import MARK_SIZE, RowEncoder

if TYPE_CHECKING:
    from orbitmq.spark.sink.options import SinkOptions
    from orbitmq.spark.sink.row_encoder import Rows

REPLAY_ID = "REPLAY_ID"
REPLAY_TOPIC = "REPLAY_TOPIC"
REPLAY_BROKER = "REPLAY_BROKER"
REPLAY_QUEUE = "REPLAY_QUEUE"
REPLAY_OFFSET = "REPLAY_OFFSET"
REPLAY_LIFE = "REPLAY_LIFE"
"""How often the queue had been recreated; absent for 0."""
REPLAY_MSG_ID = "REPLAY_MSG_ID"
REPLAY_BORN = "REPLAY_BORN"
REPLAY_STORED = "REPLAY_STORED"
"""Both in milliseconds since 1970."""

COLUMNS = {
    REPLAY_TOPIC: "source_topic",
    REPLAY_BROKER: "source_broker",
    REPLAY_QUEUE: "source_queue",
    REPLAY_OFFSET: "source_offset",
    REPLAY_MSG_ID: "source_id",
    REPLAY_BORN: "born_ms",
    REPLAY_STORED: "stored_ms",
}
"""Of the rows of a sender: by property the column with its value, which is never null."""
LIFE = "source_life"

NAMES = frozenset({REPLAY_ID, REPLAY_LIFE, *COLUMNS})

# Tags, keys and the sharding key are among the properties, as they once were sent.
_TAKEN = SinkColumns("body", frozenset({"topic", "broker", "queue_id", "properties"}))
_NAMES = pa.array(sorted(NAMES), pa.string())
_EMPTY = pa.scalar(b"", pa.binary())


class ReplayEncoder:
    """Encodes rows as the sink does, and adds the origin of each message."""

    def __init__(self, options: SinkOptions, replay: str) -> None:
        self._rows = RowEncoder(_TAKEN, options)
        self._replay = replay

    def rows(self, batch: pa.RecordBatch, first: int) -> Rows:
        """The messages of a batch whose first row is the sender's ``first``. Raises InvalidMessageError."""
        column = batch.schema.get_field_index("properties")
        batch = batch.set_column(column, "properties", _without_origin(batch.column("properties")))
        rows = self._rows.rows(batch, first)
        rows.properties = pc.binary_join_element_wise(rows.properties, *self._origin(batch), _EMPTY)
        sizes = np.asarray(pc.binary_length(rows.properties))
        if len(sizes) and sizes.max() > MAX_PROPERTIES_SIZE - MARK_SIZE:
            row = int(sizes.argmax())
            offset, queue, topic = (
                batch.column(COLUMNS[name])[row].as_py() for name in (REPLAY_OFFSET, REPLAY_QUEUE, REPLAY_TOPIC)
            )
            raise InvalidMessageError(
                f"the message at offset {offset} of queue {queue} of {topic!r} has {sizes[row]} bytes of "
                f"properties: at most {MAX_PROPERTIES_SIZE - MARK_SIZE} leave room for those of a replay"
            )
        return rows

    def _origin(self, batch: pa.RecordBatch) -> list[Any]:
        parts: list[Any] = []
        before = f"{REPLAY_ID}\x01{self._replay}\x02"
        for name, column in COLUMNS.items():
            parts += [pa.scalar(f"{before}{name}\x01".encode(), pa.binary()), _texts(batch.column(column))]
            before = "\x02"
        parts.append(pa.scalar(b"\x02", pa.binary()))
        lives = batch.column(LIFE)
        if pc.max(lives).as_py():
            named = pc.binary_join_element_wise(f"{REPLAY_LIFE}\x01".encode(), _texts(lives), b"\x02", b"")
            parts.append(pc.if_else(pc.greater(lives, 0), named, b""))
        return parts


def _texts(column: Any) -> Any:
    return pc.cast(pc.cast(column, pa.string()), pa.binary())


def _without_origin(column: Any) -> Any:
    """Properties of messages that were replayed themselves, without what they say of that."""
    if not pc.any(pc.is_in(column.keys, value_set=_NAMES)).as_py():
        return column
    rows = [
        None if row is None else [(name, value) for name, value in row if name not in NAMES]
        for row in column.to_pylist()
    ]
    return pa.array(rows, column.type)
