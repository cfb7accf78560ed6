"""Request-reply: request messages, reply messages, and the table of pending replies."""

from __future__ import annotations

import asyncio
import logging
import uuid
from typing import TYPE_CHECKING

from orbitmq.client.errors import CannotReplyError, InvalidMessageError, RequestTimeoutError, TooManySendsError
from orbitmq.client.message import Message, ReceivedMessage
from orbitmq.protocol.command.fields import decode_fields
from orbitmq.protocol.command.request_fields import REQUEST_FIELDS
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.hosts import host_bytes
from orbitmq.protocol.message import property_names as names
from orbitmq.protocol.message.properties import parse
from orbitmq.protocol.message.record import MAGIC_V1, Record
from orbitmq.protocol.names import REPLY_TOPIC_POSTFIX

if TYPE_CHECKING:
    from random import Random

    from orbitmq.platform.clock import Clock
    from orbitmq.protocol.command.command import Command

log = logging.getLogger("orbitmq.client")

MAX_WAITING = 65535
"""Maximum requests in flight per client, as in Java's clients."""

_NOWHERE = bytes(8)


def make_request(message: Message, client_id: str, seconds: float, random: Random) -> Message:
    """A copy of the message with the properties that route a reply."""
    request = Message(message.topic, message.body, flag=message.flag)
    request.properties.update(message.properties)
    request.properties[names.CORRELATION_ID] = str(uuid.UUID(int=random.getrandbits(128), version=4))
    request.properties[names.REPLY_TO_CLIENT] = client_id
    request.properties[names.MESSAGE_TTL] = str(max(round(seconds * 1000), 1))
    return request


def create_reply(
    request: ReceivedMessage, body: bytes | str, *, tags: str | None = None, keys: str = ""
) -> Message:
    """The reply to a request, for a producer to send like any message.

    ``Producer.reply_to`` creates and sends it. Raises CannotReplyError for a message that is not a request.
    """
    properties = request.properties
    cluster = properties.get(names.CLUSTER)
    if cluster is None:
        raise CannotReplyError(f"the request lacks the property {names.CLUSTER}, which names its cluster")
    if not request.is_request:
        raise CannotReplyError("the message is not a request: its sender does not wait for a reply")
    reply = Message(cluster + REPLY_TOPIC_POSTFIX, body, tags=tags, keys=keys)
    del reply.properties[names.WAIT_STORE_OK]
    reply.properties[names.MESSAGE_TYPE] = names.MESSAGE_TYPE_REPLY
    for name in (names.CORRELATION_ID, names.REPLY_TO_CLIENT, names.MESSAGE_TTL):
        if name in properties:
            reply.properties[name] = properties[name]
    return reply


class PendingReplies:
    """Pending replies of one client, by correlation id."""

    __slots__ = ("_clock", "_waiting")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: dict[str, asyncio.Future[ReceivedMessage]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def expect(self, request: Message) -> asyncio.Future[ReceivedMessage]:
        """Future of the reply to a request that is about to be sent. Callers ``forget`` it afterwards."""
        if len(self._waiting) >= MAX_WAITING:
            raise TooManySendsError(f"{MAX_WAITING} requests are waiting for replies: send slower")
        future: asyncio.Future[ReceivedMessage] = asyncio.get_running_loop().create_future()
        self._waiting[request.properties[names.CORRELATION_ID]] = future
        return future

    def forget(self, request: Message) -> None:
        self._waiting.pop(request.properties[names.CORRELATION_ID], None)

    def arrived(self, pushed: Command) -> None:
        """Accept a reply from a broker (326). One without a pending request is dropped.

        Raises ProtocolError.
        """
        reply = _reply_of(pushed, self._clock.now_ms())
        found = self._waiting.pop(reply.properties.get(names.CORRELATION_ID, ""), None)
        if found is None:
            log.warning("request-reply: dropped a reply from %s, no pending request (timed out?)", reply.born_host)
        elif not found.done():
            found.set_result(reply)


async def await_reply(
    reply: asyncio.Future[ReceivedMessage], topic: str, left: float, whole: float
) -> ReceivedMessage:
    """Wait for the reply in the time that is left. Raises RequestTimeoutError."""
    try:
        async with asyncio.timeout(max(left, 0)):
            return await reply
    except TimeoutError:
        raise RequestTimeoutError(topic, whole) from None


def check_request(message: Message, seconds: float) -> None:
    """Raise InvalidMessageError for messages that cannot be requests."""
    if not seconds > 0:
        raise InvalidMessageError(f"the timeout of a request must be more than 0, not {seconds}")
    times = (names.TIMER_DELAY_SEC, names.TIMER_DELAY_MS, names.TIMER_DELIVER_MS)
    for name in (names.DELAY_LEVEL, *times, names.TRANSACTION_PREPARED):
        if name in message.properties:
            raise InvalidMessageError(f"a request is delivered at once: it cannot have the property {name}")


def _reply_of(pushed: Command, now_ms: int) -> ReceivedMessage:
    """The reply in a pushed command, with its body decompressed."""
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
    message.properties[names.REPLY_ARRIVE_TIME] = str(now_ms)
    # Decompressed now: the sender of the reply gets an error if that fails.
    _ = message.body
    return message


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def _host(value: object) -> bytes:
    """Address of a peer. Old brokers prefix it with a slash."""
    try:
        return host_bytes(str(value).lstrip("/"))
    except ProtocolError:
        return _NOWHERE
