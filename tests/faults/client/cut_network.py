"""A network between clients and a server that can be cut, can swallow what it is given, and can be healed."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from typing import TYPE_CHECKING

from peers.ports import endpoint
from support.remoting_harness import HOST

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine

CHUNK = 65536


@dataclasses.dataclass(eq=False, slots=True)
class _Wire:
    """Both directions of one connection. What is lost on it once stays lost, as its bytes are counted."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    loses_requests: bool = False
    loses_answers: bool = False

    def abort(self) -> None:
        self.client.transport.abort()
        self.server.transport.abort()


class CutNetwork:
    """A relay to one server. ``address`` is where clients find it."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._wires: set[_Wire] = set()
        self._pumps: set[asyncio.Task[None]] = set()
        self._is_cut = False
        self._loses_requests = False
        self._loses_answers = False
        self.address = ""
        self.opened = 0
        """How many connections there have been."""
        self.lost_requests = 0
        self.lost_answers = 0
        """How often something was swallowed."""

    def cut(self) -> None:
        """All connections break, and no new one holds."""
        self._is_cut = True
        for wire in tuple(self._wires):
            wire.abort()

    def swallow(self, *, requests: bool = True, answers: bool = True) -> None:
        """Nothing comes through any more, and nobody is told. Connections that are made look well."""
        self._loses_requests, self._loses_answers = requests, answers
        for wire in self._wires:
            wire.loses_requests, wire.loses_answers = requests, answers

    def heal(self) -> None:
        """New connections work; those on which something may have been lost stay as they are."""
        self._is_cut = self._loses_requests = self._loses_answers = False

    @property
    def connections(self) -> int:
        return len(self._wires)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.opened += 1
        if self._is_cut:
            writer.transport.abort()
            return
        try:
            from_server, to_server = await asyncio.open_connection(*endpoint(self._server))
        except OSError:
            writer.transport.abort()
            return
        wire = _Wire(writer, to_server, self._loses_requests, self._loses_answers)
        self._wires.add(wire)
        self._cut_if_cut(wire)
        try:
            # Whichever side ends first ends the other.
            pumps = [self._start(self._requests(reader, wire)), self._start(self._answers(from_server, wire))]
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            wire.abort()
            self._wires.discard(wire)

    def _cut_if_cut(self, wire: _Wire) -> None:
        """The network may have been cut while the server was being connected."""
        if self._is_cut:
            wire.abort()

    def _start(self, pump: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(pump)
        self._pumps.add(task)
        task.add_done_callback(self._pumps.discard)
        return task

    async def _requests(self, reader: asyncio.StreamReader, wire: _Wire) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(CHUNK):
                if wire.loses_requests:
                    self.lost_requests += 1
                    continue
                wire.server.write(data)
                await wire.server.drain()

    async def _answers(self, reader: asyncio.StreamReader, wire: _Wire) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(CHUNK):
                if wire.loses_answers:
                    self.lost_answers += 1
                    continue
                wire.client.write(data)
                await wire.client.drain()

    async def _close(self) -> None:
        self.cut()
        while self._pumps:
            await asyncio.wait(tuple(self._pumps))


@contextlib.asynccontextmanager
async def network_to(server: str) -> AsyncIterator[CutNetwork]:
    """A network to a server, on a free port."""
    network = CutNetwork(server)
    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(network._accept(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    listener = await asyncio.start_server(accept, HOST, 0)
    network.address = f"{HOST}:{listener.sockets[0].getsockname()[1]}"
    try:
        yield network
    finally:
        listener.close()
        await network._close()
        if tasks:
            await asyncio.wait(tuple(tasks))
        await listener.wait_closed()
