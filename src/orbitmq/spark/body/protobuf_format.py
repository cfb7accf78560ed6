"""The Protobuf body format: ``descriptorFile`` has the descriptors, ``messageName`` is the message type.

The file is what ``protoc --include_imports --descriptor_set_out=FILE`` writes. It is read where the query is
planned and travels with it. A field that is not there is null if its presence is known (messages, ``optional``,
``oneof``); otherwise it has its default, which is what was written: with ``protobufDefaults=false`` such fields
are null too.
"""

from __future__ import annotations

import dataclasses
import decimal
import functools
import importlib
import operator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
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

from orbitmq.spark.body.decoder import UNFIT, Decoded, arrow_types, columns_of_rows, decoded
from orbitmq.spark.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

try:
    from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory
    from google.protobuf.descriptor import FieldDescriptor as Kind
except ImportError as missing:
    raise OptionError("bodyFormat protobuf needs the package protobuf: pip install protobuf") from missing

_UNSIGNED_64 = pa.decimal128(20, 0)
_SCALARS: dict[int, tuple[DataType, tuple[pa.DataType, ...]]] = {
    **dict.fromkeys(
        (Kind.TYPE_INT32, Kind.TYPE_SINT32, Kind.TYPE_SFIXED32),
        (IntegerType(), (pa.int32(), pa.int64(), pa.float64())),
    ),
    **dict.fromkeys((Kind.TYPE_INT64, Kind.TYPE_SINT64, Kind.TYPE_SFIXED64), (LongType(), (pa.int64(),))),
    **dict.fromkeys((Kind.TYPE_UINT32, Kind.TYPE_FIXED32), (LongType(), (pa.int64(), pa.int32()))),
    **dict.fromkeys((Kind.TYPE_UINT64, Kind.TYPE_FIXED64), (DecimalType(20, 0), (_UNSIGNED_64, pa.int64()))),
    Kind.TYPE_BOOL: (BooleanType(), (pa.bool_(),)),
    Kind.TYPE_FLOAT: (FloatType(), (pa.float32(), pa.float64())),
    Kind.TYPE_DOUBLE: (DoubleType(), (pa.float64(),)),
    Kind.TYPE_STRING: (StringType(), (pa.string(),)),
    Kind.TYPE_BYTES: (BinaryType(), (pa.binary(),)),
    Kind.TYPE_ENUM: (StringType(), (pa.string(), pa.int32())),
}
"""What a type is by itself in Spark, and as what columns it can be read."""

_WRAPPERS = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
"""Messages around one scalar, in which it may be missing: in a column it is null."""

_TIMESTAMP, _DURATION = "google.protobuf.Timestamp", "google.protobuf.Duration"
_Values = list[Any]


@functools.lru_cache(maxsize=16)
def _message_class(descriptors: bytes, name: str) -> Any:
    """The class of a message. Raises OptionError."""
    files = descriptor_pb2.FileDescriptorSet()
    try:
        files.ParseFromString(descriptors)
    except message.DecodeError as error:
        raise OptionError(f"descriptorFile is not a set of Protobuf descriptors: {error}") from error
    pool = descriptor_pool.DescriptorPool()
    added: set[str] = set()
    waiting = {file.name: file for file in files.file}
    names = [f"{file.package}.{kind.name}".lstrip(".") for file in files.file for kind in file.message_type]

    def add(file_name: str) -> None:
        file = waiting.pop(file_name, None)
        if file is None and file_name not in added and file_name.startswith("google/protobuf/"):
            # The types of Protobuf itself are at hand, whether they were included or not.
            importlib.import_module(f"{file_name.removesuffix('.proto').replace('/', '.')}_pb2")
            file = descriptor_pb2.FileDescriptorProto()
            descriptor_pool.Default().FindFileByName(file_name).CopyToProto(file)
        if file is not None:
            added.add(file_name)
            for needed in file.dependency:
                add(needed)
            pool.AddSerializedFile(file.SerializeToString())

    try:
        while waiting:
            add(next(iter(waiting)))
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
    except KeyError as error:
        raise OptionError(f"messageName is {name!r}, but descriptorFile describes {', '.join(names)}") from error
    except (TypeError, ImportError) as error:
        raise OptionError(
            f"descriptorFile cannot be used ({error}): write it with protoc --include_imports"
        ) from error


def _described(given: Mapping[str, str]) -> tuple[bytes, str]:
    path, name = given.get("descriptorfile", ""), given.get("messagename", "")
    if not path or not name:
        raise OptionError("bodyFormat protobuf needs the options descriptorFile and messageName")
    try:
        with open(path, "rb") as file:
            return file.read(), name
    except OSError as error:
        raise OptionError(f"descriptorFile cannot be read: {error}") from error


def fields_of_message(given: Mapping[str, str]) -> StructType:
    """The columns that the message itself names. Raises OptionError."""
    return _spark_struct(_message_class(*_described(given)).DESCRIPTOR, ())


def _spark_struct(descriptor: Any, within: tuple[str, ...]) -> StructType:
    if descriptor.full_name in within:
        raise OptionError(
            f"the message {descriptor.full_name} contains itself: give a schema that says how deep to read it"
        )
    within = (*within, descriptor.full_name)
    return StructType([StructField(field.name, _spark_type(field, within)) for field in descriptor.fields])


def _spark_type(field: Any, within: tuple[str, ...]) -> DataType:
    if _is_map(field):
        key, value = (field.message_type.fields_by_name[part] for part in ("key", "value"))
        return MapType(_spark_value(key, within), _spark_value(value, within))
    value = _spark_value(field, within)
    return ArrayType(value) if _is_repeated(field) else value


def _spark_value(field: Any, within: tuple[str, ...]) -> DataType:
    inner = field.message_type
    if inner is None:
        return _SCALARS[field.type][0]
    if inner.full_name == _TIMESTAMP:
        return TimestampType()
    if inner.full_name == _DURATION:
        return DayTimeIntervalType()
    if inner.full_name in _WRAPPERS:
        return _spark_value(inner.fields_by_name["value"], within)
    return _spark_struct(inner, within)


def _is_repeated(field: Any) -> bool:
    found = getattr(field, "is_repeated", None)
    return bool(field.label == Kind.LABEL_REPEATED if found is None else found)


def _is_map(field: Any) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


class _Builder:
    """Builds columns from lists of messages, field by field."""

    __slots__ = ("_defaults",)

    def __init__(self, defaults: bool) -> None:
        self._defaults = defaults

    def field(self, field: Any, path: str, arrow: pa.DataType) -> Callable[[_Values], pa.Array]:
        """A function that builds the column of a field from messages or None. Raises OptionError."""
        get = operator.attrgetter(field.name)
        build = self._many(field, path, arrow) if _is_repeated(field) else self._one(field, path, arrow)
        name, default = field.name, field.default_value if not _is_repeated(field) else None
        maybe = field.has_presence and not _is_repeated(field)

        def column(messages: _Values) -> pa.Array:
            if maybe:
                return build([get(each) if each is not None and each.HasField(name) else None for each in messages])
            values = [None if each is None else get(each) for each in messages]
            if default is not None and not self._defaults:
                values = [None if value == default else value for value in values]
            return build(values)

        return column

    def _many(self, field: Any, path: str, arrow: pa.DataType) -> Callable[[_Values], pa.Array]:
        if _is_map(field) and pa.types.is_map(arrow):
            inner = field.message_type.fields_by_name
            keys = self._one(inner["key"], f"{path}.key", arrow.key_type)
            items = self._one(inner["value"], f"{path}.value", arrow.item_type)

            def mapped(values: _Values) -> pa.Array:
                pairs = [pair for value in values if value is not None for pair in value.items()]
                return pa.MapArray.from_arrays(
                    _offsets(values),
                    keys([key for key, _ in pairs]),
                    items([item for _, item in pairs]),
                    type=arrow,
                )

            return mapped
        if _is_map(field) or not pa.types.is_list(arrow):
            raise OptionError(f"{path} is a Protobuf {'map' if _is_map(field) else 'list'}, not a {arrow}")
        element = self._one(field, f"{path}.element", arrow.value_type)

        def listed(values: _Values) -> pa.Array:
            parts = [part for value in values if value is not None for part in value]
            return pa.ListArray.from_arrays(_offsets(values), element(parts), type=arrow)

        return listed

    def _one(self, field: Any, path: str, arrow: pa.DataType) -> Callable[[_Values], pa.Array]:
        inner = field.message_type
        if inner is None:
            return _scalar(field, path, arrow)
        if inner.full_name == _TIMESTAMP and pa.types.is_timestamp(arrow) and arrow.tz:
            return lambda values: pa.array([_micros(value) for value in values], arrow)
        if inner.full_name == _DURATION and pa.types.is_duration(arrow):
            return lambda values: pa.array([_micros(value) for value in values], arrow)
        if inner.full_name in _WRAPPERS and not pa.types.is_struct(arrow):
            wrapped = _scalar(inner.fields_by_name["value"], path, arrow)
            return lambda values: wrapped([None if value is None else value.value for value in values])
        if not pa.types.is_struct(arrow):
            raise OptionError(f"{path} is a message {inner.full_name}, which cannot be read as {arrow}")
        columns = [self.field(_named(inner, part.name), f"{path}.{part.name}", part.type) for part in arrow]

        def struct(values: _Values) -> pa.Array:
            absent = pa.array([value is None for value in values], pa.bool_())
            return pa.StructArray.from_arrays(
                [column(values) for column in columns], fields=list(arrow), mask=absent
            )

        return struct


def _named(descriptor: Any, name: str) -> Any:
    field = descriptor.fields_by_name.get(name)
    if field is None:
        known = ", ".join(each.name for each in descriptor.fields)
        raise OptionError(f"the message {descriptor.full_name} has no field {name}: it has {known}")
    return field


def _offsets(values: _Values) -> pa.Array:
    """The offsets of the parts of each value; null for a missing value."""
    found: list[int | None] = []
    end = 0
    for value in values:
        found.append(None if value is None else end)
        end += 0 if value is None else len(value)
    return pa.array([*found, end], pa.int32())


def _micros(value: Any) -> int | None:
    return None if value is None else value.seconds * 1_000_000 + value.nanos // 1000


def _scalar(field: Any, path: str, arrow: pa.DataType) -> Callable[[_Values], pa.Array]:
    if arrow not in _SCALARS[field.type][1]:
        raise OptionError(f"{path} cannot be read as {arrow}: it is {_SCALARS[field.type][0].simpleString()}")
    if arrow == _UNSIGNED_64:
        return lambda values: pa.array(
            [None if value is None else decimal.Decimal(value) for value in values], arrow
        )
    if field.type == Kind.TYPE_ENUM and pa.types.is_string(arrow):
        # A number that the description does not know yet is kept as it is.
        names = {number: each.name for number, each in field.enum_type.values_by_number.items()}
        return lambda values: pa.array(
            [None if value is None else names.get(value, str(value)) for value in values], arrow
        )
    return lambda values: pa.array(values, arrow)


@dataclasses.dataclass(frozen=True, slots=True)
class ProtobufBodies:
    """Decodes bodies that are Protobuf messages."""

    names: list[str]
    types: list[pa.DataType]
    descriptors: bytes
    message_name: str
    defaults: bool = True
    columns: list[Callable[[_Values], pa.Array]] = dataclasses.field(init=False, repr=False, compare=False)

    @classmethod
    def of(cls, given: Mapping[str, str], fields: StructType) -> ProtobufBodies:
        """From options with names in lower case. Raises OptionError."""
        defaults = given.get("protobufdefaults", "true").lower()
        if defaults not in {"true", "false"}:
            raise OptionError(f"protobufDefaults is {defaults!r}: true or false")
        descriptors, name = _described(given)
        return cls(list(fields.names), arrow_types(fields), descriptors, name, defaults == "true")

    def __post_init__(self) -> None:
        descriptor = _message_class(self.descriptors, self.message_name).DESCRIPTOR
        builder = _Builder(self.defaults)
        columns = [
            builder.field(_named(descriptor, name), name, arrow)
            for name, arrow in zip(self.names, self.types, strict=True)
        ]
        object.__setattr__(self, "columns", columns)

    def __reduce__(self) -> tuple[Any, ...]:
        return ProtobufBodies, (self.names, self.types, self.descriptors, self.message_name, self.defaults)

    def decode(self, bodies: pa.BinaryArray) -> Decoded:
        """The fields of each body; an empty body is a message with nothing in it."""
        parse = _message_class(self.descriptors, self.message_name).FromString
        rows: _Values = []
        broken: dict[int, str] = {}
        for number, body in enumerate(bodies.to_pylist()):
            try:
                rows.append(parse(body or b""))
            except (message.DecodeError, message.EncodeError, *UNFIT) as error:
                rows.append(None)
                broken[number] = f"not a message {self.message_name}: {error}"
        columns, wrong = columns_of_rows(rows, self._columns)
        return decoded(columns, len(rows), wrong | broken)

    def _columns(self, rows: Sequence[Any]) -> list[pa.Array]:
        values = list(rows)
        return [column(values) for column in self.columns]
