"""Tests of clusters: what must not be left behind, and members of groups that say how far they are."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
import threading
from typing import TYPE_CHECKING

from orbitmq.protocol.bodies import GetConsumerStatusBody, MessageQueue
from orbitmq.protocol.codes import RequestCode, ResponseCode
from support.broker.client_registry_harness import consumer, heartbeat, subscription
from support.broker.requests import CONSUMERS, TOPIC, Talker, talking_at
from support.remoting_harness import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from orbitmq.protocol.bodies import MessageModel, SubscriptionData


def open_sockets() -> set[str]:
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            target = os.readlink(f"/proc/self/fd/{name}")
            if target.startswith("socket:"):
                found.add(target)
    return found


def cluster_folders() -> set[str]:
    return {name for name in os.listdir(tempfile.gettempdir()) if name.startswith(f"orbitmq-{os.getpid()}-")}


@contextlib.contextmanager
def nothing_left() -> Iterator[None]:
    """No thread, socket or temporary folder more at the end than before."""
    threads, sockets, folders = set(threading.enumerate()), open_sockets(), cluster_folders()
    yield
    assert set(threading.enumerate()) <= threads
    assert open_sockets() <= sockets
    assert cluster_folders() <= folders


@contextlib.asynccontextmanager
async def nothing_left_on_loop() -> AsyncIterator[None]:
    """The same, and no task or timer on this loop either."""
    loop = asyncio.get_running_loop()
    tasks, timers = asyncio.all_tasks(), _timers(loop)
    with nothing_left():
        yield
        # Transports close in a turn of their own.
        await eventually(lambda: asyncio.all_tasks() <= tasks)
        await asyncio.sleep(0)
    assert _timers(loop) <= timers


def _timers(loop: asyncio.AbstractEventLoop) -> set[str]:
    """What waits for its time, as far as the loop tells: asyncio's does, uvloop does not."""
    return {str(timer) for timer in getattr(loop, "_scheduled", ()) if not timer.cancelled()}


class Member:
    """A consumer that answers the broker's question how far it is (221)."""

    def __init__(self, client: Talker) -> None:
        self.client = client
        self.offsets: dict[MessageQueue, int] = {}
        self._answering = asyncio.create_task(self._answer())

    async def _answer(self) -> None:
        while True:
            asked = await self.client.asked(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT)
            topic = asked.ext_fields["topic"]
            table = {queue: offset for queue, offset in self.offsets.items() if queue.topic == topic}
            body = GetConsumerStatusBody(table).encode()
            self.client.send(asked.response(ResponseCode.SUCCESS, body=body).encode())

    def consumed(self, offset: int, queue_id: int = 0, broker: str = "broker-a") -> None:
        self.offsets[MessageQueue(TOPIC, broker, queue_id)] = offset

    async def leave(self) -> None:
        self._answering.cancel()
        await asyncio.gather(self._answering, return_exceptions=True)


@contextlib.asynccontextmanager
async def member_of(
    address: str,
    *said: SubscriptionData,
    group: str = CONSUMERS,
    client_id: str = "client@1",
    model: MessageModel | None = None,
) -> AsyncIterator[Member]:
    """A member of a group at a broker, subscribed to everything of the test's topic unless said otherwise."""
    async with talking_at(address) as client:
        more = {} if model is None else {"message_model": model}
        data = consumer(group, *(said or (subscription(TOPIC),)), **more)
        answer = await client.asks(RequestCode.HEART_BEAT, heartbeat(client_id, data).encode())
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        member = Member(client)
        try:
            yield member
        finally:
            await member.leave()
