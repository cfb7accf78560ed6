"""What clients say of themselves: that they are there and what they subscribe, and that they leave."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.broker.clients import ClientChannel, check_name
from orbitmq.filter import FilterError, compile_subscription, is_tag_type
from orbitmq.protocol.bodies import (
    CheckClientRequestBody,
    ConsumeType,
    GetConsumerListByGroupResponseBody,
    HeartbeatData,
)
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.fields import decode_fields
from orbitmq.protocol.flags import PERM_READ_WRITE, TOPIC_UNIT_SUBSCRIBED
from orbitmq.protocol.names import RETRY_PREFIX
from orbitmq.protocol.request_fields import REQUEST_FIELDS
from orbitmq.remoting.processing import RequestRefusedError, handler_of

if TYPE_CHECKING:
    from orbitmq.broker.clients import Clients
    from orbitmq.broker.config import BrokerConfig
    from orbitmq.broker.groups import GroupTable
    from orbitmq.broker.topics import TopicTable
    from orbitmq.protocol.bodies import ConsumerData, SubscriptionGroupConfig
    from orbitmq.protocol.command import Command
    from orbitmq.remoting import Connection, Handler
    from orbitmq.store.clock import Clock


class ClientRequests:
    """Processors for heartbeats and what goes with them."""

    def __init__(
        self, config: BrokerConfig, clock: Clock, clients: Clients, topics: TopicTable, groups: GroupTable
    ) -> None:
        self._config = config
        self._clock = clock
        self._clients = clients
        self._topics = topics
        self._groups = groups

    @property
    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.HEART_BEAT: handler_of(self.heartbeat),
            RequestCode.UNREGISTER_CLIENT: handler_of(self.unregister),
            RequestCode.CHECK_CLIENT_CONFIG: handler_of(self.check_subscription),
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: handler_of(self.consumer_list),
        }

    def heartbeat(self, request: Command, connection: Connection) -> Command:
        """A client is there.

        One of the second version has a fingerprint, and may leave its subscriptions out while the fingerprint
        stays the same. IS_SUB_CHANGE asks it for all of them. It is also said of groups that nobody is in yet:
        after a restart of the broker, which its client may not have noticed, their subscriptions are not known.
        """
        if request.body is None:
            raise ProtocolError("a heartbeat without a body says nothing")
        heartbeat = HeartbeatData.decode(request.body)
        _check_names(heartbeat)
        self._clients.check_room(connection, heartbeat)
        self._check_room_for_retry_topics(heartbeat)
        fingerprint = heartbeat.heartbeat_fingerprint
        with_sub = not (fingerprint and heartbeat.without_sub)
        changed = not fingerprint
        for said in heartbeat.consumer_data_set:
            if self._config.reject_pull_consumer_enable and said.consume_type is ConsumeType.CONSUME_ACTIVELY:
                continue
            config = self._groups.find(said.group_name)
            if config is None:
                continue
            known = self._clients.consumers.get(said.group_name)
            changed |= known is None or known.fingerprint != fingerprint
            self._create_retry_topic(said, config, with_sub=with_sub)
            self._clients.register_consumer(
                said,
                self._client(request, connection, heartbeat.client_id),
                notifies=config.notify_consumer_ids_changed_enable,
                fingerprint=fingerprint,
                with_sub=with_sub,
            )
        for producer in heartbeat.producer_data_set:
            client = self._client(request, connection, heartbeat.client_id)
            self._clients.register_producer(producer.group_name, client)
        return request.response(
            ResponseCode.SUCCESS,
            ext_fields={"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true" if changed else "false"},
        )

    def _client(self, request: Command, connection: Connection, client_id: str) -> ClientChannel:
        return ClientChannel(connection, client_id, request.language, request.version, self._clock.now_ms())

    def _check_room_for_retry_topics(self, heartbeat: HeartbeatData) -> None:
        topics = {RETRY_PREFIX + said.group_name for said in heartbeat.consumer_data_set}
        self._topics.check_room(len(topics - self._topics.configs.keys()))

    def _create_retry_topic(self, said: ConsumerData, config: SubscriptionGroupConfig, *, with_sub: bool) -> None:
        """Messages of an ordered topic that are sent back have an ordered topic to go to."""
        order = None
        if with_sub:
            subscribed = [self._topics.get(subscription.topic) for subscription in said.subscription_data_set]
            order = any(topic is not None and topic.order for topic in subscribed)
        sys_flag = TOPIC_UNIT_SUBSCRIBED if said.unit_mode else 0
        topic = RETRY_PREFIX + said.group_name
        self._topics.create_for_send_back(topic, config.retry_queue_nums, PERM_READ_WRITE, sys_flag, order=order)

    def unregister(self, request: Command, connection: Connection) -> Command:
        """A client leaves a group. It can only speak for itself: the connection counts, not the id."""
        fields = decode_fields(request.ext_fields, REQUEST_FIELDS[request.code])
        producer_group, consumer_group = fields["producerGroup"], fields["consumerGroup"]
        if isinstance(producer_group, str):
            self._clients.unregister_producer(producer_group, connection)
        if isinstance(consumer_group, str):
            self._clients.unregister_consumer(consumer_group, connection)
        return request.response(ResponseCode.SUCCESS)

    def check_subscription(self, request: Command, _: Connection) -> Command:
        """Would this subscription work? A client asks before it starts, if it is not by tags."""
        subscription = None
        if request.body is not None:
            subscription = CheckClientRequestBody.decode(request.body).subscription_data
        if subscription is None or is_tag_type(subscription.expression_type):
            return request.response(ResponseCode.SUCCESS)
        if not self._config.enable_property_filter:
            raise RequestRefusedError(
                f"The broker does not support consumer to filter message by {subscription.expression_type[:80]}"
            )
        try:
            compile_subscription(subscription.expression_type, subscription.sub_string)
        except FilterError as error:
            raise RequestRefusedError(str(error), error.response_code) from error
        return request.response(ResponseCode.SUCCESS)

    def consumer_list(self, request: Command, _: Connection) -> Command:
        """The members of a group, who divide its queues among them.

        That there are none is an error and never an empty list: a client that is told so gives up its queues.
        """
        group = str(decode_fields(request.ext_fields, REQUEST_FIELDS[request.code])["consumerGroup"])
        found = self._clients.consumers.get(group)
        if found is None:
            raise RequestRefusedError(f"no consumer for this group, {group}")
        body = GetConsumerListByGroupResponseBody(found.client_ids()).encode()
        return request.response(ResponseCode.SUCCESS, body=body)


def _check_names(heartbeat: HeartbeatData) -> None:
    check_name("client id", heartbeat.client_id)
    for producer in heartbeat.producer_data_set:
        check_name("producer group", producer.group_name)
    for consumer in heartbeat.consumer_data_set:
        check_name("consumer group", consumer.group_name)
        for subscription in consumer.subscription_data_set:
            check_name("topic", subscription.topic)
