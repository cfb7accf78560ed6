"""Topics, their queues, the bounds of queues, and committed offsets of groups."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from orbitmq.client.consumer.offset_store import OFFSET_SECONDS, broker_address
from orbitmq.client.consumer.start_offset import QUEUE_SECONDS
from orbitmq.client.errors import BrokerError, NoRouteError
from orbitmq.client.instance.routes import MASTER
from orbitmq.protocol.bodies import TopicList, TopicStatsTable
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.message.flags import PULL_SUBSCRIPTION
from orbitmq.protocol.names import DLQ_PREFIX, REPLY_TOPIC_POSTFIX, RETRY_PREFIX, is_system_topic

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Mapping

    from orbitmq.client.instance.instance import ClientInstance
    from orbitmq.protocol.bodies import MessageQueue

T = TypeVar("T")

BoundaryName: TypeAlias = Literal["LOWER", "UPPER"]
"""Which message around a time: the first at or after it, or the last at or before it."""

MAX_CONCURRENT_REQUESTS = 256
"""Requests in flight for single queues; a topic may have thousands of queues."""


@dataclasses.dataclass(frozen=True, slots=True)
class Bounds:
    """Minimum and maximum offset of a queue: of the oldest message, and of the next one."""

    min: int
    max: int


async def topics(instance: ClientInstance) -> list[str]:
    """The topics of all brokers, sorted, without system, retry and dead letter topics.

    Raises OrbitMQError.
    """
    everything = await _listed(instance, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    # Brokers have a topic named after their cluster and one after themselves.
    servers = set(await _listed(instance, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS))
    replies = {name + REPLY_TOPIC_POSTFIX for name in servers}
    return sorted(
        topic
        for topic in set(everything)
        if not is_system_topic(topic)
        and not topic.startswith((RETRY_PREFIX, DLQ_PREFIX))
        and topic not in servers
        and topic not in replies
    )


async def _listed(instance: ClientInstance, code: RequestCode) -> list[str]:
    answer = await instance.ask_name_server(Command(code))
    if answer.code != ResponseCode.SUCCESS or answer.body is None:
        raise BrokerError(answer.code, answer.remark, "the name server")
    return TopicList.decode(answer.body).topic_list


async def queues(instance: ClientInstance, topic: str) -> list[MessageQueue]:
    """The readable queues of a topic, from a fresh route. Raises OrbitMQError."""
    return sorted((await instance.refresh(topic)).subscribe_queues)


async def bounds(instance: ClientInstance, topic: str) -> dict[MessageQueue, Bounds]:
    """The bounds of a topic's queues, with one request per broker.

    Raises OrbitMQError, RemotingError.
    """
    route = await instance.refresh(topic)
    readable = sorted(route.subscribe_queues)
    names = sorted({queue.broker_name for queue in readable})
    tables = await together(_stats(instance, topic, name) for name in names)
    by_queue = {queue: ends for table in tables for queue, ends in table.offset_table.items()}
    found = {}
    for queue in readable:
        ends = by_queue.get(queue)
        found[queue] = Bounds(0, 0) if ends is None else Bounds(ends.min_offset, ends.max_offset)
    return found


async def _stats(instance: ClientInstance, topic: str, broker_name: str) -> TopicStatsTable:
    # A slave responds as well, perhaps with a slightly lower end.
    address = instance.address(topic, broker_name, MASTER, only_this=False)
    if address is None:
        raise NoRouteError(topic, f"the broker {broker_name} is unknown")
    command = Command(RequestCode.GET_TOPIC_STATS_INFO, ext_fields={"topic": topic})
    answer = await instance.call(address, command, QUEUE_SECONDS)
    return TopicStatsTable.decode(answer.body or b"{}")


async def offset_at(
    instance: ClientInstance, queue: MessageQueue, timestamp_ms: int, boundary: BoundaryName = "LOWER"
) -> int:
    """The offset at a store time: with LOWER that of the first message at or after it.

    Without such a message it is the offset of the next one. Raises OrbitMQError, RemotingError.
    """
    fields = {
        "topic": queue.topic,
        "queueId": str(queue.queue_id),
        "timestamp": str(timestamp_ms),
        "boundaryType": boundary,
        "bname": queue.broker_name,
    }
    command = Command(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, ext_fields=fields)
    answer = await instance.call(await broker_address(instance, queue), command, QUEUE_SECONDS)
    return _offset_in(answer)


async def offsets_at(
    instance: ClientInstance, of: Iterable[MessageQueue], timestamp_ms: int, boundary: BoundaryName = "LOWER"
) -> dict[MessageQueue, int]:
    """``offset_at`` of many queues."""
    chosen = list(of)
    found = await together(offset_at(instance, queue, timestamp_ms, boundary) for queue in chosen)
    return dict(zip(chosen, found, strict=True))


async def committed(instance: ClientInstance, group: str, of: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
    """The committed offsets of a group; queues without one are left out.

    Raises OrbitMQError, RemotingError.
    """

    async def query(queue: MessageQueue) -> int | None:
        fields = _group_fields(group, queue)
        # Otherwise a broker returns 0 for an unknown group.
        fields["setZeroIfNotFound"] = "false"
        command = Command(RequestCode.QUERY_CONSUMER_OFFSET, ext_fields=fields)
        try:
            answer = await instance.call(await broker_address(instance, queue), command, OFFSET_SECONDS)
        except BrokerError as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return None
            raise
        return _offset_in(answer)

    chosen = list(of)
    offsets = zip(chosen, await together(map(query, chosen)), strict=True)
    return {queue: offset for queue, offset in offsets if offset is not None}


async def commit(instance: ClientInstance, group: str, offsets: Mapping[MessageQueue, int]) -> None:
    """Commit offsets of a group and wait for the brokers. Raises OrbitMQError, RemotingError."""

    async def commit_one(queue: MessageQueue, offset: int) -> None:
        address = await broker_address(instance, queue)
        try:
            await instance.call(address, _commit_command(group, queue, offset), OFFSET_SECONDS)
        except BrokerError as error:
            if error.code != ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
                raise
            await _create_group(instance, address, group, queue, offset)
            await instance.call(address, _commit_command(group, queue, offset), OFFSET_SECONDS)

    await together(commit_one(queue, offset) for queue, offset in offsets.items())


def _commit_command(group: str, queue: MessageQueue, offset: int) -> Command:
    fields = {**_group_fields(group, queue), "commitOffset": str(offset)}
    return Command(RequestCode.UPDATE_CONSUMER_OFFSET, ext_fields=fields)


async def _create_group(
    instance: ClientInstance, address: str, group: str, queue: MessageQueue, offset: int
) -> None:
    """Have a broker auto-create a group: it accepts no offsets of unknown groups.

    A pull does that without adding a member, which would cause a rebalance.
    """
    fields = {
        **_group_fields(group, queue),
        "queueOffset": str(offset),
        "maxMsgNums": "1",
        "sysFlag": str(PULL_SUBSCRIPTION),
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subscription": "*",
        "subVersion": "0",
        "expressionType": "TAG",
    }
    connection = await instance.connection(address)
    await connection.call(Command(RequestCode.PULL_MESSAGE, ext_fields=fields), OFFSET_SECONDS)


def _group_fields(group: str, queue: MessageQueue) -> dict[str, str]:
    return {
        "consumerGroup": group,
        "topic": queue.topic,
        "queueId": str(queue.queue_id),
        "bname": queue.broker_name,
    }


def _offset_in(answer: Command) -> int:
    try:
        return int(answer.ext_fields["offset"])
    except (KeyError, ValueError):
        raise ProtocolError("response without an offset") from None


async def together(requests: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Gather with a limit of concurrency. If one fails, the others are cancelled and awaited."""
    room = asyncio.Semaphore(MAX_CONCURRENT_REQUESTS)

    async def limited(request: Coroutine[Any, Any, T]) -> T:
        try:
            async with room:
                return await request
        finally:
            # A coroutine that never started would emit a warning.
            request.close()

    tasks = [asyncio.create_task(limited(request)) for request in requests]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
