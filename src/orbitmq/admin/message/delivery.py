"""Delivery: which groups have consumed a message, and sending messages, new ones and stored ones again."""

from __future__ import annotations

import dataclasses
import enum
from typing import TYPE_CHECKING

from orbitmq.admin.errors import (
    AdminError,
    ClientOfflineError,
    InvalidRequestError,
    NotFoundError,
    UnreachableError,
    refusal,
)
from orbitmq.client.config import ClientConfig, unique_ids_for
from orbitmq.client.errors import BrokerError, InvalidMessageError, SendError
from orbitmq.client.instance.routes import Route
from orbitmq.client.message import Message
from orbitmq.client.producer.batch import properties_text
from orbitmq.client.producer.wire import receipt_of
from orbitmq.client.validation import check_message, check_topic_to_send
from orbitmq.platform.clock import SYSTEM_RANDOM
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.message import property_names as names
from orbitmq.protocol.names import AUTO_CREATE_TOPIC, RETRY_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from orbitmq.admin.group.lag import Lag
    from orbitmq.admin.group.members import Members
    from orbitmq.admin.session import AdminSession
    from orbitmq.admin.topic.topics import Topics
    from orbitmq.client.message import Receipt, ReceivedMessage
    from orbitmq.protocol.bodies import MessageQueue

SENDER_GROUP = "orbitmq-admin"
"""The producer group of messages that tools send."""

MAX_BODY = 4 << 20
"""Bytes of a body: the default limit of RocketMQ's producers and brokers."""


class Track(enum.StrEnum):
    """The state of a message for a group, by RocketMQ's names."""

    CONSUMED = "CONSUMED"
    CONSUMED_BUT_FILTERED = "CONSUMED_BUT_FILTERED"
    PULL = "PULL"
    NOT_CONSUME_YET = "NOT_CONSUME_YET"
    NOT_ONLINE = "NOT_ONLINE"
    CONSUME_BROADCASTING = "CONSUME_BROADCASTING"
    UNKNOWN = "UNKNOWN"


@dataclasses.dataclass(frozen=True, slots=True)
class GroupTrack:
    """The state of a message for one group."""

    group: str
    track: Track
    reason: str = ""


class Delivery:
    """Tracks and sends messages."""

    def __init__(self, session: AdminSession, topics: Topics, members: Members, lag: Lag) -> None:
        self._session = session
        self._topics = topics
        self._members = members
        self._lag = lag
        self._unique_id: Callable[[], str] | None = None

    async def track(self, message: ReceivedMessage) -> list[GroupTrack]:
        """The state of a message for each group of its topic: two requests per group and broker."""
        groups = await self._topics.groups(message.topic)
        done, _ = await self._session.gather(groups, lambda group: self._track_of(message, group))
        return [done[group] for group in groups if group in done]

    async def _track_of(self, message: ReceivedMessage, group: str) -> GroupTrack:
        try:
            connections = await self._members.connections(group)
            if connections.message_model == "BROADCASTING":
                return GroupTrack(group, Track.CONSUME_BROADCASTING)
            if connections.consume_type == "CONSUME_ACTIVELY":
                return GroupTrack(group, Track.PULL)
            if not await self._is_behind_offset(message, group):
                return GroupTrack(group, Track.NOT_CONSUME_YET)
        except ClientOfflineError as error:
            return GroupTrack(group, Track.NOT_ONLINE, str(error))
        except AdminError as error:
            return GroupTrack(group, Track.UNKNOWN, str(error))
        for one in connections.subscriptions:
            tags = {tag.strip() for tag in one.expression.split("||")}
            if (
                one.topic == message.topic
                and one.expression_type == "TAG"
                and not tags & {"*", ""}
                and message.tags not in tags
            ):
                return GroupTrack(group, Track.CONSUMED_BUT_FILTERED)
        return GroupTrack(group, Track.CONSUMED)

    async def _is_behind_offset(self, message: ReceivedMessage, group: str) -> bool:
        lag = await self._lag.of_group(group, topic=message.topic, may_be_empty=True)
        topology = await self._topics.route(message.topic)
        name = next(
            (
                data.broker_name
                for data in topology.broker_datas
                if message.store_host in data.broker_addrs.values()
            ),
            message.broker_name,
        )
        return any(
            one.topic == message.topic
            and one.queue_id == message.queue_id
            and one.broker_name == name
            and one.consumer_offset > message.queue_offset
            for one in lag.queues
        )

    # Sending

    async def send(self, message: Message, *, queue: MessageQueue | None = None) -> Receipt:
        """Send one message, to a random queue unless one is given. Raises InvalidRequestError, NotFoundError."""
        try:
            check_topic_to_send(message.topic)
            check_message(message, MAX_BODY)
        except InvalidMessageError as error:
            raise InvalidRequestError(str(error)) from error
        route = Route.of(message.topic, await self._topics.route(message.topic))
        chosen = queue or SYSTEM_RANDOM.choice(list(route.publish_queues) or [None])
        if chosen is None:
            raise NotFoundError("queue for writing of the topic", message.topic, "its permission forbids it")
        address = route.address(chosen.broker_name)
        if address is None:
            raise NotFoundError("master of the broker", chosen.broker_name)
        if self._unique_id is None:
            self._unique_id = unique_ids_for(ClientConfig(name_servers=self._session.config.name_servers))
        properties = message.properties
        message_id = properties[names.UNIQUE_KEY] = self._unique_id()
        fields = {
            "a": SENDER_GROUP,
            "b": message.topic,
            "c": AUTO_CREATE_TOPIC,
            "d": 4,
            "e": chosen.queue_id,
            "f": 0,
            "g": self._session.now_ms(),
            "h": message.flag,
            "i": properties_text(message),
            "j": 0,
            "k": False,
            "m": False,
            "n": chosen.broker_name,
        }
        answer = await self._session.exchange(address, RequestCode.SEND_MESSAGE_V2, fields, message.body)
        try:
            return receipt_of(answer, chosen, address, message_id)
        except BrokerError as error:
            raise refusal(error.code, error.remark, address) from error
        except SendError as error:
            raise UnreachableError(address, str(error)) from error

    async def resend(
        self,
        message: ReceivedMessage,
        *,
        topic: str = "",
        body: bytes | None = None,
        tags: str | None = None,
        keys: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> Receipt:
        """Send a stored message again as a new one, with some of it replaced.

        By default it goes to the topic that it was sent to: for a message of a retry or dead letter topic, the
        original one.
        """
        own = {name: value for name, value in message.properties.items() if name not in names.RESERVED}
        try:
            copy = Message(
                topic or original_topic(message),
                message.body if body is None else body,
                tags=message.tags if tags is None else tags,
                keys=message.keys if keys is None else keys,
                properties=own if properties is None else properties,
                flag=message.flag,
                sharding_key=message.properties.get(names.SHARDING_KEY),
            )
        except (InvalidMessageError, ProtocolError) as error:
            raise InvalidRequestError(f"the message cannot be sent again: {error}") from error
        return await self.send(copy)


def original_topic(message: ReceivedMessage) -> str:
    """The topic that a message was sent to at first."""
    for name in (names.RETRY_TOPIC, names.DLQ_ORIGIN_TOPIC, names.REAL_TOPIC):
        topic = message.properties.get(name)
        if topic and not topic.startswith(RETRY_PREFIX):
            return topic
    return message.topic
