"""The columns of a DataFrame that the sink writes, and their types."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    TimestampType,
)

from orbitmq.spark.errors import OptionError
from orbitmq.spark.schema.columns import COLUMNS

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from orbitmq.spark.sink.options import SinkOptions

BODY_ALIAS = "value"

_INTEGERS = (ByteType, ShortType, IntegerType, LongType)
_NUMBERS = (*_INTEGERS, FloatType, DoubleType)

_TAKEN: dict[str, str] = {
    "body": "string or binary",
    BODY_ALIAS: "string or binary",
    "topic": "string",
    "tags": "string",
    "keys": "array<string> or string",
    "properties": "map<string,string>",
    "sharding_key": "string",
    "queue_id": "int",
    "broker": "string",
    "delay_level": "int",
    "delay_seconds": "bigint or double",
    "deliver_at": "timestamp",
    "unique_id": "string",
}
"""The columns that a message is made of, and what each may be."""

_PINS = ("queue_id", "broker")
_LEFT_OUT = frozenset(COLUMNS) - frozenset(_TAKEN)
"""What a row of a topic tells of where it lies: of no use for another message, and no mistake either."""


@dataclasses.dataclass(frozen=True, slots=True)
class SinkColumns:
    """The columns that are written. ``body`` is the name of the body column."""

    body: str
    taken: frozenset[str]

    @classmethod
    def of(cls, schema: StructType, options: SinkOptions) -> SinkColumns:
        """Raises OptionError for a DataFrame that cannot be written, naming the column."""
        fields = {field.name: field.dataType for field in schema.fields}
        if len(fields) != len(schema.fields):
            raise OptionError("the DataFrame has two columns of one name: rename one")
        bodies = [name for name in ("body", BODY_ALIAS) if name in fields]
        if not bodies:
            raise OptionError("the DataFrame has no column body (string or binary): it is what a message carries")
        if len(bodies) == 2:
            raise OptionError(
                "the DataFrame has a column body and a column value, which both are the body: drop one"
            )
        if options.topic is None and "topic" not in fields:
            raise OptionError("nothing says which topic to write to: give the option topic, or a column topic")
        extra = [name for name in fields if name not in _TAKEN and name not in _LEFT_OUT]
        if extra and not options.ignore_extra_columns:
            raise OptionError(
                f"no message has the column {', '.join(extra)}: put it into body or properties, drop it, or say "
                f"ignoreExtraColumns=true (columns of a message are {', '.join(_TAKEN)})"
            )
        for name, wanted in _TAKEN.items():
            if name in fields and not _fits(name, fields[name]):
                raise OptionError(f"the column {name} must be {wanted}, not {fields[name].simpleString()}")
        # Rows of a topic say where they come from, which is not where a copy of them is wanted.
        keeps = "queue_offset" not in fields if options.keep_queue is None else options.keep_queue
        taken = {name for name in fields if name in _TAKEN and (keeps or name not in _PINS)}
        if "broker" in taken and "queue_id" not in taken:
            raise OptionError(
                "the column broker says nothing without the column queue_id: add that, or drop broker"
            )
        if options.topic is not None:
            taken.discard("topic")
        return cls(bodies[0], frozenset(taken - set(bodies)))

    def __contains__(self, name: str) -> bool:
        return name in self.taken


def _fits(name: str, given: DataType) -> bool:
    is_text = isinstance(given, StringType)
    if name in {"body", BODY_ALIAS}:
        return is_text or isinstance(given, BinaryType)
    if name == "keys":
        return is_text or (isinstance(given, ArrayType) and isinstance(given.elementType, StringType))
    if name == "properties":
        return (
            isinstance(given, MapType)
            and isinstance(given.keyType, StringType)
            and isinstance(given.valueType, StringType)
        )
    if name in {"queue_id", "delay_level"}:
        return isinstance(given, _INTEGERS)
    if name == "delay_seconds":
        return isinstance(given, _NUMBERS)
    if name == "deliver_at":
        return isinstance(given, TimestampType)
    return is_text
