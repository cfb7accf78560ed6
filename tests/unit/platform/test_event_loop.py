"""A server that stops listening forgets no connection that it has accepted."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket

import pytest

from orbitmq.platform.event_loop import close_servers
from support.remoting_harness import HOST, PATIENCE, on_each_loop


class Refusing(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


async def is_ended(peer: socket.socket) -> bool:
    """Whether the other side closes the connection."""
    peer.setblocking(False)
    async with asyncio.timeout(PATIENCE):
        with contextlib.suppress(ConnectionResetError):
            return await asyncio.get_running_loop().sock_recv(peer, 1) == b""
    return True


@pytest.mark.parametrize("iterations", range(6))
@on_each_loop
async def test_a_connection_that_comes_while_the_server_closes_is_ended(iterations: int) -> None:
    server = await asyncio.get_running_loop().create_server(Refusing, HOST, 0)
    with socket.create_connection(server.sockets[0].getsockname()) as peer:
        for _ in range(iterations):  # so far asyncio gets with accepting it
            await asyncio.sleep(0)
        await close_servers(server)
        gc.collect()
        assert await is_ended(peer)


@on_each_loop
async def test_closing_twice_does_nothing() -> None:
    server = await asyncio.get_running_loop().create_server(Refusing, HOST, 0)
    await close_servers(server)
    await close_servers(server)
