"""Messages that were not consumed go back to a broker, which brings them again later or buries them."""

from __future__ import annotations

import logging
import random
import time
from typing import TYPE_CHECKING

from orbitmq.client.errors import NoRouteError, OrbitMQError
from orbitmq.client.routes import MASTER
from orbitmq.protocol import property_names as names
from orbitmq.protocol.codes import LanguageCode, RequestCode
from orbitmq.protocol.command import Command
from orbitmq.protocol.flags import BORN_HOST_V6, STORE_HOST_V6
from orbitmq.protocol.names import AUTO_CREATE_TOPIC, CLIENT_INNER_PRODUCER_GROUP, RETRY_PREFIX
from orbitmq.protocol.properties import encode
from orbitmq.remoting import RemotingError

if TYPE_CHECKING:
    from orbitmq.client.consumer_config import ConsumerConfig
    from orbitmq.client.instance import ClientInstance
    from orbitmq.client.pulled_message import PulledMessage

log = logging.getLogger("orbitmq.client")

SEND_BACK_SECONDS = 5.0
FIRST_LEVEL = 3
"""The delay level of a first retry: 10 seconds, unless the broker is set up otherwise."""
TIMEOUT_LEVEL = 3
"""That of a message whose handler did not return in time."""
STATIC_TOPIC_PREFIX = "__syslo__"
"""Brokers of static topics have such names; there is nobody to send a message back to."""
DEFAULT_QUEUES = 4


class SendBack:
    """The way back for the messages of one group."""

    def __init__(self, instance: ClientInstance, group: str, config: ConsumerConfig) -> None:
        self._instance = instance
        self._group = group
        self._most = config.most_reconsumed
        self._unit_mode = config.unit_mode
        self.retry_topic = RETRY_PREFIX + group

    async def give_back(self, message: PulledMessage, stored_topic: str, delay_level: int) -> None:
        """Have the broker bring a message again: after the delay of a level, 0 for longer each time, -1 never.

        ``stored_topic`` is the topic in which the message lies. Raises OrbitMQError or RemotingError if no broker
        took it.
        """
        if not message.broker_name.startswith(STATIC_TOPIC_PREFIX):
            try:
                await self._ask_broker(message, stored_topic, delay_level)
                return
            except (OrbitMQError, RemotingError) as error:
                log.warning("%s does not take a message back and it is sent anew: %s", message.broker_name, error)
        if delay_level < 0:
            await self.bury(message)
        else:
            await self._send_anew(message, self._most, delay_level or FIRST_LEVEL + message.record.reconsume_times)

    async def bury(self, message: PulledMessage) -> None:
        """Send a message to the dead letters. Raises OrbitMQError, RemotingError."""
        # No send says so. The broker buries what was retried more often than is allowed.
        await self._send_anew(message, min(self._most, message.record.reconsume_times), 0)

    async def _ask_broker(self, message: PulledMessage, stored_topic: str, delay_level: int) -> None:
        record = message.record
        address = self._instance.address(stored_topic, message.broker_name, MASTER) or message.store_host
        fields = {
            "offset": str(record.physical_offset),
            "group": self._group,
            "delayLevel": str(delay_level),
            "originMsgId": message.message_id,
            "originTopic": stored_topic,
            "unitMode": "true" if self._unit_mode else "false",
            "maxReconsumeTimes": str(self._most),
            "bname": message.broker_name,
        }
        command = Command(RequestCode.CONSUMER_SEND_MSG_BACK, ext_fields=fields, language=LanguageCode.PYTHON)
        await self._instance.call(address, command, SEND_BACK_SECONDS)

    async def _send_anew(self, message: PulledMessage, most: int, delay_level: int) -> None:
        """Send a message to the retry topic as if it were new."""
        route = await self._instance.route_to_publish(self.retry_topic, AUTO_CREATE_TOPIC, DEFAULT_QUEUES)
        queue = random.choice(route.publish_queues)
        address = route.address(queue.broker_name)
        if address is None:
            raise NoRouteError(self.retry_topic)
        record = message.record
        properties = self._properties(message, most, delay_level)
        fields = {
            "a": CLIENT_INNER_PRODUCER_GROUP,
            "b": self.retry_topic,
            "c": AUTO_CREATE_TOPIC,
            "d": str(DEFAULT_QUEUES),
            "e": str(queue.queue_id),
            "f": str(record.sys_flag & ~(BORN_HOST_V6 | STORE_HOST_V6)),
            "g": str(round(time.time() * 1000)),
            "h": str(record.flag),
            "i": encode(properties).decode(),
            "j": str(record.reconsume_times + 1),
            "k": "true" if self._unit_mode else "false",
            "l": str(most),
            "m": "false",
            "n": queue.broker_name,
        }
        command = Command(
            RequestCode.SEND_MESSAGE_V2, ext_fields=fields, body=record.body, language=LanguageCode.PYTHON
        )
        await self._instance.call(address, command, SEND_BACK_SECONDS)

    def _properties(self, message: PulledMessage, most: int, delay_level: int) -> dict[str, str]:
        properties = dict(message.properties)
        properties.setdefault(names.RETRY_TOPIC, message.record.topic)
        properties.setdefault(names.ORIGIN_MESSAGE_ID, message.message_id)
        properties[names.RECONSUME_TIMES] = str(message.record.reconsume_times + 1)
        properties[names.MAX_RECONSUME_TIMES] = str(most)
        for name in (names.TRANSACTION_PREPARED, names.DELAY_LEVEL):
            properties.pop(name, None)
        if delay_level > 0:
            properties[names.DELAY_LEVEL] = str(delay_level)
        return properties
