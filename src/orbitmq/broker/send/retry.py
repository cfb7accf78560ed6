"""CONSUMER_SEND_MSG_BACK: schedules the retry of a message that was not consumed, or moves it to the DLQ."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.broker.deferred.property_room import REAL_QUEUE_PROPERTIES, fitted, property_limit
from orbitmq.broker.deferred.record_copy import copied
from orbitmq.broker.errors import append_failed, no_group
from orbitmq.broker.lite.target import without_light_queue
from orbitmq.broker.send.retry_rule import dead_letter_topic, is_exhausted, max_retries
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command.fields import INT32_MAX
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.message import property_names as names
from orbitmq.protocol.message.flags import PERM_READ_WRITE, PERM_WRITE, TOPIC_UNIT_SUBSCRIBED
from orbitmq.protocol.message.properties import find, with_property, without
from orbitmq.protocol.message.record import CRC_PROPERTY, decode_record
from orbitmq.protocol.names import RETRY_PREFIX
from orbitmq.remoting.processor import RequestRefusedError, fields_of, handler_of
from orbitmq.store import AppendRefusedError

if TYPE_CHECKING:
    from orbitmq.broker.runtime import BrokerRuntime, Metadata
    from orbitmq.broker.schedule.service import ScheduleService
    from orbitmq.protocol.bodies import SubscriptionGroupConfig, TopicConfig
    from orbitmq.protocol.command.command import Command
    from orbitmq.protocol.message.record import Record
    from orbitmq.remoting import Connection, Handler

FIRST_RETRY_LEVEL = 3
"""The delay level of the first retry is 10 seconds; each further one is a level higher."""

_RETRY_TOPIC = names.RETRY_TOPIC.encode()
_ORIGIN_ID = names.ORIGIN_MESSAGE_ID.encode()
_WAIT = names.WAIT_STORE_OK.encode()
_DELAY = names.DELAY_LEVEL.encode()


class SendBackRequests:
    """The processor of CONSUMER_SEND_MSG_BACK."""

    def __init__(
        self,
        runtime: BrokerRuntime,
        metadata: Metadata,
        schedule: ScheduleService,
    ) -> None:
        self._config = runtime.config
        self._store = runtime.store
        self._random = runtime.random
        self._stats = runtime.stats
        self._topics = metadata.topics
        self._groups = metadata.groups
        self._schedule = schedule

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
        limit = max_retries(group, request.version, fields.get("maxReconsumeTimes"))
        self._put(record, group, topic, fields["delayLevel"], limit)
        return request.response(ResponseCode.SUCCESS)

    def _record(self, offset: int) -> Record:
        found = self._store.record(offset)
        if found is not None:
            try:
                return decode_record(found)
            except ProtocolError:
                pass
        raise RequestRefusedError(f"look message by offset failed, {offset}")

    def _put(
        self, record: Record, group: SubscriptionGroupConfig, retry: TopicConfig, level: int, limit: int
    ) -> None:
        properties = record.properties
        if CRC_PROPERTY in properties:
            # The checksum covers the original record, and would be wrong in the copy.
            properties = without(properties, (CRC_PROPERTY,))
        if find(properties, _RETRY_TOPIC) is None:
            properties = with_property(properties, _RETRY_TOPIC, record.topic.encode())
        properties = with_property(properties, _WAIT, b"false")
        if find(properties, _ORIGIN_ID) is None:
            message_id = self._store.message_id(record.physical_offset)
            properties = with_property(properties, _ORIGIN_ID, message_id.encode())
        is_dead = level < 0 or is_exhausted(record.reconsume_times, limit)
        if is_dead:
            topic, queue_id = dead_letter_topic(self._topics, group.group_name), 0
            properties = without_light_queue(properties)
            properties = self._fitted(with_property(properties, _DELAY, b"0"))
        else:
            # The topic may have fewer queues than the group is configured with by now.
            queues = max(min(group.retry_queue_nums, retry.read_queue_nums), 1)
            topic, queue_id = RETRY_PREFIX + group.group_name, self._random.randrange(queues)
            level = level or FIRST_RETRY_LEVEL + record.reconsume_times
            properties = with_property(properties, _DELAY, str(level).encode())
            topic, queue_id, properties = self._delayed(topic, queue_id, properties)
        message = copied(record, topic, queue_id, properties)._replace(
            reconsume_times=min(record.reconsume_times + 1, INT32_MAX)
        )
        try:
            appended = self._store.append(message, is_stored=True)
        except AppendRefusedError as error:
            self._stats.put_failed()
            raise append_failed(error) from error
        retried = find(properties, _RETRY_TOPIC) or b""
        self._stats.sent_back(group.group_name, retried.decode("utf-8", "replace"))
        self._stats.put_by_broker(topic, queue_id, 1, appended.size)
        if is_dead:
            self._stats.dead_letter(group.group_name, retried.decode("utf-8", "replace"))

    def _delayed(self, topic: str, queue_id: int, properties: bytes) -> tuple[str, int, bytes]:
        """Target of a retry: the queue of its delay level; the retry topic itself if properties have no room."""
        limit = property_limit(self._store)
        deferred = self._schedule.defer(properties, topic, queue_id)
        if deferred is not None:
            topic_there, queue_there, properties_there = deferred
            if len(properties_there) > limit:
                properties_there = fitted(properties_there, limit, protected=REAL_QUEUE_PROPERTIES)
            if len(properties_there) <= limit:
                return topic_there, queue_there, properties_there
        return topic, queue_id, self._fitted(properties)

    def _fitted(self, properties: bytes) -> bytes:
        """The properties of a retry or dead letter without a delay."""
        limit = property_limit(self._store)
        if len(properties) <= limit:
            return properties
        properties = fitted(without(properties, (_DELAY,)), limit)
        # As a last resort without the original topic: the message itself must arrive.
        return properties if len(properties) <= limit else without(properties, (_RETRY_TOPIC,))
