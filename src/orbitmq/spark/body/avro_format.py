"""The Avro body format: records without a file header, with the schema as an option.

``avroWire`` says what stands before a record: ``plain`` nothing; ``confluent`` a zero byte and the four bytes of
a schema id, which schema registries use; ``single`` the marker and the fingerprint that Avro itself defines for
single objects. Ids are not looked up: with ``avroSchemaId``, bodies with other ids are bad, and without it all
ids are read with the one schema.
"""

from __future__ import annotations

import dataclasses
import decimal
import functools
import io
import json
import struct
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from orbitmq.spark.body.decoder import UNFIT, Decoded, arrow_types, columns_of_rows, decoded
from orbitmq.spark.body.json_values import Reading, column, list_of, map_of, struct_of
from orbitmq.spark.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

try:
    import fastavro
    import fastavro.schema
except ImportError as missing:
    raise OptionError("bodyFormat avro needs the package fastavro: pip install fastavro") from missing

_WIRES = ("plain", "confluent", "single")
_CONFLUENT = struct.Struct(">bI")
_SINGLE_MARKER = b"\xc3\x01"
_BROKEN = (*UNFIT, EOFError, IndexError, KeyError, TypeError, struct.error)
"""What fastavro raises about bytes that are not a record of the schema."""

_MICROS: dict[str, Callable[[int], int]] = {
    "millis": lambda value: value * 1000,
    "micros": lambda value: value,
    "nanos": lambda value: value // 1000,
}
_PRIMITIVES: dict[str, tuple[DataType, tuple[pa.DataType, ...]]] = {
    "boolean": (BooleanType(), (pa.bool_(),)),
    "int": (IntegerType(), (pa.int32(), pa.int64(), pa.float64())),
    "long": (LongType(), (pa.int64(),)),
    "float": (FloatType(), (pa.float32(), pa.float64())),
    "double": (DoubleType(), (pa.float64(),)),
    "bytes": (BinaryType(), (pa.binary(),)),
    "fixed": (BinaryType(), (pa.binary(),)),
    "string": (StringType(), (pa.string(),)),
    "enum": (StringType(), (pa.string(),)),
}
"""What a type is by itself in Spark, and as what columns it can be read."""

_WIDER = {frozenset({"int", "long"}): "long", frozenset({"float", "double"}): "double"}
"""Unions that are one type in Spark."""

_PLAIN = frozenset({type(None), bool, int, float, str, bytes})


def _nothing(_file: io.BytesIO) -> None:
    pass


def _as_it_is(value: Any) -> Any:
    return value


@dataclasses.dataclass(frozen=True, slots=True)
class _Schema:
    """A parsed schema, and the types that it refers to by name."""

    root: Any
    named: dict[str, Any]
    reading: Any
    """The same for fastavro, without logical types: their values are made here, straight for Arrow."""

    def resolved(self, schema: Any) -> tuple[str, dict[str, Any]]:
        """The kind of a type and its attributes, of the value itself where it may be null."""
        if isinstance(schema, str):
            return (schema, {}) if schema not in self.named else self.resolved(self.named[schema])
        if isinstance(schema, dict):
            kind = schema["type"]
            return (kind, schema) if isinstance(kind, str) and kind not in self.named else self.resolved(kind)
        branches = [branch for branch in schema if branch != "null"]
        if len(branches) == 1:
            return self.resolved(branches[0])
        wider = _WIDER.get(frozenset(map(str, branches)))
        if wider is None:
            raise OptionError(f"the Avro union of {', '.join(map(_name_of, branches))} cannot be a column")
        return wider, {}


def _name_of(schema: Any) -> str:
    return str(schema.get("name", schema["type"])) if isinstance(schema, dict) else str(schema)


@functools.lru_cache(maxsize=16)
def _schema_of(text: str) -> _Schema:
    named: dict[str, Any] = {}
    try:
        given = json.loads(text)
        root = fastavro.parse_schema(given, named_schemas=named)
        reading = fastavro.parse_schema(_without_logical_types(given))
    except fastavro.schema.UnknownType as error:
        raise OptionError(f"avroSchema names an unknown type {error.name!r}") from error
    except (ValueError, TypeError, KeyError, fastavro.schema.SchemaParseException) as error:
        raise OptionError(f"avroSchema cannot be read: {error}") from error
    schema = _Schema(root, named, reading)
    if schema.resolved(root)[0] != "record":
        raise OptionError("avroSchema is not that of a record")
    return schema


def _without_logical_types(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_logical_types(part) for part in schema]
    if isinstance(schema, dict):
        return {name: _without_logical_types(part) for name, part in schema.items() if name != "logicalType"}
    return schema


def _text_of(given: Mapping[str, str]) -> str:
    text = given.get("avroschema", "").strip()
    if not text:
        raise OptionError("bodyFormat avro needs the option avroSchema: the schema as JSON, or a file with it")
    if text.startswith(("{", "[", '"')):
        return text
    try:
        with open(text, encoding="utf-8") as file:
            return file.read()
    except (OSError, ValueError) as error:
        raise OptionError(f"avroSchema names a file that cannot be read: {error}") from error


def fields_of_schema(given: Mapping[str, str]) -> StructType:
    """The columns that the schema itself names. Raises OptionError."""
    schema = _schema_of(_text_of(given))
    found = _spark_type(schema, schema.root, "the record", ())
    assert isinstance(found, StructType)
    return found


def _spark_type(schema: _Schema, part: Any, path: str, within: tuple[str, ...]) -> DataType:
    kind, attributes = schema.resolved(part)
    logical = attributes.get("logicalType", "")
    if kind == "record":
        name = attributes["name"]
        if name in within:
            raise OptionError(
                f"the Avro record {name} contains itself: give a schema that says how deep to read it"
            )
        return StructType(
            [
                StructField(field["name"], _spark_type(schema, field["type"], field["name"], (*within, name)))
                for field in attributes["fields"]
            ]
        )
    if kind == "array":
        return ArrayType(_spark_type(schema, attributes["items"], path, within))
    if kind == "map":
        return MapType(StringType(), _spark_type(schema, attributes["values"], path, within))
    if kind in {"bytes", "fixed"} and logical == "decimal":
        return DecimalType(attributes["precision"], attributes.get("scale", 0))
    if kind == "int" and logical == "date":
        return DateType()
    if kind == "long" and logical.startswith("timestamp-"):
        return TimestampType()
    if kind == "long" and logical.startswith("local-timestamp-"):
        return TimestampNTZType()
    if kind not in _PRIMITIVES:
        raise OptionError(f"{path} is of the Avro type {kind}, which cannot be a column")
    return _PRIMITIVES[kind][0]


def _reading(schema: _Schema, part: Any, path: str, arrow: pa.DataType) -> Reading:
    """The conversion of an Avro type to a column. Raises OptionError if there is none."""
    kind, attributes = schema.resolved(part)
    logical = attributes.get("logicalType", "")
    nothing = frozenset({type(None)})
    if kind == "record" and pa.types.is_struct(arrow):
        given = {field["name"]: field["type"] for field in attributes["fields"]}
        parts = {}
        for field in arrow:
            if field.name not in given:
                raise OptionError(f"the Avro record {attributes['name']} has no field {field.name}")
            parts[field.name] = _reading(schema, given[field.name], f"{path}.{field.name}", field.type)
        return Reading(arrow, nothing, struct_of(path, parts))
    if kind == "array" and pa.types.is_list(arrow):
        return Reading(arrow, nothing, list_of(path, _reading(schema, attributes["items"], path, arrow.value_type)))
    if kind == "map" and pa.types.is_map(arrow) and pa.types.is_string(arrow.key_type):
        return Reading(arrow, nothing, map_of(path, _reading(schema, attributes["values"], path, arrow.item_type)))
    if kind in {"bytes", "fixed"} and logical == "decimal" and pa.types.is_decimal128(arrow):
        precision, scale = attributes["precision"], attributes.get("scale", 0)
        if arrow.scale < scale or arrow.precision - arrow.scale < precision - scale:
            raise OptionError(f"{path} is a decimal({precision},{scale}) in Avro, which {arrow} cannot hold")
        return Reading(arrow, nothing, _decimal(scale))
    if kind == "int" and logical == "date" and pa.types.is_date32(arrow):
        return Reading(arrow, _PLAIN, _as_it_is)
    if kind == "long" and pa.types.is_timestamp(arrow):
        unit = _MICROS.get(logical.rpartition("-")[2])
        if unit is not None and logical.startswith("timestamp-" if arrow.tz else "local-timestamp-"):
            return Reading(arrow, nothing, unit)
    if arrow not in _PRIMITIVES.get(kind, (None, ()))[1]:
        raise OptionError(f"{path} is of the Avro type {logical or kind}, which cannot be read as {arrow}")
    return Reading(arrow, _PLAIN, _as_it_is)


def _decimal(scale: int) -> Callable[[bytes], decimal.Decimal]:
    context = decimal.Context(prec=100)

    def convert(value: bytes) -> decimal.Decimal:
        return decimal.Decimal(int.from_bytes(value, "big", signed=True)).scaleb(-scale, context)

    return convert


@dataclasses.dataclass(frozen=True, slots=True)
class AvroBodies:
    """Decodes bodies that are Avro records."""

    names: list[str]
    types: list[pa.DataType]
    schema: str
    wire: str = "plain"
    ids: frozenset[int] = frozenset()
    readings: list[Reading] = dataclasses.field(init=False, repr=False, compare=False)

    @classmethod
    def of(cls, given: Mapping[str, str], fields: StructType) -> AvroBodies:
        """From options with names in lower case. Raises OptionError."""
        wire = given.get("avrowire", "plain").lower()
        if wire not in _WIRES:
            raise OptionError(f"avroWire is {wire!r}: choose from {', '.join(_WIRES)}")
        try:
            ids = frozenset(int(part) for part in given.get("avroschemaid", "").split(",") if part.strip())
        except ValueError as error:
            raise OptionError(f"avroSchemaId is {given['avroschemaid']!r}, not numbers with commas") from error
        if ids and wire != "confluent":
            raise OptionError("avroSchemaId is for avroWire=confluent: other bodies carry no id")
        return cls(list(fields.names), arrow_types(fields), _text_of(given), wire, ids)

    def __post_init__(self) -> None:
        schema = _schema_of(self.schema)
        _, record = schema.resolved(schema.root)
        given = {field["name"]: field["type"] for field in record["fields"]}
        readings = []
        for name, arrow in zip(self.names, self.types, strict=True):
            if name not in given:
                raise OptionError(
                    f"the Avro record {record['name']} has no field {name}: it has {', '.join(given)}"
                )
            readings.append(_reading(schema, given[name], name, arrow))
        object.__setattr__(self, "readings", readings)

    def __reduce__(self) -> tuple[Any, ...]:
        return AvroBodies, (self.names, self.types, self.schema, self.wire, self.ids)

    def decode(self, bodies: pa.BinaryArray) -> Decoded:
        """The fields of each body."""
        schema = _schema_of(self.schema).reading
        head = self._head()
        read = fastavro.schemaless_reader
        rows: list[dict[str, Any] | None] = []
        broken: dict[int, str] = {}
        for number, body in enumerate(bodies.to_pylist()):
            row: Any = None
            try:
                file = io.BytesIO(body or b"")
                head(file)
                row = read(file, schema, None)
                if file.tell() != len(body):
                    row, broken[number] = None, "there are bytes after the Avro record"
            except _BROKEN as error:
                row, broken[number] = None, f"not a record of the Avro schema: {str(error) or type(error).__name__}"
            rows.append(row)
        columns, wrong = columns_of_rows(rows, self._columns)
        return decoded(columns, len(rows), wrong | broken)

    def _columns(self, rows: Sequence[dict[str, Any] | None]) -> list[pa.Array]:
        return [
            column([None if row is None else row[name] for row in rows], reading)
            for name, reading in zip(self.names, self.readings, strict=True)
        ]

    def _head(self) -> Callable[[io.BytesIO], None]:
        """A function that skips the header before a record. Raises ValueError."""
        if self.wire == "plain":
            return _nothing
        if self.wire == "single":
            canonical = fastavro.schema.to_parsing_canonical_form(json.loads(self.schema))
            expected = _SINGLE_MARKER + bytes.fromhex(fastavro.schema.fingerprint(canonical, "CRC-64-AVRO"))

            def single(file: io.BytesIO) -> None:
                if file.read(len(expected)) != expected:
                    raise ValueError("it does not begin with the fingerprint of avroSchema")

            return single

        def confluent(file: io.BytesIO) -> None:
            magic, schema_id = _CONFLUENT.unpack(file.read(_CONFLUENT.size))
            if magic != 0:
                raise ValueError(f"it begins with {magic} instead of 0")
            if self.ids and schema_id not in self.ids:
                raise ValueError(f"it is written with schema {schema_id}")

        return confluent
