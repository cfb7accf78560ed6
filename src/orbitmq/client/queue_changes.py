"""Tells those who want to know when a topic has got more queues, or fewer."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from orbitmq.client.errors import OrbitMQError
from orbitmq.remoting import RemotingError

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.client.instance import ClientInstance
    from orbitmq.protocol.bodies import MessageQueue

    Listener = Callable[[str, frozenset[MessageQueue]], object]

log = logging.getLogger("orbitmq.client")


class QueueChanges:
    """The listeners of one consumer, by topic."""

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._listeners: dict[str, Listener] = {}
        self._known: dict[str, frozenset[MessageQueue]] = {}

    def topics(self) -> list[str]:
        return list(self._listeners)

    def listen(self, topic: str, listener: Listener) -> None:
        """``listener`` is called with the topic and all its queues; the first look only remembers them."""
        self._listeners[topic] = listener

    async def watch(self, instance: ClientInstance) -> None:
        """Look at intervals until cancelled."""
        while True:
            for topic in self.topics():
                await self._look(instance, topic)
            await asyncio.sleep(self._interval)

    async def _look(self, instance: ClientInstance, topic: str) -> None:
        try:
            route = await instance.refresh(topic)
        except (OrbitMQError, RemotingError) as error:
            log.debug("the queues of %s are not known now: %s", topic, error)
            return
        queues = frozenset(route.subscribe_queues)
        before = self._known.get(topic)
        self._known[topic] = queues
        if before is None or before == queues:
            return
        try:
            self._listeners[topic](topic, queues)
        except Exception:
            log.exception("the listener for the queues of %s failed", topic)
