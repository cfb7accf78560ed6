"""Connections of one address: its share is limited, and others and this machine still get in."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from orbitmq.protocol.codes import RequestCode, ResponseCode
from support.broker.broker_harness import BrokerPeer, running_broker
from support.remoting_harness import eventually

if TYPE_CHECKING:
    import pytest

    from orbitmq.broker import Broker


async def connected(stack: contextlib.AsyncExitStack, broker: Broker, host: str) -> BrokerPeer:
    """A client that a trusted proxy connects for an address."""
    peer = await stack.enter_async_context(BrokerPeer.of(broker))
    peer.send(f"PROXY TCP4 {host} 127.0.0.1 4711 10911\r\n".encode())
    return peer


async def test_one_address_has_a_limited_number_of_connections(caplog: pytest.LogCaptureFixture) -> None:
    settings = {"trustedProxies": "127.0.0.1", "remotingMaxConnectionsPerAddress": "3"}
    async with running_broker(**settings) as broker, contextlib.AsyncExitStack() as stack:  # type: ignore[arg-type]
        asked = RequestCode.GET_BROKER_RUNTIME_INFO
        taken = [await connected(stack, broker, "203.0.113.9") for _ in range(3)]
        for peer in taken:
            assert (await peer.asks(asked)).code == ResponseCode.SUCCESS
        for _ in range(3):
            refused = await connected(stack, broker, "203.0.113.9")
            refused.send(b"x")
            await eventually(refused._listening.done)
        assert caplog.text.count("remotingMaxConnectionsPerAddress") == 1
        for host in ("203.0.113.10", "127.0.0.1"):
            peer = await connected(stack, broker, host)
            assert (await peer.asks(asked)).code == ResponseCode.SUCCESS
        await taken.pop().leave()
        await eventually(lambda: len(broker.connections) == 4)
        again = await connected(stack, broker, "203.0.113.9")
        assert (await again.asks(asked)).code == ResponseCode.SUCCESS
