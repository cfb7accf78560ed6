"""A local cluster with replicas: consumers lose nothing when the master dies, and orderly ones go on if it acts."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from orbitmq import aio
from orbitmq.protocol.bodies import SubscriptionGroupConfig, TopicConfig
from orbitmq.testing import LocalCluster
from support.remoting_harness import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from orbitmq.broker import Broker

MASTER, SLAVE, TOPIC, GROUP = "broker-a", "broker-a-1", "orders", "readers"
ONE = aio.MessageQueue(TOPIC, MASTER, 0)
FAST = {"slaveMetadataCheckPeriod": "30", "slaveReadEnable": "true"}


def prepare(cluster: LocalCluster) -> Broker:
    """A topic and a group at the master; returns the slave."""
    master = cluster.broker()
    master.topics.update(TopicConfig(TOPIC, 4, 4))
    master.groups.update(SubscriptionGroupConfig(GROUP))
    return cluster.broker(SLAVE)


async def send(cluster: LocalCluster, numbers: range, queue: aio.MessageQueue | None = None) -> None:
    async with aio.Producer(cluster.name_server, group="senders") as producer:
        for number in numbers:
            await producer.send(aio.Message(TOPIC, b"%d" % number), queue=queue)


def consumer_of(cluster: LocalCluster, received: list[int], **options: object) -> aio.Consumer:
    consumer: aio.Consumer = cluster.consumer(
        GROUP, poll_name_server_interval=0.1, consume_from_where="CONSUME_FROM_FIRST_OFFSET", **options
    )

    async def consume(message: aio.ReceivedMessage) -> None:
        received.append(int(message.body))

    consumer.on(TOPIC)(consume)
    return consumer


async def test_no_replicated_message_is_lost_when_the_master_dies_and_returns() -> None:
    async with LocalCluster(replicas=2, settings=FAST) as cluster:
        slave = prepare(cluster)
        received: list[int] = []
        async with consumer_of(cluster, received) as consumer:
            await send(cluster, range(40))
            await eventually(lambda: len(set(received)) == 40)
            consumer.pause()
            await send(cluster, range(40, 80))
            await cluster.wait_until_replicated()
            await eventually(lambda: TOPIC in slave.topics.configs)
            # A clean end, so that the master finds its whole log again.
            await cluster.stop(MASTER)
            consumer.resume()
            await eventually(lambda: len(set(received)) == 80)
            await consumer.persist_offsets()
            await eventually(lambda: sum(slave.offsets.of_group(GROUP, TOPIC).values()) == 80)
            await cluster.start(MASTER)
            master = cluster.broker()
            await eventually(lambda: sum(master.offsets.of_group(GROUP, TOPIC).values()) == 80)
            await send(cluster, range(80, 100))
            await eventually(lambda: set(received) == set(range(100)))


async def test_every_broadcasting_consumer_goes_on_at_the_slave(tmp_path: Path) -> None:
    async with LocalCluster(replicas=2, settings=FAST) as cluster:
        slave = prepare(cluster)
        received: list[list[int]] = [[], []]
        async with contextlib.AsyncExitStack() as ends:
            consumers = [
                await ends.enter_async_context(
                    consumer_of(
                        cluster,
                        seen,
                        message_model="BROADCASTING",
                        local_offset_store_dir=str(tmp_path / str(number)),
                        instance_name=f"member-{number}",
                    )
                )
                for number, seen in enumerate(received)
            ]
            await send(cluster, range(10))
            await eventually(lambda: all(len(set(seen)) == 10 for seen in received))
            for consumer in consumers:
                consumer.pause()
            await send(cluster, range(10, 40))
            await cluster.wait_until_replicated()
            await eventually(lambda: TOPIC in slave.topics.configs)
            await cluster.stop(MASTER)
            for consumer in consumers:
                consumer.resume()
            await eventually(lambda: all(set(seen) == set(range(40)) for seen in received))
            await cluster.start(MASTER)
            await send(cluster, range(40, 50))
            await eventually(lambda: all(set(seen) == set(range(50)) for seen in received))


async def test_orderly_consumers_go_on_at_an_acting_slave() -> None:
    settings = {**FAST, "enableSlaveActingMaster": "true", "syncBrokerMemberGroupPeriod": "30"}
    async with LocalCluster(replicas=2, settings={**settings, "slaveReadEnable": "false"}) as cluster:
        slave = prepare(cluster)
        name_server = cluster._name_servers["name-server-a"].server
        assert name_server is not None
        name_server.config.support_acting_master = True
        received: list[int] = []
        async with consumer_of(cluster, received, orderly=True, lock_interval=0.2) as consumer:
            await send(cluster, range(10), ONE)
            await eventually(lambda: len(received) == 10)
            consumer.pause()
            await send(cluster, range(10, 20), ONE)
            await cluster.wait_until_replicated()
            await cluster.stop(MASTER)
            await eventually(lambda: slave.role.acts_as_master)
            consumer.resume()
            await eventually(lambda: len(received) >= 20)
            assert received == list(range(20))
            await cluster.start(MASTER)
            await eventually(lambda: not slave.role.acts_as_master)
            await send(cluster, range(20, 25), ONE)
            await eventually(lambda: received[-1] == 24)


async def test_a_consumer_that_is_far_behind_reads_from_the_slave_and_returns() -> None:
    async with LocalCluster(replicas=2, settings=FAST) as cluster:
        slave = prepare(cluster)
        master = cluster.broker()
        await send(cluster, range(30))
        await cluster.wait_until_replicated()
        await eventually(lambda: TOPIC in slave.topics.configs and slave.role.is_master_alive)
        window = master.store.log.end // 2
        for broker in (master, slave):
            broker.store.reader.memory_window = window
        received: list[int] = []
        async with consumer_of(cluster, received, pull_batch_size=2) as consumer:
            await eventually(lambda: len(set(received)) == 30)
            assert slave.offsets._pulled
            await send(cluster, range(30, 40))
            await eventually(lambda: set(received) == set(range(40)))
            await consumer.persist_offsets()
            await eventually(lambda: sum(master.offsets.of_group(GROUP, TOPIC).values()) == 40)
