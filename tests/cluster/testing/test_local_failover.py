"""``LocalCluster(replicas=3, failover=True)``: a replica takes over when the master is killed or hangs."""

from __future__ import annotations

import asyncio

import pytest

from orbitmq.aio import Message, OrbitMQError, Producer
from orbitmq.testing import LocalCluster

PATIENCE = 20


async def stored(producer: Producer, *bodies: bytes) -> None:
    """Send each until it is acknowledged."""
    async with asyncio.timeout(PATIENCE):
        for body in bodies:
            while True:
                try:
                    await producer.send(Message("orders", body), timeout=1)
                    break
                except OrbitMQError:
                    await asyncio.sleep(0.02)


async def test_another_replica_takes_over_from_a_killed_and_from_a_hanging_master() -> None:
    async with LocalCluster(replicas=3, failover=True) as cluster, Producer(cluster.name_server) as producer:
        first = cluster.master()
        await stored(producer, b"1", b"2")
        await cluster.kill(first)
        await stored(producer, b"3")
        second = cluster.master()
        assert second != first
        await cluster.start(first)
        await cluster.wait_until_in_sync(PATIENCE)
        cluster.pause(second)
        await stored(producer, b"4")
        third = cluster.master()
        assert third != second
        cluster.resume(second)
        await cluster.wait_until_in_sync(PATIENCE)
        await cluster.wait_until_replicated(PATIENCE)
        assert sorted({message.body for message in cluster.messages("orders")}) == [b"1", b"2", b"3", b"4"]


def test_plain_code_has_the_same_verbs() -> None:
    with LocalCluster(replicas=2, failover=True, settings={"minInSyncReplicas": "1"}) as cluster:
        old = cluster.master()
        cluster.stop(old)
        cluster.wait_until_in_sync(PATIENCE)
        assert {old, cluster.master()} == {"broker-a", "broker-a-1"}


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="two replicas"):
        LocalCluster(failover=True)
    with pytest.raises(ValueError, match="a name server"):
        LocalCluster(name_servers=0, replicas=3, failover=True)
