"""Rows of the table of failures in docs/failover.md that need no process: fewer replicas, and no controller."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from orbitmq.aio import BrokerError, Consumer, Message, OrbitMQError, Producer, SendError, SendStatus
from orbitmq.protocol.codes import ResponseCode
from orbitmq.testing import LocalCluster

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.aio import Receipt, ReceivedMessage

PATIENCE = 20
TOPIC = "orders"


async def outcome(producer: Producer, body: bytes = b"x") -> Receipt | int:
    """The receipt of one send, or the code of its refusal; -1 for another failure."""
    try:
        return await producer.send(Message(TOPIC, body), timeout=5)
    except BrokerError as error:
        return error.code
    except SendError as error:
        return error.__cause__.code if isinstance(error.__cause__, BrokerError) else -1
    except OrbitMQError:
        return -1


async def until(producer: Producer, is_wanted: Callable[[Receipt | int], bool]) -> None:
    """Send until the outcome is this."""
    async with asyncio.timeout(PATIENCE):
        while not is_wanted(await outcome(producer)):  # noqa: ASYNC110
            await asyncio.sleep(0.02)


def is_stored(found: Receipt | int) -> bool:
    return not isinstance(found, int) and found.status is SendStatus.SEND_OK


async def test_sends_go_on_without_one_slave_and_are_refused_without_two() -> None:
    async with LocalCluster(replicas=3, failover=True) as cluster, Producer(cluster.name_server) as producer:
        slaves = [name for name in ("broker-a", "broker-a-1", "broker-a-2") if name != cluster.master()]
        await until(producer, is_stored)
        await cluster.kill(slaves[0])
        await until(producer, is_stored)
        await cluster.kill(slaves[1])
        await until(producer, lambda found: found == ResponseCode.SYSTEM_ERROR)
        with pytest.raises(SendError, match="in-sync replicas not enough"):
            await producer.send(Message(TOPIC, b"x"))
        await cluster.start(slaves[0])
        await until(producer, is_stored)


async def test_without_a_controller_sends_are_refused_after_the_lease_and_reads_go_on() -> None:
    async with (
        LocalCluster(name_servers=2, replicas=3, failover=True) as cluster,
        Producer(cluster.name_server) as producer,
    ):
        await until(producer, is_stored)
        await cluster.kill("name-server-a")
        await until(producer, lambda found: found == ResponseCode.SERVICE_NOT_AVAILABLE)
        stored = len(cluster.messages(TOPIC))
        assert stored
        read = asyncio.Event()
        consumer = Consumer(cluster.name_server, group="c", start_from="earliest")

        @consumer.on(TOPIC)
        async def _(_: ReceivedMessage) -> None:
            read.set()

        async with consumer, asyncio.timeout(PATIENCE):
            await read.wait()
        await cluster.start("name-server-a")
        await until(producer, is_stored)
        assert len(cluster.messages(TOPIC)) > stored
