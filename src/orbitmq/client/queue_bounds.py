"""What there is to read: topics, their queues, where these begin and end, and how far a group has come in them."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from orbitmq.client.consume_from import QUEUE_SECONDS
from orbitmq.client.errors import BrokerError, NoRouteError
from orbitmq.client.offset_store import OFFSET_SECONDS, broker_address
from orbitmq.client.routes import MASTER
from orbitmq.protocol.bodies import TopicList, TopicStatsTable
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import Command
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.flags import PULL_SUBSCRIPTION
from orbitmq.protocol.names import DLQ_PREFIX, REPLY_TOPIC_POSTFIX, RETRY_PREFIX, is_system_topic

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Mapping

    from orbitmq.client.instance import ClientInstance
    from orbitmq.protocol.bodies import MessageQueue

T = TypeVar("T")

BoundaryName: TypeAlias = Literal["LOWER", "UPPER"]
"""Of the messages around a time: the first at or after it, or the last at or before it."""

MOST_ASKED_AT_ONCE = 256
"""Questions about single queues on their way at the same time; a topic may have thousands of queues."""


@dataclasses.dataclass(frozen=True, slots=True)
class Bounds:
    """The offsets of a queue: of its oldest message, and that which the next one will have."""

    min: int
    max: int


async def topics(instance: ClientInstance) -> list[str]:
    """The topics of all brokers in the order of their names, without RocketMQ's own, retry and dead letter topics.

    Raises OrbitMQError.
    """
    everything = await _listed(instance, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    # Brokers have a topic of the name of their cluster and one of their own name.
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
    """The queues of a topic that can be read, as the name server knows them now. Raises OrbitMQError."""
    return sorted((await instance.refresh(topic)).subscribe_queues)


async def bounds(instance: ClientInstance, topic: str) -> dict[MessageQueue, Bounds]:
    """Where the queues of a topic begin and end, by one question for each broker.

    Raises OrbitMQError, RemotingError.
    """
    route = await instance.refresh(topic)
    readable = sorted(route.subscribe_queues)
    names = sorted({queue.broker_name for queue in readable})
    tables = await together(_stats(instance, topic, name) for name in names)
    told = {queue: ends for table in tables for queue, ends in table.offset_table.items()}
    found = {}
    for queue in readable:
        ends = told.get(queue)
        found[queue] = Bounds(0, 0) if ends is None else Bounds(ends.min_offset, ends.max_offset)
    return found


async def _stats(instance: ClientInstance, topic: str, broker_name: str) -> TopicStatsTable:
    # A slave knows as well where queues end, if only a little less.
    address = instance.address(topic, broker_name, MASTER, only_this=False)
    if address is None:
        raise NoRouteError(topic, f"the broker {broker_name} is not known")
    command = Command(RequestCode.GET_TOPIC_STATS_INFO, ext_fields={"topic": topic})
    answer = await instance.call(address, command, QUEUE_SECONDS)
    return TopicStatsTable.decode(answer.body or b"{}")


async def offset_at(
    instance: ClientInstance, queue: MessageQueue, timestamp_ms: int, boundary: BoundaryName = "LOWER"
) -> int:
    """The offset at a time, by when messages were stored: with LOWER that of the first message at or after it.

    If there is none, it is the offset that the next message will have. Raises OrbitMQError, RemotingError.
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
    asked = list(of)
    found = await together(offset_at(instance, queue, timestamp_ms, boundary) for queue in asked)
    return dict(zip(asked, found, strict=True))


async def committed(instance: ClientInstance, group: str, of: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
    """The offsets that a group has committed; queues without one are left out.

    Raises OrbitMQError, RemotingError.
    """

    async def ask(queue: MessageQueue) -> int | None:
        fields = _group_fields(group, queue)
        # Otherwise a broker says 0 of a group that it has never heard of.
        fields["setZeroIfNotFound"] = "false"
        command = Command(RequestCode.QUERY_CONSUMER_OFFSET, ext_fields=fields)
        try:
            answer = await instance.call(await broker_address(instance, queue), command, OFFSET_SECONDS)
        except BrokerError as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return None
            raise
        return _offset_in(answer)

    asked = list(of)
    offsets = zip(asked, await together(map(ask, asked)), strict=True)
    return {queue: offset for queue, offset in offsets if offset is not None}


async def commit(instance: ClientInstance, group: str, offsets: Mapping[MessageQueue, int]) -> None:
    """Say that a group has come so far, and wait until the brokers know. Raises OrbitMQError, RemotingError."""

    async def tell(queue: MessageQueue, offset: int) -> None:
        address = await broker_address(instance, queue)
        try:
            await instance.call(address, _commit_command(group, queue, offset), OFFSET_SECONDS)
        except BrokerError as error:
            if error.code != ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
                raise
            await _introduce(instance, address, group, queue, offset)
            await instance.call(address, _commit_command(group, queue, offset), OFFSET_SECONDS)

    await together(tell(queue, offset) for queue, offset in offsets.items())


def _commit_command(group: str, queue: MessageQueue, offset: int) -> Command:
    fields = {**_group_fields(group, queue), "commitOffset": str(offset)}
    return Command(RequestCode.UPDATE_CONSUMER_OFFSET, ext_fields=fields)


async def _introduce(instance: ClientInstance, address: str, group: str, queue: MessageQueue, offset: int) -> None:
    """Make a group known to a broker, which takes no offsets of strangers, if it lets groups be made by using them.

    A pull does so without making anybody a member of the group, which would move queues between its members.
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
        raise ProtocolError("a broker's answer does not say which offset") from None


async def together(questions: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """The answers to all, in their order. When one fails, nothing of the others goes on behind its back."""
    room = asyncio.Semaphore(MOST_ASKED_AT_ONCE)

    async def ask(question: Coroutine[Any, Any, T]) -> T:
        try:
            async with room:
                return await question
        finally:
            # One that was not begun yet would be complained of.
            question.close()

    tasks = [asyncio.create_task(ask(question)) for question in questions]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
