"""Clients under load: what was acknowledged, what was consumed, and whether at-least-once holds between the two."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import itertools
import logging
import os
import sys
from typing import TYPE_CHECKING, Any

from faults.client.cut_network import CutNetwork, network_to
from orbitmq.client.errors import OrbitMQError
from orbitmq.client.message import Message, SendStatus
from orbitmq.client.push.consumer import Consumer
from orbitmq.protocol.bodies import TopicConfig
from support.cli.server_process import ServerProcess
from support.client.consumer_harness import GROUP, SHORT, TOPIC, Shop
from support.client.producer_harness import register, running_names
from support.remoting_harness import HOST, RawPeer, eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable
    from pathlib import Path

    from orbitmq.client.producer.producer import Producer

HERE = os.path.dirname(__file__)

log = logging.getLogger(__name__)


class Load:
    """Messages sent without end, no two alike, each tried once."""

    def __init__(self, producer: Producer, prefix: str = "") -> None:
        self.acknowledged: list[bytes] = []
        self.failed = 0
        self.unsafe = 0
        """Those that a broker took and said it had not saved yet, as one does that is just losing its power."""
        self._producer = producer
        self._bodies = (f"{prefix}{number}".encode() for number in itertools.count())
        self._is_stopping = False

    async def send_on(self) -> None:
        while not self._is_stopping:
            body = next(self._bodies)
            try:
                receipt = await self._producer.send(Message(TOPIC, body))
            except OrbitMQError:
                self.failed += 1
                await asyncio.sleep(0.002)  # a refused connection must not keep the loop busy
            else:
                if receipt.status is SendStatus.SEND_OK:
                    self.acknowledged.append(body)
                else:
                    self.unsafe += 1

    def stop(self) -> None:
        self._is_stopping = True

    async def grows(self, count: int = 50) -> None:
        """Wait until so many more are acknowledged."""
        wanted = len(self.acknowledged) + count
        await eventually(lambda: len(self.acknowledged) >= wanted)


@contextlib.asynccontextmanager
async def load(producer: Producer, senders: int = 4, prefix: str = "") -> AsyncIterator[Load]:
    """Load until the end of the block, by which all sends have come to their ends."""
    made = Load(producer, prefix)
    async with asyncio.TaskGroup() as tasks:
        for _ in range(senders):
            tasks.create_task(made.send_on())
        try:
            yield made
        finally:
            made.stop()


def check_at_least_once(acknowledged: Iterable[bytes], consumed: Iterable[bytes]) -> int:
    """None was lost. How many came more than once is logged, and returned."""
    sent, counts = set(acknowledged), collections.Counter(consumed)
    assert sent - counts.keys() == set()
    repeats = sum(count - 1 for count in counts.values())
    log.info("%d acknowledged, %d consumed, %d of them again", len(sent), counts.total(), repeats)
    return repeats


class Remote:
    """A shop whose broker is known to clients only by the address of a network."""

    def __init__(self, place: Shop, network: CutNetwork, name_server: str) -> None:
        self.place = place
        self.network = network
        self.name_server = name_server

    def consumer(self, handler: Callable[[Any], Any], **options: Any) -> Consumer:
        consumer = Consumer(self.name_server, group=GROUP, **{**SHORT, **options})
        consumer.on(TOPIC)(handler)
        return consumer

    @property
    def stored(self) -> list[bytes]:
        return [message.body for message in self.place.cluster.messages(TOPIC)]


@contextlib.asynccontextmanager
async def behind_network(place: Shop) -> AsyncIterator[Remote]:
    """The broker of a shop behind a network, and a name server that tells of it there."""
    topics = (TopicConfig(TOPIC, 4, 4), TopicConfig(f"%RETRY%{GROUP}", 1, 1))
    async with (
        network_to(place.cluster.address("broker-a")) as network,
        running_names() as names,
        RawPeer.connected(names._server) as link,
    ):
        await register(link, "broker-a", network.address, *topics)
        yield Remote(place, network, f"{HOST}:{names.port}")


@contextlib.asynccontextmanager
async def client_process(home: Path, script: str, *arguments: str) -> AsyncIterator[ServerProcess]:
    """A client as a process, which says what it has done in lines."""
    errors = home / f"errors-{len(os.listdir(home))}"
    with errors.open("w") as file:
        process = await asyncio.create_subprocess_exec(
            sys.executable, os.path.join(HERE, script), *arguments, stdout=asyncio.subprocess.PIPE, stderr=file
        )
    client = ServerProcess(process, errors)
    try:
        yield client
    finally:
        await client.clean_up()


def said(*clients: ServerProcess) -> list[bytes]:
    return [line.strip().encode() for client in clients for line in client.lines]
