"""Either end of a connection may call the other; answers are matched by opaque, and every call ends."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from orbitmq.protocol.command.command import Command
from orbitmq.protocol.message.flags import ONEWAY, RESPONSE
from orbitmq.remoting import (
    CallTimeoutError,
    Connection,
    ConnectionLostError,
    Limits,
    RemotingClient,
    TooManyCallsError,
)
from orbitmq.remoting.pending_calls import INT32_MAX, OpaqueCounter
from support.remoting_harness import ECHO, PATIENCE, RawPeer, echo, eventually, on_each_loop, request, serving

if TYPE_CHECKING:
    from orbitmq.protocol.command.header import Header
    from orbitmq.remoting import RemotingServer

QUICK = Limits(sweep_seconds=0.01)


def answer(opaque: int, code: int = 0, **more: str) -> bytes:
    return Command(code=code, opaque=opaque, flag=RESPONSE, ext_fields=more).encode()


async def greeted(server: RemotingServer, peer: RawPeer) -> Connection:
    """The server's end of a peer's connection, which is there from the first request on."""
    await peer.ask(request(ECHO, 1))
    (connection,) = server.connections
    return connection


@on_each_loop
async def test_a_server_calls_its_client_with_ids_from_1_on() -> None:
    async with serving({ECHO: echo}) as server, RawPeer.connected(server) as peer:
        connection = await greeted(server, peer)
        first = connection.call(Command(220, ext_fields={"topic": "t"}), PATIENCE)
        second = connection.call(Command(221), PATIENCE)
        asked = [await peer.receive() for _ in range(2)]
        # Answers come in any order.
        peer.send(answer(2, code=7), answer(1, offset="42"))

        assert [(command.code, command.opaque, command.flag) for command in asked] == [(220, 1, 0), (221, 2, 0)]
        assert asked[0].ext_fields == {"topic": "t"}
        assert (await first).ext_fields == {"offset": "42"}
        assert (await second).code == 7
        assert connection.pending_calls == 0


@on_each_loop
async def test_the_same_opaque_may_be_in_use_in_both_directions() -> None:
    async with serving({ECHO: echo}) as server, RawPeer.connected(server) as peer:
        connection = await greeted(server, peer)
        call = connection.call(Command(220), PATIENCE)
        assert (await peer.receive()).opaque == 1
        # Between the call and its answer the client asks under the same number, before and after it.
        peer.send(request(ECHO, 1, body=b"a"), answer(1, said="yes"), request(ECHO, 1, body=b"b"))

        assert [(await peer.receive()).body for _ in range(2)] == [b"a", b"b"]
        assert (await call).ext_fields == {"said": "yes"}


@on_each_loop
async def test_ids_are_unique_over_all_connections_of_a_server() -> None:
    async with serving({ECHO: echo}) as server, RawPeer.connected(server) as one, RawPeer.connected(server) as two:
        for peer in (one, two):
            await peer.ask(request(ECHO, 1))
        calls = [connection.call(Command(220), PATIENCE) for _ in range(3) for connection in server.connections]
        seen = [(await peer.receive()).opaque for peer in (one, two) for _ in range(3)]
        for connection in server.connections:
            connection.close()
        await asyncio.gather(*calls, return_exceptions=True)

    assert sorted(seen) == [1, 2, 3, 4, 5, 6]


def test_ids_start_again_at_1_after_the_largest_int32() -> None:
    opaques = OpaqueCounter(INT32_MAX - 1)

    assert [opaques.next() for _ in range(3)] == [INT32_MAX, 1, 2]


@on_each_loop
async def test_an_id_that_still_waits_is_not_given_out_again() -> None:
    async with serving({ECHO: echo}) as server, RawPeer.connected(server) as peer:
        connection = await greeted(server, peer)
        first = connection.call(Command(220), PATIENCE)
        connection._endpoint.opaques = OpaqueCounter(INT32_MAX - 1)
        later = [connection.call(Command(220), PATIENCE) for _ in range(2)]
        opaques = [(await peer.receive()).opaque for _ in range(3)]
        peer.send(*(answer(opaque) for opaque in opaques))
        await asyncio.gather(first, *later)

    assert opaques == [1, INT32_MAX, 2]


@on_each_loop
async def test_a_response_without_a_call_is_dropped() -> None:
    async with serving({ECHO: echo}) as server, RawPeer.connected(server) as peer:
        received = await peer.ask(answer(99), request(ECHO, 5))

        assert received.opaque == 5


@on_each_loop
async def test_a_call_without_an_answer_ends_by_time_and_a_late_answer_is_dropped() -> None:
    async with serving({ECHO: echo}, QUICK) as server, RawPeer.connected(server) as peer:
        connection = await greeted(server, peer)
        patient = connection.call(Command(221), PATIENCE)
        with pytest.raises(CallTimeoutError):
            await connection.call(Command(220), 0.01)
        waiting = connection.pending_calls
        late = [await peer.receive() for _ in range(2)]
        peer.send(*(answer(command.opaque) for command in reversed(late)))

        assert (await patient).code == 0
        assert waiting == 1


@on_each_loop
async def test_a_cancelled_call_is_removed() -> None:
    async with serving({ECHO: echo}, QUICK) as server, RawPeer.connected(server) as peer:
        connection = await greeted(server, peer)
        call = connection.call(Command(220), 0.05)
        call.cancel()
        await eventually(lambda: connection.pending_calls == 0)
        cancelled = connection.call(Command(220), PATIENCE)
        cancelled.cancel()
        opaques = [(await peer.receive()).opaque for _ in range(2)]
        received = await peer.ask(*(answer(opaque) for opaque in opaques), request(ECHO, 5))

        assert received.opaque == 5
        assert connection.pending_calls == 0


@on_each_loop
@pytest.mark.parametrize("abruptly", [False, True])
async def test_all_calls_fail_when_the_connection_is_lost(abruptly: bool) -> None:
    async with serving({ECHO: echo}) as server, RawPeer.connected(server) as peer:
        connection = await greeted(server, peer)
        calls = [connection.call(Command(220), PATIENCE) for _ in range(10)]
        await peer.receive()
        if abruptly:
            peer.hang_up()
        else:
            await peer.leave()
        ends = await asyncio.gather(*calls, return_exceptions=True)

        assert [type(end) for end in ends] == [ConnectionLostError] * 10
        assert len(set(map(id, ends))) == 10
        for call in (lambda: connection.call(Command(220), 1), lambda: connection.call_oneway(Command(220))):
            with pytest.raises(ConnectionLostError):
                call()


@on_each_loop
async def test_only_so_many_calls_may_wait_on_one_connection() -> None:
    async with serving({ECHO: echo}, Limits(calls=3)) as server, RawPeer.connected(server) as peer:
        connection = await greeted(server, peer)
        calls = [connection.call(Command(220), PATIENCE) for _ in range(3)]
        with pytest.raises(TooManyCallsError):
            connection.call(Command(220), PATIENCE)
        first = await peer.receive()
        peer.send(answer(first.opaque))
        await calls[0]
        calls.append(connection.call(Command(220), PATIENCE))
        for _ in range(3):
            peer.send(answer((await peer.receive()).opaque))

        assert [end.code for end in await asyncio.gather(*calls)] == [0] * 4


@on_each_loop
async def test_a_oneway_call_has_the_oneway_flag_and_no_response() -> None:
    async with serving({ECHO: echo}) as server, RawPeer.connected(server) as peer:
        connection = await greeted(server, peer)
        connection.call_oneway(Command(40, ext_fields={"consumerGroup": "g"}))
        notified = await peer.receive()

        assert (notified.code, notified.opaque, notified.flag) == (40, 1, ONEWAY)
        assert connection.pending_calls == 0


@on_each_loop
async def test_both_ends_call_each_other_at_the_same_time() -> None:
    backwards: list[asyncio.Future[Command]] = []

    def ask_back(connection: Connection, header: Header, body: bytes, serialize_type: int) -> bytes:
        backwards.append(connection.call(Command(ECHO, body=b"back " + body), PATIENCE))
        return echo(connection, header, body, serialize_type)

    async with serving({ECHO: ask_back}) as server:
        client = RemotingClient({ECHO: echo})
        address = f"127.0.0.1:{server.ports[0]}"
        names = [b"%d" % number for number in range(200)]
        answers = await asyncio.gather(
            *(client.call(address, Command(ECHO, body=name), PATIENCE) for name in names)
        )
        returned = await asyncio.gather(*backwards)
        await client.close()

    assert [command.body for command in answers] == names
    assert {command.body for command in returned} == {b"back " + name for name in names}
