"""Protobuf messages in bodies become columns; the descriptors say which, and refuse what they cannot give."""

from __future__ import annotations

import builtins
import datetime
import pickle
import sys
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    message_factory,
    timestamp_pb2,
    wrappers_pb2,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from orbitmq.spark.body.decoder import Decoded, decoder_for, fields_of
from orbitmq.spark.errors import OptionError

if TYPE_CHECKING:
    from pathlib import Path

Field = descriptor_pb2.FieldDescriptorProto
IMPORTED = [module.DESCRIPTOR for module in (timestamp_pb2, duration_pb2, wrappers_pb2)]


def file_of(
    name: str, *messages: descriptor_pb2.DescriptorProto, **more: Any
) -> descriptor_pb2.FileDescriptorProto:
    return descriptor_pb2.FileDescriptorProto(
        name=name, package="shop", syntax="proto3", message_type=messages, **more
    )


def message(name: str, *fields: Any, **more: Any) -> descriptor_pb2.DescriptorProto:
    """Fields are (name, kind or name of a type, repeated?)."""
    made = descriptor_pb2.DescriptorProto(name=name, **more)
    for number, (field, kind, *repeated) in enumerate(fields, 1):
        added = made.field.add(name=field, number=number, label=Field.LABEL_OPTIONAL)
        if repeated:
            added.label = Field.LABEL_REPEATED
        if isinstance(kind, str):
            added.type_name = kind
            added.type = Field.TYPE_ENUM if kind == ".shop.State" else Field.TYPE_MESSAGE
        else:
            added.type = kind
    return made


def map_entry(name: str, key: Any, value: Any) -> descriptor_pb2.DescriptorProto:
    return message(name, ("key", key), ("value", value), options=descriptor_pb2.MessageOptions(map_entry=True))


def order_file() -> descriptor_pb2.FileDescriptorProto:
    order = message(
        "Order",
        ("flag", Field.TYPE_BOOL),
        ("whole", Field.TYPE_SINT32),
        ("big", Field.TYPE_INT64),
        ("natural", Field.TYPE_UINT32),
        ("huge", Field.TYPE_FIXED64),
        ("single", Field.TYPE_FLOAT),
        ("double", Field.TYPE_DOUBLE),
        ("text", Field.TYPE_STRING),
        ("data", Field.TYPE_BYTES),
        ("state", ".shop.State"),
        ("created", ".google.protobuf.Timestamp"),
        ("took", ".google.protobuf.Duration"),
        ("wrapped", ".google.protobuf.Int64Value"),
        ("names", Field.TYPE_STRING, True),
        ("items", ".shop.Item", True),
        ("first", ".shop.Item"),
        ("counts", ".shop.Order.CountsEntry", True),
        ("stock", ".shop.Order.StockEntry", True),
        ("maybe", Field.TYPE_INT32),
        ("card", Field.TYPE_STRING),
        ("cash", Field.TYPE_INT64),
        ("notes", ".google.protobuf.StringValue", True),
        nested_type=[
            map_entry("CountsEntry", Field.TYPE_STRING, Field.TYPE_INT32),
            map_entry("StockEntry", Field.TYPE_UINT64, ".shop.Item"),
        ],
    )
    for name, choice in (("maybe", "_maybe"), ("card", "payment"), ("cash", "payment")):
        field = next(field for field in order.field if field.name == name)
        if choice not in [each.name for each in order.oneof_decl]:
            order.oneof_decl.add(name=choice)
        field.oneof_index = [each.name for each in order.oneof_decl].index(choice)
        field.proto3_optional = choice == "_maybe"
    # A choice of one that only says "optional" stands after the others.
    order.oneof_decl.reverse()
    for field in order.field:
        if field.HasField("oneof_index"):
            field.oneof_index = 1 - field.oneof_index
    state = descriptor_pb2.EnumDescriptorProto(name="State")
    state.value.add(name="NEW", number=0)
    state.value.add(name="PAID", number=1)
    item = message("Item", ("name", Field.TYPE_STRING), ("price", Field.TYPE_DOUBLE))
    tree = message("Tree", ("a", Field.TYPE_INT64), ("next", ".shop.Tree"))
    return file_of(
        "order.proto",
        order,
        item,
        tree,
        enum_type=[state],
        dependency=[file.name for file in IMPORTED],
    )


KINDS: dict[str, DataType] = {
    "flag": BooleanType(),
    "whole": IntegerType(),
    "big": LongType(),
    "natural": LongType(),
    "huge": DecimalType(20, 0),
    "single": FloatType(),
    "double": DoubleType(),
    "text": StringType(),
    "data": BinaryType(),
    "state": StringType(),
    "created": TimestampType(),
    "took": DayTimeIntervalType(),
    "wrapped": LongType(),
    "names": ArrayType(StringType()),
    "items": ArrayType(StructType([StructField("name", StringType()), StructField("price", DoubleType())])),
    "first": StructType([StructField("name", StringType()), StructField("price", DoubleType())]),
    "counts": MapType(StringType(), IntegerType()),
    "stock": MapType(
        DecimalType(20, 0), StructType([StructField("name", StringType()), StructField("price", DoubleType())])
    ),
    "maybe": IntegerType(),
    "card": StringType(),
    "cash": LongType(),
    "notes": ArrayType(StringType()),
}


@pytest.fixture
def given(tmp_path: Path) -> dict[str, str]:
    """The options for orders."""
    return options(tmp_path, "shop.Order", order_file())


def options(folder: Path, name: str, *files: descriptor_pb2.FileDescriptorProto, **more: str) -> dict[str, str]:
    path = folder / "described.desc"
    path.write_bytes(descriptor_pb2.FileDescriptorSet(file=files).SerializeToString())
    return {"bodyFormat": "protobuf", "descriptorFile": str(path), "messageName": name, **more}


def order(**values: Any) -> bytes:
    pool = descriptor_pool.DescriptorPool()
    for file in IMPORTED:
        pool.AddSerializedFile(file.serialized_pb)
    pool.AddSerializedFile(order_file().SerializeToString())
    made: Any = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))(**values)
    data: bytes = made.SerializeToString()
    return data


def read(given: dict[str, str], fields: StructType, *bodies: bytes | None) -> Decoded:
    """As a reader does, after the decoder has travelled to it."""
    decoder = pickle.loads(pickle.dumps(decoder_for(given, fields)))
    found: Decoded = decoder.decode(pa.array(bodies, pa.binary()))
    assert [column.type for column in found.columns] == to_arrow_schema(fields, timezone="UTC").types
    for column in found.columns:
        column.validate(full=True)
    assert bool(found.reason) == bool(found.bad.any())
    return found


def named(fields: StructType, found: Decoded, row: int) -> dict[str, Any]:
    return {name: column[row].as_py() for name, column in zip(fields.names, found.columns, strict=True)}


def full_order() -> bytes:
    return order(
        flag=True,
        whole=-1,
        big=2**63 - 1,
        natural=2**32 - 1,
        huge=2**64 - 1,
        single=0.5,
        double=0.1,
        text="é",
        data=b"\0\xff",
        state=1,
        created={"seconds": 1704164645, "nanos": 678901234},
        took={"seconds": -1, "nanos": -500_000_000},
        wrapped={"value": 0},
        names=["a", ""],
        items=[{"name": "pen", "price": 1.5}, {}],
        first={"name": "ink"},
        counts={"x": 1},
        stock={2**64 - 1: {"name": "cap"}},
        maybe=0,
        cash=5,
        notes=[{"value": "n"}, {}],
    )


def test_the_message_names_the_columns(given: dict[str, str]) -> None:
    assert fields_of(given) == StructType([StructField(name, kind) for name, kind in KINDS.items()])


def test_every_type_is_read(given: dict[str, str]) -> None:
    fields = fields_of(given)
    assert fields is not None
    found = read(given, fields, full_order(), b"", full_order())
    assert not found.bad.any()
    assert (
        named(fields, found, 0)
        == named(fields, found, 2)
        == {
            "flag": True,
            "whole": -1,
            "big": 2**63 - 1,
            "natural": 2**32 - 1,
            "huge": Decimal(2**64 - 1),
            "single": 0.5,
            "double": 0.1,
            "text": "é",
            "data": b"\0\xff",
            "state": "PAID",
            "created": datetime.datetime(2024, 1, 2, 3, 4, 5, 678901, datetime.UTC),
            "took": datetime.timedelta(seconds=-1.5),
            "wrapped": 0,
            "names": ["a", ""],
            "items": [{"name": "pen", "price": 1.5}, {"name": "", "price": 0.0}],
            "first": {"name": "ink", "price": 0.0},
            "counts": [("x", 1)],
            "stock": [(Decimal(2**64 - 1), {"name": "cap", "price": 0.0})],
            "maybe": 0,
            "card": None,
            "cash": 5,
            "notes": ["n", ""],
        }
    )
    assert named(fields, found, 1) == {
        "flag": False,
        "whole": 0,
        "big": 0,
        "natural": 0,
        "huge": Decimal(0),
        "single": 0.0,
        "double": 0.0,
        "text": "",
        "data": b"",
        "state": "NEW",
        "names": [],
        "items": [],
        "counts": [],
        "stock": [],
        "notes": [],
        **dict.fromkeys(["created", "took", "wrapped", "first", "maybe", "card", "cash"]),
    }


def test_defaults_may_be_null(given: dict[str, str]) -> None:
    fields = fields_of(given)
    assert fields is not None
    given["protobufDefaults"] = "false"
    found = read(given, fields, b"", order(first={"price": 1.5}, maybe=0, text="x"))
    assert {name: value for name, value in named(fields, found, 0).items() if value is not None} == {
        "names": [],
        "items": [],
        "counts": [],
        "stock": [],
        "notes": [],
    }
    second = named(fields, found, 1)
    assert (second["first"], second["maybe"], second["text"]) == ({"name": None, "price": 1.5}, 0, "x")


def test_some_columns_in_other_types_are_enough(given: dict[str, str]) -> None:
    fields = StructType(
        [
            StructField("huge", LongType()),
            StructField("state", IntegerType()),
            StructField("natural", IntegerType()),
            StructField("items", ArrayType(StructType([StructField("price", DoubleType())]))),
            StructField("wrapped", StructType([StructField("value", LongType())])),
            StructField("created", StructType([StructField("seconds", LongType())])),
        ]
    )
    good = order(huge=5, state=7, natural=6, items=[{"price": 1}], wrapped={"value": 3})
    found = read(given, fields, good, order(huge=2**63), order(natural=2**31), good)
    assert [column[3].as_py() for column in found.columns] == [5, 7, 6, [{"price": 1.0}], {"value": 3}, None]
    assert found.bad.tolist() == [False, True, True, False]


def test_a_state_that_is_not_described_is_kept_as_its_number(given: dict[str, str]) -> None:
    fields = StructType([StructField("state", StringType())])
    assert read(given, fields, order(state=7)).columns[0].to_pylist() == ["7"]


def test_bodies_that_are_no_messages_are_bad(given: dict[str, str]) -> None:
    fields = StructType([StructField("big", LongType()), StructField("text", StringType())])
    good = order(big=1, text="é")
    garbled = good.replace("é".encode(), b"\xff\xff")
    found = read(given, fields, good, good[:-1], b"\xff" * 9, garbled, None, good)
    assert found.bad.tolist() == [False, True, True, True, False, False]
    assert found.columns[0].to_pylist() == [1, None, None, None, 0, 1]
    assert "not a message shop.Order" in found.reason


def test_no_broken_message_does_more_than_being_bad(given: dict[str, str]) -> None:
    fields = fields_of(given)
    assert fields is not None
    good = full_order()
    cut = [good[:length] for length in range(len(good))]
    changed = [
        good[:at] + bytes([good[at] ^ bit]) + good[at + 1 :] for at in range(len(good)) for bit in (1, 128, 255)
    ]
    assert read(given, fields, *cut, *changed).bad.any()


def test_the_descriptors_travel_with_the_query(given: dict[str, str], tmp_path: Path) -> None:
    decoder = pickle.dumps(decoder_for(given, StructType([StructField("big", LongType())])))
    (tmp_path / "described.desc").unlink()
    assert pickle.loads(decoder).decode(pa.array([order(big=4)], pa.binary())).columns[0].to_pylist() == [4]


def test_files_may_come_in_any_order(tmp_path: Path) -> None:
    first = file_of("a.proto", message("A", ("b", ".shop.B")), dependency=["b.proto"])
    second = file_of("b.proto", message("B", ("x", Field.TYPE_INT64)))
    inner = StructType([StructField("x", LongType())])
    assert fields_of(options(tmp_path, "shop.A", first, second)) == StructType([StructField("b", inner)])
    with pytest.raises(OptionError, match=r"write it with protoc --include_imports"):
        fields_of(options(tmp_path, "shop.A", first))


def test_a_message_that_contains_itself_is_read_to_the_given_depth(tmp_path: Path) -> None:
    given = options(tmp_path, "shop.Tree", order_file())
    with pytest.raises(OptionError, match=r"the message shop.Tree contains itself: give a schema"):
        fields_of(given)
    fields = StructType([StructField("next", StructType([StructField("a", LongType())]))])
    inner = b"\x08\x07"
    body = b"\x08\x01\x12" + bytes([len(inner)]) + inner
    assert read(given, fields, body).columns[0].to_pylist() == [{"a": 7}]


@pytest.mark.parametrize(
    ("changed", "fields", "sentence"),
    [
        ({"descriptorFile": ""}, {}, "needs the options descriptorFile and messageName"),
        ({"messageName": ""}, {}, "needs the options descriptorFile and messageName"),
        ({"descriptorFile": "/nowhere"}, {}, "descriptorFile cannot be read"),
        ({"descriptorFile": __file__}, {}, "descriptorFile is not a set of Protobuf descriptors"),
        (
            {"messageName": "Order"},
            {},
            "messageName is 'Order', but descriptorFile describes shop.Order, shop.Item",
        ),
        ({"protobufDefaults": "no"}, {}, "protobufDefaults is 'no': true or false"),
        ({}, {"other": LongType()}, "the message shop.Order has no field other: it has flag, whole"),
        ({}, {"big": IntegerType()}, "big cannot be read as int32: it is bigint"),
        ({}, {"names": StringType()}, "names is a Protobuf list, not a string"),
        ({}, {"counts": ArrayType(StringType())}, "counts is a Protobuf map, not a list"),
        ({}, {"first": StringType()}, "first is a message shop.Item, which cannot be read as string"),
        ({}, {"items": ArrayType(LongType())}, "items.element is a message shop.Item"),
    ],
)
def test_what_cannot_be_is_refused_when_a_query_is_planned(
    given: dict[str, str], changed: dict[str, str], fields: dict[str, DataType], sentence: str
) -> None:
    with pytest.raises(OptionError) as refused:
        decoder_for({**given, **changed}, StructType([StructField(name, kind) for name, kind in fields.items()]))
    assert sentence in str(refused.value)


def test_without_protobuf_the_sentence_says_what_to_install(
    given: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name.startswith("google"):
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.delitem(sys.modules, "orbitmq.spark.body.protobuf_format", raising=False)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(OptionError, match="pip install protobuf"):
        decoder_for(given, StructType())
