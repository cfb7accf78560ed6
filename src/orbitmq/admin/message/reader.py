"""Reading of queues without a group: pages by offset, and ranges by time."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from orbitmq.admin.errors import InvalidRequestError, NotFoundError, RefusedError, refusal
from orbitmq.admin.group.offsets import queues_in
from orbitmq.admin.topic.topics import readers_of
from orbitmq.client.consumer.pull_response import PullStatus, parse_pull_response
from orbitmq.client.errors import BrokerError
from orbitmq.client.message import ReceivedMessage
from orbitmq.protocol.bodies import MessageQueue
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.message.flags import PULL_SUBSCRIPTION
from orbitmq.protocol.message.record import iter_records
from orbitmq.protocol.names import TOOLS_CONSUMER_GROUP

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from orbitmq.admin.group.offsets import Offsets
    from orbitmq.admin.session import AdminSession
    from orbitmq.admin.topic.topics import Topics

PULL_BATCH = 32
"""Messages of one pull: what Apache's brokers return at most."""


@dataclasses.dataclass(frozen=True, slots=True)
class Page:
    """The result of one pull."""

    messages: tuple[ReceivedMessage, ...]
    next_offset: int
    min_offset: int
    max_offset: int
    status: PullStatus

    @property
    def is_end(self) -> bool:
        """The queue has nothing after it."""
        return self.next_offset >= self.max_offset


class QueueReader:
    """Reads queues from any broker, without a group's offsets."""

    def __init__(self, session: AdminSession, topics: Topics, offsets: Offsets) -> None:
        self._session = session
        self._topics = topics
        self._offsets = offsets

    async def page(
        self,
        address: str,
        queue: MessageQueue,
        offset: int,
        count: int = PULL_BATCH,
        *,
        tags: str = "*",
        sql: str = "",
    ) -> Page:
        """The messages of a queue from an offset on: one pull. Raises RefusedError, also for an invalid filter."""
        fields = {
            "consumerGroup": TOOLS_CONSUMER_GROUP,
            "topic": queue.topic,
            "queueId": queue.queue_id,
            "queueOffset": offset,
            "maxMsgNums": count,
            "sysFlag": PULL_SUBSCRIPTION,
            "commitOffset": 0,
            "suspendTimeoutMillis": 0,
            "subscription": sql or tags,
            "subVersion": 0,
            "expressionType": "SQL92" if sql else "TAG",
            "bname": queue.broker_name,
        }
        answer = await self._session.exchange(address, RequestCode.PULL_MESSAGE, fields)
        try:
            response = parse_pull_response(answer, queue.broker_name)
            low, high = response.queue_bounds
            records = list(iter_records(response.body)) if response.status is PullStatus.FOUND else []
        except BrokerError as error:
            raise refusal(error.code, error.remark, address) from error
        except ProtocolError as error:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR, f"its response cannot be read: {error}", address
            ) from error
        found = [ReceivedMessage(record, queue.broker_name) for record in records]
        if tags not in {"", "*"} and not sql:
            # The broker compares hashes of tags.
            wanted = {tag.strip() for tag in tags.split("||")}
            found = [message for message in found if message.tags in wanted]
        return Page(tuple(found), response.next_offset, low, high, response.status)

    async def by_offset(self, topic: str, broker_name: str, queue_id: int, offset: int) -> ReceivedMessage:
        """The message at an offset of a queue. Raises NotFoundError."""
        address = await self.address_of(topic, broker_name)
        queue = MessageQueue(topic, broker_name, queue_id)
        page = await self.page(address, queue, offset, 1)
        if not page.messages or page.messages[0].queue_offset != offset:
            hint = f"queue {queue_id} of {broker_name} has the offsets {page.min_offset} to {page.max_offset - 1}"
            raise NotFoundError("message", f"{topic}/{broker_name}/{queue_id}/{offset}", hint)
        return page.messages[0]

    async def address_of(self, topic: str, broker_name: str) -> str:
        """The address of a broker of a topic. Raises NotFoundError."""
        addresses = readers_of(await self._topics.route(topic))
        if broker_name not in addresses:
            raise NotFoundError("broker", broker_name, f"the topic {topic} is on {', '.join(sorted(addresses))}")
        return addresses[broker_name]

    async def read(
        self,
        topic: str,
        *,
        begin_ms: int | None = None,
        end_ms: int | None = None,
        broker_name: str = "",
        queue_id: int | None = None,
        tags: str = "*",
        sql: str = "",
        limit: int | None = None,
    ) -> AsyncIterator[ReceivedMessage]:
        """The messages of a topic, or of one queue, that were stored between two times, queue by queue.

        It ends where the queues ended when it began. Raises NotFoundError, RefusedError.
        """
        if limit is not None and limit < 1:
            raise InvalidRequestError(f"a limit is 1 or more, not {limit}")
        route = await self._topics.route(topic)
        addresses = readers_of(route)
        left = limit
        for queue in queues_in(topic, route):
            if broker_name not in {"", queue.broker_name} or queue_id not in {None, queue.queue_id}:
                continue
            address = addresses[queue.broker_name]
            first, last = await self.span(address, queue, begin_ms, end_ms)
            async for message in self._between(address, queue, first, last, tags, sql):
                if end_ms is not None and message.store_timestamp > end_ms:
                    break
                yield message
                if left is not None:
                    left -= 1
                    if not left:
                        return

    async def span(
        self, address: str, queue: MessageQueue, begin_ms: int | None, end_ms: int | None
    ) -> tuple[int, int]:
        """The first offset of a time range in a queue, and the offset behind its last one."""
        first = (
            await self._offsets.min(address, queue)
            if begin_ms is None
            else await self._offsets.at_time(address, queue, begin_ms)
        )
        last = (
            await self._offsets.max(address, queue)
            if end_ms is None
            else await self._offsets.at_time(address, queue, end_ms + 1)
        )
        return first, last

    async def _between(
        self, address: str, queue: MessageQueue, first: int, last: int, tags: str, sql: str
    ) -> AsyncIterator[ReceivedMessage]:
        at = first
        while at < last:
            page = await self.page(address, queue, at, min(PULL_BATCH, last - at), tags=tags, sql=sql)
            for message in page.messages:
                if message.queue_offset < last:
                    yield message
            if page.next_offset <= at:
                # A pull that does not move on would be repeated for ever.
                break
            at = page.next_offset
