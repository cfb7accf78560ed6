"""Faulty clients of a broker process: killed, stalled, very many, malformed; other clients are served meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import socket
import sys
from typing import TYPE_CHECKING

import pytest

from orbitmq.protocol.command.command import Command
from peers.ports import endpoint
from support.broker.requests import Talker, bodies, pull_request, send_request, talking_at
from support.cli.server_process import SMALL_FILES, ServerProcess, orbitmq, soon
from support.remoting_harness import HOST, PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

MEGABYTE = 1 << 20
IDLE = 10_000
SPARE_FILES = 500
"""File descriptors of a process without connections."""
FLOOD = 1_000_000
UNKNOWN = 9999


@contextlib.asynccontextmanager
async def broker_process(home: Path, *lines: str) -> AsyncIterator[tuple[ServerProcess, str]]:
    """A broker in its own process, and its address."""
    conf = home / "broker.conf"
    conf.write_text(SMALL_FILES + "\n".join((f"bindAddress={HOST}", "listenPort=0", *lines)) + "\n")
    async with orbitmq(home, "broker", "-c", conf) as server:
        yield server, await server.says(r"listens on (\S+),")
        assert await server.stopped() == 0
        assert "Traceback" not in server.errors


async def serves(client: Talker) -> None:
    """Send a message and pull it."""
    answer = await client.stores(b"served")
    offset = int(answer.ext_fields["queueOffset"])
    assert bodies(await client.pulls(offset, most=1)) == [b"served"]


async def served_while(address: str, task: asyncio.Task[object]) -> int:
    """Number of round trips of another client until a task is done."""
    times = 0
    async with talking_at(address) as client:
        while not task.done():
            await serves(client)
            times += 1
    return times


def open_sockets(pid: int) -> int:
    count = 0
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            count += os.readlink(f"/proc/{pid}/fd/{name}").startswith("socket:")
    return count


async def test_a_client_killed_in_the_middle_of_a_frame_is_removed_without_side_effects(tmp_path: Path) -> None:
    program = "import socket; s = socket.create_connection((%r, %d)); s.sendall(bytes.fromhex(%r)); input()"
    half = send_request(b"whole").encode() + send_request(bytes(1000)).encode()[:-500]
    async with broker_process(tmp_path) as (server, address), talking_at(address) as client:
        await client.stores(b"before")
        before = open_sockets(server.pid)
        killed = await asyncio.create_subprocess_exec(
            sys.executable, "-c", program % (*endpoint(address), half.hex()), stdin=asyncio.subprocess.PIPE
        )
        await soon(lambda: open_sockets(server.pid) > before)
        assert bodies(await client.pulls(1, hold_ms=1000 * PATIENCE)) == [b"whole"]
        killed.kill()
        await killed.wait()
        await soon(lambda: open_sockets(server.pid) == before)

        assert bodies(await client.pulls()) == [b"before", b"whole"]
        await serves(client)


async def test_a_client_that_does_not_read_delays_no_other_and_uses_little_memory(tmp_path: Path) -> None:
    async with broker_process(tmp_path) as (server, address), talking_at(address) as client:
        for _ in range(8):
            await client.stores(bytes(MEGABYTE // 4))
        before = server.memory
        with socket.socket() as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf.connect(endpoint(address))
            deaf.setblocking(False)
            # All responses together would take half a gigabyte.
            pulls = b"".join(pull_request(number % 8).encode() for number in range(2000))
            sending = asyncio.create_task(asyncio.get_running_loop().sock_sendall(deaf, pulls))
            for _ in range(200):
                await serves(client)
            used = server.memory - before
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)

        assert used < 64 * MEGABYTE


@pytest.fixture
def many_files() -> Iterator[None]:
    """Raise the limit of open files for this process and its children."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = IDLE + SPARE_FILES
    if hard != resource.RLIM_INFINITY and hard < needed:
        pytest.skip(f"{IDLE} connections need {needed} open files, and this machine allows {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_files")
async def test_ten_thousand_idle_connections_cost_little_and_the_others_are_served(tmp_path: Path) -> None:
    hello = Command(UNKNOWN, 1).encode()
    loop = asyncio.get_running_loop()
    async with broker_process(tmp_path) as (server, address), talking_at(address) as client:
        await serves(client)
        before = server.memory
        with contextlib.ExitStack() as stack:

            async def come() -> None:
                peers = []
                for _ in range(500):
                    peer = stack.enter_context(socket.socket())
                    peer.setblocking(False)
                    await loop.sock_connect(peer, endpoint(address))
                    await loop.sock_sendall(peer, hello)
                    peers.append(peer)
                for peer in peers:
                    # It is established: it got a response.
                    assert await loop.sock_recv(peer, 4096)

            await asyncio.gather(*(come() for _ in range(IDLE // 500)))
            assert open_sockets(server.pid) > IDLE
            for _ in range(100):
                await serves(client)
            async with talking_at(address) as newcomer:
                await serves(newcomer)
            used = server.memory - before
        await soon(lambda: open_sockets(server.pid) < IDLE // 10)

        assert used < IDLE * 16 * 1024


async def test_a_million_malformed_frames_delay_no_client_and_use_little_memory(tmp_path: Path) -> None:
    source = os.path.join(os.path.dirname(__file__), "flooding_process.py")
    async with broker_process(tmp_path) as (server, address), talking_at(address) as client:
        await serves(client)
        waiting = client.posts(pull_request(queue_id=1, hold_ms=1000 * PATIENCE))
        before, sockets = server.memory, open_sockets(server.pid)
        floods = [
            await asyncio.create_subprocess_exec(
                sys.executable, source, str(endpoint(address)[1]), str(FLOOD // 2), stdout=asyncio.subprocess.PIPE
            )
            for _ in range(2)
        ]
        flooding: asyncio.Task[list[tuple[bytes, bytes]]] = asyncio.create_task(_all_output(floods))
        times = await served_while(address, flooding)
        said = [output.decode().split() for output, _ in flooding.result()]
        await soon(lambda: open_sockets(server.pid) <= sockets)

        assert sum(int(words[1]) for words in said) >= FLOOD
        assert all(int(words[3]) > 0 for words in said)
        assert times > 0
        assert server.memory - before < 64 * MEGABYTE
        # Earlier connections are still open.
        await client.stores(b"woken", queueId=1)
        assert bodies(await client.answer_to(waiting)) == [b"woken"]


async def _all_output(processes: list[asyncio.subprocess.Process]) -> list[tuple[bytes, bytes]]:
    async with asyncio.timeout(4 * PATIENCE):
        return await asyncio.gather(*(process.communicate() for process in processes))
