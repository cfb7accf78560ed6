"""Delayed messages and timers of a dead master arrive by way of another one, once, and end when it is back."""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import TYPE_CHECKING

from orbitmq import aio
from orbitmq.protocol.bodies import TopicConfig
from orbitmq.store import StoredMessage
from orbitmq.testing import LocalCluster
from support.remoting_harness import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from orbitmq.broker import Broker

MASTER, SLAVE, OTHER, TOPIC = "broker-a", "broker-a-1", "broker-b", "orders"
ONE = aio.MessageQueue(TOPIC, MASTER, 0)
SETTINGS = {
    "slaveMetadataCheckPeriod": "30",
    "enableSlaveActingMaster": "true",
    "enableRemoteEscape": "true",
    "syncBrokerMemberGroupPeriod": "30",
    "timerPrecisionMs": "100",
    "timerFlushIntervalMs": "50",
    "flushDelayOffsetInterval": "50",
    # Long enough that the master never delivers them itself, however busy this machine is.
    "messageDelayLevel": "60s 2s 3s 600s",
}


SOON = 61
"""Seconds until the first messages are due."""


@contextlib.asynccontextmanager
async def pairs(brokers: int = 2) -> AsyncIterator[tuple[LocalCluster, Broker]]:
    async with LocalCluster(brokers=brokers, replicas=2, settings=SETTINGS) as cluster:
        for name in (MASTER, OTHER)[:brokers]:
            cluster.broker(name).topics.update(TopicConfig(TOPIC, 4, 4))
        slave = cluster.broker(SLAVE)
        await eventually(lambda: TOPIC in slave.topics.configs)
        yield cluster, slave


async def send(cluster: LocalCluster) -> None:
    """Ten delayed messages and ten timers for the first master, and a few for much later."""
    async with aio.Producer(cluster.name_server, group="senders") as producer:
        for number in range(10):
            await producer.send(aio.Message(TOPIC, b"level-%d" % number, delay_level=1), queue=ONE)
            await producer.send(aio.Message(TOPIC, b"timer-%d" % number, delay=60), queue=ONE)
        for number in range(3):
            await producer.send(aio.Message(TOPIC, b"late-%d" % number, delay_level=4), queue=ONE)
            await producer.send(aio.Message(TOPIC, b"late-timer-%d" % number, delay=600), queue=ONE)
    await cluster.wait_until_replicated()


def bodies(*brokers: Broker) -> Counter[bytes]:
    found: Counter[bytes] = Counter()
    for broker in brokers:
        for queue_id in range(4):
            result = broker.store.get(TOPIC, queue_id, 0, 1000)
            for view in result.slices:
                data = bytes(view)
                for kind in (b"level-", b"late-timer-", b"timer-", b"late-"):
                    while kind in data:
                        at = data.index(kind)
                        found[data[at : at + len(kind) + 1]] += 1
                        data = data.replace(kind, b"?" * len(kind), 1)
    return found


def expected() -> set[bytes]:
    return {kind % number for number in range(10) for kind in (b"level-%d", b"timer-%d")}


async def test_an_acting_slave_delivers_to_another_master_and_the_master_nothing_twice() -> None:
    async with pairs() as (cluster, slave):
        await send(cluster)
        await cluster.stop(MASTER)
        await eventually(lambda: slave.role.acts_as_master)
        await cluster.advance(SOON)
        other = cluster.broker(OTHER)
        await eventually(lambda: set(bodies(other)) == expected())
        assert set(bodies(other).values()) == {1}
        await cluster.start(MASTER)
        master = cluster.broker(MASTER)
        assert not slave.role.acts_as_master
        assert master.schedule.offsets[1] == 10
        await cluster.advance(600)
        await eventually(lambda: sum(bodies(master, other).values()) >= 26)
        assert set(bodies(master, other).values()) == {1}


async def test_without_another_master_the_messages_are_left_to_the_master() -> None:
    async with pairs(brokers=1) as (cluster, slave):
        await send(cluster)
        await cluster.stop(MASTER)
        await eventually(lambda: slave.role.acts_as_master)
        await cluster.advance(SOON)
        assert slave.bridge is not None
        bridge = slave.bridge
        await eventually(lambda: len(bridge._outbox) + bridge._sending >= 10)
        await cluster.start(MASTER)
        master = cluster.broker(MASTER)
        assert bridge.escaped == 0
        await eventually(lambda: set(bodies(master)) == expected())
        assert set(bodies(master).values()) == {1}


async def test_an_acting_slave_that_restarts_goes_on_with_what_is_left() -> None:
    async with pairs() as (cluster, slave):
        await send(cluster)
        await cluster.stop(MASTER)
        await eventually(lambda: slave.role.acts_as_master)
        await cluster.advance(SOON)
        other = cluster.broker(OTHER)
        await eventually(lambda: bodies(other))
        await cluster.restart(SLAVE)
        await eventually(lambda: cluster.broker(SLAVE).role.acts_as_master)
        await eventually(lambda: set(bodies(other)) == expected())
        await cluster.advance(600)
        await eventually(lambda: sum(bodies(other).values()) >= 26)
        assert set(bodies(other).values()) == {1}


async def test_the_slave_with_the_smallest_id_acts_and_the_next_one_goes_on_where_it_was() -> None:
    async with LocalCluster(brokers=2, replicas=3, settings=SETTINGS) as cluster:
        master, other = cluster.broker(MASTER), cluster.broker(OTHER)
        for broker in (master, other):
            broker.topics.update(TopicConfig(TOPIC, 4, 4))
        first, second = cluster.broker(SLAVE), cluster.broker(f"{MASTER}-2")
        await eventually(lambda: TOPIC in first.topics.configs and TOPIC in second.topics.configs)
        await send(cluster)
        master.store.append(StoredMessage(TOPIC, 0, b"plain"))
        await cluster.wait_until_replicated()
        await cluster.stop(MASTER)
        await eventually(lambda: first.role.acts_as_master)
        await cluster.advance(SOON)
        await eventually(lambda: set(bodies(other)) == expected())
        assert not second.role.acts_as_master
        first.offsets.commit("readers", TOPIC, 0, 1, "127.0.0.1:5")
        assert first.timer is not None
        assert second.timer is not None
        reached = first.timer.read_time_ms
        timer = second.timer
        await eventually(
            lambda: (
                second.schedule.offsets.get(1) == 10
                and timer.read_time_ms >= reached
                and second.offsets.query("readers", TOPIC, 0) == 1
            )
        )
        # The other one takes its place, and delivers what is left.
        await cluster.stop(SLAVE)
        await eventually(lambda: second.role.acts_as_master)
        await cluster.advance(600)
        await eventually(lambda: sum(bodies(other).values()) >= 26)
        assert set(bodies(other).values()) == {1}
        await cluster.start(MASTER)
        master = cluster.broker(MASTER)
        assert master.offsets.query("readers", TOPIC, 0) == 1
        await cluster.advance(10)
        assert not bodies(master)
