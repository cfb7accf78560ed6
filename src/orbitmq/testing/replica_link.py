"""Replica link: the HA connection between a slave and its master in a local cluster; a test can cut or stall it."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from orbitmq.platform.event_loop import close_servers

if TYPE_CHECKING:
    from collections.abc import Callable

HOST = "127.0.0.1"
CHUNK = 1 << 16


class ReplicaLink:
    """Forwards connections to the HA listener of a master. The port stays the same from start to close."""

    def __init__(self, target: Callable[[], int]) -> None:
        """``target`` is the port of the listener now; 0 while there is none."""
        self._target = target
        self._server: asyncio.Server | None = None
        self._pairs: set[asyncio.Task[None]] = set()
        self._flows = asyncio.Event()
        self._flows.set()
        self.is_cut = False

    @property
    def address(self) -> str:
        assert self._server is not None, "not started"
        return f"{HOST}:{self._server.sockets[0].getsockname()[1]}"

    async def start(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(self._accept, HOST, 0)

    async def close(self) -> None:
        if self._server is not None:
            await close_servers(self._server)
        self.cut()
        await asyncio.gather(*self._pairs, return_exceptions=True)

    def cut(self) -> None:
        """End all connections and refuse new ones."""
        self.is_cut = True
        for pair in self._pairs:
            pair.cancel()

    def stall(self) -> None:
        """Keep connections open but let nothing through."""
        self._flows.clear()

    def heal(self) -> None:
        self.is_cut = False
        self._flows.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        port = self._target()
        task = asyncio.current_task()
        if self.is_cut or not port or task is None:
            writer.transport.abort()
            return
        self._pairs.add(task)
        task.add_done_callback(self._pairs.discard)
        writers = [writer]
        try:
            there, back = await asyncio.open_connection(HOST, port)
            writers.append(back)
            ways = [asyncio.create_task(self._forward(*way)) for way in ((reader, back), (there, writer))]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            for one in writers:
                one.transport.abort()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while True:
                await self._flows.wait()
                data = await reader.read(CHUNK)
                if not data:
                    return
                await self._flows.wait()
                writer.write(data)
                await writer.drain()
