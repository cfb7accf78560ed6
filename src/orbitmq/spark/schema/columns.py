"""The columns of messages: their names and their types in Spark and in Arrow."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pyarrow as pa

from orbitmq.spark.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

TIMESTAMP = pa.timestamp("us", tz="UTC")
"""The Arrow type of Spark's ``timestamp``; Spark refuses any other unit or spelling of the zone."""


@dataclasses.dataclass(frozen=True, slots=True)
class Column:
    """One column of a message."""

    name: str
    ddl: str
    arrow: pa.DataType


COLUMNS: dict[str, Column] = {
    column.name: column
    for column in (
        Column("topic", "string", pa.string()),
        Column("broker", "string", pa.string()),
        Column("queue_id", "int", pa.int32()),
        Column("queue_offset", "bigint", pa.int64()),
        Column("msg_id", "string", pa.string()),
        Column("unique_id", "string", pa.string()),
        Column("tags", "string", pa.string()),
        Column("keys", "array<string>", pa.list_(pa.string())),
        Column("body", "binary", pa.binary()),
        Column("properties", "map<string,string>", pa.map_(pa.string(), pa.string())),
        Column("born_timestamp", "timestamp", TIMESTAMP),
        Column("store_timestamp", "timestamp", TIMESTAMP),
        Column("born_host", "string", pa.string()),
        Column("store_host", "string", pa.string()),
        Column("sys_flag", "int", pa.int32()),
        Column("reconsume_times", "int", pa.int32()),
    )
}
"""By name, in the order of the schema."""


def column_names(given: str) -> list[str]:
    """The columns of a comma-separated list, in its order. Raises OptionError."""
    names = [name.strip() for name in given.split(",") if name.strip()]
    for name in names:
        if name not in COLUMNS:
            raise OptionError(f"there is no column {name!r}: choose from {', '.join(COLUMNS)}")
    if not names:
        raise OptionError(f"no column is named: choose from {', '.join(COLUMNS)}")
    if len(set(names)) != len(names):
        raise OptionError(f"a column is named twice in {given!r}")
    return names


def ddl_of(names: Iterable[str]) -> str:
    """The Spark DDL of these columns."""
    return ", ".join(f"{name} {COLUMNS[name].ddl}" for name in names)


def arrow_schema_of(names: Sequence[str]) -> pa.Schema:
    """The Arrow schema of these columns."""
    return pa.schema([pa.field(name, COLUMNS[name].arrow) for name in names])
