"""A new master takes over the topics and groups of its cluster before it registers."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from orbitmq.aio import Message, Producer
from orbitmq.protocol.bodies import (
    MessageRequestMode,
    SetMessageRequestModeRequestBody,
    SubscriptionGroupConfig,
    TopicConfig,
)
from orbitmq.testing import LocalCluster, MemoryDisk
from support.broker.broker_harness import running_broker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import pytest

    from orbitmq.broker import Broker

TOPIC, GROUP = "orders", "readers"


@contextlib.asynccontextmanager
async def new_broker(name_server: str, disk: MemoryDisk | None = None, **more: Any) -> AsyncIterator[Broker]:
    settings: dict[str, Any] = {
        "brokerName": "broker-z", "namesrvAddr": name_server, "copyClusterMetadata": True, **more,
    }  # fmt: skip
    async with running_broker(disk, **settings) as broker:
        await broker.registration.settled()
        yield broker


async def test_a_new_broker_has_the_topics_of_the_cluster_when_it_registers() -> None:
    async with LocalCluster(brokers=2) as cluster:
        first, second = cluster.broker("broker-a"), cluster.broker("broker-b")
        first.topics.update(TopicConfig(TOPIC, 2, 2, attributes={"message.type": "FIFO"}))
        second.topics.update(TopicConfig(TOPIC, 6, 6), TopicConfig("%RETRY%readers", 1, 1))
        first.groups.update(SubscriptionGroupConfig(GROUP, retry_max_times=3))
        mode = SetMessageRequestModeRequestBody(TOPIC, GROUP, MessageRequestMode.POP, 2)
        first.pop.assignments.set(mode)
        async with new_broker(cluster.name_server) as broker:
            assert broker.topics.configs[TOPIC].write_queue_nums == 6
            assert broker.groups.configs[GROUP].retry_max_times == 3
            assert broker.pop.assignments.mode_of(TOPIC, GROUP) == mode
            assert not {"broker-a", "broker-b", "%RETRY%readers"} & broker.topics.configs.keys()
            async with Producer(cluster.name_server, group="p") as producer:
                receipts = [await producer.send(Message(TOPIC, b"x")) for _ in range(16)]
            assert "broker-z" in {receipt.queue.broker_name for receipt in receipts}


async def test_only_a_broker_without_topics_copies_them() -> None:
    disk = MemoryDisk()
    async with LocalCluster() as cluster:
        cluster.broker().topics.update(TopicConfig(TOPIC, 2, 2), TopicConfig("kept", 1, 1))
        async with new_broker(cluster.name_server, disk) as broker:
            broker.topics.delete(TOPIC)
        async with new_broker(cluster.name_server, disk) as broker:
            assert "kept" in broker.topics.configs
            assert TOPIC not in broker.topics.configs
        async with new_broker(cluster.name_server, copyClusterMetadata=False) as broker:
            assert TOPIC not in broker.topics.configs


async def test_a_broker_without_peers_starts_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    async with LocalCluster(brokers=0) as cluster, new_broker(cluster.name_server) as broker:
        assert broker.registration.registered_with == [cluster.name_server]
    async with new_broker("127.0.0.1:9"):
        assert "cluster copy: failed, the next start tries again" in caplog.text
