"""The mapping between Kafka records and RocketMQ messages, lossless in both directions.

A record becomes a message with properties that begin with ``KAFKA_``, which hold what no message has, and a message
becomes a record with a header ``ROCKETMQ_BORN`` beside one for each property. Either is turned back into what it
was if that is exactly what would be made of it again; whatever merely looks alike is wrapped like any other.
"""

from __future__ import annotations

import base64
import binascii
import collections
import dataclasses
import hashlib
import re
from typing import TYPE_CHECKING, TypeAlias

import orjson

from orbitmq.protocol.message import property_names as names
from orbitmq.spark.sink.message_ids import MARK

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MIGRATION_ID = "MIGRATION_ID"
MIGRATION_TOPIC = "MIGRATION_TOPIC"
MIGRATION_QUEUE = "MIGRATION_QUEUE"
MIGRATION_OFFSET = "MIGRATION_OFFSET"
ORIGIN = frozenset({MIGRATION_ID, MIGRATION_TOPIC, MIGRATION_QUEUE, MIGRATION_OFFSET})
"""What a migrated message says of where it comes from, as properties or as headers. The last migration counts."""

KAFKA_TIMESTAMP = "KAFKA_TIMESTAMP"
"""Milliseconds since 1970. Every record has it, so that it tells that a message was one."""
KAFKA_KEY = "KAFKA_KEY"
KAFKA_HEADERS = "KAFKA_HEADERS"
"""All headers in their order, as JSON: ``["name"]`` if the value is the property of that name, or the value too."""
KAFKA_NULL = "KAFKA_NULL"
KAFKA_EMPTY = "KAFKA_EMPTY"
ROCKETMQ_BORN = "ROCKETMQ_BORN"

NO_BODY = b"\x00"
"""The body for a record without a value, or with an empty one: brokers take no message without a body."""
BASE64 = "base64:"

NOT_COPIED = names.RESERVED | {names.REDIRECT, names.INNER_NUM, names.INNER_BASE, names.TRANSACTION_ID, MARK}
"""What brokers and clients have noted of one delivery: the sink leaves it out."""
_NOT_CARRIED = NOT_COPIED - {names.TAGS, names.KEYS, names.UNIQUE_KEY} | ORIGIN
_TAKEN = frozenset(
    {value for name, value in vars(names).items() if name.isupper() and isinstance(value, str)}
    | {KAFKA_TIMESTAMP, KAFKA_KEY, KAFKA_HEADERS, KAFKA_NULL, KAFKA_EMPTY, ROCKETMQ_BORN, MARK}
    | ORIGIN
)
"""Names of properties that already mean something."""
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_MAX_MS = 1 << 53

Headers: TypeAlias = "tuple[tuple[str, bytes | None], ...]"


@dataclasses.dataclass(frozen=True, slots=True)
class Record:
    """A record of Kafka."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int

    def without_origin(self) -> Record:
        kept = tuple(header for header in self.headers if header[0] not in ORIGIN)
        return self if len(kept) == len(self.headers) else dataclasses.replace(self, headers=kept)

    def origin(self) -> dict[str, str]:
        """The origin of a migrated message."""
        return {name: (value or b"").decode("utf-8", "replace") for name, value in self.headers if name in ORIGIN}


@dataclasses.dataclass(frozen=True, slots=True)
class Content:
    """The content of a RocketMQ message, without the properties of one delivery."""

    body: bytes
    properties: dict[str, str]
    born_ms: int = 0


def carried(properties: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The properties that are copied with a message."""
    return {name: value for name, value in properties if name not in _NOT_CARRIED and value}


# From Kafka


def to_message(record: Record) -> Content:
    """The message for a record, whose headers have nothing of a migration any more."""
    if any(name == ROCKETMQ_BORN for name, _ in record.headers):
        was = _message_in(record)
        if was is not None and to_record(was) == record:
            return was
    return _wrapped(record)


def _wrapped(record: Record) -> Content:
    properties = {KAFKA_TIMESTAMP: str(record.timestamp_ms)}
    if record.key is not None:
        properties[KAFKA_KEY] = text = text_of(record.key)
        if record.key and not text.startswith(BASE64) and not any(map(str.isspace, text)):
            properties[names.KEYS] = properties[names.SHARDING_KEY] = text
    if not record.value:
        properties[KAFKA_NULL if record.value is None else KAFKA_EMPTY] = "true"
    if record.headers:
        listed: list[list[str | None]] = []
        times = collections.Counter(name for name, _ in record.headers)
        for name, value in record.headers:
            text = BASE64 if value is None else text_of(value)
            is_plain = not text.startswith(BASE64) and _PLAIN_NAME.fullmatch(name) and name not in _TAKEN
            if is_plain and times[name] == 1:
                properties[name] = text
                listed.append([name])
            else:
                listed.append([name, None if value is None else text])
        properties[KAFKA_HEADERS] = orjson.dumps(listed).decode()
    return Content(record.value or NO_BODY, properties, max(record.timestamp_ms, 0))


def _message_in(record: Record) -> Content | None:
    """The message that a record may have been."""
    found: dict[str, str] = {}
    for name, value in record.headers:
        if name in found or not value or not name or "\x01" in name or "\x02" in name:
            return None
        try:
            found[name] = value.decode()
        except UnicodeDecodeError:
            return None
        if "\x02" in found[name]:
            return None
    born = _number(found[ROCKETMQ_BORN])
    if born is None or not record.value or carried(found.items()) != found:
        return None
    return Content(record.value, found, born)


# From here


def to_record(message: Content) -> Record:
    """The record for a message, of whose properties only those are there that are carried."""
    properties = message.properties
    if KAFKA_TIMESTAMP in properties:
        was = _record_in(message)
        # The unique id is from the producer that stored it, not from the record.
        had = {name: value for name, value in properties.items() if name != names.UNIQUE_KEY}
        if was is not None:
            again = _wrapped(was)
            if again.properties == had and again.body == message.body:
                return was
    born = _number(properties.get(ROCKETMQ_BORN, ""))
    born = message.born_ms if born is None else born
    keys = properties.get(names.KEYS)
    rest = sorted((name, value.encode()) for name, value in properties.items() if name != ROCKETMQ_BORN)
    headers = ((ROCKETMQ_BORN, str(born).encode()), *rest)
    return Record(None if keys is None else keys.encode(), message.body, headers, born)


def _record_in(message: Content) -> Record | None:
    """The record that a message may have been."""
    properties = message.properties
    try:
        headers = []
        for name, *given in orjson.loads(properties.get(KAFKA_HEADERS, "[]")):
            value = given[0] if given else properties[name]
            headers.append((str(name), None if value is None else bytes_of(value)))
        key = properties.get(KAFKA_KEY)
        value = None if KAFKA_NULL in properties else b"" if KAFKA_EMPTY in properties else message.body
        return Record(
            None if key is None else bytes_of(key), value, tuple(headers), int(properties[KAFKA_TIMESTAMP])
        )
    except (ValueError, KeyError, TypeError, AttributeError, binascii.Error):
        return None


# Texts


def text_of(data: bytes) -> str:
    """Bytes as a text that a property may hold: as they are if they are one, otherwise in base 64."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = ""
    if not text or text.startswith(BASE64) or any(char < " " for char in text):
        return BASE64 + base64.b64encode(data).decode()
    return text


def bytes_of(text: str) -> bytes:
    """Raises ValueError."""
    return base64.b64decode(text[len(BASE64) :], validate=True) if text.startswith(BASE64) else text.encode()


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() and text.isascii() and int(text) < _MAX_MS else None


# Comparing


def digest_of(one: Record | Content) -> bytes:
    """Equal for equal contents. Ids and times are compared by themselves: not every end can keep them."""
    if isinstance(one, Record):
        head, data = repr((one.key, one.headers, one.value is None)), one.value or b""
    else:
        kept = sorted(item for item in one.properties.items() if item[0] != names.UNIQUE_KEY)
        head, data = repr(kept), one.body
    hashed = hashlib.sha256(head.encode("utf-8", "backslashreplace"))
    hashed.update(data)
    return hashed.digest()


def origin_of(name: str, topic: str, queue: str, offset: int) -> Mapping[str, str]:
    """The origin properties of a migrated message."""
    return {MIGRATION_ID: name, MIGRATION_TOPIC: topic, MIGRATION_QUEUE: queue, MIGRATION_OFFSET: str(offset)}
