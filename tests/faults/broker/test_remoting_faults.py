"""Faulty peers: disconnects, stalls, floods and malformed frames stay within limits, and other peers are served."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import socket
import struct
import subprocess
import sys
import tracemalloc
from typing import TYPE_CHECKING

import pytest

from orbitmq.platform.limit_counts import Limit
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.errors import ProtocolError
from orbitmq.remoting import (
    Connection,
    ConnectionLostError,
    IdleError,
    Limits,
    RemotingClient,
    RemotingServer,
    SlowReaderError,
    TooManyCallsError,
)
from support.limit_counts import counts
from support.remoting_harness import (
    ECHO,
    GARBAGE,
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
    from collections.abc import Iterator

    from orbitmq.protocol.command.header import Header
    from orbitmq.remoting import Handler

MEGABYTE = 1 << 20
NEVER = 3600.0
"""Longer than any test, in seconds."""


class Gone(list[Exception | None]):
    """Errors with which the connections of a server ended."""

    def __call__(self, _: Connection, error: Exception | None) -> None:
        self.append(error)


def large(_: Connection, header: Header, __: bytes, serialize_type: int) -> bytes:
    return answer_to(header, serialize_type, body=bytes(MEGABYTE))


class Holding:
    """A handler that holds requests until it is released."""

    def __init__(self) -> None:
        self.held: list[tuple[Connection, Header]] = []
        self.seen = 0

    def __call__(self, connection: Connection, header: Header, _: bytes, __: int) -> None:
        self.seen += 1
        self.held.append((connection, header))

    async def has_seen(self, count: int) -> None:
        await eventually(lambda: self.seen == count)

    def answer(self, count: int) -> None:
        for connection, header in self.held[:count]:
            connection.answer(header, answer_to(header, 0))
        del self.held[:count]


@contextlib.contextmanager
def deaf(server: RemotingServer) -> Iterator[socket.socket]:
    """A connected socket that reads only when a test does, with small kernel buffers."""
    with socket.socket() as peer:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.connect((HOST, server.ports[0]))
        peer.setblocking(False)
        yield peer


async def send(peer: socket.socket, data: bytes) -> None:
    await asyncio.get_running_loop().sock_sendall(peer, data)


async def receive_all(peer: socket.socket, wanted: int) -> list[Command]:
    """Receive so many commands, in small reads."""
    received = bytearray()
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(PATIENCE):
        while True:
            received += await loop.sock_recv(peer, 65536)
            at = count = 0
            while at + 4 <= len(received):
                at += 4 + struct.unpack_from(">i", received, at)[0]
                count += at <= len(received)
            if count == wanted and at == len(received):
                return decoded(bytes(received))


async def still_serves(server: RemotingServer) -> bool:
    async with RawPeer.connected(server) as peer:
        return (await peer.ask(request(ECHO, 77))).opaque == 77


@on_each_loop
async def test_a_client_killed_in_the_middle_of_a_frame_is_removed_without_side_effects() -> None:
    gone = Gone()
    program = (
        "import socket, sys; s = socket.create_connection(('%s', %d)); s.sendall(bytes.fromhex('%s')); input()"
    )
    half = request(ECHO, 1) + request(ECHO, 2, body=bytes(1000))[:-500]
    async with serving({ECHO: echo}, on_close=gone) as server:
        code = program % (HOST, server.ports[0], half.hex())
        client = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdin=subprocess.PIPE)
        await eventually(lambda: server.connections)
        client.kill()
        await client.wait()
        await eventually(lambda: gone)

        assert server.connections == frozenset()
        assert await still_serves(server)


@on_each_loop
async def test_a_reset_with_pending_responses_is_handled() -> None:
    gone, holding = Gone(), Holding()
    async with serving({1: holding, ECHO: echo}, on_close=gone) as server:
        with socket.create_connection((HOST, server.ports[0])) as peer:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            peer.sendall(request(1, 1) + request(1, 2))
            await holding.has_seen(2)
        await eventually(lambda: gone)
        holding.answer(2)

        assert await still_serves(server)


@on_each_loop
async def test_a_half_closed_peer_gets_its_response_and_is_closed() -> None:
    gone = Gone()
    async with serving({ECHO: echo, 1: large}, on_close=gone) as server, RawPeer.connected(server) as peer:
        peer.send(request(ECHO, 1), request(1, 2))
        peer.writer.write_eof()

        assert [answer.opaque for answer in decoded(await peer.rest())] == [1, 2]
        await eventually(lambda: gone)
    assert gone == [None]


@on_each_loop
async def test_nothing_more_is_read_from_a_peer_that_does_not_read_and_nothing_is_lost() -> None:
    asked = []

    def count(connection: Connection, header: Header, body: bytes, serialize_type: int) -> bytes:
        asked.append(header[1])
        return large(connection, header, body, serialize_type)

    limits = Limits(write_high_bytes=65536)
    async with serving({1: count, ECHO: echo}, limits) as server:
        with deaf(server) as peer:
            sent = 0
            # The operating system buffers some megabytes before a write has to wait.
            while not asked or all(connection.is_writable for connection in server.connections):
                if sent == len(asked):
                    await send(peer, request(1, sent))
                    sent += 1
                await asyncio.sleep(0)
            for opaque in range(sent, sent + 10):
                await send(peer, request(1, opaque))
            # Whatever the others do meanwhile, this connection is not read from.
            assert await still_serves(server)
            taken = len(asked)
            answers = await receive_all(peer, sent + 10)
        await eventually(lambda: not server.connections)

    # The last one may have been sent just as reading stopped.
    assert sent - 1 <= taken <= sent
    assert [answer.opaque for answer in answers] == list(range(sent + 10))
    assert {len(answer.body or b"") for answer in answers} == {MEGABYTE}


@on_each_loop
@counts(Limit.UNREAD_ANSWERS)
async def test_a_peer_that_reads_nothing_for_too_long_is_closed(caplog: pytest.LogCaptureFixture) -> None:
    gone = Gone()
    limits = Limits(write_high_bytes=65536, stalled_seconds=0.05, sweep_seconds=0.005)
    async with serving({1: large, ECHO: echo}, limits, on_close=gone) as server:
        with deaf(server) as peer:
            await send(peer, request(1, 1) * 8)
            await eventually(lambda: gone)

        assert await still_serves(server)
    assert isinstance(gone[0], SlowReaderError)
    assert "the peer has not read anything" in caplog.text


@on_each_loop
@pytest.mark.parametrize("in_parts", [False, True])
@counts(Limit.UNREAD_ANSWERS)
async def test_a_peer_with_too_many_unsent_bytes_is_closed(in_parts: bool) -> None:
    frame = request(40, 1, body=bytes(MEGABYTE))
    gone = Gone()
    limits = Limits(write_high_bytes=65536, write_max_bytes=4 * MEGABYTE, stalled_seconds=NEVER)
    async with serving({ECHO: echo}, limits, on_close=gone) as server:
        with deaf(server) as peer:
            await send(peer, request(ECHO, 1))
            await eventually(lambda: server.connections)
            (connection,) = server.connections
            sent = 0
            while not connection.is_closing:
                connection.send([frame[:500], memoryview(frame)[500:]] if in_parts else frame)
                sent += 1
                await asyncio.sleep(0)
            await eventually(lambda: gone)

        assert await still_serves(server)
    assert isinstance(gone[0], SlowReaderError)
    # The operating system buffers some of it.
    assert sent < 64


@on_each_loop
async def test_calls_to_a_peer_with_too_many_unsent_bytes_are_refused() -> None:
    limits = Limits(write_high_bytes=65536, write_max_bytes=4 * MEGABYTE, stalled_seconds=NEVER)
    async with serving({ECHO: echo}, limits) as server:
        with deaf(server) as peer:
            await send(peer, request(ECHO, 1))
            await eventually(lambda: server.connections)
            (connection,) = server.connections
            calls: list[asyncio.Future[Command]] = []
            with contextlib.suppress(TooManyCallsError):
                while True:
                    calls.append(connection.call(Command(1, body=bytes(MEGABYTE)), PATIENCE))
            calls_at_once = len(calls)
            with contextlib.suppress(TooManyCallsError):
                while True:
                    calls.append(connection.call(Command(1, body=bytes(MEGABYTE)), PATIENCE))
                    await asyncio.sleep(0)
            with pytest.raises(TooManyCallsError, match="too many unsent bytes"):
                connection.call_oneway(Command(1, body=bytes(4 * MEGABYTE)))
            waiting = asyncio.ensure_future(connection.writable())
            requests = (await receive_all(peer, len(calls) + 1))[1:]
            await waiting
            for command in requests:
                await send(peer, Command(0, opaque=command.opaque, flag=1).encode())
            answers = await asyncio.gather(*calls)

    assert 0 < calls_at_once <= 4
    assert [answer.code for answer in answers] == [0] * len(calls)


@on_each_loop
async def test_a_blocked_writer_fails_when_the_peer_disconnects() -> None:
    limits = Limits(write_high_bytes=65536, stalled_seconds=NEVER)
    async with serving({1: large}, limits) as server:
        with deaf(server) as peer:
            await send(peer, request(1, 1) * 8)
            await eventually(lambda: server.connections)
            (connection,) = server.connections
            await eventually(lambda: not connection.is_writable)
            waiting = [asyncio.ensure_future(connection.writable()) for _ in range(3)]
            await asyncio.sleep(0)
            waiting[0].cancel()
            await asyncio.sleep(0)
            connection.abort()
        ends = await asyncio.gather(*waiting, return_exceptions=True)

    assert [type(end) for end in ends] == [asyncio.CancelledError, ConnectionLostError, ConnectionLostError]


@on_each_loop
async def test_two_peers_that_send_large_data_to_each_other_do_not_deadlock() -> None:
    limits = Limits(write_high_bytes=65536, stalled_seconds=NEVER)
    async with serving({ECHO: echo}, limits) as server:
        client = RemotingClient({ECHO: echo}, limits=limits)
        connection = await client.connect(f"{HOST}:{server.ports[0]}")
        body = bytes(4 * MEGABYTE)
        calls = [connection.call(Command(ECHO, body=body), PATIENCE) for _ in range(6)]
        await eventually(lambda: server.connections)
        (other,) = server.connections
        calls += [other.call(Command(ECHO, body=body), PATIENCE) for _ in range(6)]
        answers = await asyncio.gather(*calls)
        await client.close()

    assert [answer.body == body for answer in answers] == [True] * 12


@on_each_loop
async def test_reading_pauses_while_too_many_responses_are_pending() -> None:
    holding = Holding()
    async with serving({1: holding}, Limits(deferred_responses=10)) as server, RawPeer.connected(server) as peer:
        for opaque in range(10):
            peer.send(request(1, opaque))
            await holding.has_seen(opaque + 1)
        peer.send(*(request(1, opaque) for opaque in range(10, 100)))
        holding.answer(4)
        for _ in range(4):
            await peer.receive()
        seen_at_limit = holding.seen
        holding.answer(1)
        await holding.has_seen(15)
        owed_again = len(holding.held)
        answered = [(await peer.receive()).opaque]
        while len(answered) < 96:
            holding.answer(10)
            answered += [(await peer.receive()).opaque for _ in range(min(10, 96 - len(answered)))]

        assert seen_at_limit == owed_again == 10
        assert answered == list(range(4, 100))
        (connection,) = server.connections
        assert connection.deferred_responses == 0


@on_each_loop
async def test_a_flood_of_malformed_frames_takes_no_memory(caplog: pytest.LogCaptureFixture) -> None:
    gone = Gone()
    floods = [
        GARBAGE,
        struct.pack(">iI", 16 * MEGABYTE, 20),
        struct.pack(">iI", -1, 0),
        struct.pack(">iI", 100, 5 << 24),
        struct.pack(">iI", 9, 5) + b"{oops",
        struct.pack(">iI", 25, 1 << 24 | 21) + b"\xff" * 21,
    ]
    chunk = bytes(MEGABYTE)
    async with serving({ECHO: echo}, on_close=gone) as server:
        tracemalloc.start()
        for _ in range(10):
            peers = [await asyncio.open_connection(HOST, server.ports[0]) for _ in floods]
            for flood, (_, writer) in zip(floods, peers, strict=True):
                writer.write(request(ECHO, 1) + flood)
                writer.write(chunk)
            for reader, writer in peers:
                peer = RawPeer(reader, writer)
                await peer.rest()
                await peer.leave()
        await eventually(lambda: len(gone) == 60)
        for error in gone:
            # Its frames hold the bytes in which it was found, for as long as this test keeps the error.
            assert error is not None
            error.__traceback__ = error.__context__ = error.__cause__ = None
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()

        assert all(isinstance(error, ProtocolError) for error in gone)
        assert await still_serves(server)
    assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) == 60
    assert held < 8 * MEGABYTE


@on_each_loop
async def test_a_long_frame_uses_memory_only_for_received_bytes() -> None:
    async with serving({ECHO: echo}) as server:
        tracemalloc.start()
        peers = [await asyncio.open_connection(HOST, server.ports[0]) for _ in range(50)]
        for _, writer in peers:
            writer.write(struct.pack(">iI", 16 * MEGABYTE - 4, 20) + bytes(1000))
        await eventually(lambda: len(server.connections) == 50)
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        for reader, writer in peers:
            await RawPeer(reader, writer).leave()

    assert held < 16 * MEGABYTE


@on_each_loop
async def test_thousands_of_idle_connections_are_served_and_then_closed() -> None:
    count = 2000
    opened, gone = [0], Gone()

    def open_one(_: Connection) -> None:
        opened[0] += 1

    limits = Limits(idle_seconds=1.0, sweep_seconds=0.01)
    async with serving({ECHO: echo}, limits, on_open=open_one, on_close=gone) as server:
        loop = asyncio.get_running_loop()
        with contextlib.ExitStack() as peers:
            for number in range(count):
                peer = peers.enter_context(socket.socket())
                peer.setblocking(False)
                await loop.sock_connect(peer, (HOST, server.ports[0]))
                await send(peer, request(ECHO, number))
            await eventually(lambda: opened[0] == count)
            await eventually(lambda: len(gone) == count)

        assert server.connections == frozenset()
        assert await still_serves(server)
    assert all(isinstance(error, IdleError) for error in gone[:count])


@on_each_loop
async def test_a_silent_connection_is_closed() -> None:
    limits = Limits(idle_seconds=0.05, sweep_seconds=0.005)
    async with serving({ECHO: echo}, limits) as server, RawPeer.connected(server) as peer:
        assert await peer.rest() == b""


@on_each_loop
@pytest.mark.parametrize("begin", [b"PROXY TCP4 ", b"\r\n\r\n", b"\x16\x03\x01\x02\x00"])
async def test_an_unfinished_handshake_times_out(begin: bytes) -> None:
    limits = Limits(handshake_seconds=0.05, sweep_seconds=0.005)
    async with serving({ECHO: echo}, limits) as server, RawPeer.connected(server) as peer:
        peer.send(begin)

        assert await peer.rest() == b""


@on_each_loop
async def test_a_close_that_the_peer_blocks_is_aborted() -> None:
    gone = Gone()
    limits = Limits(closing_seconds=0.05, sweep_seconds=0.005)
    async with serving({1: large}, limits, on_close=gone) as server:
        with deaf(server) as peer:
            await send(peer, request(1, 1) * 8)
            await eventually(lambda: server.connections)
            (connection,) = server.connections
            await eventually(lambda: not connection.is_writable)
            connection.close()
            await eventually(lambda: gone)


@on_each_loop
async def test_stopping_does_not_wait_for_a_peer_that_does_not_read() -> None:
    gone = Gone()
    async with serving({1: large}, on_close=gone) as server:
        with deaf(server) as peer:
            await send(peer, request(1, 1) * 8)
            await eventually(lambda: server.connections)
            await server.stop(grace=0.05)

            assert len(gone) == 1


@on_each_loop
async def test_a_server_that_dies_ends_the_calls_of_its_clients() -> None:
    def never(*_: object) -> None:
        return None

    handlers: dict[int, Handler] = {1: never}
    async with serving(handlers) as server:
        client = RemotingClient()
        address = f"{HOST}:{server.ports[0]}"
        calls = [asyncio.ensure_future(client.call(address, Command(1), NEVER)) for _ in range(5)]
        await eventually(lambda: any(connection.deferred_responses == 5 for connection in server.connections))
        for connection in server.connections:
            connection.abort()
        ends = await asyncio.gather(*calls, return_exceptions=True)
        await client.close()

    assert [type(end) for end in ends] == [ConnectionLostError] * 5
