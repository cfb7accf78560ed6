"""Offsets of groups: read, reset, skip what has accumulated, clone."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from orbitmq.admin.errors import InvalidRequestError, NotFoundError, PartialFailureError, RefusedError, refusal
from orbitmq.admin.session import decode, field_of
from orbitmq.admin.topic.topics import readers_of
from orbitmq.protocol.bodies import MessageQueue, QueryCorrectionOffsetBody, ResetOffsetBody
from orbitmq.protocol.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.admin.group.lag import Lag
    from orbitmq.admin.session import AdminSession
    from orbitmq.admin.topic.topics import Topics
    from orbitmq.protocol.bodies import TopicRouteData


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ResetTo:
    """The position of a reset. Exactly one is given."""

    earliest: bool = False
    latest: bool = False
    time_ms: int | None = None
    """To the first message stored at or after it."""
    offset: int | None = None

    def __post_init__(self) -> None:
        given = (self.earliest, self.latest, self.time_ms is not None, self.offset is not None)
        if sum(given) != 1:
            raise InvalidRequestError("a reset goes to one of: earliest, latest, a time, an offset")
        if (self.time_ms or 0) < 0 or (self.offset or 0) < 0:
            raise InvalidRequestError("a time or an offset is 0 or more")


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class OffsetChange:
    """The offset of a queue before and after. ``before`` is None for a queue without a committed offset."""

    topic: str
    broker_name: str
    queue_id: int
    before: int | None
    after: int


class Offsets:
    """Committed offsets of groups."""

    def __init__(self, session: AdminSession, topics: Topics, lag: Lag) -> None:
        self._session = session
        self._topics = topics
        self._lag = lag

    async def committed(self, group: str, topic: str) -> dict[MessageQueue, int]:
        """The committed offsets of a group; queues without one are left out. Raises NotFoundError."""
        return await self._committed(group, topic, await self._topics.route(topic))

    async def _committed(self, group: str, topic: str, route: TopicRouteData) -> dict[MessageQueue, int]:
        addresses = readers_of(route)
        done = await self._session.from_all(
            queues_in(topic, route), lambda queue: self.committed_at(addresses[queue.broker_name], group, queue)
        )
        return {queue: offset for queue, offset in done.items() if offset is not None}

    async def committed_at(self, address: str, group: str, queue: MessageQueue) -> int | None:
        """The committed offset of one queue, or None."""
        fields = {
            "consumerGroup": group,
            "topic": queue.topic,
            "queueId": queue.queue_id,
            # Otherwise a broker returns 0 for a group without an offset.
            "setZeroIfNotFound": False,
        }
        answer = await self._session.exchange(address, RequestCode.QUERY_CONSUMER_OFFSET, fields)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        if answer.code != ResponseCode.SUCCESS:
            raise refusal(answer.code, answer.remark, address)
        return field_of(answer, "offset", address)

    async def set(self, address: str, group: str, queue: MessageQueue, offset: int) -> None:
        """Commit an offset for a group. Raises NotFoundError if the broker does not have the group.

        A running member commits its own again: use ``reset`` for those.
        """
        fields = {
            "consumerGroup": group,
            "topic": queue.topic,
            "queueId": queue.queue_id,
            "commitOffset": offset,
        }
        answer = await self._session.exchange(address, RequestCode.UPDATE_CONSUMER_OFFSET, fields)
        if answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
            raise NotFoundError("group", group, "create it first")
        if answer.code != ResponseCode.SUCCESS:
            raise refusal(answer.code, answer.remark, address)

    # Bounds

    async def at_time(self, address: str, queue: MessageQueue, time_ms: int) -> int:
        """The offset of the first message of a queue that was stored at or after a time."""
        fields = {"topic": queue.topic, "queueId": queue.queue_id, "timestamp": time_ms}
        answer = await self._session.call(address, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, fields)
        return field_of(answer, "offset", address)

    async def max(self, address: str, queue: MessageQueue) -> int:
        """The offset of the next message of a queue."""
        fields = {"topic": queue.topic, "queueId": queue.queue_id}
        return field_of(await self._session.call(address, RequestCode.GET_MAX_OFFSET, fields), "offset", address)

    async def min(self, address: str, queue: MessageQueue) -> int:
        """The offset of the oldest message of a queue."""
        fields = {"topic": queue.topic, "queueId": queue.queue_id}
        return field_of(await self._session.call(address, RequestCode.GET_MIN_OFFSET, fields), "offset", address)

    # Changes

    async def reset(
        self,
        group: str,
        topic: str,
        to: ResetTo,
        *,
        cluster: str = "",
        broker_name: str = "",
        queue_id: int | None = None,
        force: bool = True,
        dry_run: bool = False,
    ) -> list[OffsetChange]:
        """Set the group's offsets in a topic, or in one queue of it. Raises NotFoundError, PartialFailureError.

        Brokers make running members follow. Without ``force`` offsets only move back.
        """
        if to.offset is not None and (not broker_name or queue_id is None):
            raise InvalidRequestError("an offset belongs to one queue: name the broker and the queue id")
        if queue_id is not None and not broker_name:
            raise InvalidRequestError("a queue id belongs to one broker: name the broker")
        route = await self._topics.route(topic)
        queues = [
            queue
            for queue in queues_in(topic, route)
            if broker_name in {"", queue.broker_name} and queue_id in {None, queue.queue_id}
            if not cluster or queue.broker_name in _names_of(route, cluster)
        ]
        if not queues:
            raise NotFoundError("queue", f"{broker_name}:{queue_id}", f"the topic {topic} does not have it")
        addresses = readers_of(route)
        before = await self._session.from_all(
            queues, lambda queue: self.committed_at(addresses[queue.broker_name], group, queue)
        )
        targets = await self._session.from_all(
            queues, lambda queue: self._target(addresses[queue.broker_name], queue, to)
        )
        if not force:
            targets = {queue: min(offset, _or(before[queue], offset)) for queue, offset in targets.items()}
        if not dry_run:
            targets = await self._reset_at_brokers(group, topic, targets, addresses)
        return sorted(
            OffsetChange(topic, queue.broker_name, queue.queue_id, before.get(queue), offset)
            for queue, offset in targets.items()
        )

    async def _target(self, address: str, queue: MessageQueue, to: ResetTo) -> int:
        if to.offset is not None:
            return to.offset
        if to.latest:
            return await self.max(address, queue)
        if to.earliest:
            return await self.min(address, queue)
        assert to.time_ms is not None
        return await self.at_time(address, queue, to.time_ms)

    async def _reset_at_brokers(
        self,
        group: str,
        topic: str,
        targets: Mapping[MessageQueue, int],
        addresses: Mapping[str, str],
    ) -> dict[MessageQueue, int]:
        """Reset by the brokers, and where a broker only relays to members and none is connected, by committing."""

        async def one(queue: MessageQueue) -> int:
            address = addresses[queue.broker_name]
            offset = targets[queue]
            try:
                await self.reset_at(address, group, topic, queue_id=queue.queue_id, offset=offset)
            except RefusedError as error:
                if error.code != ResponseCode.CONSUMER_NOT_ONLINE:
                    raise
                await self.set(address, group, queue, offset)
            return offset

        done, failed = await self._session.gather(targets, one)
        if failed and not done and len(set(map(str, failed.values()))) == 1:
            raise next(iter(failed.values()))
        if failed:
            raise PartialFailureError(
                "the reset",
                tuple(f"{queue.broker_name}:{queue.queue_id}" for queue in done),
                {f"{queue.broker_name}:{queue.queue_id}": error for queue, error in failed.items()},
            )
        return done

    async def reset_at(
        self,
        address: str,
        group: str,
        topic: str,
        *,
        timestamp_ms: int = 0,
        force: bool = True,
        queue_id: int = -1,
        offset: int | None = None,
    ) -> dict[MessageQueue, int]:
        """Ask one broker for a reset, of all queues of the topic or of one. Returns the new offsets."""
        fields = {
            "topic": topic,
            "group": group,
            "timestamp": timestamp_ms,
            "isForce": force,
            "queueId": queue_id,
            "offset": offset,
        }
        answer = await self._session.call(address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, fields)
        return decode(ResetOffsetBody, answer, address).offset_table

    async def skip(self, group: str, topic: str, *, cluster: str = "", dry_run: bool = False) -> list[OffsetChange]:
        """Skip everything that has accumulated. Raises NotFoundError."""
        return await self.reset(group, topic, ResetTo(latest=True), cluster=cluster, dry_run=dry_run)

    async def clone(self, source: str, target: str, topic: str, *, dry_run: bool = False) -> list[OffsetChange]:
        """Copy the offsets of a group to another one. Raises NotFoundError if the source has none."""
        route = await self._topics.route(topic)
        addresses = readers_of(route)
        offsets = await self._committed(source, topic, route)
        if not offsets:
            raise NotFoundError("group", source, f"it has no offsets of the topic {topic}")
        before = await self._session.from_all(
            offsets, lambda queue: self.committed_at(addresses[queue.broker_name], target, queue)
        )
        if not dry_run:
            await self._session.from_all(
                offsets,
                lambda queue: self.set(addresses[queue.broker_name], target, queue, offsets[queue]),
            )
        return sorted(
            OffsetChange(topic, queue.broker_name, queue.queue_id, before[queue], offset)
            for queue, offset in offsets.items()
        )

    async def clone_at(self, address: str, source: str, target: str, topic: str, *, offline: bool = False) -> None:
        """Ask one broker to copy the offsets of a group."""
        fields = {"srcGroup": source, "destGroup": target, "topic": topic, "offline": offline}
        await self._session.call(address, RequestCode.CLONE_GROUP_OFFSET, fields)

    async def correction(self, address: str, topic: str, compare_group: str, groups: str) -> dict[int, int]:
        """By queue id: the offset that keeps other groups of a topic in line with a compared one."""
        fields = {"filterGroups": groups, "compareGroup": compare_group, "topic": topic}
        answer = await self._session.call(address, RequestCode.QUERY_CORRECTION_OFFSET, fields)
        return decode(QueryCorrectionOffsetBody, answer, address).correction_offsets


def queues_in(topic: str, route: TopicRouteData) -> list[MessageQueue]:
    """The readable queues of a route, in order, also of a topic whose permission is withdrawn."""
    addresses = readers_of(route)
    return sorted(
        MessageQueue(topic, queues.broker_name, number)
        for queues in route.queue_datas
        if queues.broker_name in addresses
        for number in range(queues.read_queue_nums)
    )


def _names_of(route: TopicRouteData, cluster: str) -> set[str]:
    return {data.broker_name for data in route.broker_datas if data.cluster == cluster}


def _or(value: int | None, otherwise: int) -> int:
    return otherwise if value is None else value
