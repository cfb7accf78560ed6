"""Registration: brokers are sent the groups and subscriptions of a client as remoting heartbeats."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from orbitmq.filter import SQL92, TAG, FilterError, compile_subscription, subscription_data
from orbitmq.protocol.bodies import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    ProducerData,
)
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.errors import ProtocolError
from orbitmq.proxy.clients.settings import LITE_CONSUMERS
from orbitmq.proxy.errors import StatusError
from orbitmq.proxy.proto import definition_pb2 as pb
from orbitmq.remoting import RemotingError

if TYPE_CHECKING:
    from orbitmq.platform.clock import Clock
    from orbitmq.protocol.bodies import SubscriptionData
    from orbitmq.proxy.backend.base import Backend
    from orbitmq.proxy.clients.client import Client
    from orbitmq.proxy.config import GrpcConfig

log = logging.getLogger("orbitmq.proxy")

SECONDS = 3.0
"""Time for a heartbeat to one broker."""


class Registration:
    """Registers clients with brokers, and removes them."""

    def __init__(self, config: GrpcConfig, clock: Clock, backend: Backend) -> None:
        self._config = config
        self._clock = clock
        self._backend = backend

    def heartbeat_of(self, client: Client, settings: pb.Settings) -> HeartbeatData:
        """The heartbeat for these settings. Raises StatusError for a filter that does not compile."""
        data = HeartbeatData(client_id=client.client_id)
        if settings.WhichOneof("pub_sub") == "publishing":
            # A producer group is named after each topic: to it a broker sends transaction checks.
            data.producer_data_set = [
                ProducerData(name) for name in dict.fromkeys(topic.name for topic in settings.publishing.topics)
            ]
            return data
        version = self._clock.now_ms()
        is_lite = settings.client_type in LITE_CONSUMERS
        is_push = settings.client_type in {pb.PUSH_CONSUMER, pb.LITE_PUSH_CONSUMER}
        consumer = ConsumerData(
            group_name=settings.subscription.group.name,
            consume_type=ConsumeType.CONSUME_PASSIVELY if is_push else ConsumeType.CONSUME_ACTIVELY,
            message_model=MessageModel.LITE_SELECTIVE if is_lite else MessageModel.CLUSTERING,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
            subscription_data_set=[
                filter_data(entry.topic.name, entry.expression, version)
                for entry in settings.subscription.subscriptions
            ],
        )
        data.consumer_data_set = [consumer]
        return data

    async def register(self, client: Client) -> None:
        """Send a client's heartbeat to every broker that it needs. A broker that does not answer is left out."""
        data = client.registration
        if data is None:
            return
        for consumer in data.consumer_data_set:
            create = self._config.grpc_auto_create_consumer_group
            if await self._backend.group(consumer.group_name, create=create) is None:
                # A broker would create the group with the first heartbeat.
                return
        names = await self._brokers_of(client, data)
        body = data.encode()
        await asyncio.gather(*(self._send(client, name, body) for name in names))

    async def _brokers_of(self, client: Client, data: HeartbeatData) -> list[str]:
        """The brokers of the client's topics, and those it is connected to."""
        topics = [producer.group_name for producer in data.producer_data_set]
        topics += [entry.topic for consumer in data.consumer_data_set for entry in consumer.subscription_data_set]
        names = dict.fromkeys(client.connected_brokers)
        for topic in topics:
            try:
                route = await self._backend.route(topic)
            except (StatusError, RemotingError, ProtocolError):
                continue
            names.update(dict.fromkeys(queue.broker_name for queue in route.queues))
        return list(names)

    async def _send(self, client: Client, broker_name: str, body: bytes) -> None:
        try:
            await client.checked_call(broker_name, Command(RequestCode.HEART_BEAT, body=body), SECONDS)
        except (RemotingError, StatusError) as error:
            log.warning("clients: heartbeat of %s to %s failed: %s", client.client_id, broker_name, error)


def filter_data(topic: str, expression: pb.FilterExpression, version: int) -> SubscriptionData:
    """A filter expression as brokers take it. Raises StatusError."""
    kind = SQL92 if expression.type == pb.SQL else TAG
    try:
        data = subscription_data(topic, kind, expression.expression or ("*" if kind == TAG else ""), version)
        compile_subscription(data.expression_type, data.sub_string)
    except FilterError as error:
        raise StatusError(pb.ILLEGAL_FILTER_EXPRESSION, f"filter of {topic}: {error}") from None
    return data
