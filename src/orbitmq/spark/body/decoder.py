"""The interface of body decoders, and the decoder for the options of a query.

A decoder is made where a query is planned, so that a schema that cannot be had from the bodies is refused there
in one sentence, and is pickled to where the bodies are read. It never fails because of a body: a body that cannot
be read is marked, and what happens to it (an error, a dropped row, a row of nulls) is the reader's to decide.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructField, StructType

from orbitmq.spark.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy.typing as npt

FAILFAST = "FAILFAST"
PERMISSIVE = "PERMISSIVE"
DROPMALFORMED = "DROPMALFORMED"
MODES = (FAILFAST, PERMISSIVE, DROPMALFORMED)
FORMATS = ("json", "avro", "protobuf", "string")

BODY_OPTIONS = (
    "bodyFormat",
    "mode",
    "timeZone",
    "avroSchema",
    "avroWire",
    "avroSchemaId",
    "descriptorFile",
    "messageName",
    "protobufDefaults",
)
"""Every option that says how bodies are read."""

UNFIT = (ValueError, ArithmeticError, RecursionError)
"""What the libraries that read bodies raise about a body, as opposed to about the program."""

_Row = TypeVar("_Row")


@dataclasses.dataclass(frozen=True, slots=True)
class Decoded:
    """Decoded bodies as columns, in the order of the messages."""

    columns: list[pa.Array]
    """One for each requested field; null where a body is bad."""

    bad: npt.NDArray[np.bool_]
    """Which bodies could not be read."""

    reason: str = ""
    """What is wrong with the first of them."""


class BodyDecoder(Protocol):
    """Reads bodies; can be pickled."""

    def decode(self, bodies: pa.BinaryArray) -> Decoded: ...


def decoder_for(options: Mapping[str, str], fields: StructType, mode: str = FAILFAST) -> BodyDecoder:
    """The decoder of ``bodyFormat`` for these fields, which are those of the body only. Raises OptionError."""
    given = {name.lower(): value for name, value in options.items()}
    body_format = _format(given)
    _check(fields, mode)
    decoder: BodyDecoder
    if body_format == "string":
        decoder = StringBodies.of(fields)
    elif body_format == "json":
        from orbitmq.spark.body.json_format import JsonBodies  # noqa: PLC0415

        decoder = JsonBodies.of(given, fields)
    elif body_format == "avro":
        from orbitmq.spark.body.avro_format import AvroBodies  # noqa: PLC0415

        decoder = AvroBodies.of(given, fields)
    else:
        from orbitmq.spark.body.protobuf_format import ProtobufBodies  # noqa: PLC0415

        decoder = ProtobufBodies.of(given, fields)
    required = [number for number, field in enumerate(fields.fields) if not field.nullable]
    return RequiredFields(decoder, required, list(fields.names)) if required else decoder


def fields_of(options: Mapping[str, str]) -> StructType | None:
    """The fields that bodies of this format name themselves; None if only the user can say. Raises OptionError."""
    given = {name.lower(): value for name, value in options.items()}
    body_format = _format(given)
    if body_format == "string":
        return StructType([StructField("body", StringType())])
    if body_format == "avro":
        from orbitmq.spark.body.avro_format import fields_of_schema  # noqa: PLC0415

        return fields_of_schema(given)
    if body_format == "protobuf":
        from orbitmq.spark.body.protobuf_format import fields_of_message  # noqa: PLC0415

        return fields_of_message(given)
    return None


def _format(given: Mapping[str, str]) -> str:
    body_format = given.get("bodyformat", "").lower()
    if body_format not in FORMATS:
        raise OptionError(f"bodyFormat is {given.get('bodyformat')!r}: choose from {', '.join(FORMATS)}")
    return body_format


def _check(fields: StructType, mode: str) -> None:
    if mode not in MODES:
        raise OptionError(f"mode is {mode!r}: choose from {', '.join(MODES)}")
    if len(set(fields.names)) != len(fields.names):
        raise OptionError(f"a field is named twice in {', '.join(fields.names)}")
    for field in fields.fields:
        if not field.nullable and mode == PERMISSIVE:
            raise OptionError(
                f"{field.name} is NOT NULL, but mode PERMISSIVE gives null where a body cannot be read"
            )
        _check_inside(field.name, field.dataType)


def _check_inside(path: str, data_type: DataType) -> None:
    """Nulls inside values cannot be kept out, and a null where Spark expects none ends the whole job."""
    inside: list[tuple[str, DataType, bool]] = []
    if isinstance(data_type, ArrayType):
        inside = [(f"{path}.element", data_type.elementType, data_type.containsNull)]
    elif isinstance(data_type, MapType):
        inside = [
            (f"{path}.key", data_type.keyType, True),
            (f"{path}.value", data_type.valueType, data_type.valueContainsNull),
        ]
    elif isinstance(data_type, StructType):
        if len(set(data_type.names)) != len(data_type.names):
            raise OptionError(f"a field of {path} is named twice in {', '.join(data_type.names)}")
        inside = [(f"{path}.{field.name}", field.dataType, field.nullable) for field in data_type.fields]
    for name, part, nullable in inside:
        if not nullable:
            raise OptionError(f"{name} is NOT NULL, which only whole columns can be")
        _check_inside(name, part)


def arrow_types(fields: StructType) -> list[pa.DataType]:
    """The Arrow types of the columns. Raises OptionError for types without one."""
    try:
        return list(to_arrow_schema(fields, timezone="UTC").types)
    except (TypeError, NotImplementedError) as error:
        raise OptionError(f"a body cannot be read as {fields.simpleString()}: {error}") from error


def columns_of_rows(
    rows: Sequence[_Row | None], build: Callable[[Sequence[_Row | None]], list[pa.Array]]
) -> tuple[list[pa.Array], dict[int, str]]:
    """Columns of rows of which some may not fit: those become nulls, and are returned by row with the reason.

    ``build`` makes columns of rows, nulls of None, and raises one of UNFIT when any of the rows does not fit.
    """
    wrong: dict[int, str] = {}

    def search(start: int, end: int) -> None:
        try:
            build(rows[start:end])
        except UNFIT as error:
            if end - start == 1:
                wrong[start] = str(error)
                return
            middle = (start + end) // 2
            search(start, middle)
            search(middle, end)

    try:
        return build(rows), wrong
    except UNFIT:
        search(0, len(rows))
    return build([None if number in wrong else row for number, row in enumerate(rows)]), wrong


def decoded(columns: list[pa.Array], count: int, wrong: Mapping[int, str]) -> Decoded:
    """``count`` rows, of which these are wrong."""
    bad = np.zeros(count, dtype=np.bool_)
    bad[list(wrong)] = True
    return Decoded(columns, bad, wrong[min(wrong)] if wrong else "")


@dataclasses.dataclass(frozen=True, slots=True)
class StringBodies:
    """Bodies that are text in UTF-8: one column, or none."""

    wanted: int

    @classmethod
    def of(cls, fields: StructType) -> StringBodies:
        if len(fields) > 1 or any(not isinstance(field.dataType, StringType) for field in fields.fields):
            raise OptionError(f"bodyFormat string gives one column of type string, not {fields.simpleString()}")
        return cls(len(fields))

    def decode(self, bodies: pa.BinaryArray) -> Decoded:
        wrong: dict[int, str] = {}
        try:
            texts = bodies.cast(pa.string())
        except pa.ArrowInvalid:
            found: list[Any] = bodies.to_pylist()
            for number, body in enumerate(found):
                try:
                    found[number] = None if body is None else body.decode()
                except UnicodeDecodeError as error:
                    found[number], wrong[number] = None, str(error)
            texts = pa.array(found, pa.string())
        return decoded([texts][: self.wanted], len(bodies), wrong)


@dataclasses.dataclass(frozen=True, slots=True)
class RequiredFields:
    """A decoder for which a body without a value for some of the columns is bad."""

    decoder: BodyDecoder
    required: list[int]
    names: list[str]

    def decode(self, bodies: pa.BinaryArray) -> Decoded:
        found = self.decoder.decode(bodies)
        bad, reason = found.bad.copy(), found.reason
        first = int(bad.argmax()) if bad.any() else len(bad)
        for number in self.required:
            lacking = found.columns[number].is_null().to_numpy(zero_copy_only=False) & ~found.bad
            if lacking.any():
                bad |= lacking
                if int(lacking.argmax()) < first:
                    first, reason = int(lacking.argmax()), f"{self.names[number]} is missing"
        return Decoded(found.columns, bad, reason)
