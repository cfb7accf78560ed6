"""A real broker in the test process, and peers that say exactly what a test wants and hear everything."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import struct
from typing import TYPE_CHECKING, Self

from orbitmq.broker.broker import VIP_DISTANCE, Broker
from orbitmq.broker.config.loader import load_settings
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.command.command import Command
from orbitmq.remoting import ListenError
from orbitmq.testing import ManualClock, MemoryDisk
from support.nameserver_harness import as_text
from support.remoting_harness import HOST, PATIENCE, RawPeer, decoded

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from orbitmq.auth.access import AccessControl
    from orbitmq.platform.disk import Disk

T0 = 1_700_000_000_000
ROOT = "/messages"
SMALL = {"mappedFileSizeCommitLog": 1 << 21, "mappedFileSizeConsumeQueue": 20_000, "maxIndexNum": 10_000}
"""Files that a virtual disk makes without much memory."""

PATIENT = {"osPageCacheBusyTimeOutMills": 60_000, "waitTimeMillsInSendQueue": 60_000}
"""On a busy machine the loop stands still at times, and sends would be refused."""

UNKNOWN_CODE = 7_654_321
"""A request code without a handler."""

_opaques = itertools.count(1 << 30)
"""Far from those of captured requests, which are sent over the same connections."""


@contextlib.asynccontextmanager
async def running_broker(
    disk: Disk | None = None,
    clock: ManualClock | None = None,
    *,
    store_port: int | None = None,
    access: AccessControl | None = None,
    **settings: object,
) -> AsyncIterator[Broker]:
    """A broker on free ports, on a virtual disk, by default with a standing clock.

    ``settings`` have Java's keys. ``store_port`` is the port that its records and message ids show, if that is not
    the one it listens on. ``access`` is shared with another server.
    """
    disk = disk or MemoryDisk()
    texts = as_text(
        {
            "brokerName": "broker-a",
            "brokerIP1": HOST,
            "brokerIP2": HOST,
            "bindAddress": HOST,
            "storePathRootDir": ROOT,
            **PATIENT,
            **SMALL,
            **settings,
        }
    )
    broker = await _started(texts, disk, clock or ManualClock(T0), store_port, access)
    try:
        yield broker
    finally:
        await broker.stop()


async def _started(
    texts: dict[str, str],
    disk: Disk,
    clock: ManualClock,
    store_port: int | None,
    access: AccessControl | None,
    attempts: int = 10,
) -> Broker:
    settings, _ = load_settings(disk, None, texts)
    settings.set_listen_port(free_port_pair())
    if store_port is not None:
        settings.store.listen_port = store_port
    broker = Broker(settings, disk=disk, clock=clock, access=access)
    try:
        await broker.start()
    except ListenError:
        # Another process of this machine took one of the ports first.
        if attempts == 1:
            raise
        return await _started(texts, disk, clock, store_port, access, attempts - 1)
    return broker


def free_port_pair() -> int:
    """A port that is free together with the one of VIPs below it and the one of slaves above it."""
    while True:
        with contextlib.ExitStack() as sockets, contextlib.suppress(OSError):
            port: int = sockets.enter_context(socket.create_server((HOST, 0))).getsockname()[1]
            sockets.enter_context(socket.create_server((HOST, port - VIP_DISTANCE)))
            sockets.enter_context(socket.create_server((HOST, port + 1)))
            return port


class BrokerPeer(RawPeer):
    """A client of a broker. Answers and the broker's own requests are kept until the test fetches them."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        super().__init__(reader, writer)
        self.answers: dict[int, Command] = {}
        """Answers that were not fetched yet, by opaque."""
        self.requests: list[Command] = []
        """The requests of the broker."""
        self._given_out: set[int] = set()
        self._received = asyncio.Event()
        self._listening = asyncio.create_task(self._listen())

    @classmethod
    @contextlib.asynccontextmanager
    async def of(cls, broker: Broker, *, vip: bool = False) -> AsyncIterator[Self]:
        """A peer, which leaves at the end."""
        peer = await cls.to(broker, vip=vip)
        try:
            yield peer
        finally:
            await peer.leave()

    @classmethod
    async def to(cls, broker: Broker, *, vip: bool = False) -> Self:
        """A peer, which the test has to close."""
        port = broker.vip_port if vip else broker.port
        return cls(*await asyncio.open_connection(HOST, port, limit=1 << 26))

    async def asks(self, code: int, body: bytes | None = None, /, **fields: object) -> Command:
        """The answer to a request of these parts; fields that are None are left out."""
        opaque = next(_opaques)
        self.send(Command(code, opaque, ext_fields=as_text(fields), body=body).encode())
        return await self.answer_to(opaque)

    async def answer_to(self, opaque: int) -> Command:
        """The answer to a request that was sent. Raises TimeoutError."""
        while opaque not in self.answers:
            await self._hear()
        return self.answers.pop(opaque)

    async def catch_up(self) -> None:
        """Wait until the broker has looked at all that was sent, and what it answered at once is here.

        This request has no handler, so it changes nothing.
        """
        answer = await self.asks(UNKNOWN_CODE)
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED

    async def asked(self, code: int) -> Command:
        """The next request of the broker to this client with this code."""
        while True:
            for request in self.requests:
                if request.code == code and request.opaque not in self._given_out:
                    self._given_out.add(request.opaque)
                    return request
            await self._hear()

    async def leave(self) -> None:
        self._listening.cancel()
        await asyncio.gather(self._listening, return_exceptions=True)
        await super().leave()

    async def _hear(self) -> None:
        """Wait for one more command."""
        self._received.clear()
        async with asyncio.timeout(PATIENCE):
            await self._received.wait()

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
                self._received.set()
