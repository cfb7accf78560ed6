"""Sends of gRPC clients take the broker's native path, whatever the type of messages of their topic is."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.grpc.grpc_harness import message, served
from orbitmq.proxy.proto import definition_pb2 as pb
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
