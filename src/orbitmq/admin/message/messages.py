"""Messages: look-ups by id, key, queue and offset, or time; delivery tracks; direct consumption; resending."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.admin.errors import (
    InvalidRequestError,
    NotFoundError,
    RefusedError,
    UnreachableError,
    refusal,
)
from orbitmq.admin.message.reader import QueueReader
from orbitmq.admin.session import LONG, decode
from orbitmq.admin.topic.topics import readers_of
from orbitmq.client.message import ReceivedMessage
from orbitmq.protocol.bodies import ConsumeMessageDirectlyResult, QueryConsumeQueueResponseBody
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.hosts import host_text
from orbitmq.protocol.message.message_id import decode_offset_id
from orbitmq.protocol.message.record import decode_record, iter_records

if TYPE_CHECKING:
    from orbitmq.protocol.bodies import MessageQueue
    from orbitmq.protocol.message.record import Record

ALWAYS_MS = 2**63 - 1
MAX_BY_KEY = 64
"""Messages of a look-up per broker: the default limit of RocketMQ's brokers."""
DIRECT_SECONDS = 15.0
"""The broker waits up to ten seconds for the consumer."""


class Messages(QueueReader):
    """Stored messages. Reading queues is in the base class."""

    # Look-ups

    async def by_offset_id(self, message_id: str, *, topic: str = "") -> ReceivedMessage:
        """The message with a broker's id, which has the broker's address. Raises NotFoundError."""
        try:
            host, offset = decode_offset_id(message_id)
        except ProtocolError as error:
            raise InvalidRequestError(f"{error}: give the id that the broker made (offsetMsgId)") from error
        address = host_text(host)
        fields = {"offset": offset, "topic": topic or None}
        try:
            answer = await self._session.call(address, RequestCode.VIEW_MESSAGE_BY_ID, fields)
        except RefusedError as error:
            raise NotFoundError("message", message_id, f"{address} does not have it") from error
        return ReceivedMessage(_record(answer.body, address), "")

    async def by_id(self, topic: str, message_id: str) -> ReceivedMessage:
        """The message with an id of either kind: the producer's, or the broker's. Raises NotFoundError."""
        found = await self.by_unique_key(topic, message_id)
        if found:
            return found[0]
        try:
            return await self.by_offset_id(message_id, topic=topic)
        except (InvalidRequestError, UnreachableError):
            raise NotFoundError("message", message_id, f"the topic {topic} does not have it") from None

    async def by_unique_key(
        self, topic: str, message_id: str, *, begin_ms: int = 0, end_ms: int = ALWAYS_MS, limit: int = 32
    ) -> list[ReceivedMessage]:
        """The messages with a producer's id, newest first: several after retries. Raises NotFoundError."""
        found = await self._query(topic, message_id, limit, begin_ms, end_ms, unique=True)
        return [message for message in found if message.message_id == message_id]

    async def by_key(
        self, topic: str, key: str, *, begin_ms: int = 0, end_ms: int = ALWAYS_MS, limit: int = MAX_BY_KEY
    ) -> list[ReceivedMessage]:
        """The messages with a key, newest first, at most ``limit`` of each broker. Raises NotFoundError."""
        found = await self._query(topic, key, limit, begin_ms, end_ms, unique=False)
        return [message for message in found if key in message.keys]

    async def _query(
        self, topic: str, key: str, limit: int, begin_ms: int, end_ms: int, *, unique: bool
    ) -> list[ReceivedMessage]:
        if not key or limit < 1:
            raise InvalidRequestError(f"a look-up needs a key and a limit of at least 1, not {key!r} and {limit}")
        route = await self._topics.route(topic)
        names = {address: name for name, address in readers_of(route).items()}
        fields = {
            "topic": topic,
            "key": key,
            "maxNum": limit,
            "beginTimestamp": begin_ms,
            "endTimestamp": end_ms,
            "_UNIQUE_KEY_QUERY": unique,
        }
        seconds = self._session.config.timeout * LONG

        async def fetch(address: str) -> list[ReceivedMessage]:
            answer = await self._session.exchange(address, RequestCode.QUERY_MESSAGE, fields, seconds=seconds)
            if answer.code == ResponseCode.QUERY_NOT_FOUND:
                return []
            if answer.code != ResponseCode.SUCCESS:
                raise refusal(answer.code, answer.remark, address)
            return [ReceivedMessage(record, names[address]) for record in iter_records(answer.body or b"")]

        done, failed = await self._session.gather(names, fetch)
        if failed and not any(done.values()):
            raise next(iter(failed.values()))
        found = [message for messages in done.values() for message in messages]
        return sorted(found, key=lambda message: message.store_timestamp, reverse=True)

    # Consume queues

    async def consume_queue(
        self, address: str, queue: MessageQueue, index: int, count: int = 10, *, group: str = ""
    ) -> QueryConsumeQueueResponseBody:
        """Units of a consume queue, with what the filter of a group makes of them."""
        fields = {
            "topic": queue.topic,
            "queueId": queue.queue_id,
            "index": index,
            "count": count,
            "consumerGroup": group or None,
        }
        answer = await self._session.call(address, RequestCode.QUERY_CONSUME_QUEUE, fields)
        return decode(QueryConsumeQueueResponseBody, answer, address)

    # Delivery

    async def consume_directly(
        self, message: ReceivedMessage, group: str, client_id: str
    ) -> ConsumeMessageDirectlyResult:
        """Have one member consume a stored message now, and return its result. Raises ClientOfflineError."""
        address = message.store_host
        fields = {
            "consumerGroup": group,
            "clientId": client_id,
            "msgId": message.offset_message_id,
            "topic": message.topic,
        }
        code = RequestCode.CONSUME_MESSAGE_DIRECTLY
        answer = await self._session.call(address, code, fields, seconds=DIRECT_SECONDS)
        return decode(ConsumeMessageDirectlyResult, answer, address)

    async def resume_check(self, topic: str, message_id: str) -> None:
        """Check an open transaction again whose check was given up; ``message_id`` is the broker's."""
        try:
            host, _ = decode_offset_id(message_id)
        except ProtocolError as error:
            raise InvalidRequestError(str(error)) from error
        fields = {"topic": topic, "msgId": message_id}
        await self._session.call(host_text(host), RequestCode.RESUME_CHECK_HALF_MESSAGE, fields)


def _record(body: bytes | None, address: str) -> Record:
    try:
        return decode_record(body or b"")
    except ProtocolError as error:
        raise UnreachableError(address, f"its message cannot be read: {error}") from error
