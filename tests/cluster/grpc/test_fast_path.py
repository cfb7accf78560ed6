"""Calls of gRPC clients take the broker's native path, sends whatever the type of messages of their topic is."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.grpc.grpc_harness import consumer_settings, message, resource, served
from orbitmq.proxy.proto import definition_pb2 as pb
from orbitmq.proxy.proto import service_pb2 as rpc
from support.native.marks import needs_native

pytestmark = needs_native


@pytest.mark.parametrize(
    ("kind", "properties", "is_native"),
    [
        ("NORMAL", {"tag": "a", "keys": ["k"]}, True),
        ("FIFO", {"message_group": "g"}, True),
        ("MIXED", {}, True),
        ("PRIORITY", {"priority": 1}, False),
    ],
)
async def test_sends_are_served_natively(kind: str, properties: dict[str, Any], is_native: bool) -> None:
    async with served() as server, server.client() as client:
        await server.topic("typed", kind, queues=1)
        path = server.broker._fast_path
        assert path is not None
        assert path._sends is not None
        for _ in range(3):  # the first one creates the queue
            assert (await client.send(message("typed", **properties))).status.code == pb.OK
        assert bool(path._sends.served) == is_native
        assert len(server.cluster.messages("typed")) == 3


async def test_receives_and_acknowledgements_are_served_natively() -> None:
    async with served() as server, server.client() as client:
        await server.topic("orders", queues=1)
        server.group("billing")
        path = server.broker._fast_path
        assert path is not None
        assert path._pops is not None
        assert path._acks is not None
        stream, _ = await client.settle(consumer_settings("billing", "orders"))
        for body in (b"first", b"second", b"third"):  # the first receive gives the group its offset
            await client.send(message("orders", body))
            (found,) = await client.received("orders", "billing")
            assert found.body == body
            ack = rpc.AckMessageRequest(group=resource("billing"), topic=resource("orders"))
            ack.entries.add(receipt_handle=found.system_properties.receipt_handle)
            assert (await client.unary("AckMessage", ack)).status.code == pb.OK
        assert path._pops.served >= 1
        assert path._acks.served >= 1
        stream.cancel()
