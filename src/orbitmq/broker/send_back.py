"""CONSUMER_SEND_MSG_BACK: a message that could not be consumed comes again later, or becomes a dead letter."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from orbitmq.broker.refusing import no_group
from orbitmq.broker.send import HONOURS_LIMIT_SINCE
from orbitmq.protocol import property_names as names
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.flags import PERM_READ_WRITE, PERM_WRITE, TOPIC_UNIT_SUBSCRIBED
from orbitmq.protocol.names import DLQ_PREFIX, RETRY_PREFIX
from orbitmq.protocol.properties import find, with_property
from orbitmq.protocol.record import decode_record
from orbitmq.remoting.processing import RequestRefusedError, fields_of, handler_of
from orbitmq.store import AppendRefusedError

if TYPE_CHECKING:
    from orbitmq.broker.config import BrokerConfig
    from orbitmq.broker.groups import GroupTable
    from orbitmq.broker.schedule import ScheduleService
    from orbitmq.broker.stats import BrokerStats
    from orbitmq.broker.topics import TopicTable
    from orbitmq.protocol.bodies import SubscriptionGroupConfig
    from orbitmq.protocol.command import Command
    from orbitmq.protocol.record import Record
    from orbitmq.remoting import Connection, Handler
    from orbitmq.store import MessageStore

FIRST_LEVEL = 3
"""The delay level of the first retry is 10 seconds; each further one is a level higher."""

_RETRY_TOPIC = names.RETRY_TOPIC.encode()
_ORIGIN_ID = names.ORIGIN_MESSAGE_ID.encode()
_WAIT = names.WAIT_STORE_OK.encode()
_DELAY = names.DELAY_LEVEL.encode()


class SendBackRequests:
    """Consumers give messages back."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        topics: TopicTable,
        groups: GroupTable,
        schedule: ScheduleService,
        stats: BrokerStats,
    ) -> None:
        self._config = config
        self._store = store
        self._topics = topics
        self._groups = groups
        self._schedule = schedule
        self._stats = stats

    @property
    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.CONSUMER_SEND_MSG_BACK: handler_of(self.send_back)}

    def send_back(self, request: Command, _: Connection) -> Command:
        fields = fields_of(request)
        group = self._groups.find(fields["group"])
        if group is None:
            raise no_group(fields["group"])
        if not self._config.broker_permission & PERM_WRITE:
            raise RequestRefusedError(
                f"the broker[{self._config.broker_ip1}] sending message is forbidden", ResponseCode.NO_PERMISSION
            )
        if group.retry_queue_nums <= 0:
            return request.response(ResponseCode.SUCCESS)
        unit = TOPIC_UNIT_SUBSCRIBED if fields.get("unitMode") else 0
        retry_topic = RETRY_PREFIX + group.group_name
        topic = self._topics.create_for_send_back(retry_topic, group.retry_queue_nums, PERM_READ_WRITE, unit)
        if not topic.perm & PERM_WRITE:
            raise RequestRefusedError(
                f"the topic[{retry_topic}] sending message is forbidden", ResponseCode.NO_PERMISSION
            )
        record = self._record(fields["offset"])
        most = group.retry_max_times
        if request.version >= HONOURS_LIMIT_SINCE and fields.get("maxReconsumeTimes") is not None:
            most = fields["maxReconsumeTimes"]
        self._put(record, group, fields["delayLevel"], most)
        return request.response(ResponseCode.SUCCESS)

    def _record(self, offset: int) -> Record:
        found = self._store.record(offset)
        if found is not None:
            try:
                return decode_record(found)
            except ProtocolError:
                pass
        raise RequestRefusedError(f"look message by offset failed, {offset}")

    def _put(self, record: Record, group: SubscriptionGroupConfig, level: int, most: int) -> None:
        properties = record.properties
        if find(properties, _RETRY_TOPIC) is None:
            properties = with_property(properties, _RETRY_TOPIC, record.topic.encode())
        properties = with_property(properties, _WAIT, b"false")
        if find(properties, _ORIGIN_ID) is None:
            message_id = self._store.message_id(record.physical_offset)
            properties = with_property(properties, _ORIGIN_ID, message_id.encode())
        is_dead = record.reconsume_times >= most or level < 0
        if is_dead:
            topic, queue_id = DLQ_PREFIX + group.group_name, 0
            self._topics.create_for_send_back(topic, 1, PERM_READ_WRITE)
            properties = with_property(properties, _DELAY, b"0")
        else:
            topic, queue_id = RETRY_PREFIX + group.group_name, random.randrange(group.retry_queue_nums)
            level = level or FIRST_LEVEL + record.reconsume_times
            properties = with_property(properties, _DELAY, str(level).encode())
            topic, queue_id, properties = self._schedule.park(properties, topic, queue_id) or (
                topic,
                queue_id,
                properties,
            )
        try:
            appended = self._store.append(
                topic,
                queue_id,
                record.body,
                properties,
                flag=record.flag,
                sys_flag=record.sys_flag,
                born_timestamp=record.born_timestamp,
                born_host=record.born_host,
                reconsume_times=record.reconsume_times + 1,
            )
        except AppendRefusedError as error:
            self._stats.put_failed()
            raise RequestRefusedError(f"{error.status.name}: {error}") from error
        retried = find(properties, _RETRY_TOPIC) or b""
        self._stats.sent_back(group.group_name, retried.decode("utf-8", "replace"))
        self._stats.put(topic, queue_id, 1, appended.size)
        if is_dead:
            self._stats.dead_letter(group.group_name, retried.decode("utf-8", "replace"))
