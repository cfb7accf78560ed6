"""A client makes one connection to each address, when it is needed, and another when that is gone."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

import pytest

from orbitmq.protocol.command.command import Command
from orbitmq.protocol.errors import ProtocolError
from orbitmq.remoting import (
    ClientTls,
    ConnectError,
    Connection,
    ConnectionLostError,
    Limits,
    RemotingClient,
    RemotingServer,
    new_event_loop,
    run,
)
from orbitmq.remoting.addresses import address_of, host_and_port
from support.remoting_harness import ECHO, HOST, PATIENCE, echo, eventually, on_each_loop, serving

if TYPE_CHECKING:
    from orbitmq.protocol.command.header import Header


def address_of_first(server: RemotingServer) -> str:
    return f"{HOST}:{server.ports[0]}"


def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


@on_each_loop
async def test_everybody_shares_one_connection_to_an_address() -> None:
    opened: list[Connection] = []
    async with serving({ECHO: echo}) as one, serving({ECHO: echo}) as two:
        client = RemotingClient(on_open=opened.append)
        await asyncio.gather(
            *(
                client.call(address_of_first(server), Command(ECHO), PATIENCE)
                for server in (one, two)
                for _ in range(20)
            )
        )
        counts = len(one.connections), len(two.connections), len(opened), len(client.connections)
        own = await client.connect(address_of_first(one))

        assert counts == (1, 1, 2, 2)
        assert own not in opened[:2]
        assert own is not await client.connection(address_of_first(one))
        await client.close()
        assert client.connections == frozenset()


@on_each_loop
async def test_a_lost_connection_is_made_again_on_demand() -> None:
    gone: list[Connection] = []
    async with serving({ECHO: echo}) as server:
        client = RemotingClient(on_close=lambda connection, _: gone.append(connection))
        address = address_of_first(server)
        first = await client.connection(address)
        await first.call(Command(ECHO), PATIENCE)
        for connection in server.connections:
            connection.abort()
        await eventually(lambda: gone)
        second = await client.connection(address)
        second.close()
        third = await client.connection(address)
        answer = await client.call(address, Command(ECHO, body=b"again"), PATIENCE)
        await client.close()

    assert gone[0] is first
    assert len({first, second, third}) == 3
    assert answer.body == b"again"


@on_each_loop
async def test_an_address_without_a_listener_is_an_error_in_one_sentence() -> None:
    client = RemotingClient()
    address = f"{HOST}:{unused_port()}"
    results = await asyncio.gather(
        *(client.call(address, Command(ECHO), PATIENCE) for _ in range(3)), return_exceptions=True
    )
    await client.close()

    for error in results:
        assert isinstance(error, ConnectError)
        assert f"cannot connect to {address}: " in str(error)


@on_each_loop
async def test_what_is_no_address_cannot_be_connected_to() -> None:
    client = RemotingClient()
    with pytest.raises(ConnectError, match="'broker' is not host:port"):
        await client.connection("broker")
    await client.close()


@on_each_loop
async def test_a_peer_that_does_not_finish_the_handshake_is_given_up() -> None:
    with socket.socket() as listening:
        listening.bind((HOST, 0))
        listening.listen()
        client = RemotingClient(tls=ClientTls(verify_server=False), connect_seconds=0.05)
        address = address_of(listening.getsockname())
        with pytest.raises(ConnectError, match="did not answer within"):
            await client.connection(address)
        await client.close()


@on_each_loop
async def test_one_who_stops_waiting_for_a_connection_does_not_stop_the_others() -> None:
    async with serving({ECHO: echo}) as server:
        client = RemotingClient()
        waiting = [asyncio.ensure_future(client.connection(address_of_first(server))) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        others = await asyncio.gather(*waiting[1:])
        await client.close()

        assert waiting[0].cancelled()
        assert others[0] is others[1]


@on_each_loop
async def test_a_closed_client_makes_no_connections() -> None:
    async with serving({ECHO: echo}) as server:
        client = RemotingClient()
        attempt = asyncio.ensure_future(client.connection(address_of_first(server)))
        await asyncio.sleep(0)
        await client.close()
        with pytest.raises(ConnectionLostError):
            await attempt
        with pytest.raises(ConnectionLostError):
            await client.connection(address_of_first(server))
        await eventually(lambda: not server.connections)


@on_each_loop
async def test_a_client_has_a_limit_of_connections_too() -> None:
    async with serving({ECHO: echo}) as server:
        client = RemotingClient(limits=Limits(connections=1))
        await client.connect(address_of_first(server))
        with pytest.raises(ConnectError, match="connection limit reached"):
            await client.connect(address_of_first(server))
        await client.close()


@on_each_loop
async def test_a_oneway_call_arrives() -> None:
    came: list[Header] = []

    def take(_: Connection, header: Header, __: bytes, ___: int) -> None:
        came.append(header)

    async with serving({1: take}) as server:
        client = RemotingClient()
        await client.call_oneway(address_of_first(server), Command(1, ext_fields={"k": "v"}))
        await eventually(lambda: came)
        await client.close()

    assert came[0][6] == {"k": "v"}


def test_everything_runs_on_the_loop_that_is_chosen_here() -> None:
    async def kind_of_loop() -> type[asyncio.AbstractEventLoop]:
        return type(asyncio.get_running_loop())

    loop = new_event_loop()
    loop.close()

    assert run(kind_of_loop()) is type(loop)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (("10.0.0.1", 9876), "10.0.0.1:9876"),
        (("::1", 9876, 0, 0), "[0:0:0:0:0:0:0:1]:9876"),
        (("::ffff:10.0.0.1", 9876, 0, 0), "10.0.0.1:9876"),
        (("fe80::1%eth0", 9876, 0, 2), "[fe80:0:0:0:0:0:0:1]:9876"),
        (None, ""),
        ("/run/socket", "/run/socket"),
    ],
)
def test_peers_are_named_as_in_rocketmqs_tables(name: object, text: str) -> None:
    assert address_of(name) == text


@pytest.mark.parametrize(
    ("address", "parts"),
    [
        ("10.0.0.1:9876", ("10.0.0.1", 9876)),
        ("[::1]:9876", ("::1", 9876)),
        ("::1:9876", ("::1", 9876)),
        ("broker-a:10911", ("broker-a", 10911)),
    ],
)
def test_addresses_are_split_at_their_last_colon(address: str, parts: tuple[str, int]) -> None:
    assert host_and_port(address) == parts


@pytest.mark.parametrize("address", ["", "host", "host:", ":1", "host:x", "host:70000", "host:-1", "host:²"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ProtocolError):
        host_and_port(address)
