"""Messages as lines of JSON: written by ``orbitmq tail``, written by people, and read by ``orbitmq send``.

A line has the names that RocketMQ's classes and ``orbitmq store dump`` use: what one verb prints another can send.
"""

from typing import TYPE_CHECKING, Any

import orjson

from orbitmq.protocol import property_names as names
from orbitmq.protocol.errors import ProtocolError
from orbitmq.settings import ConfigError

if TYPE_CHECKING:
    from orbitmq.client.messages import Message, ReceivedMessage

_SPELLINGS = {"delay_level": "delayLevel", "sharding_key": "shardingKey", "body_hex": "bodyHex"}
"""As Python's ``Message`` has them."""

_SENT = frozenset({"body", "bodyHex", "tags", "keys", "properties", "flag", "delayLevel", "shardingKey"})

_WHERE_IT_LAY = frozenset(
    {
        *("topic", "brokerName", "queueId", "queueOffset", "msgId", "offsetMsgId", "bornTimestamp", "bornHost"),
        *("storeTimestamp", "storeHost", "reconsumeTimes", "physicalOffset", "storeSize", "magic", "sysFlag"),
        *("preparedTransactionOffset", "bodyCRC", "bodyRawLength", "bodyLength", "bodySha256"),
        "bodyDecompressedSha256",
    }
)
"""What is true of a stored message and not of one that is sent: passed over."""

_KEPT = {names.TAGS: "tags", names.KEYS: "keys", names.SHARDING_KEY: "shardingKey"}
"""Of a stored message's properties of RocketMQ's own, those that a sender gives."""


def line_of(message: "ReceivedMessage") -> dict[str, Any]:
    """A message that was received, to be printed as JSON."""
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


def message_of(line: bytes, topic: str, said: dict[str, Any]) -> "Message":
    """The message that a line describes. What the line leaves out is as ``said``. Raises ConfigError."""
    from orbitmq.client.messages import Message  # noqa: PLC0415

    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise ConfigError(f"it is not JSON: {error.msg}, at column {error.colno}") from None
    if not isinstance(row, dict):
        raise ConfigError(f"it is not an object but {_shown(row)}")
    row = {_SPELLINGS.get(name, name): value for name, value in row.items() if value is not None}
    if unknown := row.keys() - _SENT - _WHERE_IT_LAY:
        raise ConfigError(
            f"{min(unknown)!r} is not known: a message has body or bodyHex, tags, keys, properties, "
            "delayLevel, shardingKey, flag"
        )
    properties = _texts(row, "properties")
    if "queueOffset" in row:
        properties = _as_sent(row, properties)
    body = _body(row)
    row = {**said, **row}
    return Message(
        topic,
        body,
        tags=_typed(row, "tags", str, None),
        keys=_keys(row),
        properties={**said.get("properties", {}), **properties},
        flag=_typed(row, "flag", int, 0),
        delay_level=_typed(row, "delayLevel", int, 0),
        sharding_key=_typed(row, "shardingKey", str, None),
    )


def _as_sent(row: dict[str, Any], properties: dict[str, str]) -> dict[str, str]:
    """The properties that the application gave; of RocketMQ's own, those of a sender go where they belong."""
    for name, field in _KEPT.items():
        if name in properties:
            row.setdefault(field, properties[name])
    return {name: value for name, value in properties.items() if name not in names.RESERVED}


def _body(row: dict[str, Any]) -> bytes:
    if ("body" in row) is ("bodyHex" in row):
        raise ConfigError("it needs a body, or a bodyHex, and not both")
    if "body" in row:
        body = row["body"]
        # An object is what somebody will read as JSON again.
        return body.encode() if isinstance(body, str) else orjson.dumps(body)
    try:
        return bytes.fromhex(_typed(row, "bodyHex", str, ""))
    except ValueError:
        raise ConfigError("bodyHex is not a text of pairs of hexadecimal digits") from None


def _keys(row: dict[str, Any]) -> str | list[str]:
    keys = row.get("keys", [])
    if isinstance(keys, list) and all(isinstance(key, str) for key in keys):
        return keys
    return str(_typed(row, "keys", str, ""))


def _texts(row: dict[str, Any], name: str) -> dict[str, str]:
    values = _typed(row, name, dict, {})
    for key, value in values.items():
        if not isinstance(value, str):
            raise ConfigError(f"the property {key!r} is {_shown(value)}: properties are texts")
    return dict(values)


def _typed(row: dict[str, Any], name: str, kind: type, default: Any) -> Any:
    value = row.get(name, default)
    if value is not default and (not isinstance(value, kind) or isinstance(value, bool)):
        wanted = {str: "a text", int: "a whole number", dict: "an object"}[kind]
        raise ConfigError(f"{name} is {_shown(value)} and not {wanted}")
    return value


def _shown(value: object) -> str:
    text = orjson.dumps(value).decode()
    return text if len(text) <= 40 else text[:40] + "…"
