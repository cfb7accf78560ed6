"""SyncLiteSubscription: the lite topics of a consumer, which its broker keeps."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import orjson

from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command.command import Command
from orbitmq.proxy.errors import StatusError, ok
from orbitmq.proxy.messages.validation import check_group, check_lite_topic, check_topic
from orbitmq.proxy.proto import definition_pb2 as pb
from orbitmq.proxy.proto import service_pb2 as rpc

if TYPE_CHECKING:
    from orbitmq.proxy.clients.client import Client
    from orbitmq.proxy.context import CallContext
    from orbitmq.proxy.messaging.runtime import Runtime

SECONDS = 2.0
MAX_TOPICS = 10_000
"""Lite topics of one call."""


class LiteCalls:
    """Lite subscriptions, which go to every broker of the parent topic.

    OrbitMQ's brokers have no lite topics yet, so with them the answer is NOT_IMPLEMENTED.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._config = runtime.config
        self._backend = runtime.backend

    async def sync_lite_subscription(
        self, request: rpc.SyncLiteSubscriptionRequest, client: Client, _call: CallContext
    ) -> rpc.SyncLiteSubscriptionResponse:
        topic, group = check_topic(request.topic), check_group(request.group)
        if len(request.lite_topic_set) > MAX_TOPICS:
            raise StatusError(pb.BAD_REQUEST, f"at most {MAX_TOPICS} lite topics can be named at once")
        if request.action == pb.PARTIAL_ADD:
            for name in request.lite_topic_set:
                check_lite_topic(name, self._config)
        entry = {
            "action": pb.LiteSubscriptionAction.Name(request.action),
            "clientId": client.client_id,
            "group": group,
            "topic": topic,
            "liteTopicSet": list(request.lite_topic_set),
            "version": request.version,
        }
        option = request.offset_option.WhichOneof("offset_type")
        if option is not None:
            entry["offsetOption"] = {"type": option.upper(), "value": int(getattr(request.offset_option, option))}
        body = orjson.dumps({"subscriptionSet": [entry]})
        route = await self._backend.route(topic)
        names = {data.broker_name for data in route.queues}
        await asyncio.gather(
            *(
                client.checked_call(name, Command(RequestCode.LITE_SUBSCRIPTION_CTL, body=body), SECONDS)
                for name in names
            )
        )
        return rpc.SyncLiteSubscriptionResponse(status=ok())
