"""A producer that asks: it makes itself known where replies may come from, sends, and waits."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from orbitmq.client.errors import NoRouteError, SendError, SendTimeoutError
from orbitmq.client.request_reply import await_reply, make_request
from orbitmq.protocol.names import REPLY_TOPIC_POSTFIX

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from orbitmq.client.instance import ClientInstance
    from orbitmq.client.messages import Message, ReceivedMessage
    from orbitmq.client.sending import Sender

log = logging.getLogger("orbitmq.client")


class Requesting:
    """The requests of one producer."""

    def __init__(self, instance: ClientInstance, sender: Sender) -> None:
        self._instance = instance
        self._sender = sender
        self._asked: set[str] = set()
        """The topics that requests were sent to."""
        self.reply_topics: set[str] = set()
        """Those over which replies come: their brokers have to know this client."""

    async def ask(
        self, message: Message, seconds: float, send: Callable[[Message, float], Awaitable[object]]
    ) -> ReceivedMessage:
        """The reply to a message, which is sent by ``send`` in so many seconds. Raises what that raises."""
        instance, time = self._instance, self._sender.time
        deadline = time() + seconds
        await self._make_known(message.topic, deadline)
        request = make_request(message, instance.client_id, seconds)
        reply = instance.replies.expect(request)
        try:
            await send(request, deadline - time())
            return await await_reply(reply, message.topic, deadline - time(), seconds)
        except SendError:
            if reply.done():
                # What was not confirmed has got there after all.
                return reply.result()
            raise
        finally:
            instance.replies.forget(request)

    async def _make_known(self, topic: str, deadline: float) -> None:
        """Let all brokers know this client that a reply may come from, before the first request to a topic."""
        if topic in self._asked:
            return
        try:
            async with asyncio.timeout_at(deadline):
                found = await self._sender.find(topic, deadline)
                for cluster in {broker.cluster for broker in found.route.data.broker_datas}:
                    await self._find_replies(f"{cluster}{REPLY_TOPIC_POSTFIX}")
                await self._instance.heartbeat_all()
        except TimeoutError:
            raise SendTimeoutError(f"nobody answered in time; the request to {topic!r} was not sent") from None
        self._asked.add(topic)

    async def _find_replies(self, topic: str) -> None:
        try:
            await self._instance.refresh(topic)
        except NoRouteError:
            log.warning("replies may not arrive: no broker has the topic %s", topic)
        else:
            self.reply_topics.add(topic)
