"""Columns from JSON and text bodies, of the types that Spark expects; unreadable bodies are marked and reported."""

from __future__ import annotations

import datetime
import math
import pickle
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
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
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

from orbitmq.spark.body.decoder import Decoded, decoder_for, fields_of
from orbitmq.spark.errors import OptionError

UTC = datetime.UTC
JSON = {"bodyFormat": "json"}


def struct(**fields: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in fields.items()])


def read(fields: StructType, *bodies: bytes | None, **options: str) -> Decoded:
    """As a reader does, after the decoder has travelled to it."""
    decoder = pickle.loads(pickle.dumps(decoder_for({**JSON, **options}, fields)))
    found: Decoded = decoder.decode(pa.array(bodies, pa.binary()))
    assert [column.type for column in found.columns] == to_arrow_schema(fields, timezone="UTC").types
    assert all(len(column) == len(bodies) for column in found.columns)
    assert len(found.bad) == len(bodies)
    assert bool(found.reason) == bool(found.bad.any())
    for column in found.columns:
        column.validate(full=True)
        assert not column.filter(pa.array(found.bad)).drop_null()
    return found


def value(kind: DataType, text: str, **options: str) -> Any:
    """The column value of this type for a value in a document; ValueError if the document is bad."""
    alone = read(struct(a=kind), f'{{"a":{text}}}'.encode(), **options)
    if alone.bad[0]:
        raise ValueError(alone.reason)
    return alone.columns[0][0].as_py()


def values(found: Decoded) -> list[Any]:
    return [column.to_pylist() for column in found.columns]


def test_fields_of_every_type() -> None:
    fields = struct(
        flag=BooleanType(),
        tiny=ByteType(),
        small=ShortType(),
        whole=IntegerType(),
        big=LongType(),
        single=FloatType(),
        double=DoubleType(),
        text=StringType(),
        data=BinaryType(),
        price=DecimalType(10, 2),
        day=DateType(),
        moment=TimestampType(),
        clock=TimestampNTZType(),
        list=ArrayType(IntegerType()),
        map=MapType(StringType(), DecimalType(5, 1)),
        inner=struct(x=LongType(), y=ArrayType(struct(z=DateType()))),
    )
    body = b"""{"flag": true, "tiny": -128, "small": 32767, "whole": 7, "big": 9223372036854775807, "single": 1.1,
        "double": 0.1, "text": "\\u00e9\\ud83d\\ude00\xc3\xa9", "data": "aGVsbG8=", "price": 19.99,
        "day": "2024-02-29", "moment": "2024-01-02T03:04:05.678+02:00", "clock": "2024-01-02 03:04:05",
        "list": [1, null, 3], "map": {"a": 1.5, "b": null}, "inner": {"x": 1, "y": [{"z": "2024-01-02"}, {}, null]},
        "more": {"nobody": ["asked"]}}"""
    found = read(fields, body)
    assert not found.bad.any()
    expected = {
        "flag": True,
        "tiny": -128,
        "small": 32767,
        "whole": 7,
        "big": 2**63 - 1,
        "single": pytest.approx(1.1),
        "double": 0.1,
        "text": "é😀é",
        "data": b"hello",
        "price": Decimal("19.99"),
        "day": datetime.date(2024, 2, 29),
        "moment": datetime.datetime(2024, 1, 2, 1, 4, 5, 678000, UTC),
        "clock": datetime.datetime(2024, 1, 2, 3, 4, 5),
        "list": [1, None, 3],
        "map": [("a", Decimal("1.5")), ("b", None)],
        "inner": {"x": 1, "y": [{"z": datetime.date(2024, 1, 2)}, {"z": None}, None]},
    }
    assert {name: column[0].as_py() for name, column in zip(fields.names, found.columns, strict=True)} == expected
    for name in fields.names:
        # Alone, most of them are read another way.
        assert read(StructType([fields[name]]), body).columns[0][0].as_py() == expected[name], name


def test_missing_fields_nulls_and_empty_bodies_are_null() -> None:
    fields = struct(a=LongType(), b=StringType())
    found = read(fields, b"{}", b'{"a":null}', b'{"A":1,"b":"x"}', b"", b" \r\n", None)
    assert values(found) == [[None] * 6, [None, None, "x", None, None, None]]
    assert not found.bad.any()


def test_bodies_may_have_lines_and_blanks() -> None:
    found = read(struct(a=LongType()), b'{\n  "a":\r\n 1\n}\n', b'\t{"a":2}  ', b'{"a":3}')
    assert values(found) == [[1, 2, 3]]


def test_a_mark_of_the_byte_order_is_skipped() -> None:
    assert values(read(struct(a=LongType()), b'\xef\xbb\xbf{"a":1}', b'{"a":2}')) == [[1, 2]]


def test_the_last_of_two_fields_of_a_name_counts() -> None:
    assert value(LongType(), '1,"a":2') == 2
    assert value(MapType(StringType(), LongType()), '{"x":1,"x":2}') == [("x", 2)]


@pytest.mark.parametrize(
    "body",
    [
        b"null",
        b"1",
        b'"x"',
        b"[]",
        b'[{"a":1}]',
        b'{"a":1',
        b'{"a":1}x',
        b'{"a":1}{"a":2}',
        b'{"a":1} null',
        b'{"a":1}\n{"a":2}',
        b'{"a":1}\x00',
        b"{'a':1}",
        b"{a:1}",
        b'{"a":1,}',
        b'{"a":01}',
        b'{"a":+1}',
        b'{"b":Inf}',
        b'{"b":-NaN}',
        b'{"b":"\xff"}',
        b'{"b":"\t"}',
        b'{"b":"\\x"}',
        b'{"a":1}//',
        b"\xc2\xa0{}",
        b"{" * 100_000,
        b'{"b":' + b"[" * 100_000 + b"}",
    ],
)
def test_a_body_that_is_no_document_is_bad_and_harms_no_other(body: bytes) -> None:
    fields = struct(a=LongType())
    for bodies in ([body], [body, b'{"a":5}'], [b'{"a":5}', body, b'{"a":6}'], [b'{"a":5}', body, body, b"{}"]):
        found = read(fields, *bodies)
        assert found.bad.tolist() == [each is body for each in bodies]
        assert values(found) == [[{b'{"a":5}': 5, b'{"a":6}': 6}.get(each) for each in bodies]]
        assert "JSON" in found.reason


def test_broken_bodies_that_fit_together_are_still_broken() -> None:
    found = read(struct(a=LongType()), b'{"a":1,"b":[{}', b'{}],"c":{}}', b'{"a":2}{"a":3}', b'{"a":4}')
    assert found.bad.tolist() == [True, True, True, False]
    assert values(found) == [[None, None, None, 4]]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (IntegerType(), '"1"'),
        (IntegerType(), "1.0"),
        (IntegerType(), "1e3"),
        (IntegerType(), "2147483648"),
        (IntegerType(), "true"),
        (ByteType(), "128"),
        (LongType(), "9223372036854775808"),
        (LongType(), "123456789012345678901234567890"),
        (LongType(), "NaN"),
        (BooleanType(), "1"),
        (BooleanType(), '"true"'),
        (DoubleType(), '"1.5"'),
        (DoubleType(), "true"),
        (DecimalType(4, 2), "100"),
        (DecimalType(4, 2), "99.995"),
        (DecimalType(38, 10), "1" * 30),
        (DecimalType(38, 38), "-1e28"),
        (ArrayType(DecimalType(38, 10)), f"[{'1' * 30}]"),
        (DecimalType(4, 2), '"x"'),
        (DecimalType(4, 2), '" 1"'),
        (DecimalType(4, 2), "true"),
        (DecimalType(4, 2), "NaN"),
        (DecimalType(4, 2), "1e999999999999999999999"),
        (DateType(), '"2024-02-30"'),
        (DateType(), "5"),
        (TimestampType(), '"yesterday"'),
        (TimestampType(), '"2024-01-02T24:00:00"'),
        (TimestampType(), '"2024-01-02T03:04:05 Mars/Olympus"'),
        (TimestampType(), "1.5"),
        (TimestampType(), "9223372036854775807"),
        (TimestampNTZType(), '"2024-01-02T03:04:05Z"'),
        (TimestampNTZType(), "5"),
        (BinaryType(), '"!"'),
        (BinaryType(), '"aGVsbG8"'),
        (ArrayType(LongType()), "1"),
        (ArrayType(LongType()), '[1,"x"]'),
        (MapType(StringType(), LongType()), "[1]"),
        (MapType(StringType(), LongType()), '{"x":"y"}'),
        (struct(x=LongType()), "5"),
        (struct(x=LongType()), '[{"x":1}]'),
        (struct(x=LongType()), '{"x":"y"}'),
    ],
)
def test_a_value_of_another_kind_makes_the_body_bad(kind: DataType, text: str) -> None:
    with pytest.raises(ValueError, match=r"^a\b|out of bounds|too large|int too big|does not fit"):
        value(kind, text)
    found = read(struct(a=kind, b=LongType()), f'{{"a":{text},"b":1}}'.encode(), b'{"b":2}')
    assert found.bad.tolist() == [True, False]
    assert found.columns[1].to_pylist() == [None, 2]


def test_numbers_are_rounded_once() -> None:
    assert value(DecimalType(10, 2), "1.545") == Decimal("1.55")
    assert value(DecimalType(10, 2), "-1.555") == Decimal("-1.56")
    assert value(DecimalType(38, 10), "1234567890123456789012345678.0123456789") == Decimal(
        "1234567890123456789012345678.0123456789"
    )
    assert value(DecimalType(10, 2), '"1,000.5"') == Decimal("1000.50")
    assert value(DecimalType(10, 2), "1e3") == Decimal(1000)
    assert value(DecimalType(10, 2), "1e-400") == Decimal(0)
    # The double nearest to these digits lies exactly between two floats.
    assert value(FloatType(), "1.00000005960464478") == 1.0000001192092896
    assert value(ArrayType(FloatType()), '[1.00000005960464478,"NaN"]')[0] == 1.0000001192092896


def test_numbers_beyond_a_double_are_infinite() -> None:
    assert value(DoubleType(), "1e400") == math.inf
    assert value(DoubleType(), "-" + "9" * 400) == -math.inf
    assert value(FloatType(), "1e39") == math.inf
    assert value(DoubleType(), "12345678901234567890123") == 1.2345678901234568e22


@pytest.mark.parametrize("text", ["Infinity", '"Infinity"', '"+Infinity"', '"INF"', '"+INF"', "1e999"])
def test_infinity_has_names(text: str) -> None:
    for kind in (DoubleType(), FloatType()):
        assert value(kind, text) == math.inf
        assert math.isnan(value(kind, "NaN"))
        assert math.isnan(value(kind, '"NaN"'))
        assert value(kind, '"-INF"') == value(kind, "-Infinity") == -math.inf


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1", "1"),
        ("1.50", "1.50"),
        ("1e5", "1e5"),
        ("123456789012345678901234567890", "123456789012345678901234567890"),
        ("true", "true"),
        ('{"x": 1.50, "y": [null, false, "é\\"", {}]}', '{"x":1.50,"y":[null,false,"é\\"",{}]}'),
        ("[]", "[]"),
        ('"\\ud83d"', "?"),
        ('"\\ude00\\ud83d\\ude00\\\\ud83d"', "?😀\\ud83d"),
        ('"x\\u0000y"', "x\0y"),
        ("NaN", "NaN"),
    ],
)
def test_anything_can_be_text(text: str, expected: str) -> None:
    assert value(StringType(), text) == expected
    assert value(ArrayType(StringType()), f"[{text}]") == [expected]


def test_a_half_of_a_character_in_a_field_that_was_not_requested_does_not_matter() -> None:
    assert value(LongType(), '1,"b":"\\ud83d"') == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2024-01-02", "2024-01-02"),
        ("2024-1-2", "2024-01-02"),
        ("2024-03", "2024-03-01"),
        ("2024", "2024-01-01"),
        ("2024-01-02T03:04:05Z", "2024-01-02"),
        (" 2024-01-02 whatever", "2024-01-02"),
        ("0001-01-01", "0001-01-01"),
        ("9999-12-31", "9999-12-31"),
    ],
)
def test_dates_have_many_forms(text: str, expected: str) -> None:
    assert value(DateType(), f'"{text}"') == datetime.date.fromisoformat(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2024-01-02T03:04:05Z", "2024-01-02T03:04:05"),
        ("2024-01-02T03:04:05+02:00", "2024-01-02T01:04:05"),
        ("2024-01-02T03:04:05-0230", "2024-01-02T05:34:05"),
        ("2024-01-02T03:04:05+2", "2024-01-02T01:04:05"),
        ("2024-01-02T03:04:05+02:00:30", "2024-01-02T01:03:35"),
        ("2024-01-02T03:04:05 GMT+01:00", "2024-01-02T02:04:05"),
        ("2024-01-02T03:04:05UTC", "2024-01-02T03:04:05"),
        ("2024-07-02T03:04:05 Europe/Paris", "2024-07-02T01:04:05"),
        ("2024-01-02 03:04:05", "2024-01-02T03:04:05"),
        ("2024-1-2 3:4:5", "2024-01-02T03:04:05"),
        ("2024-01-02T03:04", "2024-01-02T03:04:00"),
        ("2024-01-02T03", "2024-01-02T03:00:00"),
        ("2024-01-02", "2024-01-02T00:00:00"),
        ("2024-03", "2024-03-01T00:00:00"),
        ("2024", "2024-01-01T00:00:00"),
        (" 2024-01-02T03:04:05.Z ", "2024-01-02T03:04:05"),
        ("2024-01-02T03:04:05.1", "2024-01-02T03:04:05.1"),
        ("2024-01-02T03:04:05.123456789Z", "2024-01-02T03:04:05.123456"),
        ("1500-01-01T00:00:00Z", "1500-01-01T00:00:00"),
    ],
)
def test_timestamps_have_many_forms(text: str, expected: str) -> None:
    assert value(TimestampType(), f'"{text}"') == datetime.datetime.fromisoformat(expected).replace(tzinfo=UTC)


def test_a_whole_number_is_a_timestamp_in_seconds() -> None:
    assert value(TimestampType(), "1704164645") == datetime.datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)


def test_a_year_without_a_number_in_python_is_a_year() -> None:
    found = read(
        struct(a=TimestampType(), b=DateType()), b'{"a":"0000-03-01T00:00:00 Asia/Tokyo","b":"0000-02-29"}'
    )
    assert not found.bad.any()
    assert found.columns[1].cast(pa.int32()).to_pylist() == [-719469]


@pytest.mark.parametrize(
    ("zone", "text", "expected"),
    [
        ("Europe/Paris", "2024-01-02T03:04:05", "2024-01-02T02:04:05"),
        ("Europe/Paris", "2024-01-02T03:04:05Z", "2024-01-02T03:04:05"),
        ("Europe/Paris", "2024-10-27T02:30:00", "2024-10-27T00:30:00"),  # the first time the clocks show it
        ("Europe/Paris", "2024-03-31T02:30:00", "2024-03-31T01:30:00"),  # clocks never show it
        ("+05:30", "2024-01-02", "2024-01-01T18:30:00"),
    ],
)
def test_timestamps_without_zone_are_in_the_time_zone(zone: str, text: str, expected: str) -> None:
    moment = datetime.datetime.fromisoformat(expected).replace(tzinfo=UTC)
    assert value(TimestampType(), f'"{text}"', timeZone=zone) == moment
    assert value(TimestampNTZType(), '"2024-01-02"', timeZone=zone) == datetime.datetime(2024, 1, 2)


def test_one_odd_body_among_thousands_changes_no_other() -> None:
    bodies = [b'{"a":%d,"b":"%s"}' % (number, b"x" * 300) for number in range(9000)]
    bodies[5] = b'{"a":5,"b":5}'
    bodies[4000] = b'{"a":"oops"}'
    bodies[4001] = b"oops"
    bodies[8999] = b'{"b":[1]}\n'
    found = read(struct(a=IntegerType(), b=StringType()), *bodies)
    assert found.bad.nonzero()[0].tolist() == [4000, 4001]
    assert "a is not a whole number" in found.reason
    numbers: list[int | None] = list(range(9000))
    numbers[4000] = numbers[4001] = numbers[8999] = None
    assert found.columns[0].to_pylist() == numbers
    texts = found.columns[1].to_pylist()
    assert (texts[5], texts[8999], texts[4000]) == ("5", "[1]", None)
    assert texts.count("x" * 300) == 8996


def test_part_of_a_longer_array_is_read() -> None:
    decoder = decoder_for(JSON, struct(a=LongType()))
    bodies = pa.array([b"x", b'{"a":1}', b'{"a":2}', b"y", b'{"a":3}'], pa.binary())
    assert decoder.decode(bodies[1:3]).columns[0].to_pylist() == [1, 2]
    assert decoder.decode(bodies[2:]).columns[0].to_pylist() == [2, None, 3]
    assert decoder.decode(bodies[:0]).columns[0].to_pylist() == []


def test_without_fields_bodies_are_still_checked() -> None:
    found = read(StructType(), b"{}", b"oops", b'{"a":1}')
    assert found.columns == []
    assert found.bad.tolist() == [False, True, False]


def test_a_body_without_a_required_field_is_bad() -> None:
    fields = StructType([StructField("a", LongType(), nullable=False), StructField("b", StringType())])
    decoder = pickle.loads(pickle.dumps(decoder_for(JSON, fields, "DROPMALFORMED")))
    found: Decoded = decoder.decode(pa.array([b'{"a":1}', b'{"b":"x"}', b"oops"], pa.binary()))
    assert found.bad.tolist() == [False, True, True]
    assert found.reason == "a is missing"
    with pytest.raises(OptionError, match="a is NOT NULL, but mode PERMISSIVE"):
        decoder_for(JSON, fields, "PERMISSIVE")


def test_text_is_checked() -> None:
    fields = fields_of({"bodyFormat": "string"})
    assert fields == struct(body=StringType())
    decoder = pickle.loads(pickle.dumps(decoder_for({"bodyformat": "STRING"}, fields, "PERMISSIVE")))
    found: Decoded = decoder.decode(pa.array(["é".encode(), b"", b"x"], pa.binary()))
    assert values(found) == [["é", "", "x"]]
    assert found.bad.tolist() == [False, False, False]
    found = decoder.decode(pa.array([b"a", b"\xff", b"b", None], pa.binary()))
    assert values(found) == [["a", None, "b", None]]
    assert found.bad.tolist() == [False, True, False, False]
    assert "0xff" in found.reason


@pytest.mark.parametrize(
    ("options", "fields", "sentence"),
    [
        ({}, struct(), "bodyFormat is None: choose from json, avro, protobuf, string"),
        ({"bodyFormat": "xml"}, struct(), "bodyFormat is 'xml'"),
        ({"bodyFormat": "string"}, struct(a=LongType()), "one column of type string, not struct<a:bigint>"),
        ({"bodyFormat": "string"}, struct(a=StringType(), b=StringType()), "one column of type string"),
        ({**JSON, "timeZone": "Mars"}, struct(), "timeZone: there is not a time zone 'Mars'"),
        (JSON, StructType([StructField("a", LongType())] * 2), "a field is named twice in a, a"),
        (
            JSON,
            struct(a=StructType([StructField("x", LongType())] * 2)),
            "a field of a is named twice in x, x",
        ),
        (JSON, struct(a=MapType(LongType(), LongType())), "a has keys of type int64: names in JSON are strings"),
        (JSON, struct(a=VariantType()), "a cannot be read from JSON as struct"),
        (JSON, struct(a=ArrayType(NullType())), "a.element cannot be read from JSON as null"),
        (
            JSON,
            struct(a=ArrayType(LongType(), containsNull=False)),
            "a.element is NOT NULL, which only whole columns",
        ),
        (
            JSON,
            struct(a=StructType([StructField("x", LongType(), nullable=False)])),
            "a.x is NOT NULL, which only whole columns",
        ),
    ],
)
def test_what_cannot_be_is_refused_when_a_query_is_planned(
    options: dict[str, str], fields: StructType, sentence: str
) -> None:
    with pytest.raises(OptionError) as refused:
        decoder_for(options, fields)
    assert sentence in str(refused.value)


def test_a_mode_that_is_none_is_refused() -> None:
    with pytest.raises(OptionError, match="mode is 'LENIENT': choose from FAILFAST, PERMISSIVE, DROPMALFORMED"):
        decoder_for(JSON, StructType(), "LENIENT")


def test_json_does_not_name_its_fields() -> None:
    assert fields_of(JSON) is None
