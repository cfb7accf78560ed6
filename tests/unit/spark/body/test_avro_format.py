"""Avro records in bodies become columns; the Avro schema says which, and refuses what it cannot give."""

from __future__ import annotations

import builtins
import datetime
import io
import json
import pickle
import sys
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import fastavro
import fastavro.schema
import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
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

from orbitmq.spark.body.decoder import Decoded, decoder_for, fields_of
from orbitmq.spark.errors import OptionError

if TYPE_CHECKING:
    from pathlib import Path

MOMENT = datetime.datetime(2024, 1, 2, 3, 4, 5, 678000, datetime.UTC)


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "flag", "type": "boolean"},
        {"name": "whole", "type": "int"},
        {"name": "big", "type": "long"},
        {"name": "single", "type": "float"},
        {"name": "double", "type": "double"},
        {"name": "text", "type": ["null", "string"]},
        {"name": "data", "type": "bytes"},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 2}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "price", "type": logical("bytes", "decimal", precision=10, scale=2)},
        {"name": "rate", "type": {**logical("fixed", "decimal", precision=6, scale=4), "name": "Rate", "size": 4}},
        {"name": "day", "type": logical("int", "date")},
        {"name": "millis", "type": logical("long", "timestamp-millis")},
        {"name": "micros", "type": ["null", logical("long", "timestamp-micros")]},
        {"name": "local", "type": logical("long", "local-timestamp-micros")},
        {"name": "uuid", "type": logical("string", "uuid")},
        {"name": "either", "type": ["int", "null", "long"]},
        {"name": "list", "type": {"type": "array", "items": ["null", "int"]}},
        {"name": "map", "type": {"type": "map", "values": logical("int", "date")}},
        {
            "name": "items",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Item",
                    "fields": [{"name": "name", "type": "string"}, {"name": "hash", "type": "Hash"}],
                },
            },
        },
    ],
}
VALUES: dict[str, Any] = {
    "flag": True,
    "whole": -1,
    "big": 2**63 - 1,
    "single": 0.5,
    "double": 0.1,
    "text": "é",
    "data": b"\0\xff",
    "hash": b"ab",
    "state": "PAID",
    "price": Decimal("-19.99"),
    "rate": Decimal("1.2345"),
    "day": datetime.date(2024, 2, 29),
    "millis": MOMENT,
    "micros": MOMENT.replace(microsecond=678901),
    "local": MOMENT.replace(tzinfo=None),
    "uuid": "12345678-1234-5678-1234-567812345678",
    "either": 2**40,
    "list": [1, None],
    "map": {"a": datetime.date(1969, 12, 31)},
    "items": [{"name": "pen", "hash": b"cd"}],
}
KINDS: dict[str, DataType] = {
    "flag": BooleanType(),
    "whole": IntegerType(),
    "big": LongType(),
    "single": FloatType(),
    "double": DoubleType(),
    "text": StringType(),
    "data": BinaryType(),
    "hash": BinaryType(),
    "state": StringType(),
    "price": DecimalType(10, 2),
    "rate": DecimalType(6, 4),
    "day": DateType(),
    "millis": TimestampType(),
    "micros": TimestampType(),
    "local": TimestampNTZType(),
    "uuid": StringType(),
    "either": LongType(),
    "list": ArrayType(IntegerType()),
    "map": MapType(StringType(), DateType()),
    "items": ArrayType(StructType([StructField("name", StringType()), StructField("hash", BinaryType())])),
}
SMALL = {"type": "record", "name": "Small", "fields": [{"name": "a", "type": "long"}]}
A = StructType([StructField("a", LongType())])


def body(schema: dict[str, Any], values: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    fastavro.schemaless_writer(file, schema, values)
    return file.getvalue()


def options(schema: Any, **more: str) -> dict[str, str]:
    return {"bodyFormat": "avro", "avroSchema": schema if isinstance(schema, str) else json.dumps(schema), **more}


def read(given: dict[str, str], fields: StructType, *bodies: bytes | None) -> Decoded:
    """As a reader does, after the decoder has travelled to it."""
    decoder = pickle.loads(pickle.dumps(decoder_for(given, fields)))
    found: Decoded = decoder.decode(pa.array(bodies, pa.binary()))
    assert [column.type for column in found.columns] == to_arrow_schema(fields, timezone="UTC").types
    for column in found.columns:
        column.validate(full=True)
    assert bool(found.reason) == bool(found.bad.any())
    return found


def test_the_schema_names_the_columns() -> None:
    fields = fields_of(options(ORDER))
    assert fields == StructType([StructField(name, kind) for name, kind in KINDS.items()])


def test_every_type_is_read() -> None:
    fields = fields_of(options(ORDER))
    assert fields is not None
    empty = {**VALUES, "text": None, "micros": None, "either": None, "list": [], "map": {}, "items": []}
    found = read(options(ORDER), fields, body(ORDER, VALUES), body(ORDER, empty))
    assert not found.bad.any()
    for name, column in zip(fields.names, found.columns, strict=True):
        first, second = column.to_pylist()
        assert (dict(first) if name == "map" else first) == VALUES[name], name
        assert (dict(second) if name == "map" else second) == empty[name], name


def test_some_columns_in_another_order_and_wider_are_enough() -> None:
    fields = StructType(
        [
            StructField("price", DecimalType(20, 4)),
            StructField("whole", LongType()),
            StructField("items", ArrayType(StructType([StructField("hash", BinaryType())]))),
            StructField("single", DoubleType()),
            StructField("millis", LongType()),
        ]
    )
    found = read(options(ORDER), fields, body(ORDER, VALUES))
    assert [column[0].as_py() for column in found.columns] == [
        Decimal("-19.9900"),
        -1,
        [{"hash": b"cd"}],
        0.5,
        1704164645678,
    ]


def test_bodies_that_are_no_records_are_bad() -> None:
    good = body(ORDER, VALUES)
    fields = StructType([StructField("big", LongType()), StructField("text", StringType())])
    # The text is at the same place in every body; its bytes are no UTF-8 in one of them.
    garbled = good.replace("é".encode(), b"\xff\xff")
    found = read(options(ORDER), fields, good, good[:-1], good + b"\0", b"", None, b"\xff" * 30, garbled, good)
    assert found.bad.tolist() == [False, True, True, True, True, True, True, False]
    assert found.columns[0].to_pylist() == [2**63 - 1, *[None] * 6, 2**63 - 1]
    assert "Avro" in found.reason


def test_every_broken_record_is_bad_and_nothing_else_happens() -> None:
    good = body(ORDER, VALUES)
    fields = fields_of(options(ORDER))
    assert fields is not None
    cut = [good[:length] for length in range(len(good))]
    found = read(options(ORDER), fields, *cut)
    assert found.bad.all()
    changed = [
        good[:at] + bytes([good[at] ^ bit]) + good[at + 1 :] for at in range(len(good)) for bit in (1, 128, 255)
    ]
    read(options(ORDER), fields, *changed)


def test_a_decimal_with_more_digits_than_declared_is_bad() -> None:
    schema = {**SMALL, "fields": [{"name": "a", "type": logical("bytes", "decimal", precision=4, scale=2)}]}
    plain = {**SMALL, "fields": [{"name": "a", "type": "bytes"}]}
    fields = StructType([StructField("a", DecimalType(4, 2))])
    found = read(
        options(schema),
        fields,
        body(schema, {"a": Decimal("99.99")}),
        body(plain, {"a": (10_000).to_bytes(2, "big", signed=True)}),
        body(plain, {"a": b"\x7f" * 50}),
        body(plain, {"a": b""}),
    )
    assert found.columns[0].to_pylist() == [Decimal("99.99"), None, None, Decimal("0.00")]
    assert found.bad.tolist() == [False, True, True, False]


def test_the_id_of_a_schema_may_stand_before_a_record() -> None:
    record = body(SMALL, {"a": 7})
    bodies = [b"\0\0\0\0\x05" + record, b"\0\0\0\0\x06" + record, b"\x01\0\0\0\x05" + record, b"\0\0", record]
    found = read(options(SMALL, avroWire="confluent"), A, *bodies)
    assert found.columns[0].to_pylist() == [7, 7, None, None, None]
    found = read(options(SMALL, avroWire="confluent", avroSchemaId="5, 9"), A, *bodies)
    assert found.columns[0].to_pylist() == [7, None, None, None, None]
    assert found.bad.tolist() == [False, True, True, True, True]
    assert "it is written with schema 6" in found.reason


def test_the_fingerprint_of_the_schema_may_stand_before_a_record() -> None:
    canonical = fastavro.schema.to_parsing_canonical_form(SMALL)
    fingerprint = bytes.fromhex(fastavro.schema.fingerprint(canonical, "CRC-64-AVRO"))
    record = body(SMALL, {"a": 7})
    found = read(options(SMALL, avroWire="single"), A, b"\xc3\x01" + fingerprint + record, b"\xc3\x01" + record)
    assert found.columns[0].to_pylist() == [7, None]
    assert "fingerprint" in found.reason


def test_the_schema_may_be_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "order.avsc"
    file.write_text(json.dumps(SMALL))
    decoder = decoder_for(options(str(file)), A)
    file.unlink()  # those who read may be on another machine
    decoder = pickle.loads(pickle.dumps(decoder))
    assert decoder.decode(pa.array([body(SMALL, {"a": 7})], pa.binary())).columns[0].to_pylist() == [7]


def test_a_record_that_contains_itself_is_read_to_the_given_depth() -> None:
    tree = {
        "type": "record",
        "name": "Tree",
        "fields": [{"name": "a", "type": "long"}, {"name": "next", "type": ["null", "Tree"]}],
    }
    with pytest.raises(OptionError, match="the Avro record Tree contains itself: give a schema"):
        fields_of(options(tree))
    fields = StructType([StructField("a", LongType()), StructField("next", A)])
    found = read(options(tree), fields, body(tree, {"a": 1, "next": {"a": 2, "next": {"a": 3, "next": None}}}))
    assert [column.to_pylist() for column in found.columns] == [[1], [{"a": 2}]]


@pytest.mark.parametrize(
    ("given", "fields", "sentence"),
    [
        ({"bodyFormat": "avro"}, A, "needs the option avroSchema"),
        (options("nowhere.avsc"), A, "avroSchema names a file that cannot be read"),
        (options("{"), A, "avroSchema cannot be read"),
        (options('{"type":"record"}'), A, "avroSchema cannot be read"),
        (options({**SMALL, "fields": [{"name": "a", "type": "strange"}]}), A, "unknown type 'strange'"),
        (options('"long"'), A, "avroSchema is not that of a record"),
        (options(SMALL, avroWire="odd"), A, "avroWire is 'odd': choose from plain, confluent, single"),
        (options(SMALL, avroSchemaId="5"), A, "avroSchemaId is for avroWire=confluent"),
        (options(SMALL, avroWire="confluent", avroSchemaId="x"), A, "avroSchemaId is 'x', not numbers"),
        (options(SMALL), StructType([StructField("b", LongType())]), "Small has no field b: it has a"),
        (options(SMALL), StructType([StructField("a", IntegerType())]), "a is of the Avro type long, which cannot"),
        (
            options(SMALL),
            StructType([StructField("a", TimestampType())]),
            "a is of the Avro type long, which cannot",
        ),
        (
            options(ORDER),
            StructType([StructField("price", DecimalType(9, 2))]),
            "price is a decimal(10,2) in Avro, which decimal128(9, 2) cannot hold",
        ),
        (
            options(ORDER),
            StructType([StructField("items", ArrayType(A))]),
            "the Avro record shop.Item has no field a",
        ),
        (
            options({**SMALL, "fields": [{"name": "a", "type": ["string", "long"]}]}),
            A,
            "the Avro union of string, long cannot be a column",
        ),
    ],
)
def test_what_cannot_be_is_refused_when_a_query_is_planned(
    given: dict[str, str], fields: StructType, sentence: str
) -> None:
    with pytest.raises(OptionError) as refused:
        decoder_for(given, fields)
    assert sentence in str(refused.value)


def test_without_fastavro_the_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name.startswith("fastavro"):
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.delitem(sys.modules, "orbitmq.spark.body.avro_format", raising=False)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(OptionError, match="pip install fastavro"):
        decoder_for(options(SMALL), A)
