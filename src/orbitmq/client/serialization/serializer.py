"""Serializers: objects of the application to bodies and back.

A serializer has ``dumps(value)`` and ``loads(body, kind)``; ``kind`` is the annotation of a typed handler.
Libraries are imported when a serializer of theirs is created.
"""

from __future__ import annotations

import importlib
import io
from typing import TYPE_CHECKING, Any, Protocol

from orbitmq.client.errors import BodyError, InvalidMessageError
from orbitmq.client.serialization.body import body_bytes, json_bytes, json_value
from orbitmq.client.serialization.convert import converted

if TYPE_CHECKING:
    from collections.abc import Mapping


class Serializer(Protocol):
    """Encodes the ``value`` of messages and decodes bodies for typed handlers."""

    def dumps(self, value: Any) -> bytes:
        """The body of a value. Raises TypeError or ValueError for a value that it cannot encode."""

    def loads(self, body: bytes, kind: Any) -> Any:
        """The value of a body, of this type. Raises BodyError."""


class JsonSerializer:
    """JSON; dataclasses and standard types are built from it, nested ones too."""

    def dumps(self, value: Any) -> bytes:
        return json_bytes(value)

    def loads(self, body: bytes, kind: Any) -> Any:
        return converted(json_value(body), kind)


class PydanticSerializer:
    """Models of pydantic, and every other type that it validates, as JSON."""

    def __init__(self) -> None:
        self._pydantic = _library("pydantic", "PydanticSerializer")
        self._adapters: dict[Any, Any] = {}

    def dumps(self, value: Any) -> bytes:
        if isinstance(value, self._pydantic.BaseModel):
            return body_bytes(value.model_dump_json())
        return body_bytes(self._adapter(type(value)).dump_json(value))

    def loads(self, body: bytes, kind: Any) -> Any:
        try:
            return self._adapter(kind).validate_json(body)
        except self._pydantic.ValidationError as error:
            raise BodyError(f"the body is not a valid {_name(kind)}: {error}") from None

    def _adapter(self, kind: Any) -> Any:
        if kind not in self._adapters:
            self._adapters[kind] = self._pydantic.TypeAdapter(kind)
        return self._adapters[kind]


class MsgspecSerializer:
    """Structs of msgspec, and every other type that it converts, as JSON or MessagePack."""

    def __init__(self, format: str = "json") -> None:  # noqa: A002 - the word of msgspec's users
        """``format`` is ``json`` or ``msgpack``."""
        if format not in {"json", "msgpack"}:
            raise InvalidMessageError(f"format must be json or msgpack, not {format!r}")
        self._msgspec = _library("msgspec", "MsgspecSerializer")
        self._format = importlib.import_module(f"msgspec.{format}")

    def dumps(self, value: Any) -> bytes:
        encoded: bytes = self._format.encode(value)
        return encoded

    def loads(self, body: bytes, kind: Any) -> Any:
        try:
            return self._format.decode(body, type=kind)
        except self._msgspec.DecodeError as error:
            raise BodyError(f"the body is not a valid {_name(kind)}: {error}") from None


class AvroSerializer:
    """Records of one Avro schema, without a header: both sides need the same schema. Needs ``fastavro``."""

    def __init__(self, schema: Mapping[str, Any], *, writer_schema: Mapping[str, Any] | None = None) -> None:
        """``writer_schema``: that of the bodies to read, if it differs; Avro resolves the differences."""
        self._avro = _library("fastavro", "AvroSerializer")
        self._schema = self._avro.parse_schema(dict(schema))
        self._writer = self._schema if writer_schema is None else self._avro.parse_schema(dict(writer_schema))

    def dumps(self, value: Any) -> bytes:
        out = io.BytesIO()
        record = json_value(json_bytes(value)) if hasattr(type(value), "__dataclass_fields__") else value
        self._avro.schemaless_writer(out, self._schema, record)
        return out.getvalue()

    def loads(self, body: bytes, kind: Any) -> Any:
        source = io.BytesIO(body)
        try:
            record = self._avro.schemaless_reader(source, self._writer, self._schema)
        except Exception as error:  # fastavro raises whatever its decoder stumbles over
            raise BodyError(f"the body is not a record of the Avro schema: {error}") from None
        if source.read(1):
            raise BodyError("the body is longer than a record of the Avro schema")
        return converted(record, kind)


class ProtobufSerializer:
    """Messages of Protobuf. The handler's annotation names the class."""

    def dumps(self, value: Any) -> bytes:
        if not is_protobuf(type(value)):
            raise TypeError(f"a Protobuf message is expected, not {type(value).__name__}")
        return body_bytes(value.SerializeToString())

    def loads(self, body: bytes, kind: Any) -> Any:
        if not is_protobuf(kind):
            raise BodyError(f"{_name(kind)} is not a class of Protobuf messages")
        try:
            return kind.FromString(body)
        except Exception as error:  # google.protobuf.message.DecodeError, without the import
            raise BodyError(f"the body is not a valid {_name(kind)}: {error}") from None


class AutoSerializer:
    """The default: by the type of the value or of the handler's parameter.

    bytes and text stay as they are; Protobuf messages, pydantic models and msgspec structs use their own library;
    everything else is JSON.
    """

    def __init__(self) -> None:
        self._json = JsonSerializer()
        self._of_kinds: dict[str, Serializer] = {}

    def dumps(self, value: Any) -> bytes:
        if isinstance(value, bytes | str | bytearray | memoryview):
            return body_bytes(value)
        return self._for(type(value)).dumps(value)

    def loads(self, body: bytes, kind: Any) -> Any:
        if kind is bytes:
            return body
        if kind is str:
            try:
                return body.decode()
            except UnicodeDecodeError as error:
                raise BodyError(f"the body is not UTF-8 text: {error}") from None
        return self._for(kind).loads(body, kind)

    def _for(self, kind: Any) -> Serializer:
        if is_protobuf(kind):
            return self._known("protobuf", ProtobufSerializer)
        if hasattr(kind, "model_validate_json"):
            return self._known("pydantic", PydanticSerializer)
        if hasattr(kind, "__struct_fields__"):
            return self._known("msgspec", MsgspecSerializer)
        return self._json

    def _known(self, name: str, create: type[Any]) -> Serializer:
        if name not in self._of_kinds:
            self._of_kinds[name] = create()
        return self._of_kinds[name]


AUTO = AutoSerializer()


def is_protobuf(kind: Any) -> bool:
    """True for a class of Protobuf messages."""
    return hasattr(kind, "DESCRIPTOR") and hasattr(kind, "FromString")


def _library(name: str, needed_for: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        raise InvalidMessageError(f"{needed_for} needs the package {name}: pip install {name}") from None


def _name(kind: Any) -> str:
    return getattr(kind, "__name__", str(kind))
