"""Listeners for changes of a topic's queues."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from orbitmq.client.errors import OrbitMQError
from orbitmq.remoting import RemotingError

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.client.instance.instance import ClientInstance
    from orbitmq.protocol.bodies import MessageQueue

    Listener = Callable[[str, frozenset[MessageQueue]], object]

log = logging.getLogger("orbitmq.client")


class QueueListeners:
    """Listeners of one consumer, by topic, with the task that polls the routes."""

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._listeners: dict[str, Listener] = {}
        self._known: dict[str, frozenset[MessageQueue]] = {}

    def topics(self) -> list[str]:
        return list(self._listeners)

    def listen(self, topic: str, listener: Listener) -> None:
        """``listener`` is called with the topic and all its queues, from the second poll on."""
        self._listeners[topic] = listener

    async def watch(self, instance: ClientInstance) -> None:
        """Poll the routes until cancelled."""
        while True:
            for topic in self.topics():
                await self._poll(instance, topic)
            await asyncio.sleep(self._interval)

    async def _poll(self, instance: ClientInstance, topic: str) -> None:
        try:
            route = await instance.refresh(topic)
        except (OrbitMQError, RemotingError) as error:
            log.debug("route listener: no route of %s: %s", topic, error)
            return
        queues = frozenset(route.subscribe_queues)
        before = self._known.get(topic)
        self._known[topic] = queues
        if before is None or before == queues:
            return
        try:
            self._listeners[topic](topic, queues)
        except Exception:
            log.exception("route listener: callback for %s failed", topic)
