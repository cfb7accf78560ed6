"""Delivered messages: from records of the log to protobuf."""

from __future__ import annotations

import functools
import hashlib
from typing import TYPE_CHECKING

from orbitmq.protocol.hosts import host_text
from orbitmq.protocol.java import decode_utf8
from orbitmq.protocol.message.flags import COMPRESSED
from orbitmq.protocol.message.message_id import encode_offset_id
from orbitmq.protocol.message.properties import values_of
from orbitmq.protocol.names import DLQ_PREFIX, RETRY_PREFIX
from orbitmq.proxy.messages.reserved import RESERVED
from orbitmq.proxy.messages.to_stored import type_of
from orbitmq.proxy.proto import definition_pb2 as pb

if TYPE_CHECKING:
    from google.protobuf.timestamp_pb2 import Timestamp

    from orbitmq.protocol.message.record import Record

_RESERVED = frozenset(name.encode() for name in RESERVED)
_MAX_DIGITS = 18


def delivered(record: Record, topic: str, handle: str | None = None) -> pb.Message:
    """A stored message as consumers get it. ``topic`` is the one they subscribe to."""
    values = values_of(record.properties)
    get = values.get
    unique = get(b"UNIQ_KEY")
    namespace, name = resource_of(topic)
    message = pb.Message(topic=pb.Resource(resource_namespace=namespace, name=name), body=record.body)
    user = message.user_properties
    for key, value in values.items():
        if key not in _RESERVED:
            user[decode_utf8(key)] = decode_utf8(value)
    system = message.system_properties
    system.message_id = (
        encode_offset_id(record.store_host, record.physical_offset) if unique is None else decode_utf8(unique)
    )
    system.body_digest.type = pb.MD5
    system.body_digest.checksum = hashlib.md5(record.body, usedforsecurity=False).hexdigest().upper()
    system.body_encoding = pb.GZIP if record.sys_flag & COMPRESSED else pb.IDENTITY
    system.message_type = type_of(values)
    set_milliseconds(system.born_timestamp, record.born_timestamp)
    born_host = get(b"__BORNHOST")
    system.born_host = host_text(record.born_host) if born_host is None else decode_utf8(born_host)
    set_milliseconds(system.store_timestamp, record.store_timestamp)
    system.store_host = host_text(record.store_host)
    system.queue_id = record.queue_id
    system.queue_offset = record.queue_offset
    system.delivery_attempt = record.reconsume_times + 1
    if handle is not None:
        system.receipt_handle = handle
    if (tag := get(b"TAGS")) is not None:
        system.tag = decode_utf8(tag)
    if (keys := get(b"KEYS")) is not None:
        system.keys.extend(decode_utf8(keys).split())
    if (group := get(b"__SHARDINGKEY")) is not None:
        system.message_group = decode_utf8(group)
    if (trace := get(b"TRACE_CONTEXT")) is not None:
        system.trace_context = decode_utf8(trace)
    if (lite := get(b"__LITE_TOPIC")) is not None:
        system.lite_topic = decode_utf8(lite)
    if (priority := _number(get(b"_SYS_MSG_PRIORITY_"))) is not None and priority < 1 << 31:
        system.priority = priority
    if (due := _number(get(b"TIMER_DELIVER_MS"))) is not None:
        set_milliseconds(system.delivery_timestamp, due)
    if (seconds := _number(get(b"CHECK_IMMUNITY_TIME_IN_SECONDS"))) is not None and seconds < 1 << 31:
        system.orphaned_transaction_recovery_duration.seconds = seconds
    if b"DLQ_ORIGIN_TOPIC" in values and b"DLQ_ORIGIN_MESSAGE_ID" in values:
        system.dead_letter_queue.topic = decode_utf8(values[b"DLQ_ORIGIN_TOPIC"])
        system.dead_letter_queue.message_id = decode_utf8(values[b"DLQ_ORIGIN_MESSAGE_ID"])
    return message


@functools.lru_cache(maxsize=4096)
def resource_of(topic: str) -> tuple[str, str]:
    """Namespace and name of a stored topic: what is before the first ``%``, behind the prefix of retries, and the
    rest."""
    for prefix in (RETRY_PREFIX, DLQ_PREFIX):
        if topic.startswith(prefix):
            namespace, found, name = topic[len(prefix) :].partition("%")
            return (namespace, prefix + name) if found else ("", topic)
    namespace, found, name = topic.partition("%")
    return (namespace, name) if found else ("", topic)


def set_milliseconds(timestamp: Timestamp, value: int) -> None:
    timestamp.seconds, rest = divmod(value, 1000)
    timestamp.nanos = rest * 1_000_000


def _number(text: bytes | None) -> int | None:
    return int(text) if text is not None and text.isdigit() and len(text) <= _MAX_DIGITS else None
