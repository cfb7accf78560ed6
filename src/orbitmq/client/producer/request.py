"""Request side of request-reply: registers where replies may come from, sends, and waits."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from orbitmq.client.errors import NoRouteError, SendError, SendTimeoutError
from orbitmq.client.producer.request_reply import await_reply, make_request
from orbitmq.protocol.names import REPLY_TOPIC_POSTFIX

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from orbitmq.client.instance.instance import ClientInstance
    from orbitmq.client.message import Message, ReceivedMessage
    from orbitmq.client.producer.send import Sender

log = logging.getLogger("orbitmq.client")


class RequestSender:
    """Sends the requests of one producer."""

    def __init__(self, instance: ClientInstance, sender: Sender) -> None:
        self._instance = instance
        self._sender = sender
        self._requested_topics: set[str] = set()
        """Topics that requests were sent to."""
        self.reply_topics: set[str] = set()
        """Reply topics: their brokers need heartbeats of this client to deliver replies."""

    async def request(
        self, message: Message, seconds: float, send: Callable[[Message, float], Awaitable[object]]
    ) -> ReceivedMessage:
        """Send a request with ``send`` and return its reply, within ``seconds``. Raises what ``send`` raises."""
        instance, time = self._instance, self._sender.time
        deadline = time() + seconds
        await self._register(message.topic, deadline)
        request = make_request(message, instance.client_id, seconds, instance.random)
        reply = instance.replies.expect(request)
        try:
            await send(request, deadline - time())
            return await await_reply(reply, message.topic, deadline - time(), seconds)
        except SendError:
            if reply.done():
                # The request arrived although its send was not confirmed.
                return reply.result()
            raise
        finally:
            instance.replies.forget(request)

    async def _register(self, topic: str, deadline: float) -> None:
        """Register at all brokers that may deliver replies, before the first request to a topic."""
        if topic in self._requested_topics:
            return
        try:
            async with asyncio.timeout_at(deadline):
                found = await self._sender.find(topic, deadline)
                for cluster in {broker.cluster for broker in found.route.data.broker_datas}:
                    await self._find_replies(f"{cluster}{REPLY_TOPIC_POSTFIX}")
                await self._instance.heartbeat_all()
        except TimeoutError:
            raise SendTimeoutError(f"no response in time; the request to {topic!r} was not sent") from None
        self._requested_topics.add(topic)

    async def _find_replies(self, topic: str) -> None:
        try:
            await self._instance.refresh(topic)
        except NoRouteError:
            log.warning("request-reply: replies may not arrive, no broker has the topic %s", topic)
        else:
            self.reply_topics.add(topic)
