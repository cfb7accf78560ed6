"""Messages that were popped from a dead master come again by way of another one, unless they were acknowledged."""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import TYPE_CHECKING

from orbitmq.protocol.bodies import SubscriptionGroupConfig, TopicConfig
from orbitmq.protocol.message.pop_receipt import pop_retry_topic
from orbitmq.protocol.message.record import iter_records
from orbitmq.store import StoredMessage
from orbitmq.testing import LocalCluster
from support.broker.pop_harness import Popper
from support.remoting_harness import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from orbitmq.broker import Broker
    from support.broker.pop_harness import Got

MASTER, SLAVE, OTHER, TOPIC, GROUP = "broker-a", "broker-a-1", "broker-b", "orders", "readers"
RETRY = pop_retry_topic(TOPIC, GROUP, v2=False)
COUNT = 12
SETTINGS = {
    "slaveMetadataCheckPeriod": "30",
    "enableSlaveActingMaster": "true",
    "enableRemoteEscape": "true",
    "syncBrokerMemberGroupPeriod": "30",
    "timerPrecisionMs": "100",
    "timerFlushIntervalMs": "50",
    "reviveInterval": "20",
    "reviveQueueNum": "2",
}


@contextlib.asynccontextmanager
async def pairs() -> AsyncIterator[LocalCluster]:
    async with LocalCluster(brokers=2, replicas=2, settings=SETTINGS) as cluster:
        for name in (MASTER, OTHER):
            cluster.broker(name).topics.update(TopicConfig(TOPIC, 1, 1))
            cluster.broker(name).groups.update(SubscriptionGroupConfig(GROUP))
        slave = cluster.broker(SLAVE)
        await eventually(lambda: TOPIC in slave.topics.configs and GROUP in slave.groups.configs)
        yield cluster


async def popped(cluster: LocalCluster, invisible_ms: int) -> list[Got]:
    """Messages of the master, of which the first half is acknowledged."""
    master = cluster.broker(MASTER)
    for number in range(COUNT):
        master.store.append(StoredMessage(TOPIC, 0, b"order-%02d" % number, b""))
    await master.service.flushed(master.store.log.end)
    async with Popper.of(master) as popper:
        got = await popper.gets(TOPIC, GROUP, queue_id=0, invisible_ms=invisible_ms)
        assert len(got) == COUNT
        await popper.settles(*got[: COUNT // 2])
    await cluster.wait_until_replicated()
    return got


def redelivered(*brokers: Broker) -> Counter[bytes]:
    """Bodies in the retry topic."""
    pieces = [piece for broker in brokers for piece in broker.store.get(RETRY, 0, 0, 1000).slices]
    return Counter(bytes(record.body) for piece in pieces for record in iter_records(piece))


LATE = {b"order-%02d" % number for number in range(COUNT // 2, COUNT)}


async def test_what_was_not_acknowledged_comes_again_at_another_master_and_once() -> None:
    async with pairs() as cluster:
        slave, other = cluster.broker(SLAVE), cluster.broker(OTHER)
        await popped(cluster, 1500)
        await cluster.stop(MASTER)
        await eventually(lambda: slave.role.acts_as_master)
        await cluster.advance(10)
        await eventually(lambda: set(redelivered(other)) == LATE)
        # A consumer pops them there.
        async with Popper.of(other) as popper:
            again = await popper.gets(TOPIC, GROUP, queue_id=-1)
            assert {got.body for got in again} == LATE
            await popper.settles(*again)
        await cluster.start(MASTER)
        master = cluster.broker(MASTER)
        assert not slave.role.acts_as_master
        await cluster.advance(30)
        await master.service.flushed(master.store.log.end)
        assert not redelivered(master)
        assert set(redelivered(other).values()) == {1}


async def test_the_master_gets_the_check_points_that_are_not_decided_when_it_returns() -> None:
    async with pairs() as cluster:
        slave, other = cluster.broker(SLAVE), cluster.broker(OTHER)
        await popped(cluster, 60_000)
        await cluster.stop(MASTER)
        await eventually(lambda: slave.role.acts_as_master)
        # The check point comes due a second before its acknowledgements.
        await cluster.advance(59.2)
        assert slave.bridge is not None
        revive = slave.bridge.revive
        assert revive is not None
        await eventually(lambda: revive.waiting)
        await cluster.start(MASTER)
        master = cluster.broker(MASTER)
        assert revive.waiting == 0
        await cluster.advance(10)
        await eventually(lambda: set(redelivered(master)) == LATE)
        assert set(redelivered(master).values()) == {1}
        assert not redelivered(other)


async def test_check_points_do_not_fill_the_outbox() -> None:
    async with pairs() as cluster:
        slave, other = cluster.broker(SLAVE), cluster.broker(OTHER)
        await popped(cluster, 60_000)
        await cluster.stop(MASTER)
        await eventually(lambda: slave.role.acts_as_master)
        assert slave.bridge is not None
        bridge = slave.bridge
        message = StoredMessage(slave.pop.revive.topic if slave.pop.revive else "", 0, b"{}", b"TAGS\1ck\2")
        for _ in range(2000):
            bridge.append(message)
        bridge.append(StoredMessage(TOPIC, 0, b"order-99"))
        await eventually(lambda: b"order-99" in bytes(b"".join(map(bytes, other.store.get(TOPIC, 0, 0, 9).slices))))
