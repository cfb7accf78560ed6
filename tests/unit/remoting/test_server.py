"""A server listens where it should, takes as many as it may, and stops without losing an answer."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

import pytest

from orbitmq.platform.limit_counts import Limit
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command.command import Command
from orbitmq.remoting import Connection, Limits, Listener, ListenError, RemotingClient, RemotingServer
from support.limit_counts import counts
from support.remoting_harness import (
    ECHO,
    HOST,
    PATIENCE,
    RawPeer,
    answer_to,
    decoded,
    echo,
    eventually,
    on_each_loop,
    request,
    serving,
)

if TYPE_CHECKING:
    from orbitmq.protocol.command.header import Header


def accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


@on_each_loop
async def test_the_vip_port_serves_its_own_smaller_table() -> None:
    send, pull = RequestCode.SEND_MESSAGE_V2, RequestCode.PULL_MESSAGE
    server = RemotingServer([Listener({send: echo, pull: echo}, 0, HOST), Listener({send: echo}, 0, HOST)])
    await server.start()
    codes = []
    for port in server.ports:
        reader, writer = await asyncio.open_connection(HOST, port)
        peer = RawPeer(reader, writer)
        codes.append([(await peer.ask(request(code, 1))).code for code in (send, pull)])
        await peer.leave()
    await server.stop()

    assert codes == [[0, 0], [0, 3]]


@on_each_loop
async def test_a_server_may_listen_on_all_interfaces() -> None:
    server = RemotingServer([Listener({ECHO: echo}, 0)])
    await server.start()
    async with RawPeer.connected(server) as peer:
        answer = await peer.ask(request(ECHO, 1))
        address = peer.address
        (connection,) = server.connections
    await server.stop()

    assert answer.code == 0
    assert connection.remote_address == address


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
@on_each_loop
async def test_a_server_may_listen_on_ipv6() -> None:
    server = RemotingServer([Listener({ECHO: echo}, 0, "::1")])
    await server.start()
    client = RemotingClient()
    connection = await client.connect(f"[::1]:{server.ports[0]}")
    answer = await connection.call(Command(ECHO), PATIENCE)
    (other,) = server.connections
    await client.close()
    await server.stop()

    assert answer.code == 0
    assert connection.remote_address == f"[0:0:0:0:0:0:0:1]:{other.local_address.rpartition(':')[2]}"
    assert other.remote_address.startswith("[0:0:0:0:0:0:0:1]:")


@on_each_loop
async def test_a_port_in_use_is_an_error_in_one_sentence_and_no_port_stays_open() -> None:
    async with serving({ECHO: echo}) as first:
        with socket.socket() as probe:
            probe.bind((HOST, 0))
            free = probe.getsockname()[1]
        taken = first.ports[0]
        second = RemotingServer([Listener({}, free, HOST), Listener({}, taken, HOST)])
        with pytest.raises(ListenError, match=f"cannot listen on {HOST}:{taken}: "):
            await second.start()

        assert accepts(taken)
        assert not accepts(free)


@on_each_loop
@counts(Limit.CONNECTIONS)
async def test_one_connection_more_than_allowed_is_closed_and_room_is_used_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with (
        serving({ECHO: echo}, Limits(connections=2)) as server,
        RawPeer.connected(server) as one,
        RawPeer.connected(server) as two,
    ):
        for peer in (one, two):
            await peer.ask(request(ECHO, 1))
        for _ in range(3):
            async with RawPeer.connected(server) as three:
                three.send(request(ECHO, 1))
                assert await three.rest() == b""
        await one.leave()
        await eventually(lambda: len(server.connections) == 1)
        async with RawPeer.connected(server) as four:
            assert (await four.ask(request(ECHO, 4))).opaque == 4
            assert (await two.ask(request(ECHO, 2))).opaque == 2

    assert len([record for record in caplog.records if "connection limit reached" in record.getMessage()]) == 1


@on_each_loop
async def test_stopping_sends_deferred_responses_and_accepts_no_new_requests() -> None:
    held: list[tuple[Connection, Header]] = []
    taken: list[int] = []

    def hold(connection: Connection, header: Header, _: bytes, __: int) -> None:
        taken.append(header[1])
        held.append((connection, header))

    async with (
        serving({1: hold, ECHO: echo}) as server,
        RawPeer.connected(server) as busy,
        RawPeer.connected(server) as idle,
    ):
        await idle.ask(request(ECHO, 1))
        await busy.ask(request(1, 1), request(1, 2), request(ECHO, 3))
        port = server.ports[0]
        stopping = asyncio.ensure_future(server.stop(grace=3600))
        assert await idle.rest() == b""
        busy.send(request(1, 4), request(ECHO, 5))
        owner, header = held[0]
        owner.answer(header, answer_to(header, 0, body=b"x" * 5_000_000))
        first = await busy.receive()
        assert not stopping.done()
        owner, header = held[1]
        owner.answer(header, answer_to(header, 0))
        rest = decoded(await busy.rest())
        await stopping

        assert not accepts(port)
        assert server.connections == frozenset()
    assert first.opaque == 1
    assert [answer.opaque for answer in rest] == [2]
    assert taken == [1, 2]


@on_each_loop
async def test_stopping_does_not_wait_for_answers_longer_than_allowed() -> None:
    gone: list[Connection] = []

    def never(*_: object) -> None:
        return None

    async with serving({1: never, ECHO: echo}, on_close=lambda connection, _: gone.append(connection)) as server:
        async with RawPeer.connected(server) as peer, RawPeer.connected(server) as silent:
            await peer.ask(request(1, 1), request(ECHO, 2))
            await server.stop(grace=0.01)

            assert await peer.rest() == b""
            assert await silent.rest() == b""
        assert len(gone) == 1


@on_each_loop
async def test_a_server_can_be_stopped_twice_and_started_again() -> None:
    server = RemotingServer([Listener({ECHO: echo}, 0, HOST)])
    await server.stop()
    for _ in range(2):
        await server.start()
        async with RawPeer.connected(server) as peer:
            assert (await peer.ask(request(ECHO, 1))).opaque == 1
        await server.stop()
        await server.stop()
