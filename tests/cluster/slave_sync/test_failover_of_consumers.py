"""Consumers of the SDK go on at the slave while their master is away, and return to it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from orbitmq import aio
from orbitmq.client.query.find import find_messages
from orbitmq.protocol.bodies import SubscriptionGroupConfig
from orbitmq.testing import LocalCluster
from support.broker.broker_harness import running_broker
from support.broker.replica_pair import copy_log, sync_of
from support.remoting_harness import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from orbitmq.broker.broker import Broker

MASTER, TOPIC, GROUP = "broker-a", "orders", "readers"


@contextlib.asynccontextmanager
async def pair(**settings: Any) -> AsyncIterator[tuple[LocalCluster, Broker]]:
    """A cluster of one master with a slave that follows its tables; ``copy_log`` gives it the messages."""
    async with LocalCluster(settings={"slaveReadEnable": "true", **settings}) as cluster:
        more: dict[str, Any] = {
            "brokerRole": "SLAVE",
            "brokerId": 1,
            "namesrvAddr": cluster.name_server,
            "slaveReadEnable": True,
            "slaveMetadataCheckPeriod": 30,
            "registerNameServerPeriod": 10_000,
        }
        async with running_broker(clock=cluster.clock, **more) as slave:  # type: ignore[arg-type]
            await slave.registration.settled()
            yield cluster, slave


async def send(cluster: LocalCluster, slave: Broker, bodies: range) -> None:
    """Send messages, and wait until the slave has them and the topic."""
    async with cluster.producer(group="senders") as producer:
        for number in bodies:
            await producer.send(aio.Message(TOPIC, b"%d" % number))
    copy_log(cluster.broker(), slave)
    await eventually(lambda: TOPIC in slave.topics.configs and slave.role.is_master_alive)
    await slave.registration.settled()


async def stop_master(cluster: LocalCluster, slave: Broker) -> None:
    await cluster.stop(MASTER)
    await eventually(lambda: not slave.role.is_master_alive)


async def test_a_push_consumer_goes_on_at_the_slave_and_returns() -> None:
    async with pair() as (cluster, slave):
        await send(cluster, slave, range(20))
        cluster.broker().groups.update(SubscriptionGroupConfig(GROUP))
        received: list[bytes] = []
        consumer = cluster.consumer(
            GROUP, poll_name_server_interval=0.2, consume_from_where="CONSUME_FROM_FIRST_OFFSET"
        )

        async def consume(message: aio.ReceivedMessage) -> None:
            received.append(message.body)

        consumer.on(TOPIC)(consume)

        await stop_master(cluster, slave)
        async with consumer:
            await eventually(lambda: len(received) == 20)
        assert sum(slave.offsets.of_group(GROUP, TOPIC).values()) == 20
        await cluster.start(MASTER)
        master = cluster.broker()
        await eventually(lambda: sum(master.offsets.of_group(GROUP, TOPIC).values()) == 20)
        await eventually(lambda: not sync_of(slave)._merge.unsent)


async def test_a_running_consumer_survives_the_end_of_its_master() -> None:
    async with pair() as (cluster, slave):
        await send(cluster, slave, range(10))
        received: list[bytes] = []
        consumer = cluster.consumer(
            GROUP, poll_name_server_interval=0.2, consume_from_where="CONSUME_FROM_FIRST_OFFSET"
        )

        async def consume(message: aio.ReceivedMessage) -> None:
            received.append(message.body)

        consumer.on(TOPIC)(consume)

        async with consumer:
            await eventually(lambda: len(received) == 10)
            async with cluster.producer(group="senders") as producer:
                consumer.pause()
                for number in range(10, 20):
                    await producer.send(aio.Message(TOPIC, b"%d" % number))
            copy_log(cluster.broker(), slave)
            await stop_master(cluster, slave)
            consumer.resume()
            await eventually(lambda: len(set(received)) == 20)
            await cluster.start(MASTER)
            async with cluster.producer(group="senders") as producer:
                for number in range(20, 30):
                    await producer.send(aio.Message(TOPIC, b"%d" % number))
            # The slave does not get these: only the master has them.
            await eventually(lambda: len(set(received)) == 30)


async def test_a_lite_pull_consumer_goes_on_at_the_slave() -> None:
    async with pair() as (cluster, slave):
        await send(cluster, slave, range(12))
        await stop_master(cluster, slave)
        async with aio.LitePullConsumer(cluster.name_server, group=GROUP) as consumer:
            consumer.subscribe(TOPIC)
            received: list[bytes] = []
            while len(received) < 12:
                received += [message.body for message in await consumer.poll(timeout=5)]
        assert sorted(received, key=int) == [b"%d" % number for number in range(12)]


async def test_messages_are_found_by_key_without_the_master() -> None:
    async with pair() as (cluster, slave):
        async with cluster.producer(group="senders") as producer:
            await producer.send(aio.Message(TOPIC, b"found", keys=["k-1"]))
        await send(cluster, slave, range(1))
        await stop_master(cluster, slave)
        found = await find_messages(cluster.name_server, TOPIC, "k-1")
        assert [message.body for message in found] == [b"found"]
