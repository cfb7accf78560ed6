"""A network between processes of one machine, of which each direction of each pair can be cut.

Servers listen on ``HOST`` and announce ``ANNOUNCED``, another loopback address, where a relay takes the connections
on the same port. Which process has opened a connection is read from Linux' tables of sockets. Bytes of a cut
direction are delivered when it is healed, as TCP delivers them; a connection opened across a cut is then reset.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Self

from support.remoting_harness import HOST

if TYPE_CHECKING:
    from collections.abc import Iterable

ANNOUNCED = "127.0.0.2"
CLIENTS = "clients"
"""Name of all processes that are not named otherwise."""

NAME_SERVER = "name server"
CONTROLLER = "controller"

CHUNK = 65536


class ProcessNetwork:
    """Relays, and the directions that are cut. A direction is a pair of names: who sends, who receives."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}
        self._is_open: dict[tuple[str, str], asyncio.Event] = {}
        self._servers: dict[int, asyncio.Server] = {}
        """By port."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for server in self._servers.values():
            server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def name(self, pid: int, name: str) -> None:
        """Give a process its name, before it connects to anything."""
        self._names[pid] = name

    async def relay(self, name: str, port: int) -> None:
        """Take connections to this port of the process with this name, from now on."""
        if port in self._servers:
            return

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._tasks.add(task)
            try:
                await self._serve(name, port, reader, writer)
            except asyncio.CancelledError:
                pass  # The network ends; asyncio would log it as an error of the callback.
            finally:
                writer.transport.abort()
                self._tasks.discard(task)

        self._servers[port] = await asyncio.start_server(accept, ANNOUNCED, port)

    def cut(self, directions: Iterable[tuple[str, str]]) -> None:
        """Let nothing pass in these directions until ``heal``."""
        for source, target in directions:
            self._gate(source, target).clear()

    def heal(self) -> None:
        for gate in self._is_open.values():
            gate.set()

    def _gate(self, source: str, target: str) -> asyncio.Event:
        gate = self._is_open.get((source, target))
        if gate is None:
            gate = self._is_open[source, target] = asyncio.Event()
            gate.set()
        return gate

    async def _serve(
        self, target: str, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        source = self._opened_by(writer.get_extra_info("peername")[1], port)
        there, back = self._gate(source, target), self._gate(target, source)
        if not (there.is_set() and back.is_set()):
            await there.wait()
            await back.wait()
            return
        try:
            from_server, to_server = await asyncio.open_connection(HOST, port)
        except OSError:
            return
        ways = (reader, to_server, there), (from_server, writer, back)
        pumps = [asyncio.create_task(_pump(*way)) for way in ways]
        try:
            # Whichever side ends first ends the other.
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            to_server.transport.abort()

    def _opened_by(self, client_port: int, port: int) -> str:
        inode = _inode(client_port, port)
        if inode:
            for pid, name in self._names.items():
                if inode in _sockets(pid):
                    return name
        return CLIENTS


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_open: asyncio.Event) -> None:
    with contextlib.suppress(ConnectionError):
        while True:
            data = await reader.read(CHUNK)
            await is_open.wait()
            if not data:
                break
            writer.write(data)
            await writer.drain()
    # The end follows what was written before.
    with contextlib.suppress(OSError):
        writer.close()


def _inode(client_port: int, port: int) -> str:
    """The socket of a client that is connected to a relay; empty if there is none any more."""
    wanted = f"{socket.inet_aton(ANNOUNCED)[::-1].hex().upper()}:{port:04X}"
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[2] == wanted and fields[1].endswith(f":{client_port:04X}"):
            return fields[9]
    return ""


def _sockets(pid: int) -> set[str]:
    """The sockets of a process."""
    folder = f"/proc/{pid}/fd"
    found = set()
    with contextlib.suppress(OSError):
        for descriptor in os.listdir(folder):
            with contextlib.suppress(OSError):
                found.add(os.readlink(f"{folder}/{descriptor}").removeprefix("socket:[").removesuffix("]"))
    return found
