"""Clients that vanish, do not read, or send nonsense: receipts are returned, and nothing is left behind."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import grpc
import grpc.aio
import pytest

from cluster.grpc.grpc_harness import (
    SERVICE,
    consumer_settings,
    message,
    producer_settings,
    receive_request,
    served,
)
from orbitmq.proxy.proto import definition_pb2 as pb
from orbitmq.proxy.proto import service_pb2 as rpc

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from cluster.grpc.grpc_harness import Served, Stubs

PATIENCE = 30.0


@pytest.fixture
async def server() -> AsyncIterator[Served]:
    async with served() as running:
        await running.topic("orders", queues=1)
        running.group("billing")
        yield running


async def until(reached: Callable[[], bool], what: str) -> None:
    for _ in range(int(PATIENCE / 0.02)):
        if reached():
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"{what} not within {PATIENCE} s")


def server_calls(server: Served) -> int:
    assert server.server._server is not None
    return server.server._server.calls


def nothing_is_left(server: Served) -> bool:
    http2 = server.server._server
    assert http2 is not None
    return not http2.calls and not http2.held and not len(server.server.renewals)


async def test_a_cancelled_receive_returns_what_it_popped(server: Served) -> None:
    async with server.client() as client:
        stream, _ = await client.settle(consumer_settings("billing", "orders"))
        waiting = client.stream("ReceiveMessage", receive_request("orders", "billing", invisible=60))
        reading = asyncio.create_task(waiting.read())
        await until(lambda: server_calls(server) == 2, "the receive begins")
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        await client.send(message("orders", b"kept"))
        (found,) = await client.received("orders", "billing")
        assert found.body == b"kept"
        stream.cancel()
    await until(lambda: nothing_is_left(server), "everything is closed")


async def test_messages_of_a_client_that_vanishes_are_visible_again(server: Served) -> None:
    async with server.client() as other:
        keeping, _ = await other.settle(consumer_settings("billing", "orders", kind=pb.PUSH_CONSUMER))
        async with server.client("vanishing") as client:
            _, _ = await client.settle(consumer_settings("billing", "orders", kind=pb.PUSH_CONSUMER))
            await client.send(message("orders", b"renewed"))
            assert len(await client.received("orders", "billing", renews=True)) == 1
            assert len(server.server.renewals) == 1
        vanished = server.server.clients.find("vanishing")
        assert vanished is not None
        await until(lambda: vanished.stream is None, "the stream ends")
        vanished.last_seen -= 1000.0
        server.server.clients.expire()
        (found,) = await other.received("orders", "billing", renews=True)
        assert (found.body, found.system_properties.delivery_attempt) == (b"renewed", 1)
        keeping.cancel()


async def test_messages_of_a_slow_reader_are_returned_at_its_deadline(server: Served) -> None:
    options = [("grpc.http2.lookahead_bytes", 1), ("grpc.http2.bdp_probe", 0)]
    async with grpc.aio.insecure_channel(server.target, options=options) as channel, server.client() as other:
        client = type(other)(channel, "slow")
        settling, _ = await client.settle(consumer_settings("billing", "orders"))
        for _ in range(8):
            await other.send(message("orders", bytes(2 << 20)))
        slow = client.stream("ReceiveMessage", receive_request("orders", "billing", invisible=60), timeout=6)
        await slow.read()
        await until(lambda: server_calls(server) <= 1, "the receive is given up")
        again, _ = await other.settle(consumer_settings("billing", "orders"))
        found = await other.received("orders", "billing", 8)
        assert len({one.system_properties.message_id for one in found}) == 8
        for stream in (settling, again):
            stream.cancel()


async def test_half_closed_telemetry_ends_and_its_client_stays(server: Served) -> None:
    async with server.client() as client:
        stream, _ = await client.settle(producer_settings("orders"))
        await stream.done_writing()
        assert await stream.read() is grpc.aio.EOF
        assert (await client.send(message("orders"))).status.code == pb.OK
        assert client.client_id in {one.client_id for one in server.server.clients}


async def test_malformed_protobuf_fails_the_call_alone(server: Served) -> None:
    async with server.client() as client:
        for name in ("SendMessage", "ReceiveMessage"):
            call = client.channel.unary_unary(f"/{SERVICE}/{name}")
            with pytest.raises(grpc.aio.AioRpcError) as failed:
                await call(b"\xff\xff\xff", metadata=client.metadata, timeout=10)
            assert failed.value.code() is grpc.StatusCode.INTERNAL
        assert (await client.send(message("orders"))).status.code == pb.OK


async def test_unknown_fields_are_tolerated(server: Served) -> None:
    unknown = b"\xfa\x3f\x03abc"  # field 1023
    request = rpc.SendMessageRequest(messages=[message("orders", b"known")]).SerializeToString() + unknown
    async with server.client() as client:
        call = client.channel.unary_unary(f"/{SERVICE}/SendMessage")
        answer = rpc.SendMessageResponse.FromString(await call(request, metadata=client.metadata, timeout=10))
        assert answer.status.code == pb.OK
    assert [one.body for one in server.cluster.messages("orders")] == [b"known"]


async def test_a_server_that_stops_ends_the_calls_that_wait(server: Served) -> None:
    async with server.client() as client:
        stream, _ = await client.settle(consumer_settings("billing", "orders"))
        waiting = asyncio.create_task(client.receive("orders", "billing"))
        await asyncio.sleep(0.2)
        await server.server.stop()
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await waiting
        assert failed.value.code() is grpc.StatusCode.UNAVAILABLE
        with pytest.raises(grpc.aio.AioRpcError):
            await stream.read()


async def test_thousands_of_streams_are_served_and_leave_nothing(server: Served) -> None:
    async with contexts(server, 4) as clients:
        streams = await asyncio.gather(*(
            clients[number % 4].with_id(f"many-{number}").settle(producer_settings("orders"))
            for number in range(2000)
        ))  # fmt: skip
        assert len(streams) == 2000
        assert server_calls(server) == 2000
        assert (await clients[0].send(message("orders"))).status.code == pb.OK
        for stream, _ in streams:
            stream.cancel()
        await until(lambda: nothing_is_left(server), "all streams are closed")


@contextlib.asynccontextmanager
async def contexts(server: Served, count: int) -> AsyncIterator[list[Stubs]]:
    async with contextlib.AsyncExitStack() as stack:
        yield [await stack.enter_async_context(server.client()) for _ in range(count)]


async def test_tls_and_clear_text_share_the_port(tmp_path: Path) -> None:
    trustme = pytest.importorskip("trustme")
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost")
    certificate.cert_chain_pems[0].write_to_path(str(tmp_path / "cert.pem"))
    certificate.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    paths = str(tmp_path / "cert.pem"), str(tmp_path / "key.pem")
    async with served(tls_cert_path=paths[0], tls_key_path=paths[1]) as server, server.client() as plain:
        await server.topic("orders")
        credentials = grpc.ssl_channel_credentials((tmp_path / "ca.pem").read_bytes())
        target = f"localhost:{server.server.port}"
        async with grpc.aio.secure_channel(target, credentials) as channel:
            secure = type(plain)(channel, "secure")
            assert (await secure.send(message("orders", bytes(1 << 20)))).status.code == pb.OK
        assert (await plain.send(message("orders"))).status.code == pb.OK
