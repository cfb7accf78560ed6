"""Moving a group to other offsets on an operator's demand, and asking its clients where they are."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from orbitmq.broker.relay import client_status, reset_client_offset
from orbitmq.protocol.bodies import MessageQueue, ResetOffsetBody
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.remoting.processing import RequestRefusedError, fields_of, handler_of

if TYPE_CHECKING:
    from orbitmq.broker.clients import Clients
    from orbitmq.broker.config import BrokerConfig
    from orbitmq.broker.config_writer import ConfigWriter
    from orbitmq.broker.groups import GroupTable
    from orbitmq.broker.offsets import OffsetTable
    from orbitmq.broker.topics import TopicTable
    from orbitmq.protocol.command import Command
    from orbitmq.remoting import Connection, Handler
    from orbitmq.store import MessageStore

log = logging.getLogger("orbitmq.broker")

NO_OFFSET = -1
"""How tools say that they mean a time and not an offset."""


class OffsetResets:
    """INVOKE_BROKER_TO_RESET_OFFSET and INVOKE_BROKER_TO_GET_CONSUMER_STATUS."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        topics: TopicTable,
        groups: GroupTable,
        clients: Clients,
        offsets: OffsetTable,
        writer: ConfigWriter,
    ) -> None:
        self._config = config
        self._store = store
        self._topics = topics
        self._groups = groups
        self._clients = clients
        self._offsets = offsets
        self._writer = writer

    @property
    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: handler_of(self.reset),
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: handler_of(self.client_status),
        }

    async def reset(self, request: Command, connection: Connection) -> Command:
        """Move a group, here or by telling its clients. The answer says where each queue is now."""
        fields = fields_of(request)
        log.info(
            "%s moves group %s in topic %s to time %d, queue %d, offset %s",
            *(connection.remote_address, fields["group"], fields["topic"]),
            *(fields["timestamp"], fields["queueId"], fields["offset"]),
        )
        group, topic = fields["group"], fields["topic"]
        if self._config.use_server_side_reset_offset:
            moved = self._targets(fields)
            for queue_id, offset in moved.items():
                self._offsets.reset(group, topic, queue_id, offset)
            self._offsets.persist()
            await self._writer.saved()
        else:
            moved = self._targets_of_clients(fields)
            reset_client_offset(self._clients, group, topic, fields["timestamp"], self._queues(topic, moved))
        body = ResetOffsetBody(self._queues(topic, moved))
        return request.response(ResponseCode.SUCCESS, body=body.encode())

    # Moved here: the next pull of each queue is sent to its new offset

    def _targets(self, fields: dict[str, Any]) -> dict[int, int]:
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
                for number in range(config.read_queue_nums)
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
        # RocketMQ takes one more than the end too.
        if not low <= offset <= high + 1:
            raise RequestRefusedError(f"Target offset {offset} not in consume queue range [{low}-{high}]")
        return offset

    def _offset_at(self, topic: str, queue_id: int, timestamp: int) -> int:
        """The first offset stored at or after a time; the end of the queue for a negative one."""
        if timestamp < 0:
            return self._store.max_offset(topic, queue_id)
        return self._store.reader.offset_by_time(topic, queue_id, timestamp) or 0

    def _queues(self, topic: str, offsets: dict[int, int]) -> dict[MessageQueue, int]:
        name = self._config.broker_name
        return {MessageQueue(topic, name, queue_id): offset for queue_id, offset in offsets.items()}

    # Moved by the clients: what older brokers did

    def _targets_of_clients(self, fields: dict[str, Any]) -> dict[int, int]:
        """The new offsets by queue id. Without force a group is moved back only."""
        group, topic, timestamp = fields["group"], fields["topic"], fields["timestamp"]
        config = self._topics.configs.get(topic)
        if config is None:
            raise RequestRefusedError(
                f"[reset-offset] reset offset failed, no topic in this broker. topic={topic}",
                ResponseCode.TOPIC_NOT_EXIST,
            )
        targets = {}
        for queue_id in range(config.write_queue_nums):
            present = self._offsets.query(group, topic, queue_id)
            if present < 0:
                raise RequestRefusedError(f"THe consumer group <{group}> not exist")
            offset = self._offset_at(topic, queue_id, timestamp)
            targets[queue_id] = offset if fields["isForce"] else min(offset, present)
        return targets

    # Where the clients are

    async def client_status(self, request: Command, _: Connection) -> Command:
        """The offsets of a group's clients, of all or of one, as far as they answer in time."""
        fields = fields_of(request)
        # The field is called an address, and is a client id.
        client_id = fields["clientAddr"] or ""
        status = await client_status(self._clients, fields["group"], fields["topic"], client_id)
        return request.response(ResponseCode.SUCCESS, body=status.encode())
