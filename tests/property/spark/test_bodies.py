"""What a body means does not depend on its neighbours, and no body makes a decoder fail."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
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

from orbitmq.spark.body.decoder import BodyDecoder, decoder_for

if TYPE_CHECKING:
    from collections.abc import Iterable

# Machines that run the tests are busy; how long an example takes says nothing.
unhurried = settings(deadline=None)

NAMES = ("a", "b", "c")

SCALARS = st.sampled_from(
    [
        BooleanType(),
        ByteType(),
        IntegerType(),
        LongType(),
        FloatType(),
        DoubleType(),
        StringType(),
        DecimalType(6, 2),
        DecimalType(38, 18),
        DateType(),
        TimestampType(),
        TimestampNTZType(),
        BinaryType(),
    ]
)


def nested(inner: st.SearchStrategy[DataType]) -> st.SearchStrategy[DataType]:
    return st.one_of(inner.map(ArrayType), inner.map(lambda kind: MapType(StringType(), kind)), structs(inner))


def structs(inner: st.SearchStrategy[DataType]) -> st.SearchStrategy[StructType]:
    kinds = st.dictionaries(st.sampled_from(NAMES), inner, min_size=1, max_size=3)
    return kinds.map(lambda fields: StructType([StructField(name, kind) for name, kind in fields.items()]))


SCHEMAS = structs(st.recursive(SCALARS, nested, max_leaves=4))

NUMBERS = st.one_of(
    st.integers(-(2**70), 2**70).map(str),
    st.integers(-300, 300).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.decimals(allow_nan=False, allow_infinity=False, places=3).map(str),
    st.sampled_from(
        ["1e3", "1E+2", "-0", "0.10", "1e400", "NaN", "-Infinity", "Inf", "-NaN", "01", "1e-400", "1" * 30]
    ),
)
TIMES = st.one_of(
    st.datetimes().map(lambda moment: moment.isoformat()),
    st.datetimes().map(lambda moment: f"{moment.isoformat(' ', 'seconds')}+02:00"),
    st.datetimes().map(lambda moment: f"{moment.isoformat()}Z"),
    st.dates().map(str),
    st.from_regex(
        r"\A[012]\d{3}(-[01]?\d(-[0-3]?\d([ T]\d\d?(:\d\d?(:\d\d(\.\d*)?)?)?(Z|[+-]\d\d?(:?\d\d)?)?)?)?)?\Z"
    ),
)
WORDS = st.one_of(
    st.text(max_size=5),
    TIMES,
    st.sampled_from(
        ["NaN", "INF", "1.5", "12,345.678", "aGVsbG8=", "\ud83d", "😀", "\0", "\x7f", "1" * 30, "1e28"]
    ),
)


def texts(words: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(words, st.booleans()).map(lambda pair: _quoted(*pair))


def _quoted(word: str, ascii_only: bool) -> str:
    return json.dumps(word, ensure_ascii=ascii_only or "\ud83d" in word)


def containers(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.lists(inner, max_size=3).map(lambda parts: f"[{', '.join(parts)}]"),
        objects(inner),
    )


def objects(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    pairs = st.lists(st.tuples(st.sampled_from([*NAMES, "d"]), inner), max_size=4)
    return pairs.map(written)


def written(items: Iterable[tuple[str, str]]) -> str:
    return "{" + ",".join(f'"{name}": {value}' for name, value in items) + "}"


VALUES = st.recursive(
    st.one_of(NUMBERS, texts(WORDS), st.sampled_from(["null", "true", "false"])), containers, max_leaves=6
)
DOCUMENTS = objects(VALUES).map(lambda text: text.encode())
SCRAPS = st.lists(
    st.sampled_from(
        [
            b"{",
            b"}",
            b"[",
            b"]",
            b",",
            b":",
            b'"a"',
            b'"',
            b"1",
            b"null",
            b"{}",
            b"\n",
            b" ",
            b"\0",
            b"\xff",
            b"\\",
            b"-",
        ]
    ),
    max_size=12,
).map(b"".join)
BODIES = st.one_of(
    DOCUMENTS,
    DOCUMENTS.map(lambda body: b" " + body + b"\n"),
    SCRAPS,
    st.tuples(DOCUMENTS, SCRAPS).map(b"".join),
    st.tuples(DOCUMENTS, st.integers(0, 50)).map(lambda cut: cut[0][: cut[1]]),
    st.binary(max_size=8),
)


def rows(decoder: BodyDecoder, bodies: list[bytes]) -> list[tuple[Any, ...]]:
    """Rows as they can be compared, and whether they are bad."""
    found = decoder.decode(pa.array(bodies, pa.binary()))
    for column in found.columns:
        column.validate(full=True)
    # Moments before the year 1 are values of a column, but not of Python.
    columns = [_comparable(_whole(column).to_pylist()) for column in found.columns]
    return list(zip(found.bad.tolist(), *columns, strict=True))


def _whole(column: pa.Array) -> pa.Array:
    return column.cast(_with_numbers(column.type))


def _with_numbers(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_date(kind):
        return pa.int32()
    if pa.types.is_list(kind):
        return pa.list_(_with_numbers(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, _with_numbers(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _with_numbers(field.type)) for field in kind])
    return kind


def _comparable(value: Any) -> Any:
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value
    if isinstance(value, list | tuple):
        return [_comparable(part) for part in value]
    if isinstance(value, dict):
        return {name: _comparable(part) for name, part in value.items()}
    return value


@unhurried
@given(SCHEMAS, st.lists(BODIES, max_size=6), st.sampled_from(["UTC", "Europe/Paris"]))
@example(StructType([StructField("a", LongType())]), [b"null", b"{}"], "UTC")
@example(StructType([StructField("a", LongType())]), [b'{"a":1}{', b'}{"a":2}'], "UTC")
def test_a_body_means_the_same_alone_and_among_others(schema: StructType, bodies: list[bytes], zone: str) -> None:
    decoder = decoder_for({"bodyFormat": "json", "timeZone": zone}, schema)
    together = rows(decoder, bodies)
    assert together == [row for body in bodies for row in rows(decoder, [body])]
    # A broken body keeps those beside it from being read in one go.
    broken = b'{"a" 1}'
    assert rows(decoder, [broken, *bodies])[1:] == together


@unhurried
@given(st.lists(st.tuples(*(VALUES for _ in NAMES)), min_size=1, max_size=5))
def test_what_is_no_number_of_a_kind_is_still_text(documents: list[tuple[str, ...]]) -> None:
    schema = StructType([StructField(name, StringType()) for name in NAMES])
    decoder = decoder_for({"bodyFormat": "json"}, schema)
    bodies = [written(zip(NAMES, values, strict=True)).encode() for values in documents]
    for (bad, *found), values in zip(rows(decoder, bodies), documents, strict=True):
        if not bad:
            assert [value == "null" for value in values] == [value is None for value in found]


@unhurried
@given(st.lists(st.one_of(st.binary(max_size=10), st.text().map(lambda text: text.encode())), max_size=5))
def test_text_is_what_python_says_it_is(bodies: list[bytes]) -> None:
    decoder = decoder_for({"bodyFormat": "string"}, StructType([StructField("body", StringType())]))
    for body, (bad, text) in zip(bodies, rows(decoder, bodies), strict=True):
        if bad:
            assert text is None
            with pytest.raises(UnicodeDecodeError):
                body.decode()
        else:
            assert text == body.decode()
