"""Acting slaves of ours with Apache's masters: one that takes what comes due, and one that dies and returns."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

import pytest

from conformance.slave_sync.mixed_pairs import CREATE_GROUP, CREATE_TOPIC, MAX_OFFSET, PULL, texts
from orbitmq.aio import Message, MessageQueue, Producer, TransactionProducer, TransactionState
from orbitmq.protocol.bodies import DelayOffsetSerializeWrapper, SubscriptionGroupConfig, TopicConfig
from orbitmq.protocol.message.pop_receipt import pop_retry_topic
from orbitmq.protocol.message.record import iter_records
from orbitmq.testing import LocalCluster
from peers.apache import ApacheBroker, free_broker_port
from peers.frames import ask
from support.broker.broker_harness import running_broker
from support.broker.pop_harness import Popper
from support.remoting_harness import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from orbitmq.aio import ReceivedMessage

pytestmark = pytest.mark.usefixtures("apache")

DELAY_OFFSETS = 45
MASTER, SLAVE, TOPIC, POPPED, GROUP = "broker-a", "broker-a-1", "orders", "tasks", "readers"
RETRY = pop_retry_topic(POPPED, GROUP, v2=False)
SETTINGS = {
    "slaveMetadataCheckPeriod": "30",
    "enableSlaveActingMaster": "true",
    "enableRemoteEscape": "true",
    "syncBrokerMemberGroupPeriod": "30",
    "timerPrecisionMs": "100",
    "reviveInterval": "20",
    "messageDelayLevel": "60s",
}
APACHE = {"brokerName": "broker-z", "transactionCheckInterval": "1000", "transactionTimeOut": "1000"}


def stored(broker: str, topic: str) -> set[bytes]:
    """Bodies in queue 0 to 3 of a topic that Apache's broker has."""
    found: set[bytes] = set()
    for queue in range(4):
        place = {"topic": topic, "queueId": queue}
        answer = ask(broker, MAX_OFFSET, texts(place))
        if answer.code or not int(answer.fields["offset"]):
            continue
        pull = {
            **place, "consumerGroup": "viewers", "queueOffset": 0, "maxMsgNums": 32, "sysFlag": 4,
            "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 0,
            "expressionType": "TAG",
        }  # fmt: skip
        answer = ask(broker, PULL, texts(pull))
        if answer.code == 0:
            found |= {bytes(record.body) for record in iter_records(answer.body)}
    return found


async def test_what_comes_due_at_our_acting_slave_arrives_at_apaches_master(tmp_path: Path) -> None:
    async def check(_: ReceivedMessage) -> TransactionState:
        return TransactionState.COMMIT

    async def local(_: object) -> TransactionState:
        return TransactionState.UNKNOWN

    async with LocalCluster(replicas=2, settings=SETTINGS) as cluster:
        master, slave = cluster.broker(MASTER), cluster.broker(SLAVE)
        master.topics.update(TopicConfig(TOPIC, 4, 4), TopicConfig(POPPED, 1, 1))
        master.groups.update(SubscriptionGroupConfig(GROUP))
        await eventually(lambda: POPPED in slave.topics.configs and GROUP in slave.groups.configs)
        async with TransactionProducer(
            cluster.name_server,
            group="shop",
            check=check,
            poll_name_server_interval=0.2,
            heartbeat_broker_interval=0.2,
        ) as shop:
            await shop.send_in_transaction(Message(TOPIC, b"half"), local)
            async with Producer(cluster.name_server, group="p") as producer:
                queue = MessageQueue(TOPIC, MASTER, 0)
                await producer.send(Message(TOPIC, b"level", delay_level=1), queue=queue)
                await producer.send(Message(TOPIC, b"timer", delay=60), queue=queue)
                await producer.send(Message(POPPED, b"popped"))
            async with Popper.of(master) as popper:
                assert len(await popper.gets(POPPED, GROUP, queue_id=0, invisible_ms=60_000)) == 1
            await cluster.wait_until_replicated()
            home = tmp_path / "home"
            apache = await asyncio.to_thread(
                lambda: ApacheBroker(tmp_path / "store", APACHE, home=home, nameserver=cluster.name_server)
            )
            try:
                for name in (TOPIC, POPPED):
                    topic = {
                        "topic": name, "defaultTopic": "TBW102", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6,
                        "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false",
                    }  # fmt: skip
                    assert (await asyncio.to_thread(ask, apache.address, CREATE_TOPIC, texts(topic))).code == 0
                group = b'{"groupName":"%b"}' % GROUP.encode()
                assert (await asyncio.to_thread(ask, apache.address, CREATE_GROUP, body=group)).code == 0
                await cluster.stop(MASTER)
                await eventually(lambda: slave.role.acts_as_master)
                await cluster.advance(61)
                wanted = {TOPIC: {b"half", b"level", b"timer"}, RETRY: {b"popped"}}
                async with asyncio.timeout(60):
                    while (  # noqa: ASYNC110  # another process
                        found := {name: await asyncio.to_thread(stored, apache.address, name) for name in wanted}
                    ) != wanted:
                        await asyncio.sleep(0.1)
                assert found == wanted
            finally:
                await asyncio.to_thread(apache.kill)


@pytest.mark.skipif(not os.environ.get("ORBITMQ_LONG"), reason="a long test: set ORBITMQ_LONG=1")
async def test_apaches_master_takes_over_the_progress_of_our_acting_slave(tmp_path: Path) -> None:
    role = {"brokerRole": "SLAVE", "brokerId": "1", "totalReplicas": "2"}
    levels = {"messageDelayLevel": "15s 600s", "enableSlaveActingMaster": "true", "totalReplicas": "2"}
    conf = {"brokerName": MASTER, "listenPort": str(free_broker_port()), "mappedFileSizeCommitLog": str(8 << 20)}
    async with LocalCluster(settings={**SETTINGS, **role, **levels}) as cluster:
        slave = cluster.broker(MASTER)

        def start() -> ApacheBroker:
            return ApacheBroker(
                tmp_path / "store", {**conf, **levels}, home=tmp_path / "home", nameserver=cluster.name_server
            )

        other_of: dict[str, Any] = {
            "brokerName": "broker-b", "namesrvAddr": cluster.name_server, "clock": cluster.clock,
        }  # fmt: skip
        async with running_broker(**other_of) as other:
            apache = await asyncio.to_thread(start)
            try:
                topic = {
                    "topic": TOPIC, "defaultTopic": "TBW102", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6,
                    "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false",
                }  # fmt: skip
                assert (await asyncio.to_thread(ask, apache.address, CREATE_TOPIC, texts(topic))).code == 0
                other.topics.update(TopicConfig(TOPIC, 4, 4))
                await eventually(lambda: TOPIC in slave.topics.configs)
                async with Producer(cluster.name_server, group="p") as producer:
                    queue = MessageQueue(TOPIC, MASTER, 0)
                    for level, body in ((1, b"soon"), (2, b"late")):
                        await producer.send(Message(TOPIC, body, delay_level=level), queue=queue)
                await eventually(lambda: slave.store.max_offset("SCHEDULE_TOPIC_XXXX", 0) == 1)
                await eventually(lambda: slave.store.max_offset("SCHEDULE_TOPIC_XXXX", 1) == 1)
                await asyncio.to_thread(apache.kill)
                await eventually(lambda: slave.role.acts_as_master)
                await cluster.advance(16)
                await eventually(lambda: sum(other.store.max_offset(TOPIC, queue_id) for queue_id in range(4)) == 1)
                apache = await asyncio.to_thread(start)
                assert not slave.role.acts_as_master
                answer = await asyncio.to_thread(ask, apache.address, DELAY_OFFSETS)
                assert DelayOffsetSerializeWrapper.decode(answer.body).offset_table[1] == 1
                assert await asyncio.to_thread(stored, apache.address, TOPIC) == set()
            finally:
                await asyncio.to_thread(apache.kill)
