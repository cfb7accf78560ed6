"""Send-back: returns failed messages to a broker, which retries them or moves them to the dead letter queue."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from orbitmq.client.errors import NoRouteError, OrbitMQError
from orbitmq.client.instance.routes import MASTER
from orbitmq.protocol.codes import LanguageCode, RequestCode
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.message import property_names as names
from orbitmq.protocol.message.flags import BORN_HOST_V6, STORE_HOST_V6
from orbitmq.protocol.message.properties import encode
from orbitmq.protocol.names import AUTO_CREATE_TOPIC, CLIENT_INNER_PRODUCER_GROUP, RETRY_PREFIX
from orbitmq.remoting import RemotingError

if TYPE_CHECKING:
    from orbitmq.client.consumer.received_message import PulledMessage
    from orbitmq.client.instance.instance import ClientInstance
    from orbitmq.client.push.config import ConsumerConfig

log = logging.getLogger("orbitmq.client")

SEND_BACK_SECONDS = 5.0
FIRST_LEVEL = 3
"""Delay level of the first retry: 10 seconds by default."""
TIMEOUT_LEVEL = 3
"""Delay level of a message whose handler timed out."""
STATIC_TOPIC_PREFIX = "__syslo__"
"""Prefix of the broker names of static topics, which do not support send-back."""
DEFAULT_QUEUES = 4


class SendBack:
    """Send-back for one group."""

    def __init__(self, instance: ClientInstance, group: str, config: ConsumerConfig) -> None:
        self._instance = instance
        self._group = group
        self._max_retries = config.effective_max_reconsume_times
        self._unit_mode = config.unit_mode
        self.retry_topic = RETRY_PREFIX + group

    async def send_back(self, message: PulledMessage, stored_topic: str, delay_level: int) -> None:
        """Have the broker redeliver a message after the delay of a level: 0 backs off, -1 means dead letter.

        ``stored_topic`` is the topic that stores the message. Raises OrbitMQError or RemotingError if no broker
        accepted it.
        """
        if not message.broker_name.startswith(STATIC_TOPIC_PREFIX):
            try:
                await self._request_send_back(message, stored_topic, delay_level)
                return
            except (OrbitMQError, RemotingError) as error:
                log.warning("retry: send-back to %s failed, falling back to a send: %s", message.broker_name, error)
        if delay_level < 0:
            await self.send_to_dead_letters(message)
        else:
            await self._send_to_retry_topic(
                message, self._max_retries, delay_level or FIRST_LEVEL + message.record.reconsume_times
            )

    async def send_to_dead_letters(self, message: PulledMessage) -> None:
        """Send a message to the dead letter queue. Raises OrbitMQError, RemotingError."""
        # A send cannot address the dead letter queue. The broker moves messages over the retry limit there.
        await self._send_to_retry_topic(message, min(self._max_retries, message.record.reconsume_times), 0)

    async def _request_send_back(self, message: PulledMessage, stored_topic: str, delay_level: int) -> None:
        record = message.record
        address = self._instance.address(stored_topic, message.broker_name, MASTER) or message.store_host
        fields = {
            "offset": str(record.physical_offset),
            "group": self._group,
            "delayLevel": str(delay_level),
            "originMsgId": message.message_id,
            "originTopic": stored_topic,
            "unitMode": "true" if self._unit_mode else "false",
            "maxReconsumeTimes": str(self._max_retries),
            "bname": message.broker_name,
        }
        command = Command(RequestCode.CONSUMER_SEND_MSG_BACK, ext_fields=fields, language=LanguageCode.PYTHON)
        await self._instance.call(address, command, SEND_BACK_SECONDS)

    async def _send_to_retry_topic(self, message: PulledMessage, max_retries: int, delay_level: int) -> None:
        """Send a copy of a message to the retry topic."""
        route = await self._instance.route_to_publish(self.retry_topic, AUTO_CREATE_TOPIC, DEFAULT_QUEUES)
        queue = self._instance.random.choice(route.publish_queues)
        address = route.address(queue.broker_name)
        if address is None:
            raise NoRouteError(self.retry_topic)
        record = message.record
        properties = self._properties(message, max_retries, delay_level)
        fields = {
            "a": CLIENT_INNER_PRODUCER_GROUP,
            "b": self.retry_topic,
            "c": AUTO_CREATE_TOPIC,
            "d": str(DEFAULT_QUEUES),
            "e": str(queue.queue_id),
            "f": str(record.sys_flag & ~(BORN_HOST_V6 | STORE_HOST_V6)),
            "g": str(self._instance.clock.now_ms()),
            "h": str(record.flag),
            "i": encode(properties).decode(),
            "j": str(record.reconsume_times + 1),
            "k": "true" if self._unit_mode else "false",
            "l": str(max_retries),
            "m": "false",
            "n": queue.broker_name,
        }
        command = Command(
            RequestCode.SEND_MESSAGE_V2, ext_fields=fields, body=record.body, language=LanguageCode.PYTHON
        )
        await self._instance.call(address, command, SEND_BACK_SECONDS)

    def _properties(self, message: PulledMessage, max_retries: int, delay_level: int) -> dict[str, str]:
        properties = dict(message.properties)
        properties.setdefault(names.RETRY_TOPIC, message.record.topic)
        properties.setdefault(names.ORIGIN_MESSAGE_ID, message.message_id)
        properties[names.RECONSUME_TIMES] = str(message.record.reconsume_times + 1)
        properties[names.MAX_RECONSUME_TIMES] = str(max_retries)
        for name in (names.TRANSACTION_PREPARED, names.DELAY_LEVEL):
            properties.pop(name, None)
        if delay_level > 0:
            properties[names.DELAY_LEVEL] = str(delay_level)
        return properties
