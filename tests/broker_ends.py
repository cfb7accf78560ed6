"""A real broker in the test process, and peers that say exactly what a test wants and hear everything."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import struct
from typing import TYPE_CHECKING, Any

from nameserver_ends import as_text
from orbitmq.broker.server import VIP_DISTANCE, Broker
from orbitmq.broker.settings import load_settings
from orbitmq.protocol.command import Command
from orbitmq.testing import ManualClock, MemoryDisk
from remoting_ends import HOST, PATIENCE, RawPeer, decoded

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from orbitmq.store.disk import Disk

T0 = 1_700_000_000_000
ROOT = "/messages"
SMALL = {"mappedFileSizeCommitLog": 1 << 21, "mappedFileSizeConsumeQueue": 20_000, "maxIndexNum": 10_000}
"""Files that a virtual disk makes without much memory."""

_opaques = itertools.count(1)


@contextlib.asynccontextmanager
async def running_broker(
    disk: Disk | None = None, clock: ManualClock | None = None, *, store_port: int | None = None, **settings: object
) -> AsyncIterator[Broker]:
    """A broker on free ports, on a virtual disk with a standing clock unless told otherwise.

    ``settings`` have Java's keys. ``store_port`` is the port that its records and message ids show, if that is not
    the one it listens on.
    """
    disk = disk or MemoryDisk()
    texts = as_text(
        {
            "brokerName": "broker-a",
            "brokerIP1": HOST,
            "brokerIP2": HOST,
            "bindAddress": HOST,
            "storePathRootDir": ROOT,
            **SMALL,
            **settings,
        }
    )
    loaded, _ = load_settings(disk, None, texts)
    loaded.set_listen_port(free_port_pair())
    if store_port is not None:
        loaded.store.listen_port = store_port
    broker = Broker(loaded, disk=disk, clock=clock or ManualClock(T0))
    await broker.start()
    try:
        yield broker
    finally:
        await broker.stop()


def free_port_pair() -> int:
    """A port that is free together with the one of VIPs below it."""
    while True:
        with contextlib.ExitStack() as sockets, contextlib.suppress(OSError):
            port: int = sockets.enter_context(socket.create_server((HOST, 0))).getsockname()[1]
            sockets.enter_context(socket.create_server((HOST, port - VIP_DISTANCE)))
            return port


class BrokerPeer(RawPeer):
    """A client of a broker. Answers are kept until somebody wants them, and so are the broker's own requests."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        super().__init__(reader, writer)
        self.answers: dict[int, Command] = {}
        """What was answered and not yet asked for, by opaque."""
        self.requests: list[Command] = []
        """What the broker asked or told."""
        self.replied: set[int] = set()
        """Which of them, by opaque, were answered; this is kept by whoever answers."""
        self._heard = asyncio.Event()
        self._listening = asyncio.create_task(self._listen())

    @classmethod
    @contextlib.asynccontextmanager
    async def of(cls, broker: Broker, *, vip: bool = False) -> AsyncIterator[BrokerPeer]:
        """A peer, which leaves at the end."""
        peer = await cls.to(broker, vip=vip)
        try:
            yield peer
        finally:
            await peer.leave()

    @classmethod
    async def to(cls, broker: Broker, *, vip: bool = False) -> BrokerPeer:
        """A peer, which has to be told to leave."""
        port = broker.vip_port if vip else broker.port
        return cls(*await asyncio.open_connection(HOST, port, limit=1 << 26))

    async def asks(self, code: int, body: bytes | None = None, /, **fields: object) -> Command:
        """The answer to a request of these parts; fields that are None are left out."""
        opaque = next(_opaques)
        self.send(Command(code, opaque, ext_fields=as_text(fields), body=body).encode())
        return await self.answer_to(opaque)

    async def answer_to(self, opaque: int, patience: float = PATIENCE) -> Command:
        """The answer to a request that was sent. Raises TimeoutError."""
        await self.has_answer_to(opaque, patience)
        return self.answers.pop(opaque)

    async def has_answer_to(self, opaque: int, patience: float = PATIENCE) -> None:
        """Wait for an answer, and leave it to whoever wants it. Raises TimeoutError."""
        async with asyncio.timeout(patience):
            while opaque not in self.answers:
                self._heard.clear()
                await self._heard.wait()

    async def leave(self) -> None:
        self._listening.cancel()
        await asyncio.gather(self._listening, return_exceptions=True)
        await super().leave()

    async def _listen(self) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                prefix = await self.reader.readexactly(4)
                (length,) = struct.unpack(">i", prefix)
                (command,) = decoded(prefix + await self.reader.readexactly(length))
                if command.is_response:
                    self.answers[command.opaque] = command
                else:
                    self.requests.append(command)
                self._heard.set()


