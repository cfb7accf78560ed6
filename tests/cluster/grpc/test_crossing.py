"""Messages cross between clients of gRPC and of remoting, both ways, with everything they were sent with."""

from __future__ import annotations

import asyncio
import zlib
from typing import TYPE_CHECKING

from cluster.grpc.grpc_harness import consumer_settings, message, resource, served
from orbitmq import aio
from orbitmq.proxy.proto import definition_pb2 as pb
from orbitmq.proxy.proto import service_pb2 as rpc

if TYPE_CHECKING:
    from cluster.grpc.grpc_harness import Served

PATIENCE = 30


async def consumed(server: Served, topic: str, group: str, count: int) -> list[aio.ReceivedMessage]:
    """The first messages that a push consumer of the remoting protocol gets."""
    found: list[aio.ReceivedMessage] = []
    consumer: aio.Consumer = server.cluster.consumer(group, consume_from_where="CONSUME_FROM_FIRST_OFFSET")

    async def consume(one: aio.ReceivedMessage) -> None:
        found.append(one)

    consumer.on(topic)(consume)
    async with consumer:
        for _ in range(PATIENCE * 50):
            if len(found) >= count:
                return found
            await asyncio.sleep(0.02)
    raise AssertionError(f"{len(found)} of {count} messages")


async def test_from_grpc_to_remoting() -> None:
    async with served() as server, server.client() as client:
        await server.topic("mixed", "MIXED", queues=1)
        sent = message(
            "mixed", b"body", tag="paid", keys=["a", "b"], user={"x": "ä", "price": "7"}, message_group="g",
            born_timestamp=1_700_000_000, trace_context="trace", born_host="host:1",
        )  # fmt: skip
        assert (await client.send(sent)).status.code == pb.OK
        # As the C++ client compresses: zlib, labelled GZIP.
        packed = message("mixed", zlib.compress(b"packed"))
        packed.system_properties.body_encoding = pb.GZIP
        assert (await client.send(packed)).status.code == pb.OK
        first, second = await consumed(server, "mixed", "readers", 2)
        assert (first.body, first.tags, first.keys) == (b"body", "paid", ["a", "b"])
        assert first.message_id == sent.system_properties.message_id
        assert first.born_timestamp == 1_700_000_000_000
        expected = {"x": "ä", "price": "7", "__SHARDINGKEY": "g", "TRACE_CONTEXT": "trace", "__BORNHOST": "host:1"}
        assert expected.items() <= first.properties.items()
        assert second.body == b"packed"


async def test_from_remoting_to_grpc() -> None:
    async with served() as server, server.client() as client:
        await server.topic("mixed", "MIXED", queues=1)
        server.group("readers")
        stream, _ = await client.settle(consumer_settings("readers", "mixed"))
        large = b"compress me " * 1000
        async with server.cluster.producer(group="senders") as producer:
            receipt = await producer.send(
                aio.Message("mixed", b"body", tags="paid", keys=["a", "b"], properties={"x": "ä"}, sharding_key="g")
            )
            await producer.send(aio.Message("mixed", large))
            await producer.send(aio.Message("mixed", b"late", delay=1))
        found = {one.body: one for one in await client.received("mixed", "readers", 3)}
        system = found[b"body"].system_properties
        assert (system.tag, list(system.keys), system.message_group) == ("paid", ["a", "b"], "g")
        assert (system.message_type, system.message_id) == (pb.FIFO, receipt.message_id)
        assert found[b"body"].user_properties["x"] == "ä"
        assert found[b"late"].system_properties.message_type == pb.DELAY
        (packed,) = (one for one in found.values() if one.system_properties.body_encoding == pb.GZIP)
        assert zlib.decompress(packed.body) == large
        stream.cancel()


async def test_a_message_that_dies_over_grpc_is_in_the_dead_letter_queue_of_remoting_clients() -> None:
    async with served() as server, server.client() as client:
        await server.topic("orders", queues=1)
        server.group("readers", retries=0)
        stream, _ = await client.settle(consumer_settings("readers", "orders"))
        async with server.cluster.producer(group="senders") as producer:
            await producer.send(aio.Message("orders", b"dead", properties={"x": "y"}))
        (one,) = await client.received("orders", "readers")
        request = rpc.ChangeInvisibleDurationRequest(group=resource("readers"), topic=resource("orders"))
        request.receipt_handle = one.system_properties.receipt_handle
        assert (await client.unary("ChangeInvisibleDuration", request)).status.code == pb.OK
        for _ in range(PATIENCE):
            await client.receive("orders", "readers", seconds=6)
            if dead := server.cluster.dead_letters("readers"):
                break
        assert [(letter.body, letter.properties["x"]) for letter in dead] == [(b"dead", "y")]
        stream.cancel()
