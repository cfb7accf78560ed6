"""Offset reset by an operator, and the consume status of the clients of a group."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from orbitmq.broker.clients.callbacks import client_status, reset_client_offset
from orbitmq.broker.errors import check_not_of_service
from orbitmq.broker.time_slices import encoded, in_slices
from orbitmq.protocol.bodies import MessageQueue, ResetOffsetBody
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.remoting.processor import RequestRefusedError, fields_of, handler_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.broker.clients.registry import Clients
    from orbitmq.broker.runtime import BrokerRuntime, Metadata
    from orbitmq.protocol.command.command import Command
    from orbitmq.remoting import Connection, Handler

log = logging.getLogger("orbitmq.broker")

NO_OFFSET = -1
"""The offset in a request that resets by time."""


def _no_pull_is_held(_group: str, _topic: str, _queue_id: int) -> None: ...


class OffsetResets:
    """INVOKE_BROKER_TO_RESET_OFFSET and INVOKE_BROKER_TO_GET_CONSUMER_STATUS."""

    def __init__(
        self,
        runtime: BrokerRuntime,
        metadata: Metadata,
        clients: Clients,
        end_held: Callable[[str, str, int], None] = _no_pull_is_held,
    ) -> None:
        """``end_held`` answers the held pulls of a group for a topic and queue."""
        self._end_held = end_held
        self._config = runtime.config
        self._store = runtime.store
        self._writer = runtime.writer
        self._topics = metadata.topics
        self._groups = metadata.groups
        self._offsets = metadata.offsets
        self._clients = clients

    @property
    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: handler_of(self.reset),
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: handler_of(self.client_status),
        }

    async def reset(self, request: Command, connection: Connection) -> Command:
        """Reset the offsets of a group, here or through its clients. The response has the new offsets by queue."""
        fields = fields_of(request)
        log.info(
            "offsets: %s resets group %s in topic %s to time %d, queue %d, offset %s",
            *(connection.remote_address, fields["group"], fields["topic"]),
            *(fields["timestamp"], fields["queueId"], fields["offset"]),
        )
        group, topic = fields["group"], fields["topic"]
        check_not_of_service(group)
        if self._config.use_server_side_reset_offset:
            moved = await self._targets(fields)
            async for queue_id, offset in in_slices(moved.items()):
                self._offsets.reset(group, topic, queue_id, offset)
            self._offsets.persist()
            await self._writer.saved()
            async for queue_id in in_slices(moved):
                # Idle consumers would learn of it at the end of their long polls.
                self._end_held(group, topic, queue_id)
        else:
            moved = await self._targets_of_clients(fields)
            queues = await self._queues(topic, moved)
            await reset_client_offset(self._clients, group, topic, fields["timestamp"], queues)
        body = ResetOffsetBody(await self._queues(topic, moved))
        return request.response(ResponseCode.SUCCESS, body=await encoded(body, len(moved)))

    # Server-side reset: the next pull of each queue is redirected to its new offset

    async def _targets(self, fields: dict[str, Any]) -> dict[int, int]:
        """The new offsets by queue id."""
        group, topic, queue_id = fields["group"], fields["topic"], fields["queueId"]
        config = self._topics.configs.get(topic)
        if config is None:
            raise RequestRefusedError(f"Topic {topic} does not exist", ResponseCode.TOPIC_NOT_EXIST)
        if group not in self._groups.configs:
            raise RequestRefusedError(f"Group {group} does not exist", ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST)
        if queue_id < 0:
            targets = {
                number: self._offset_at(topic, number, fields["timestamp"])
                async for number in in_slices(range(config.read_queue_nums))
            }
        elif queue_id >= config.read_queue_nums and self._store.queues.find(topic, queue_id) is None:
            raise RequestRefusedError(
                f"queueId[{queue_id}] is illegal, topic:[{topic}] "
                f"topicConfig.readQueueNums:[{config.read_queue_nums}]",
                ResponseCode.INVALID_PARAMETER,
            )
        elif fields["offset"] in {None, NO_OFFSET}:
            targets = {queue_id: self._offset_at(topic, queue_id, fields["timestamp"])}
        else:
            targets = {queue_id: self._checked(topic, queue_id, fields["offset"])}
        if not targets:
            raise RequestRefusedError("No queues to reset.")
        return targets

    def _checked(self, topic: str, queue_id: int, offset: int) -> int:
        low, high = self._store.min_offset(topic, queue_id), self._store.max_offset(topic, queue_id)
        # RocketMQ accepts one more than the end too.
        if not low <= offset <= high + 1:
            raise RequestRefusedError(f"Target offset {offset} not in consume queue range [{low}-{high}]")
        return offset

    def _offset_at(self, topic: str, queue_id: int, timestamp: int) -> int:
        """The first offset stored at or after a time; the end of the queue for a negative one."""
        if timestamp < 0:
            return self._store.max_offset(topic, queue_id)
        return self._store.reader.offset_by_time(topic, queue_id, timestamp) or 0

    async def _queues(self, topic: str, offsets: dict[int, int]) -> dict[MessageQueue, int]:
        name = self._config.broker_name
        return {
            MessageQueue(topic, name, queue_id): offset async for queue_id, offset in in_slices(offsets.items())
        }

    # Reset by the clients, as in older brokers

    async def _targets_of_clients(self, fields: dict[str, Any]) -> dict[int, int]:
        """The new offsets by queue id. Without force an offset is moved back only."""
        group, topic, timestamp = fields["group"], fields["topic"], fields["timestamp"]
        config = self._topics.configs.get(topic)
        if config is None:
            raise RequestRefusedError(
                f"[reset-offset] reset offset failed, no topic in this broker. topic={topic}",
                ResponseCode.TOPIC_NOT_EXIST,
            )
        targets = {}
        async for queue_id in in_slices(range(config.write_queue_nums)):
            present = self._offsets.query(group, topic, queue_id)
            if present < 0:
                raise RequestRefusedError(f"THe consumer group <{group}> not exist")
            offset = self._offset_at(topic, queue_id, timestamp)
            targets[queue_id] = offset if fields["isForce"] else min(offset, present)
        return targets

    # Status of the clients

    async def client_status(self, request: Command, _: Connection) -> Command:
        """The offsets of a group's clients, of all or of one, of those that answer in time."""
        fields = fields_of(request)
        # The field is named an address, and has a client id.
        client_id = fields["clientAddr"] or ""
        status = await client_status(self._clients, fields["group"], fields["topic"], client_id)
        return request.response(ResponseCode.SUCCESS, body=status.encode())
