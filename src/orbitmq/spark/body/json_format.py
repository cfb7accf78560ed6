"""The JSON body format, with the semantics of Spark's from_json.

Two ways lead to the same columns. Most bodies are read by Arrow's JSON reader, a mebibyte at a time; what it does
not take (a number where text is wanted, a rounded decimal, an unusual date, a broken document) is read row by
row, and that reading has the last word. Arrow has to be kept from being more lenient, so that what a body means
does not depend on its neighbours:

- It reads a stream of documents, not one document per line. But when every body begins with a brace and ends with
  one, a line feed between them is where a document ends: inside one, no object follows an object without a comma,
  and a raw line feed in a string is an error. So every body holds at least one whole document, and as many rows
  as bodies means exactly one each.
- It accepts ``Inf`` and ``-NaN``, and text that is not UTF-8 in fields outside the schema: both are checked for.
- It does not count the digits of a decimal after scaling it, and lets them overflow: it reads into wider decimals.
- It ends the process when the first document is a bare ``null``: that does not begin with a brace.
"""

from __future__ import annotations

import dataclasses
import datetime
import itertools
import json
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from orbitmq.spark.body.decoder import UNFIT, Decoded, arrow_types, columns_of_rows, decoded
from orbitmq.spark.body.json_values import DigitsLost, Reading, Real, column, reading_of
from orbitmq.spark.body.temporal import zone_of
from orbitmq.spark.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql.types import StructType

_BLOCK = 1 << 20
"""Bytes that Arrow reads at once: fewer cost calls, many more cost caches."""

_CHUNK_ROWS = 256
"""Rows tried together after a block failed, so that one odd body does not slow down thousands."""

_NOT_JSON = re.compile(rb"[:,\[]\s*-?(?:Inf|Infinity|NaN)\s*[,\]}]")
_SURROGATES = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u([dD][89a-fA-F][0-9a-fA-F]{2})|\\.", re.DOTALL
)
_BLANKS = " \t\r\n"

_digits_kept = json.JSONDecoder(parse_float=Real, parse_constant=Real).decode

_Rows = tuple[list[pa.Array], dict[int, str]]


@dataclasses.dataclass(frozen=True, slots=True)
class JsonBodies:
    """Decodes bodies that are JSON objects."""

    names: list[str]
    types: list[pa.DataType]
    time_zone: str = "UTC"
    readings: list[Reading] = dataclasses.field(init=False, repr=False, compare=False)
    block_schema: pa.Schema | None = dataclasses.field(init=False, repr=False, compare=False)
    """The schema for Arrow's reader; None if it cannot read these types."""

    @classmethod
    def of(cls, given: Mapping[str, str], fields: StructType) -> JsonBodies:
        """From options with names in lower case. Raises OptionError."""
        return cls(list(fields.names), arrow_types(fields), given.get("timezone", "UTC"))

    def __post_init__(self) -> None:
        try:
            zone = zone_of(self.time_zone)
        except ValueError as error:
            raise OptionError(f"timeZone: {error}") from error
        pairs = list(zip(self.names, self.types, strict=True))
        object.__setattr__(self, "readings", [reading_of(name, kind, zone) for name, kind in pairs])
        in_blocks = [_type_in_blocks(kind, zone) for _, kind in pairs]
        possible = all(kind is not None for kind in in_blocks) and bool(pairs)
        schema = pa.schema(list(zip(self.names, in_blocks, strict=True))) if possible else None
        object.__setattr__(self, "block_schema", schema)

    def __reduce__(self) -> tuple[Any, ...]:
        return JsonBodies, (self.names, self.types, self.time_zone)

    def decode(self, bodies: pa.BinaryArray) -> Decoded:
        """The fields of each body; those of an empty body are null."""
        count = len(bodies)
        if self.block_schema is None or count == 0:
            columns, wrong = self._row_by_row(bodies)
            return decoded(columns, count, wrong)
        braced = _in_braces(bodies)
        if braced.all():
            columns, wrong = self._in_blocks(bodies)
            return decoded(columns, count, wrong)
        plain, odd = np.flatnonzero(braced), np.flatnonzero(~braced)
        first, wrong_of_plain = self._in_blocks(bodies.take(pa.array(plain)))
        second, wrong_of_odd = self._row_by_row(bodies.take(pa.array(odd)))
        order = pa.array(np.argsort(np.concatenate([plain, odd])))
        columns = [pa.concat_arrays(both).take(order) for both in zip(first, second, strict=True)]
        wrong = {int(plain[row]): why for row, why in wrong_of_plain.items()}
        wrong |= {int(odd[row]): why for row, why in wrong_of_odd.items()}
        return decoded(columns, count, wrong)

    def _in_blocks(self, bodies: pa.BinaryArray) -> _Rows:
        """Bodies in braces: by Arrow where it can."""
        parts: list[list[pa.Array]] = []
        wrong: dict[int, str] = {}
        for start, end in _blocks(bodies):
            block = bodies[start:end]
            columns = self._block(block)
            if columns is not None:
                parts.append(columns)
                continue
            for first in range(0, len(block), _CHUNK_ROWS):
                chunk = block[first : first + _CHUNK_ROWS]
                columns = self._block(chunk)
                if columns is None:
                    columns, wrong_of_chunk = self._row_by_row(chunk)
                    wrong |= {start + first + row: why for row, why in wrong_of_chunk.items()}
                parts.append(columns)
        if not parts:
            return [pa.array([], kind) for kind in self.types], wrong
        return parts[0] if len(parts) == 1 else [pa.concat_arrays(each) for each in zip(*parts, strict=True)], wrong

    def _block(self, bodies: pa.BinaryArray) -> list[pa.Array] | None:
        """The columns of bodies in braces, if Arrow reads them all as they are to be read."""
        lines = pa.ListArray.from_arrays(pa.array([0, len(bodies)], pa.int32()), bodies)
        data: bytes = pc.binary_join(lines, b"\n")[0].as_py()
        if (b"Inf" in data or b"NaN" in data) and _NOT_JSON.search(data):
            return None
        try:
            bodies.cast(pa.string())
            table = pyarrow.json.read_json(
                pa.BufferReader(data),
                read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=len(data) + 1),
                parse_options=pyarrow.json.ParseOptions(
                    explicit_schema=self.block_schema, unexpected_field_behavior="ignore"
                ),
            )
            if table.num_rows != len(bodies):
                return None
            return [
                pa.concat_arrays(part.cast(kind).chunks)
                for part, kind in zip(table.columns, self.types, strict=True)
            ]
        except pa.ArrowInvalid:
            return None

    def _row_by_row(self, bodies: pa.BinaryArray) -> _Rows:
        """The last word about what bodies mean."""
        texts = bodies.to_pylist()
        load = _loaded if any(map(_wants_digits, self.types)) else _quickly_loaded
        rows, broken = _parsed(texts, load)
        try:
            columns, wrong = columns_of_rows(rows, self._columns)
        except DigitsLost:
            rows, broken = _parsed(texts, _loaded)
            columns, wrong = columns_of_rows(rows, self._columns)
        return columns, wrong | broken

    def _columns(self, rows: Sequence[dict[str, Any] | None]) -> list[pa.Array]:
        return [
            column([None if row is None else row.get(name) for row in rows], reading)
            for name, reading in zip(self.names, self.readings, strict=True)
        ]


def _type_in_blocks(arrow: pa.DataType, zone: datetime.tzinfo) -> pa.DataType | None:
    """The type that Arrow's reader returns for this type before a cast; None if it has none."""
    if pa.types.is_date(arrow):
        return pa.string()
    if pa.types.is_timestamp(arrow) and (arrow.tz is None or zone is not datetime.UTC):
        # The reader takes a timestamp without zone as UTC, and does not mind one with a zone; casts refuse both.
        return pa.string()
    if pa.types.is_decimal128(arrow):
        return pa.decimal256(
            arrow.precision, arrow.scale
        )  # wide enough for digits times scale; the cast counts them
    if pa.types.is_list(arrow):
        element = _type_in_blocks(arrow.value_type, zone)
        return None if element is None else pa.list_(pa.field("element", element))
    if pa.types.is_struct(arrow):
        parts = [(field.name, _type_in_blocks(field.type, zone)) for field in arrow]
        return None if any(kind is None for _, kind in parts) else pa.struct(parts)
    if pa.types.is_binary(arrow) or pa.types.is_map(arrow):
        return None
    return arrow


def _wants_digits(arrow: pa.DataType) -> bool:
    """True if a double may lose digits of a number or round it twice."""
    if pa.types.is_nested(arrow):
        return any(_wants_digits(arrow.field(number).type) for number in range(arrow.num_fields))
    return bool(pa.types.is_decimal(arrow) or pa.types.is_float32(arrow))


def _in_braces(bodies: pa.BinaryArray) -> Any:
    """Which bodies begin with ``{`` and end with ``}``, blanks aside."""
    offsets = np.frombuffer(bodies.buffers()[1], dtype=np.int32)[bodies.offset : bodies.offset + len(bodies) + 1]
    if bodies.buffers()[2] is None:
        return np.zeros(len(bodies), dtype=np.bool_)
    data = np.frombuffer(bodies.buffers()[2], dtype=np.uint8)
    filled = offsets[1:] > offsets[:-1]
    if not len(data):
        return filled
    last = np.minimum(offsets[:-1], len(data) - 1)
    braced = filled & (data[last] == ord("{")) & (data[offsets[1:] - 1] == ord("}"))
    for row in np.flatnonzero(~braced & filled):
        body = data[offsets[row] : offsets[row + 1]].tobytes().strip(_BLANKS.encode())
        braced[row] = body.startswith(b"{") and body.endswith(b"}")
    return braced


def _blocks(bodies: pa.BinaryArray) -> list[tuple[int, int]]:
    """The split points for blocks of the size that Arrow reads fastest."""
    offsets = np.frombuffer(bodies.buffers()[1], dtype=np.int32)[bodies.offset : bodies.offset + len(bodies) + 1]
    block_of = (offsets[:-1].astype(np.int64) - int(offsets[0])) // _BLOCK
    cuts = [0, *(np.flatnonzero(np.diff(block_of)) + 1).tolist(), len(bodies)]
    return [(start, end) for start, end in itertools.pairwise(cuts) if end > start]


def _parsed(texts: Sequence[bytes | None], load: Any) -> tuple[list[dict[str, Any] | None], dict[int, str]]:
    rows: list[dict[str, Any] | None] = []
    broken: dict[int, str] = {}
    for number, text in enumerate(texts):
        row = None
        try:
            row = load(text)
        except UNFIT as error:
            broken[number] = f"not a JSON document: {error}"
        else:
            if row is not None and type(row) is not dict:
                row, broken[number] = None, "not a JSON object"
        rows.append(row)
    return rows, broken


def _quickly_loaded(body: bytes | None) -> Any:
    """A document with floats for numbers. Raises one of UNFIT, and DigitsLost later if a float is not enough."""
    try:
        row = orjson.loads(body or b"")
    except orjson.JSONDecodeError:
        return _loaded(body)
    return [] if row is None else row


def _loaded(body: bytes | None) -> Any:
    """A document with Real for numbers; None if there is none. Raises one of UNFIT."""
    text = (body or b"").decode().removeprefix("\ufeff").strip(_BLANKS)
    if not text:
        return None
    if "\\ud" in text or "\\uD" in text:
        # Half of a character, which no column can hold, becomes a question mark as in Java.
        text = _SURROGATES.sub(lambda found: "?" if found[1] else found[0], text)
    row = _digits_kept(text)
    return [] if row is None else row
