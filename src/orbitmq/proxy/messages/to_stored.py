"""Sent messages: from protobuf to the properties text and flags with which the broker stores them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from orbitmq.protocol.message import property_names as names
from orbitmq.protocol.message.batch import encode_batch
from orbitmq.protocol.message.flags import COMPRESSED, TRANSACTION_PREPARED
from orbitmq.proxy.errors import StatusError
from orbitmq.proxy.messages.validation import milliseconds
from orbitmq.proxy.proto import definition_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Outgoing(NamedTuple):
    """A message, or a batch of them, as the broker takes it."""

    properties: str
    body: bytes
    sys_flag: int
    born_ms: int
    reconsume_times: int


def outgoing(message: pb.Message, born_host: str, now_ms: int) -> Outgoing:
    """The form of one message. Properties without a value are left out: no reader sees them."""
    properties = message.system_properties
    has = properties.HasField
    # Of two properties with one name the later one counts, so what the protocol sets comes last.
    parts = [f"{name}\x01{value}\x02" for name, value in message.user_properties.items() if value]
    add = parts.append
    sys_flag = 0
    if properties.tag:
        add(f"TAGS\x01{properties.tag}\x02")
    if properties.keys:
        add(f"KEYS\x01{' '.join(properties.keys)}\x02")
    add(f"UNIQ_KEY\x01{properties.message_id}\x02PGROUP\x01{message.topic.name}\x02")
    if properties.message_type == pb.TRANSACTION:
        sys_flag |= TRANSACTION_PREPARED
        add("TRAN_MSG\x01true\x02")
        if has("orphaned_transaction_recovery_duration"):
            seconds = properties.orphaned_transaction_recovery_duration.seconds
            add(f"{names.CHECK_IMMUNITY_SECONDS}\x01{seconds}\x02")
    if has("delivery_timestamp"):
        add(f"{names.TIMER_DELIVER_MS}\x01{milliseconds(properties.delivery_timestamp)}\x02")
    if properties.message_group:
        add(f"{names.SHARDING_KEY}\x01{properties.message_group}\x02")
    if properties.lite_topic:
        add(f"{names.LITE_TOPIC}\x01{properties.lite_topic}\x02")
    if has("priority"):
        add(f"{names.PRIORITY}\x01{properties.priority}\x02")
    add(f"{names.RECONSUME_TIMES}\x01{properties.delivery_attempt}\x02")
    if properties.trace_context:
        add(f"{names.TRACE_CONTEXT}\x01{properties.trace_context}\x02")
    add(f"{names.BORN_HOST}\x01{properties.born_host.strip() or born_host}\x02")
    born_ms = milliseconds(properties.born_timestamp) if properties.HasField("born_timestamp") else now_ms
    add(f"{names.BORN_TIMESTAMP}\x01{born_ms}\x02")
    if properties.body_encoding == pb.GZIP:
        sys_flag |= COMPRESSED
    return Outgoing("".join(parts), message.body, sys_flag, born_ms, 0)


def outgoing_batch(messages: Sequence[pb.Message], born_host: str, now_ms: int) -> Outgoing:
    """The form of several messages, which the broker stores together. Raises StatusError."""
    forms = [outgoing(message, born_host, now_ms) for message in messages]
    for message in messages:
        properties = message.system_properties
        if properties.message_type == pb.TRANSACTION or properties.HasField("delivery_timestamp"):
            raise StatusError(
                pb.BAD_REQUEST, "transaction and delay messages cannot be sent in a batch: send each alone"
            )
        if properties.lite_topic:
            raise StatusError(pb.BAD_REQUEST, "messages of lite topics cannot be sent in a batch: send each alone")
    body = encode_batch([(0, form.body, form.properties.encode("utf-8", "replace")) for form in forms])
    return forms[0]._replace(body=body)


def type_of(properties: Mapping[bytes, bytes]) -> pb.MessageType:
    """The type of a stored message, which its properties say."""
    if properties.get(b"TRAN_MSG") == b"true":
        return pb.TRANSACTION
    if not properties.keys().isdisjoint(_DELAYS):
        return pb.DELAY
    if b"__SHARDINGKEY" in properties:
        return pb.FIFO
    if b"__LITE_TOPIC" in properties:
        return pb.LITE
    if b"_SYS_MSG_PRIORITY_" in properties:
        return pb.PRIORITY
    return pb.NORMAL


_DELAYS = frozenset([b"DELAY", b"TIMER_DELIVER_MS", b"TIMER_DELAY_SEC", b"TIMER_DELAY_MS"])
