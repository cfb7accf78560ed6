"""Body decoders: Avro and Protobuf bodies as JSON text, by schemas that a file names for topics.

The file is TOML, with one table for each rule; the first that matches a topic counts::

    [[decoder]]
    topics = ["orders", "orders-*"]
    format = "avro"
    schema = "order.avsc"              # beside the file
    wire = "confluent"                 # plain, confluent (five bytes first) or single (Avro's own marker)

    [[decoder]]
    topics = ["payments"]
    format = "protobuf"
    descriptors = "shop.desc"          # protoc --include_imports --descriptor_set_out=shop.desc
    message = "shop.Payment"
"""

from __future__ import annotations

import base64
import dataclasses
import datetime
import decimal
import fnmatch
import io
import json
import tomllib
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from orbitmq.admin.errors import InvalidRequestError
from orbitmq.admin.message.delivery import original_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from orbitmq.client.message import ReceivedMessage

MAX_RULES = 1000
MAX_SCHEMA_BYTES = 8 << 20
HEADERS = {"plain": 0, "confluent": 5, "single": 10}
"""Bytes before an Avro record."""


@dataclasses.dataclass(frozen=True, slots=True)
class DecodedBody:
    """A body as JSON text, or why it is not what the schema says."""

    format: str
    """``avro`` or ``protobuf``, with the name of the record or message."""
    text: str = ""
    error: str = ""


class _Format(Protocol):
    """Decodes bodies of one schema."""

    @property
    def name(self) -> str: ...

    def value(self, body: bytes) -> Any:
        """The body as a value. Raises any error for other bytes."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Rule:
    topics: tuple[str, ...]
    format: _Format

    def matches(self, topic: str) -> bool:
        return any(fnmatch.fnmatchcase(topic, pattern) for pattern in self.topics)


class BodyDecoders:
    """Rules by topic. Without any, no body is decoded."""

    def __init__(self, rules: tuple[_Rule, ...] = ()) -> None:
        self._rules = rules

    @classmethod
    def load(cls, path: str | Path) -> BodyDecoders:
        """The rules of a file. Raises InvalidRequestError."""
        path = Path(path)
        try:
            given = tomllib.loads(_read(path).decode())
        except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise InvalidRequestError(f"{path} is not TOML: {error}") from error
        tables = given.pop("decoder", [])
        if given or not isinstance(tables, list) or len(tables) > MAX_RULES:
            raise InvalidRequestError(f"{path} has at most {MAX_RULES} tables [[decoder]] and nothing else")
        return cls(tuple(_rule(table, path.parent, f"{path}, decoder {at}") for at, table in enumerate(tables, 1)))

    def __bool__(self) -> bool:
        return bool(self._rules)

    def decode(self, topic: str, body: bytes) -> DecodedBody | None:
        """The body as JSON text; None if no rule is for the topic."""
        rule = next((one for one in self._rules if one.matches(topic)), None)
        if rule is None:
            return None
        try:
            text = json.dumps(rule.format.value(body), indent=2, ensure_ascii=False, default=_plain)
        except Exception as error:
            return DecodedBody(rule.format.name, error=f"{error}" or type(error).__name__)
        return DecodedBody(rule.format.name, text)

    def decode_message(self, message: ReceivedMessage) -> DecodedBody | None:
        """The body of a message by the rule of the topic that it was sent to: that of a retried one, too."""
        if not self._rules:
            return None
        try:
            body = message.body
        except Exception as error:
            return DecodedBody("compressed", error=f"{error}" or type(error).__name__)
        return self.decode(original_topic(message), body)


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            found = file.read(MAX_SCHEMA_BYTES + 1)
    except OSError as error:
        raise InvalidRequestError(f"{path} cannot be read: {error.strerror or error}") from error
    if len(found) > MAX_SCHEMA_BYTES:
        raise InvalidRequestError(f"{path} is larger than {MAX_SCHEMA_BYTES >> 20} MiB")
    return found


def _rule(given: Any, folder: Path, where: str) -> _Rule:
    if not isinstance(given, dict):
        raise InvalidRequestError(f"{where} is not a table")
    topics = given.get("topics")
    if not isinstance(topics, list) or not topics or not all(isinstance(one, str) for one in topics):
        raise InvalidRequestError(f"{where} needs topics: a list of names, with * for any characters")
    kind = given.get("format")
    if kind not in KINDS:
        raise InvalidRequestError(f"{where} has the format {kind!r}: choose from {', '.join(KINDS)}")
    return _Rule(tuple(topics), KINDS[kind](given, folder, where))


def _text(given: Mapping[str, Any], name: str, where: str, default: str = "") -> str:
    value = given.get(name, default)
    if not isinstance(value, str) or not value:
        raise InvalidRequestError(f"{where} needs {name}, as a text")
    return value


# Avro


@dataclasses.dataclass(frozen=True, slots=True)
class _Avro:
    name: str
    schema: Any
    read: Any
    header: int

    def value(self, body: bytes) -> Any:
        file = io.BytesIO(body)
        file.seek(self.header)
        if len(body) < self.header:
            raise ValueError(f"{len(body)} bytes are fewer than the header of {self.header}")
        found = self.read(file, self.schema, None)
        if file.tell() != len(body):
            raise ValueError(f"{len(body) - file.tell()} bytes are left after the record")
        return found


def _avro(given: Mapping[str, Any], folder: Path, where: str) -> _Avro:
    try:
        import fastavro  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise InvalidRequestError(f"{where} needs the package fastavro: pip install 'orbitmq[formats]'") from error
    wire = _text(given, "wire", where, "plain")
    if wire not in HEADERS:
        raise InvalidRequestError(f"{where} has the wire {wire!r}: choose from {', '.join(HEADERS)}")
    path = folder / _text(given, "schema", where)
    try:
        schema = fastavro.parse_schema(json.loads(_read(path)))
    except InvalidRequestError:
        raise
    except Exception as error:
        raise InvalidRequestError(f"{path} is not an Avro schema: {error}") from error
    name = schema.get("name", schema.get("type", "")) if isinstance(schema, dict) else ""
    return _Avro(f"avro {name}".strip(), schema, fastavro.schemaless_reader, HEADERS[wire])


# Protobuf


@dataclasses.dataclass(frozen=True, slots=True)
class _Protobuf:
    name: str
    message: Any
    as_dict: Any

    def value(self, body: bytes) -> Any:
        found = self.message()
        found.ParseFromString(body)
        return self.as_dict(found, preserving_proto_field_name=True)


def _protobuf(given: Mapping[str, Any], folder: Path, where: str) -> _Protobuf:
    try:
        from google.protobuf import (  # noqa: PLC0415 - an extra
            descriptor_pb2,
            descriptor_pool,
            json_format,
            message_factory,
        )
    except ImportError as error:
        raise InvalidRequestError(f"{where} needs the package protobuf: pip install 'orbitmq[formats]'") from error
    path, name = folder / _text(given, "descriptors", where), _text(given, "message", where)
    files = descriptor_pb2.FileDescriptorSet()
    pool = descriptor_pool.DescriptorPool()
    try:
        files.ParseFromString(_read(path))
        for file in files.file:
            pool.Add(file)
        message = message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
    except InvalidRequestError:
        raise
    except KeyError as error:
        raise InvalidRequestError(f"{path} has no message {name}") from error
    except Exception as error:
        raise InvalidRequestError(f"{path} is not a set of descriptors: {error}") from error
    return _Protobuf(f"protobuf {name}", message, json_format.MessageToDict)


def _plain(value: Any) -> Any:
    """A value that JSON does not have, as text."""
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, decimal.Decimal | uuid.UUID | datetime.timedelta):
        return str(value)
    raise TypeError(f"a value of the type {type(value).__name__} cannot be shown")


KINDS: dict[str, Callable[[Mapping[str, Any], Path, str], _Format]] = {"avro": _avro, "protobuf": _protobuf}
