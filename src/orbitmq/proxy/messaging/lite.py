"""SyncLiteSubscription: the lite topics of a consumer, which its broker keeps."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import orjson

from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command.command import Command
from orbitmq.proxy.clients.settings import LITE_CONSUMERS
from orbitmq.proxy.errors import StatusError, ok
from orbitmq.proxy.messages.validation import check_group, check_lite_topic, check_topic
from orbitmq.proxy.proto import definition_pb2 as pb
from orbitmq.proxy.proto import service_pb2 as rpc
from orbitmq.remoting import RemotingError

if TYPE_CHECKING:
    from orbitmq.proxy.clients.client import Client
    from orbitmq.proxy.context import CallContext
    from orbitmq.proxy.messaging.runtime import Runtime

log = logging.getLogger("orbitmq.proxy")

SECONDS = 2.0
MAX_TOPICS = 10_000
"""Lite topics of one call."""


class LiteCalls:
    """Lite subscriptions, which go to every broker of the parent topic. Brokers that keep no light queues refuse
    them with NOT_IMPLEMENTED."""

    def __init__(self, runtime: Runtime) -> None:
        self._config = runtime.config
        self._backend = runtime.backend
        self._leaving: set[asyncio.Task[None]] = set()
        runtime.clients.on_removed.append(self._removed)

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

    # Clients that end

    def _removed(self, client: Client) -> None:
        """Give up all lite topics of a client that is gone."""
        settings = client.settings
        if settings is None or settings.client_type not in LITE_CONSUMERS:
            return
        group = settings.subscription.group.name
        topics = [entry.topic.name for entry in settings.subscription.subscriptions]
        task = asyncio.get_running_loop().create_task(self._leave(client, group, topics))
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def _leave(self, client: Client, group: str, topics: list[str]) -> None:
        for topic in topics:
            entry = {"action": "COMPLETE_REMOVE", "clientId": client.client_id, "group": group, "topic": topic}
            body = orjson.dumps({"subscriptionSet": [entry]})
            try:
                route = await self._backend.route(topic)
                for name in {data.broker_name for data in route.queues}:
                    command = Command(RequestCode.LITE_SUBSCRIPTION_CTL, body=body)
                    # Its own connections are closed.
                    connection = await self._backend.connect(name, client.address)
                    if self._backend.sign is not None:
                        self._backend.sign(command)
                    try:
                        await connection.call(command, SECONDS)
                    finally:
                        connection.close()
            except (RemotingError, StatusError) as error:
                log.info("lite: the lite topics of %s are given up by their time-out: %s", client.client_id, error)

    async def stop(self) -> None:
        """Wait until the lite topics of clients that are gone are given up."""
        if self._leaving:
            await asyncio.wait(self._leaving)
