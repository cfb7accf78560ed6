"""Messages as lines of JSON: printed by ``orbitmq tail``, read by ``orbitmq send``.

The field names are those of RocketMQ's classes and of ``orbitmq store dump``, so that printed messages can be sent
again.
"""

from typing import TYPE_CHECKING, Any

import orjson

from orbitmq.platform.settings import ConfigError
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.message import property_names as names

if TYPE_CHECKING:
    from orbitmq.client.message import Message, ReceivedMessage

_SPELLINGS = {
    "delay_level": "delayLevel",
    "sharding_key": "shardingKey",
    "body_hex": "bodyHex",
    "deliver_at": "deliverAt",
}
"""Also accepted: the names of Python's ``Message``."""

_TIMES = frozenset({"delay", "deliverAt", "delayLevel"})
"""Fields of which a message has at most one."""

_SENT = frozenset({"body", "bodyHex", "tags", "keys", "properties", "flag", "shardingKey"}) | _TIMES

_STORED = frozenset(
    {
        *("topic", "brokerName", "queueId", "queueOffset", "msgId", "offsetMsgId", "bornTimestamp", "bornHost"),
        *("storeTimestamp", "storeHost", "reconsumeTimes", "physicalOffset", "storeSize", "magic", "sysFlag"),
        *("preparedTransactionOffset", "bodyCRC", "bodyRawLength", "bodyLength", "bodySha256"),
        "bodyDecompressedSha256",
    }
)
"""Fields of stored messages only, which are ignored when a line is sent."""

_SENDER_PROPERTIES = {names.TAGS: "tags", names.KEYS: "keys", names.SHARDING_KEY: "shardingKey"}
"""RocketMQ's own properties that a producer sets, with their field."""


def line_of(message: "ReceivedMessage") -> dict[str, Any]:
    """The JSON line of a received message."""
    record = message.record
    line = {
        "topic": message.topic,
        "brokerName": message.broker_name,
        "queueId": record.queue_id,
        "queueOffset": message.queue_offset,
        "msgId": message.message_id,
        "offsetMsgId": message.offset_message_id,
        "bornTimestamp": record.born_timestamp,
        "bornHost": message.born_host,
        "storeTimestamp": record.store_timestamp,
        "storeHost": message.store_host,
        "reconsumeTimes": record.reconsume_times,
        "flag": record.flag,
        "tags": message.tags,
        "keys": message.keys,
        "properties": message.properties,
    }
    try:
        body = message.body
    except ProtocolError as error:
        return {**line, "bodyHex": record.body.hex(), "bodyError": str(error)}
    try:
        line["body"] = body.decode()
    except UnicodeDecodeError:
        line["bodyHex"] = body.hex()
    return line


def message_of(line: bytes, topic: str, defaults: dict[str, Any]) -> "Message":
    """The message of a line, with ``defaults`` for missing fields. Raises ConfigError."""
    from orbitmq.client.message import Message  # noqa: PLC0415

    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise ConfigError(f"not JSON: {error.msg}, at column {error.colno}") from None
    if not isinstance(row, dict):
        raise ConfigError(f"{_shortened(row)} is not a JSON object")
    row = {_SPELLINGS.get(name, name): value for name, value in row.items() if value is not None}
    if unknown := row.keys() - _SENT - _STORED:
        raise ConfigError(
            f"unknown field {min(unknown)!r}: a message has body or bodyHex, tags, keys, properties, "
            "delay, deliverAt, delayLevel, shardingKey, flag"
        )
    properties = _texts(row, "properties")
    if "queueOffset" in row:
        properties = _as_sent(row, properties)
    body = _body(row)
    if _TIMES & row.keys():
        defaults = {name: value for name, value in defaults.items() if name not in _TIMES}
    row = {**defaults, **row}
    return Message(
        topic,
        body,
        tags=_typed(row, "tags", str, None),
        keys=_keys(row),
        properties={**defaults.get("properties", {}), **properties},
        flag=_typed(row, "flag", int, 0),
        delay_level=_typed(row, "delayLevel", int, 0),
        delay=row.get("delay"),
        deliver_at=row.get("deliverAt"),
        sharding_key=_typed(row, "shardingKey", str, None),
    )


def _as_sent(row: dict[str, Any], properties: dict[str, str]) -> dict[str, str]:
    """The properties of the application. RocketMQ's own ones that a producer sets move to their fields."""
    for name, field in _SENDER_PROPERTIES.items():
        if name in properties:
            text = properties[name]
            row.setdefault(field, text.split() if field == "keys" else text)
    return {name: value for name, value in properties.items() if name not in names.RESERVED}


def _body(row: dict[str, Any]) -> bytes:
    if ("body" in row) is ("bodyHex" in row):
        raise ConfigError("a message needs either body or bodyHex")
    if "body" in row:
        body = row["body"]
        return body.encode() if isinstance(body, str) else orjson.dumps(body)
    try:
        return bytes.fromhex(_typed(row, "bodyHex", str, ""))
    except ValueError:
        raise ConfigError("bodyHex must be pairs of hexadecimal digits") from None


def _keys(row: dict[str, Any]) -> list[str]:
    keys = row.get("keys", [])
    if isinstance(keys, list) and all(isinstance(key, str) for key in keys):
        return keys
    # As RocketMQ stores them: separated by blanks.
    return str(_typed(row, "keys", str, "")).split()


def _texts(row: dict[str, Any], name: str) -> dict[str, str]:
    values = _typed(row, name, dict, {})
    for key, value in values.items():
        if not isinstance(value, str):
            raise ConfigError(f"property {key!r} must be a string, not {_shortened(value)}")
    return dict(values)


def _typed(row: dict[str, Any], name: str, kind: type, default: Any) -> Any:
    value = row.get(name, default)
    if value is not default and (not isinstance(value, kind) or isinstance(value, bool)):
        expected = {str: "a string", int: "a whole number", dict: "an object"}[kind]
        raise ConfigError(f"{name} must be {expected}, not {_shortened(value)}")
    return value


def _shortened(value: object) -> str:
    text = orjson.dumps(value).decode()
    return text if len(text) <= 40 else text[:40] + "…"
