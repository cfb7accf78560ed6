"""Silent connections: file descriptors remain for files, and active clients can connect."""

from __future__ import annotations

import contextlib
import resource
import socket
from typing import TYPE_CHECKING

import pytest

from orbitmq.remoting import Limits
from orbitmq.remoting.limits.descriptors import MAX_RESERVED, connections_allowed
from support.broker.flood_harness import Canary, flooded_broker
from support.remoting_harness import ECHO, HOST, RawPeer, echo, eventually, on_each_loop, request, serving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DESCRIPTORS = 256


@pytest.fixture
def few_descriptors() -> Iterator[None]:
    """Processes started meanwhile have few file descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_connections_leave_half_of_few_descriptors_to_files(few_descriptors: None) -> None:
    assert connections_allowed(65_536) == DESCRIPTORS // 2
    assert connections_allowed(65_536, reserved=200) == DESCRIPTORS - 200
    assert connections_allowed(10) == 10
    assert connections_allowed(65_536, reserved=10_000) == 1


def test_connections_leave_some_of_many_descriptors_to_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (100_000, 100_000))

    assert connections_allowed(1_000_000) == 100_000 - MAX_RESERVED
    assert connections_allowed(65_536) == 65_536


@on_each_loop
async def test_an_active_client_replaces_the_oldest_silent_connection() -> None:
    async with (
        serving({ECHO: echo}, Limits(connections=3)) as server,
        RawPeer.connected(server) as speaking,
        contextlib.AsyncExitStack() as stack,
    ):
        await speaking.ask(request(ECHO, 1))
        silent = [await stack.enter_async_context(RawPeer.connected(server)) for _ in range(2)]
        for number in range(5):
            async with RawPeer.connected(server) as peer:
                assert (await peer.ask(request(ECHO, number))).opaque == number
            await eventually(lambda: len(server.connections) == 1)
        assert await silent[0].rest() == b""
        assert (await speaking.ask(request(ECHO, 2))).opaque == 2
        assert (await silent[1].ask(request(ECHO, 3))).opaque == 3


async def test_silent_connections_leave_descriptors_to_the_store(tmp_path: Path) -> None:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    program = tmp_path / "sitecustomize.py"
    program.write_text(
        f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({DESCRIPTORS}, {DESCRIPTORS}))\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
        async with flooded_broker(tmp_path) as (_, port):
            with contextlib.ExitStack() as stack:
                for _ in range(DESCRIPTORS + 50):
                    peer = stack.enter_context(socket.socket())
                    peer.settimeout(5)
                    peer.connect((HOST, port))
                with Canary(port) as canary:
                    # Each topic has files of its own.
                    for number in range(10):
                        assert canary.send(topic=f"topic-{number}").code == 0
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == limit
