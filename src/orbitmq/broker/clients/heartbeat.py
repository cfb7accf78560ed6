"""HEART_BEAT, UNREGISTER_CLIENT, CHECK_CLIENT_CONFIG and GET_CONSUMER_LIST_BY_GROUP."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from orbitmq.broker.clients.registry import ClientChannel, check_name
from orbitmq.broker.clients.shares import shares_of_topics
from orbitmq.broker.pull.subscription_filter import check_length
from orbitmq.broker.time_slices import SMALL_BODY, check_body_size, decoded, in_slices
from orbitmq.filter import FilterError, compile_subscription, is_tag_type
from orbitmq.protocol.bodies import (
    CheckClientRequestBody,
    ConsumeType,
    GetConsumerListByGroupResponseBody,
    HeartbeatData,
)
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command.fields import decode_fields
from orbitmq.protocol.command.header import OPAQUE
from orbitmq.protocol.command.request_fields import REQUEST_FIELDS
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.message.flags import PERM_READ_WRITE, TOPIC_UNIT_SUBSCRIBED
from orbitmq.protocol.names import RETRY_PREFIX
from orbitmq.protocol.remarks import switched_off
from orbitmq.remoting.processor import NotReadyError, RequestRefusedError, handler_of

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from orbitmq.broker.clients.registry import Clients
    from orbitmq.broker.clients.shares import NamedShares
    from orbitmq.broker.config.broker_config import BrokerConfig
    from orbitmq.broker.metadata.subscription_groups import GroupTable
    from orbitmq.broker.metadata.topics import TopicTable
    from orbitmq.platform.clock import Clock
    from orbitmq.protocol.bodies import ConsumerData, SubscriptionGroupConfig
    from orbitmq.protocol.command.command import Command
    from orbitmq.protocol.command.header import Header
    from orbitmq.remoting import Answer, Connection, Handler


class ClientRequests:
    """Requests by which clients register, leave and look up the members of their group."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        clients: Clients,
        topics: TopicTable,
        groups: GroupTable,
        topic_shares: NamedShares | None = None,
    ) -> None:
        self._topic_shares = topic_shares or shares_of_topics(config, topics)
        self._config = config
        self._clock = clock
        self._clients = clients
        self._topics = topics
        self._groups = groups

    @property
    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.HEART_BEAT: self._heartbeat_handler(),
            RequestCode.UNREGISTER_CLIENT: handler_of(self.unregister),
            RequestCode.CHECK_CLIENT_CONFIG: handler_of(self.check_subscription),
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: handler_of(self.consumer_list),
        }

    def _heartbeat_handler(self) -> Handler:
        """The handler of HEART_BEAT, which renews the memberships of a client that repeats its last heartbeat."""
        process, repeats, now_ms = handler_of(self.heartbeat), self._clients.repeats, self._clock.now_ms
        if repeats is None:
            return process

        def handle(connection: Connection, header: Header, body: bytes, serialize_type: int) -> Answer:
            answer = repeats.renew(connection, body, now_ms())
            if answer is not None:
                return answer.encode(serialize_type, header[OPAQUE])
            return process(connection, header, body, serialize_type)

        return handle

    def heartbeat(self, request: Command, connection: Connection) -> Command | Coroutine[None, None, Command]:
        """HEART_BEAT: register a client as a member of its groups.

        A heartbeat of version 2 has a fingerprint, and may omit its subscriptions while the fingerprint stays the
        same. The response field IS_SUB_CHANGE requests all of them. It is also set for groups without members:
        after a restart of the broker, which the client may not have noticed, their subscriptions are unknown.
        """
        if request.body is None:
            raise ProtocolError("the heartbeat has no body")
        if len(request.body) > SMALL_BODY:
            return self._process_many(request, connection, request.body)
        heartbeat = HeartbeatData.decode(request.body)
        self._check(heartbeat, connection)
        changed = not heartbeat.heartbeat_fingerprint
        unsaved: set[asyncio.Future[None]] = set()
        for consumer in heartbeat.consumer_data_set:
            changed |= self._register_consumer(consumer, heartbeat, request, connection, unsaved)
        for producer in heartbeat.producer_data_set:
            self._take_producer(producer.group_name, heartbeat, request, connection)
        if self._clients.repeats is not None and not unsaved:
            self._clients.repeats.remember(connection, request.body, heartbeat)
        answer = _taken(request, changed=changed)
        return _answer_when_settled(answer, unsaved) if unsaved else answer

    async def _process_many(self, request: Command, connection: Connection, body: bytes) -> Command:
        """Process a heartbeat of many groups, as a proxy sends it, in slices."""
        check_body_size(request)
        heartbeat = await decoded(HeartbeatData, body)
        self._check(heartbeat, connection)
        changed = not heartbeat.heartbeat_fingerprint
        unsaved: set[asyncio.Future[None]] = set()
        async for consumer in in_slices(heartbeat.consumer_data_set):
            if connection.is_closing:
                # Its memberships were removed already; one that is added now would never be removed.
                break
            changed |= self._register_consumer(consumer, heartbeat, request, connection, unsaved)
        async for producer in in_slices(heartbeat.producer_data_set):
            if connection.is_closing:
                break
            self._take_producer(producer.group_name, heartbeat, request, connection)
        if unsaved:
            await asyncio.wait(unsaved)
        return _taken(request, changed=changed)

    def _check(self, heartbeat: HeartbeatData, connection: Connection) -> None:
        _check_names(heartbeat)
        self._clients.check_room(connection, heartbeat)
        self._check_room_for_groups(heartbeat, connection.remote_address)

    def _register_consumer(
        self,
        consumer: ConsumerData,
        heartbeat: HeartbeatData,
        request: Command,
        connection: Connection,
        unsaved: set[asyncio.Future[None]],
    ) -> bool:
        """Register a member of a group; True if its fingerprint differs from the known one.

        ``unsaved`` gets the future of a retry topic that is not on disk yet.
        """
        if self._config.reject_pull_consumer_enable and consumer.consume_type is ConsumeType.CONSUME_ACTIVELY:
            return False
        config = self._groups.find(consumer.group_name, connection.remote_address)
        if config is None:
            return False
        fingerprint = heartbeat.heartbeat_fingerprint
        with_sub = not (fingerprint and heartbeat.without_sub)
        known = self._clients.consumers.get(consumer.group_name)
        changed = known is None or known.fingerprint != fingerprint
        try:
            self._create_retry_topic(consumer, config, connection.remote_address, with_sub=with_sub)
        except NotReadyError as error:
            unsaved.add(error.ready)
        self._clients.register_consumer(
            consumer,
            self._client(request, connection, heartbeat.client_id),
            notifies=config.notify_consumer_ids_changed_enable,
            fingerprint=fingerprint,
            with_sub=with_sub,
        )
        return changed

    def _take_producer(
        self, group: str, heartbeat: HeartbeatData, request: Command, connection: Connection
    ) -> None:
        self._clients.register_producer(group, self._client(request, connection, heartbeat.client_id))

    def _client(self, request: Command, connection: Connection, client_id: str) -> ClientChannel:
        return ClientChannel(connection, client_id, request.language, request.version, self._clock.now_ms())

    def _check_room_for_groups(self, heartbeat: HeartbeatData, client: str) -> None:
        """Check limits for groups and retry topics that this heartbeat would create. Raises RequestRefusedError."""
        groups = {consumer.group_name for consumer in heartbeat.consumer_data_set}
        topics = {RETRY_PREFIX + group for group in groups} - self._topics.configs.keys()
        self._topics.check_room(len(topics))
        if topics:
            self._topic_shares.check(client, len(topics))
        new = len(groups - self._groups.configs.keys())
        if new and self._config.auto_create_subscription_group:
            self._groups.shares.check(client, new)

    def _create_retry_topic(
        self, consumer: ConsumerData, config: SubscriptionGroupConfig, client: str, *, with_sub: bool
    ) -> None:
        """Create the retry topic of a group; an ordered one if the group consumes orderly."""
        order = None
        if with_sub:
            subscribed = [self._topics.get(subscription.topic) for subscription in consumer.subscription_data_set]
            order = any(topic is not None and topic.order for topic in subscribed)
        sys_flag = TOPIC_UNIT_SUBSCRIBED if consumer.unit_mode else 0
        topic = RETRY_PREFIX + consumer.group_name
        if topic not in self._topics.configs:
            self._topic_shares.created(client, topic)
        self._topics.create_for_send_back(topic, config.retry_queue_nums, PERM_READ_WRITE, sys_flag, order=order)

    def unregister(self, request: Command, connection: Connection) -> Command:
        """UNREGISTER_CLIENT. The connection identifies the client, not the id in the request."""
        fields = decode_fields(request.ext_fields, REQUEST_FIELDS[request.code])
        producer_group, consumer_group = fields["producerGroup"], fields["consumerGroup"]
        if isinstance(producer_group, str):
            self._clients.unregister_producer(producer_group, connection)
        if isinstance(consumer_group, str):
            self._clients.unregister_consumer(consumer_group, connection)
        return request.response(ResponseCode.SUCCESS)

    def check_subscription(self, request: Command, _: Connection) -> Command:
        """CHECK_CLIENT_CONFIG: validate a subscription that is not by tags, before the client starts."""
        subscription = None
        if request.body is not None:
            subscription = CheckClientRequestBody.decode(request.body).subscription_data
        if subscription is None or is_tag_type(subscription.expression_type):
            return request.response(ResponseCode.SUCCESS)
        if not self._config.enable_property_filter:
            raise RequestRefusedError(
                f"The broker does not support consumer to filter message by {subscription.expression_type[:80]}"
                f"{switched_off('enablePropertyFilter')}"
            )
        try:
            check_length(self._config, subscription.expression_type, subscription.sub_string)
            compile_subscription(subscription.expression_type, subscription.sub_string)
        except FilterError as error:
            raise RequestRefusedError(str(error), error.response_code) from error
        return request.response(ResponseCode.SUCCESS)

    def consumer_list(self, request: Command, _: Connection) -> Command:
        """GET_CONSUMER_LIST_BY_GROUP: client ids of a group, which divides its queues among them.

        A group without members is an error and never an empty list: a client that gets one gives up its queues.
        """
        group = str(decode_fields(request.ext_fields, REQUEST_FIELDS[request.code])["consumerGroup"])
        found = self._clients.consumers.get(group)
        if found is None:
            raise RequestRefusedError(f"no consumer for this group, {group}")
        body = GetConsumerListByGroupResponseBody(found.client_ids()).encode()
        return request.response(ResponseCode.SUCCESS, body=body)


def _taken(request: Command, *, changed: bool) -> Command:
    return request.response(
        ResponseCode.SUCCESS,
        ext_fields={"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true" if changed else "false"},
    )


async def _answer_when_settled(answer: Command, unsaved: set[asyncio.Future[None]]) -> Command:
    """Respond once the retry topic is on disk: the consumer pulls from it as soon as it has the response.

    If the disk refuses that topic, later send-backs are refused; messages can be consumed all the same.
    """
    await asyncio.wait(unsaved)
    return answer


def _check_names(heartbeat: HeartbeatData) -> None:
    check_name("client id", heartbeat.client_id)
    for producer in heartbeat.producer_data_set:
        check_name("producer group", producer.group_name)
    for consumer in heartbeat.consumer_data_set:
        check_name("consumer group", consumer.group_name)
        for subscription in consumer.subscription_data_set:
            check_name("topic", subscription.topic)
