"""Messages for viewers: bodies as text or not, the newest of a topic, those of a time, traces."""

from __future__ import annotations

import base64
import dataclasses
import json
import re
from typing import TYPE_CHECKING, Any

from orbitmq.admin.errors import InvalidRequestError, NotFoundError
from orbitmq.admin.group.offsets import queues_in
from orbitmq.admin.topic.topics import readers_of
from orbitmq.client.message import ReceivedMessage
from orbitmq.client.trace.query import MessageTrace, assemble
from orbitmq.dashboard.subjects.brokers import check_message_id
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.names import TRACE_TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orbitmq.client.trace.query import TraceEvent
    from orbitmq.dashboard.clusters import ManagedCluster
    from orbitmq.protocol.bodies import MessageQueue

MAX_MESSAGES = 500
"""Messages of one search."""
MAX_BYTES = 32 << 20
"""Bytes of bodies of one search, after which it ends."""
MAX_BODY_IN_LIST = 2048
"""Bytes of a body in a list."""
MAX_BODY = 1 << 20
"""Bytes of a body that a page shows."""
MAX_TRACE_MESSAGES = 64

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f]")


@dataclasses.dataclass(frozen=True, slots=True)
class MessageText:
    """A message as viewers see it. ``body_encoding`` is ``text`` or ``base64``."""

    message_id: str
    offset_message_id: str
    topic: str
    broker_name: str
    queue_id: int
    queue_offset: int
    tags: str | None
    keys: list[str]
    properties: dict[str, str]
    born_timestamp: int
    store_timestamp: int
    born_host: str
    store_host: str
    reconsume_times: int
    body: str
    body_encoding: str
    body_size: int
    is_body_cut: bool


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """Which messages of a topic are wanted. Without times: the newest."""

    topic: str
    begin_ms: int | None = None
    end_ms: int | None = None
    tags: str = "*"
    sql: str = ""
    limit: int = 50
    broker_name: str = ""
    queue_id: int | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.limit <= MAX_MESSAGES:
            raise InvalidRequestError(f"a search finds 1 to {MAX_MESSAGES} messages, not {self.limit}")


def body_of(message: ReceivedMessage) -> bytes:
    """The body; one that cannot be decompressed, as it is stored."""
    try:
        return message.body
    except ProtocolError:
        return message.record.body


def as_text(message: ReceivedMessage, max_body: int = MAX_BODY) -> MessageText:
    """The message with its body as text if it is UTF-8."""
    body = body_of(message)
    part = body[:max_body]
    is_cut = len(body) > max_body
    text = _readable(part, is_cut=is_cut)
    encoding = "base64" if text is None else "text"
    if text is None:
        text = base64.b64encode(part).decode()
    return MessageText(
        message.message_id,
        message.offset_message_id,
        message.topic,
        message.broker_name,
        message.queue_id,
        message.queue_offset,
        message.tags,
        message.keys,
        dict(message.properties),
        message.born_timestamp,
        message.store_timestamp,
        message.born_host,
        message.store_host,
        message.reconsume_times,
        text,
        encoding,
        len(body),
        is_cut,
    )


def _readable(part: bytes, *, is_cut: bool) -> str | None:
    """The text of UTF-8 without control characters; None for anything else. A cut may fall into a character."""
    for end in range(4 if is_cut else 1):
        try:
            text = part[: len(part) - end].decode()
        except UnicodeDecodeError:
            continue
        return None if _CONTROL.search(text) else text
    return None


def json_text(body: bytes) -> str | None:
    """The body as indented JSON, or None if it is none."""
    try:
        return json.dumps(json.loads(body), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return None


def hex_dump(body: bytes, limit: int = 64 << 10) -> str:
    """The body as a hexadecimal dump, sixteen bytes a line."""
    lines = []
    for at in range(0, min(len(body), limit), 16):
        part = body[at : at + 16]
        codes = " ".join(f"{byte:02x}" for byte in part)
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"{at:08x}  {codes:<47}  {text}")
    if len(body) > limit:
        lines.append(f"… {len(body) - limit:,} bytes more")
    return "\n".join(lines)


async def find(cluster: ManagedCluster, search: Search) -> list[ReceivedMessage]:
    """The messages of a search, newest first. Raises NotFoundError, RefusedError for an invalid filter."""
    messages = cluster.admin.messages
    route = await cluster.admin.topics.route(search.topic)
    addresses = readers_of(route)
    queues = [
        queue
        for queue in queues_in(search.topic, route)
        if search.broker_name in {"", queue.broker_name} and search.queue_id in {None, queue.queue_id}
    ]
    if not queues:
        raise NotFoundError("queue", f"{search.broker_name}:{search.queue_id}", f"{search.topic} does not have it")
    per_queue = max(-(-search.limit // len(queues)), 1)
    found: list[ReceivedMessage] = []
    size = 0
    for queue in queues:
        first, last = await messages.span(addresses[queue.broker_name], queue, search.begin_ms, search.end_ms)
        for message in await _last_of(
            cluster, addresses[queue.broker_name], queue, (first, last), search, per_queue
        ):
            found.append(message)
            size += len(message.record.body)
        if size > MAX_BYTES:
            break
    found.sort(key=lambda message: (message.store_timestamp, message.queue_offset), reverse=True)
    return found[: search.limit]


async def _last_of(
    cluster: ManagedCluster, address: str, queue: MessageQueue, span: tuple[int, int], search: Search, wanted: int
) -> list[ReceivedMessage]:
    """The last messages of a part of a queue that pass the filter, read from its end in growing steps."""
    first, last = span
    found: list[ReceivedMessage] = []
    step = wanted
    scanned = 0
    while last > first and len(found) < wanted and scanned < MAX_MESSAGES * 20:
        begin = max(first, last - step)
        part: list[ReceivedMessage] = []
        at = begin
        while at < last:
            page = await cluster.admin.messages.page(
                address, queue, at, min(32, last - at), tags=search.tags, sql=search.sql
            )
            part += [message for message in page.messages if begin <= message.queue_offset < last]
            if page.next_offset <= at:
                break
            at = page.next_offset
        scanned += last - begin
        found = part + found
        last = begin
        step = min(step * 2, 512)
    return found[-wanted:]


async def by_id(cluster: ManagedCluster, topic: str, message_id: str) -> ReceivedMessage:
    """The message with an id of either kind. Raises NotFoundError."""
    await check_message_id(cluster, message_id)
    if not topic:
        message = await cluster.admin.messages.by_offset_id(message_id)
    else:
        message = await cluster.admin.messages.by_id(topic, message_id)
    if message.broker_name:
        return message
    # A look-up by a broker's id knows its address only.
    brokers = [status.broker for status in await cluster.brokers()]
    name = next((one.broker_name for one in brokers if one.address == message.store_host), "")
    return ReceivedMessage(message.record, name)


async def trace_of(cluster: ManagedCluster, message_id: str, trace_topic: str = "") -> MessageTrace:
    """The trace of a message. Raises NotFoundError if the trace topic does not exist."""
    topic = trace_topic or TRACE_TOPIC
    try:
        found = await cluster.admin.messages.by_key(topic, message_id, limit=MAX_TRACE_MESSAGES)
    except NotFoundError as error:
        raise NotFoundError("trace topic", topic, "switch traces on: traceTopicEnable at the brokers") from error
    return assemble(message_id, found)


def texts(messages: Iterable[ReceivedMessage], max_body: int = MAX_BODY_IN_LIST) -> list[MessageText]:
    return [as_text(message, max_body) for message in messages]


def trace_json(trace: MessageTrace) -> dict[str, Any]:
    """The trace as JSON: what was sent, how transactions ended, and each attempt to consume it."""
    return {
        "message_id": trace.message_id,
        "published": [_event_json(event) for event in trace.published],
        "transaction_ends": [_event_json(event) for event in trace.ended],
        "recalls": [_event_json(event) for event in trace.recalled],
        "attempts": [
            {
                "group": attempt.group,
                "client_host": attempt.client_host,
                "began_ms": attempt.began_ms,
                "retry_times": attempt.retry_times,
                "cost_ms": None if attempt.ended is None else attempt.ended.cost_ms,
                "outcome": None if attempt.ended is None else attempt.ended.outcome.name,
            }
            for attempt in trace.attempts
        ],
    }


def _event_json(event: TraceEvent) -> dict[str, Any]:
    found = dataclasses.asdict(event.record)
    if "kind" in found:
        found["kind"] = found["kind"].name
    return {**found, "client_host": event.client_host}
