"""Requests and replies: a message that waits for an answer, the answer to it, and what is waited for meanwhile."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from typing import TYPE_CHECKING

from orbitmq.client.errors import CannotReplyError, InvalidMessageError, RequestTimeoutError, TooManySendsError
from orbitmq.client.messages import Message, ReceivedMessage
from orbitmq.protocol import property_names as names
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.fields import decode_fields
from orbitmq.protocol.hosts import host_bytes
from orbitmq.protocol.names import REPLY_TOPIC_POSTFIX
from orbitmq.protocol.properties import parse
from orbitmq.protocol.record import MAGIC_V1, Record
from orbitmq.protocol.request_fields import REQUEST_FIELDS

if TYPE_CHECKING:
    from orbitmq.protocol.command import Command

log = logging.getLogger("orbitmq.client")

MOST_WAITING = 65535
"""Requests of one client that wait for replies at a time: what Java's clients allow themselves in flight."""

_NOWHERE = bytes(8)


def make_request(message: Message, client_id: str, seconds: float) -> Message:
    """The message with what lets a reply to it find its way. The application's own stays as it is."""
    request = Message(message.topic, message.body, flag=message.flag)
    request.properties.update(message.properties)
    request.properties[names.CORRELATION_ID] = str(uuid.uuid4())
    request.properties[names.REPLY_TO_CLIENT] = client_id
    request.properties[names.MESSAGE_TTL] = str(max(round(seconds * 1000), 1))
    return request


def create_reply(
    request: ReceivedMessage, body: bytes | str, *, tags: str | None = None, keys: str = ""
) -> Message:
    """The reply to a request, for a producer to send like any message.

    ``Producer.reply_to`` makes it and sends it. Raises CannotReplyError for a message that is no request.
    """
    said = request.properties
    cluster = said.get(names.CLUSTER)
    if cluster is None:
        raise CannotReplyError(f"the request does not say of which cluster it is (property {names.CLUSTER})")
    if not request.is_request:
        raise CannotReplyError("the message is no request: nobody waits for a reply to it")
    reply = Message(cluster + REPLY_TOPIC_POSTFIX, body, tags=tags, keys=keys)
    del reply.properties[names.WAIT_STORE_OK]
    reply.properties[names.MESSAGE_TYPE] = names.MESSAGE_TYPE_REPLY
    for name in (names.CORRELATION_ID, names.REPLY_TO_CLIENT, names.MESSAGE_TTL):
        if name in said:
            reply.properties[name] = said[name]
    return reply


class PendingReplies:
    """The requests of one client that wait for their replies."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: dict[str, asyncio.Future[ReceivedMessage]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def expect(self, request: Message) -> asyncio.Future[ReceivedMessage]:
        """The reply to a request that is about to be sent. ``forget`` it in any case."""
        if len(self._waiting) >= MOST_WAITING:
            raise TooManySendsError(f"{MOST_WAITING} requests wait for replies already: ask slower")
        future: asyncio.Future[ReceivedMessage] = asyncio.get_running_loop().create_future()
        self._waiting[request.properties[names.CORRELATION_ID]] = future
        return future

    def forget(self, request: Message) -> None:
        self._waiting.pop(request.properties[names.CORRELATION_ID], None)

    def arrived(self, pushed: Command) -> None:
        """A broker has brought a reply (326). One that nobody waits for (any more) is dropped.

        Raises ProtocolError.
        """
        reply = _reply_of(pushed)
        found = self._waiting.pop(reply.properties.get(names.CORRELATION_ID, ""), None)
        if found is None:
            log.warning("a reply from %s came too late, or to nobody's question", reply.born_host)
        elif not found.done():
            found.set_result(reply)


async def await_reply(
    reply: asyncio.Future[ReceivedMessage], topic: str, left: float, whole: float
) -> ReceivedMessage:
    """The reply, if it comes in the time that is left. Raises RequestTimeoutError."""
    try:
        async with asyncio.timeout(max(left, 0)):
            return await reply
    except TimeoutError:
        raise RequestTimeoutError(topic, whole) from None


def check_request(message: Message, seconds: float) -> None:
    """Raise InvalidMessageError for what cannot be answered in time."""
    if not seconds > 0:
        raise InvalidMessageError(
            f"a request needs time to be answered: timeout must be more than 0, not {seconds}"
        )
    times = (names.TIMER_DELAY_SEC, names.TIMER_DELAY_MS, names.TIMER_DELIVER_MS)
    for name in (names.DELAY_LEVEL, *times, names.TRANSACTION_PREPARED):
        if name in message.properties:
            raise InvalidMessageError(f"a request is delivered at once: it cannot have the property {name}")


def _reply_of(pushed: Command) -> ReceivedMessage:
    """The message that a broker has pushed, with its body as it was before it was compressed."""
    fields = decode_fields(pushed.ext_fields, REQUEST_FIELDS[pushed.code])
    body = pushed.body or b""
    text = fields["properties"]
    record = Record(
        physical_offset=0,
        size=len(body),
        magic=MAGIC_V1,
        topic=str(fields["topic"]),
        queue_id=_number(fields["queueId"]),
        queue_offset=0,
        flag=_number(fields["flag"]),
        sys_flag=_number(fields["sysFlag"]),
        born_timestamp=_number(fields["bornTimestamp"]),
        born_host=_host(fields["bornHost"]),
        store_timestamp=_number(fields["storeTimestamp"]),
        store_host=_host(fields["storeHost"]),
        reconsume_times=_number(fields["reconsumeTimes"]),
        prepared_transaction_offset=0,
        body_crc=0,
        body=body,
        properties=str(text or "").encode("utf-8", "replace"),
    )
    message = ReceivedMessage(record, "")
    message.properties.update(parse(record.properties))
    message.properties[names.REPLY_ARRIVE_TIME] = str(time.time_ns() // 1_000_000)
    # Now and not when somebody looks: whoever sent it shall hear if it cannot be read.
    _ = message.body
    return message


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def _host(value: object) -> bytes:
    """The address of a peer, which old brokers write with a slash in front."""
    try:
        return host_bytes(str(value).lstrip("/"))
    except ProtocolError:
        return _NOWHERE
