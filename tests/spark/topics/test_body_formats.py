"""Bodies as columns in Spark: JSON as from_json reads it, but for differences that are written down; and the rest.

Where a document is read differently, that is on purpose:

===================================================  =====================  ==============================
document                                             from_json              bodyFormat=json
===================================================  =====================  ==============================
something after the document                         is not looked at       makes it bad
names and texts in single quotes                     are taken              make it bad
a byte order mark                                    makes it bad           is skipped
one field of another type than requested             that field is null     the whole row is null
a number for a string: ``1.50``, ``1e5``             as a double prints     with the digits it has
``NaN`` without quotes for a string                  ``"NaN"`` with quotes  ``NaN``
128 to 255 for a tinyint                             become negative        make it bad
a name twice in a map                                two entries            the last one
a number of seconds beyond all timestamps            wraps around           makes it bad
a year of five digits, or below 0                    is taken               makes it bad
a date as the number of its day, in quotes           is taken               makes it bad
a time of day without a date                         is today               makes it bad
hours and a zone without seconds: ``T03:04Z``        make it bad            are taken
an offset beyond 18 hours                            makes it bad           is taken up to a day
===================================================  =====================  ==============================
"""

from __future__ import annotations

import io
import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from orbitmq import Message, Producer
from orbitmq.spark.body.decoder import decoder_for

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

BAD = "bad"
"""In the place of a value: the document is bad."""

ANYTHING = object()


def field(*values: str) -> list[str]:
    return [f'{{"a":{value}}}' for value in values]


def texts(*values: str) -> list[str]:
    return field(*(json.dumps(value) for value in values))


ALIKE: dict[str, list[str]] = {
    "int": [
        *field("1", '"1"', "1.0", "1e3", "3000000000", "null", "-0", "01", "true", "[1]", '""', "NaN", '1,"a":2'),
        *("{}", "", "  ", "null", "[]", '[{"a":1}]', "1", '"x"', "{a:1}", '{"A":1}', '{"a":1,}', '{"a":1', "[1"),
        *('{"b":"\\ud83d","a":1}', '{"b":Inf,"a":1}', '{"b":NaN,"a":1}', '{"b":"\t","a":1}', '{"\\u0061":4}'),
        *('{"b":{"a":[1,{"a":2}]},"a":1}', '{"b":1e400,"a":1}', '\u00a0{"a":1}', ' {\n"a" :\r\n\t1 } \n'),
    ],
    "tinyint": field("127", "256", "-128", "-129"),
    "smallint": field("32767", "32768"),
    "bigint": field("9223372036854775807", "9223372036854775808", "-9223372036854775808"),
    "boolean": field("true", "false", '"true"', "1", "null"),
    "float": field("1.1", "1e39", "1.00000005960464478", '"NaN"', "16777217", '"x"'),
    "double": [
        *field("1", "1e400", '"1.5"', "NaN", "-Infinity", "INF", "Inf", "-NaN", "true", "12345678901234567890123"),
        *texts("NaN", "Infinity", "-INF", "inf", "+INF", "+Infinity", "-Infinity", ""),
        *field("0.1", "1e-400", "-1.7976931348623157e308", "4.9e-324"),
    ],
    "string": [
        *field('"x"', "1", "1.5", "true", "null", '""', "-0", "12345678901234567890123"),
        *field('{"x": 1,  "y":[1, "é\\n"]}', "[1, 2.5, null, {}]", '"\\ud83d"', '"\\ud83d\\ude00\\u00e9"'),
        *field('"x\\u0000y"', '"a\\/b\\\\"', '"é😀"'),
    ],
    "decimal(10,2)": [
        *field(
            "1", "1.5", "1.555", "1.545", "-1.555", "12345678901", "1e3", "99999999.995", "true", "1e-400", "NaN"
        ),
        *texts("1.5", "1e3", " 1", "+1", ".5", "1.", "1,000", "", "x"),
    ],
    "decimal(38,18)": field("12345678901234567890.123456789012345678", "1" * 20, "1" * 21, "1e30", '"1e28"'),
    "date": [
        *texts("2024-01-02", "2024-1-2", "2024", "2024-03", "2024-01-02T03:04:05Z", "2024-01-02 x", "2024-02-30"),
        *texts("", " 2024-01-02", "2024-01-02 ", "epoch", "2024/01/02", "2024-001", "0001-01-01", "9999-12-31"),
        *field("5", "null"),
    ],
    "timestamp": [
        *texts("2024-01-02T03:04:05Z", "2024-01-02T03:04:05+02:00", "2024-01-02T03:04:05+0200"),
        *texts("2024-01-02T03:04:05+02", "2024-01-02T03:04:05+2:00", "2024-01-02 03:04:05", "2024-01-02"),
        *texts("2024-1-2 3:4:5", "2024", "2024-03", "2024-01-02T03:04:05.123456Z", "2024-01-02T03:04:05.1"),
        *texts("2024-01-02T03:04:05.123456789Z", "2024-01-02T03:04", "2024-01-02T03", "2024-01-02T"),
        *texts("2024-01-02T03:04:05 Europe/Paris", "2024-10-27T02:30:00 Europe/Paris", "2024-01-02T03:04:05 UTC"),
        *texts("2024-03-31T02:30:00 Europe/Paris", "2024-01-02T03:04:05UTC+1", "2024-01-02T03:04:05 GMT+01:00"),
        *texts("2024-01-02T24:00:00", "2024-01-02T23:59:60", "x", "", " 2024-01-02T03:04:05Z ", "1704164645"),
        *texts("2024-01-02T03:04:05,5", "2024-01-02T030405", "20240102T030405Z", "2024-01-02t03:04:05z"),
        *texts("2024-01-02T03:04:05.Z", "0001-01-01T00:00:00Z", "1500-01-01T00:00:00Z", "9999-12-31T23:59:59Z"),
        *texts("2024-01-02T03:04:05-00:00", "2024-01-02T03:04:05 +02:00", "2024-01-02T03:04:05EST", "2024-01-02Z"),
        *texts("2024-01-02T03:04:05+02:00:30", "2024-01-02T03:04:05[Europe/Paris]", "2024-01-02T03:04:05+18:00"),
        *field("5", "1704164645", "-1", "1.5", "null", "true"),
    ],
    "timestamp_ntz": [
        *texts("2024-01-02T03:04:05Z", "2024-01-02T03:04:05", "2024-01-02", "2024-01-02 03:04:05.5"),
        *texts("2024-01-02T03:04", "2024-01-02T03:04:05.123456789", "2024-01-02T03:04:05+02:00"),
        *field("5"),
    ],
    "binary": [*texts("aGVsbG8=", "aGVsbG8", "!!", "", "aGVs\nbG8=", "-_8="), *field("5", "null")],
    "array<int>": field("[1,null,2]", "[]", "1", '[1,"x"]', "null", '{"x":1}'),
    "array<struct<x:int>>": field('[{"x":1},null,{}]', '{"x":1}'),
    "map<string,int>": field('{"x":1}', "{}", '{"x":null}', "[1]", '{"x":"y"}'),
    "map<string,array<date>>": field('{"x":["2024-01-02",null]}'),
    "struct<x:int,y:string>": field('{"x":1,"z":3}', "{}", "null", "5", '[{"x":1}]', '{"y":[1]}'),
}

DIFFERENT: dict[str, dict[str, tuple[Any, Any]]] = {
    "int": {
        '{"a":1} x': (1, BAD),
        '{"a":1}{"a":2}': (1, BAD),
        "{'a':1}": (1, BAD),
        '\ufeff{"a":1}': (BAD, 1),
    },
    "tinyint": {'{"a":128}': (-128, BAD), '{"a":255}': (-1, BAD)},
    "string": {
        '{"a":1.50}': ("1.5", "1.50"),
        '{"a":1e5}': ("100000.0", "1e5"),
        '{"a":NaN}': ('"NaN"', "NaN"),
    },
    "date": {
        '{"a":"10000-01-01"}': (2_932_897, BAD),
        '{"a":"-0001-01-01"}': (-719_893, BAD),
        '{"a":"20240102"}': (20_240_102, BAD),
    },
    "timestamp": {
        '{"a":"03:04:05"}': (ANYTHING, BAD),
        '{"a":"10000-01-01T00:00:00Z"}': (253_402_300_800_000_000, BAD),
        '{"a":"2024-01-02T03:04Z"}': (BAD, 1_704_164_640_000_000),
        '{"a":"2024-01-02T03:04:05+18:30"}': (BAD, 1_704_098_045_000_000),
        '{"a":9223372036854775807}': (-1_000_000, BAD),
    },
    "map<string,int>": {'{"a":{"x":1,"x":2}}': ([("x", 1), ("x", 2)], [("x", 2)])},
    "struct<x:int,y:string>": {'{"a":{"x":"q","y":"z"}}': (BAD, BAD)},
}
"""What Spark gives, and what is given here."""


def of_spark(spark: SparkSession, ddl: str, documents: list[str]) -> list[Any]:
    """The rows of ``from_json`` for documents."""
    rows = spark.createDataFrame(list(enumerate(documents)), "number int, document string").coalesce(1)
    read = F.from_json("document", f"a {ddl}, bad string", {"columnNameOfCorruptRecord": "bad"})
    table = (
        rows.select("number", read.alias("read"))
        .selectExpr("number", "read.a", "read.bad is not null as bad")
        .orderBy("number")
        .toArrow()
    )
    return comparable(table["a"].combine_chunks(), table["bad"].to_pylist())


def of_bodies(ddl: str, documents: list[str]) -> list[Any]:
    """The rows of our reader for bodies."""
    schema = StructType.fromDDL(f"a {ddl}")
    assert isinstance(schema, StructType)
    decoder = decoder_for({"bodyFormat": "json"}, schema, "PERMISSIVE")
    found = decoder.decode(pa.array([document.encode() for document in documents], pa.binary()))
    return comparable(found.columns[0], found.bad.tolist())


def comparable(values: pa.Array, bad: list[bool]) -> list[Any]:
    if pa.types.is_date(values.type):
        values = values.cast(pa.int32())  # Python has no dates after the year 9999
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.int64())
    return [BAD if wrong else value for value, wrong in zip(values.to_pylist(), bad, strict=True)]


@pytest.mark.parametrize("ddl", ALIKE)
def test_json_is_read_as_spark_reads_it(spark: SparkSession, ddl: str) -> None:
    documents = ALIKE[ddl]
    # Compared as they are printed, since NaN is nothing's equal.
    pairs = zip(of_spark(spark, ddl, documents), of_bodies(ddl, documents), strict=True)
    rendered = [
        (document, repr(here), repr(there)) for document, (there, here) in zip(documents, pairs, strict=True)
    ]
    assert [(document, here) for document, here, _ in rendered] == [
        (document, there) for document, _, there in rendered
    ]


@pytest.mark.parametrize("ddl", DIFFERENT)
def test_what_is_read_differently_is_written_down(spark: SparkSession, ddl: str) -> None:
    documents = list(DIFFERENT[ddl])
    there, here = of_spark(spark, ddl, documents), of_bodies(ddl, documents)
    expected = [
        value if value is not ANYTHING else found
        for (value, _), found in zip(DIFFERENT[ddl].values(), there, strict=True)
    ]
    assert there == expected
    assert here == [value for _, value in DIFFERENT[ddl].values()]


def send(nameserver: str, topic: str, *bodies: bytes) -> None:
    with Producer(nameserver, group="body-formats") as producer:
        for body in bodies:
            producer.send(Message(topic, body))


def test_json_bodies_are_rows(spark: SparkSession, nameserver: str, topic: str) -> None:
    bodies = [json.dumps({"id": number, "price": f"{number}.5", "tags": ["x"]}).encode() for number in range(20)]
    send(nameserver, topic, *bodies, b"oops")
    reading = (
        spark.read.format("orbitmq")
        .option("nameserver", nameserver)
        .option("subscribe", topic)
        .option("bodyFormat", "json")
    )
    schema = "id bigint, price decimal(10,2), tags array<string>, _topic string, _corrupt binary"
    rows = reading.option("mode", "PERMISSIVE").schema(schema).load().orderBy("id").collect()
    assert [row["id"] for row in rows] == [None, *range(20)]
    assert bytes(rows[0]["_corrupt"]) == b"oops"
    assert (rows[3]["price"], rows[3]["tags"], rows[3]["_topic"], rows[3]["_corrupt"]) == (
        Decimal("2.50"),
        ["x"],
        topic,
        None,
    )
    assert reading.option("mode", "DROPMALFORMED").schema("id bigint").load().count() == 20
    with pytest.raises(Exception, match=r"cannot be read .not a JSON document"):
        reading.option("mode", "FAILFAST").schema("id bigint").load().collect()


def test_avro_bodies_are_rows_with_the_columns_of_their_schema(
    spark: SparkSession, nameserver: str, topic: str
) -> None:
    schema: dict[str, Any] = {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "lines", "type": {"type": "map", "values": "int"}},
        ],
    }
    file = io.BytesIO()
    fastavro.schemaless_writer(file, schema, {"id": 7, "at": 1_704_164_645_678, "lines": {"pen": 2}})
    send(nameserver, topic, file.getvalue())
    table = (
        spark.read.format("orbitmq")
        .option("nameserver", nameserver)
        .option("subscribe", topic)
        .option("bodyFormat", "avro")
        .option("avroSchema", json.dumps(schema))
        .load()
    )
    assert table.schema.simpleString() == "struct<id:bigint,at:timestamp,lines:map<string,int>>"
    row = table.selectExpr("id", "unix_millis(at) as at", "lines").first()
    assert row is not None
    assert row.asDict() == {"id": 7, "at": 1_704_164_645_678, "lines": {"pen": 2}}


def test_protobuf_bodies_are_rows_with_the_columns_of_their_message(
    spark: SparkSession, nameserver: str, topic: str, tmp_path: Path
) -> None:
    kinds = descriptor_pb2.FieldDescriptorProto
    order = descriptor_pb2.DescriptorProto(name="Order")
    order.field.add(name="id", number=1, type=kinds.TYPE_INT64, label=kinds.LABEL_OPTIONAL)
    order.field.add(name="names", number=2, type=kinds.TYPE_STRING, label=kinds.LABEL_REPEATED)
    file = descriptor_pb2.FileDescriptorProto(name="o.proto", package="shop", syntax="proto3", message_type=[order])
    described = tmp_path / "order.desc"
    described.write_bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())
    send(nameserver, topic, b"\x08\x07\x12\x01a\x12\x01b")
    table = (
        spark.read.format("orbitmq")
        .option("nameserver", nameserver)
        .option("subscribe", topic)
        .option("bodyFormat", "protobuf")
        .option("descriptorFile", str(described))
        .option("messageName", "shop.Order")
        .load()
    )
    assert [row.asDict() for row in table.collect()] == [{"id": 7, "names": ["a", "b"]}]


def test_text_bodies_are_strings_beside_the_other_columns(spark: SparkSession, nameserver: str, topic: str) -> None:
    send(nameserver, topic, "é".encode())
    table = (
        spark.read.format("orbitmq")
        .option("nameserver", nameserver)
        .option("subscribe", topic)
        .option("bodyFormat", "string")
        .load()
    )
    row = table.select("topic", "body").first()
    assert row is not None
    assert row.asDict() == {"topic": topic, "body": "é"}
