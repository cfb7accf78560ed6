"""Lag: the progress of groups, queue by queue, and for all groups of a broker at once."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING

from orbitmq.admin.errors import AdminError, NotFoundError
from orbitmq.admin.group.model import GroupLag, QueueLag, retry_topic
from orbitmq.admin.group.progress import GroupProgress, add_progress
from orbitmq.admin.session import LONG, decode, unreadable
from orbitmq.admin.topic.topics import readers_of
from orbitmq.protocol.bodies import (
    ConsumerOffsetSerializeWrapper,
    ConsumeStats,
    ConsumeStatsList,
    QueryConsumeTimeSpanBody,
)
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.names import is_system_group

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from orbitmq.admin.cluster.brokers import Brokers
    from orbitmq.admin.group.members import Members
    from orbitmq.admin.session import AdminSession
    from orbitmq.admin.topic.topics import Topics
    from orbitmq.protocol.bodies import MessageQueue, OffsetWrapper, QueueTimeSpan
    from orbitmq.protocol.command.command import Command

MAX_TABLES = 4
"""Tables with the progress of all groups that are read at one time."""


class Lag:
    """The progress of groups."""

    def __init__(self, session: AdminSession, brokers: Brokers, topics: Topics, members: Members) -> None:
        self._session = session
        self._brokers = brokers
        self._topics = topics
        self._members = members

    async def of_group(
        self,
        group: str,
        *,
        topic: str = "",
        cluster: str = "",
        with_clients: bool = False,
        may_be_empty: bool = False,
    ) -> GroupLag:
        """The progress of a group in all its topics, or in one. Raises NotFoundError if it has none."""
        tables = await self.tables(group, topic=topic, cluster=cluster)
        queues = [_queue_lag(queue, offsets) for table in tables for queue, offsets in table.offset_table.items()]
        if not queues and not may_be_empty:
            where = f" of the topic {topic}" if topic else ""
            raise NotFoundError("group", group, f"no broker has offsets{where}: it has consumed nothing")
        if with_clients and queues:
            owners = await self.owners(group)
            queues = [
                dataclasses.replace(one, client_id=owners.get((one.topic, one.broker_name, one.queue_id), ""))
                for one in queues
            ]
        return GroupLag(group, tuple(sorted(queues)), sum(table.consume_tps for table in tables))

    async def tables(self, group: str, *, topic: str = "", cluster: str = "") -> list[ConsumeStats]:
        """The progress at each broker, as they send it."""
        brokers = await self._addresses(group, topic, cluster)
        fields = {"consumerGroup": group, "topic": topic or None}

        async def fetch(address: str) -> ConsumeStats:
            seconds = self._session.config.timeout * LONG
            answer = await self._session.call(address, RequestCode.GET_CONSUME_STATS, fields, seconds=seconds)
            return decode(ConsumeStats, answer, address)

        return list((await self._session.from_all(brokers, fetch)).values())

    async def _addresses(self, group: str, topic: str, cluster: str) -> list[str]:
        """The brokers to read from: those of the topic, of the cluster, or of the group's retry topic."""
        if cluster or not topic:
            topology = await self._brokers.topology()
            return [one.address for one in topology.readers(cluster or self._session.config.cluster)]
        try:
            route = await self._topics.route(topic)
        except NotFoundError:
            route = await self._topics.route(retry_topic(group))
        return list(readers_of(route).values())

    async def owners(self, group: str) -> dict[tuple[str, str, int], str]:
        """The member that has each queue, by topic, broker name and queue id: with one request per member."""
        try:
            connections = await self._members.connections(group)
        except AdminError:
            return {}
        done, _ = await self._session.gather(
            [member.client_id for member in connections.members],
            lambda client: self._members.running_info(group, client),
        )
        return {
            (queue.topic, queue.broker_name, queue.queue_id): client
            for client, info in done.items()
            for queue in (*info.mq_table, *info.mq_pop_table)
        }

    async def of_all(self, *, cluster: str = "") -> list[GroupLag]:
        """The progress of all groups of applications, with one request per broker."""
        topology = await self._brokers.topology()
        readers = topology.readers(cluster or self._session.config.cluster)
        found = await self.of_all_groups([one.address for one in readers])
        return [lag for group, lag in found.items() if not is_system_group(group)]

    async def of_all_groups(self, brokers: Iterable[str], *, ordered_only: bool = False) -> dict[str, GroupLag]:
        """The progress of all groups, with one request per broker: the queues that the brokers count."""
        found = await self.progress(brokers, ordered_only=ordered_only)
        return {group: found[group].lag(group) for group in sorted(found)}

    async def progress(
        self,
        brokers: Iterable[str],
        *,
        ordered_only: bool = False,
        pause: Callable[[], Awaitable[None]] | None = None,
    ) -> dict[str, GroupProgress]:
        """The same without a value for each queue, for lists of very many groups.

        ``pause`` is awaited before each broker: what is more urgent goes first.
        """
        groups: dict[str, GroupProgress] = {}
        # Each table takes its broker long: more at a time would only wait for each other, until they time out.
        turns = asyncio.Semaphore(MAX_TABLES)

        async def read(address: str) -> None:
            async with turns:
                if pause is not None:
                    await pause()
                answer = await self._broker_table(address, ordered_only, self._session.config.timeout * LONG)
                try:
                    add_progress(groups, answer.body or b"{}")
                except ProtocolError as error:
                    raise unreadable(error, address) from error

        await self._session.from_all(brokers, read)
        return groups

    async def broker_table(
        self, address: str, *, ordered_only: bool = False, seconds: float | None = None
    ) -> ConsumeStatsList:
        """The progress of all groups at one broker, as it sends it."""
        limit = self._session.config.timeout * LONG if seconds is None else seconds
        return decode(ConsumeStatsList, await self._broker_table(address, ordered_only, limit), address)

    async def _broker_table(self, address: str, ordered_only: bool, seconds: float) -> Command:
        fields = {"isOrder": ordered_only}
        return await self._session.call(address, RequestCode.GET_BROKER_CONSUME_STATS, fields, seconds=seconds)

    async def committed(self, address: str) -> ConsumerOffsetSerializeWrapper:
        """All committed offsets of one broker."""
        answer = await self._session.call(address, RequestCode.GET_ALL_CONSUMER_OFFSET)
        return decode(ConsumerOffsetSerializeWrapper, answer, address)

    async def time_spans(self, group: str, topic: str) -> list[QueueTimeSpan]:
        """The times of the first, the last and the last consumed message of each queue. Raises NotFoundError."""
        route = await self._topics.route(topic)
        fields = {"topic": topic, "group": group}

        async def fetch(address: str) -> list[QueueTimeSpan]:
            answer = await self._session.call(address, RequestCode.QUERY_CONSUME_TIME_SPAN, fields)
            return decode(QueryConsumeTimeSpanBody, answer, address).consume_time_span_set

        done = await self._session.from_all(readers_of(route).values(), fetch)
        return [span for spans in done.values() for span in spans]


def _queue_lag(queue: MessageQueue, offsets: OffsetWrapper) -> QueueLag:
    return QueueLag(
        queue.topic,
        queue.broker_name,
        queue.queue_id,
        offsets.broker_offset,
        offsets.consumer_offset,
        offsets.pull_offset,
        offsets.last_timestamp,
    )
