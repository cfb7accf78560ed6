"""Start offset: where a consumer begins with a newly assigned queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.client.consumer.offset_store import broker_address
from orbitmq.protocol.bodies import ConsumeFromWhere
from orbitmq.protocol.codes import LanguageCode, RequestCode
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.names import RETRY_PREFIX

if TYPE_CHECKING:
    from orbitmq.client.consumer.offset_store import OffsetStore
    from orbitmq.client.instance.instance import ClientInstance
    from orbitmq.client.push.config import ConsumerConfig
    from orbitmq.protocol.bodies import MessageQueue

QUEUE_SECONDS = 6.0
"""Timeout of requests for a queue's offsets, as in Java."""


async def start_offset(
    instance: ClientInstance, offsets: OffsetStore, queue: MessageQueue, config: ConsumerConfig
) -> int:
    """The committed offset of the group, or the one for a new group. Raises OrbitMQError, RemotingError."""
    stored = await offsets.fetch(queue)
    if stored is not None and stored >= 0:
        return stored
    where = config.consume_from_where
    is_retry = queue.topic.startswith(RETRY_PREFIX)
    if where is ConsumeFromWhere.CONSUME_FROM_TIMESTAMP:
        if is_retry:
            return await max_offset(instance, queue)
        return await offset_at(instance, queue, config.start_timestamp_ms(instance.clock.now_ms()))
    if where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET or is_retry:
        # If the minimum is higher by now, the first pull response corrects it.
        return 0
    return await max_offset(instance, queue)


async def max_offset(instance: ClientInstance, queue: MessageQueue) -> int:
    """The offset that the next message of a queue will have. Raises OrbitMQError, RemotingError."""
    return await _query(instance, RequestCode.GET_MAX_OFFSET, queue)


async def min_offset(instance: ClientInstance, queue: MessageQueue) -> int:
    """The offset of the oldest message of a queue. Raises OrbitMQError, RemotingError."""
    return await _query(instance, RequestCode.GET_MIN_OFFSET, queue)


async def offset_at(instance: ClientInstance, queue: MessageQueue, timestamp_ms: int) -> int:
    """The offset of the first message stored at or after a time. Raises OrbitMQError, RemotingError."""
    return await _query(instance, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, queue, timestamp=str(timestamp_ms))


async def _query(instance: ClientInstance, code: RequestCode, queue: MessageQueue, **more: str) -> int:
    fields = {"topic": queue.topic, "queueId": str(queue.queue_id), "bname": queue.broker_name, **more}
    command = Command(code, ext_fields=fields, language=LanguageCode.PYTHON)
    answer = await instance.call(await broker_address(instance, queue), command, QUEUE_SECONDS)
    return int(answer.ext_fields["offset"])
