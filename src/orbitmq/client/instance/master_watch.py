"""MasterWatch: looks for another master while one does not answer.

A master that hangs keeps its connections open, so that requests wait for their timeout, while another broker has
taken over long before. From the first timeout on the routes are looked up often; when they name another address,
the connections to the old one are broken, and what waits there is sent again at once.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from orbitmq.client.errors import OrbitMQError
from orbitmq.client.instance.routes import MASTER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orbitmq.client.instance.instance import ClientInstance

LOOK_SECONDS = 0.25
"""Between two look-ups; the wait grows a little with every one."""

GROWTH = 1.1

WATCH_SECONDS = 30.0
"""Afterwards the ordinary look-ups of routes go on alone, which come as often."""


class MasterWatch:
    """The watches of one client, by the address that does not answer."""

    def __init__(self, instance: ClientInstance) -> None:
        self._instance = instance
        self._loop = asyncio.get_running_loop()
        self._watches: dict[str, asyncio.Task[None]] = {}

    def begin(self, address: str) -> None:
        """A call to this address, as connections are opened to, was not answered in time."""
        if address in self._watches or next(self._topics(address), None) is None:
            return
        task = self._watches[address] = self._loop.create_task(self._watch(address))
        task.add_done_callback(lambda _: self._watches.pop(address, None))

    def end(self, address: str) -> None:
        """It answers."""
        task = self._watches.get(address)
        if task is not None:
            task.cancel()

    async def close(self) -> None:
        tasks = tuple(self._watches.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch(self, address: str) -> None:
        until, pause = self._loop.time() + WATCH_SECONDS, LOOK_SECONDS
        while self._loop.time() < until:
            topic = next(self._topics(address), None)
            if topic is None:
                self._leave(address)
                return
            with contextlib.suppress(OrbitMQError):
                await self._instance.refresh(topic)
                if not self._has(topic, address):
                    # Others have the same master: their routes are old too.
                    continue
            await asyncio.sleep(pause)
            pause *= GROWTH

    def _leave(self, address: str) -> None:
        for connection in self._instance.client.connections:
            if connection.remote_address == address:
                connection.abort()

    def _topics(self, address: str) -> Iterator[str]:
        """Topics whose route has a master at this address."""
        return (topic for topic in tuple(self._instance.routes) if self._has(topic, address))

    def _has(self, topic: str, address: str) -> bool:
        route = self._instance.routes.get(topic)
        if route is None:
            return False
        masters = (replicas.get(MASTER) for replicas in route.addresses.values())
        return any(one is not None and self._instance.send_address(one) == address for one in masters)
