"""A slave follows the tables of its master, over real connections."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from orbitmq.broker.slave_sync import master_client
from orbitmq.protocol.bodies import (
    ConsumerOffsetSerializeWrapper,
    DelayOffsetSerializeWrapper,
    MessageRequestMode,
    SetMessageRequestModeRequestBody,
    SubscriptionGroupConfig,
    TopicConfig,
)
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command.request_fields import ONLY_FORWARD
from orbitmq.protocol.message import property_names as names
from orbitmq.protocol.message.properties import encode as encode_properties
from orbitmq.store import StoredMessage
from orbitmq.store.config_tables import CONSUMER_OFFSETS, DELAY_OFFSETS, SUBSCRIPTION_GROUPS, TOPICS
from orbitmq.testing import ManualClock, MemoryDisk
from support.broker.broker_harness import T0, BrokerPeer, running_broker
from support.broker.replica_pair import copy_log, running_slave, sync, sync_of
from support.remoting_harness import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from orbitmq.broker.broker import Broker

GROUP, TOPIC = "readers", "orders"


@pytest.fixture
async def master() -> AsyncIterator[Broker]:
    async with running_broker() as broker:
        broker.topics.update(TopicConfig(TOPIC, 4, 4))
        broker.groups.update(SubscriptionGroupConfig(GROUP, retry_max_times=3))
        yield broker


@pytest.fixture
def slave_disk() -> MemoryDisk:
    return MemoryDisk()


@pytest.fixture
async def slave(slave_disk: MemoryDisk) -> AsyncIterator[Broker]:
    async with running_slave(slave_disk) as broker:
        yield broker


def send(broker: Broker, topic: str = TOPIC, queue_id: int = 0, **properties: str) -> int:
    text = encode_properties(properties)
    return broker.store.append(StoredMessage(topic, queue_id, b"body", text)).queue_offset


async def test_a_slave_takes_over_topics_groups_and_their_versions(master: Broker, slave: Broker) -> None:
    await sync(slave, master)
    assert slave.topics.configs[TOPIC] == master.topics.configs[TOPIC]
    assert slave.groups.configs[GROUP].retry_max_times == 3
    assert slave.topics.data_version == master.topics.data_version
    assert slave.groups.data_version == master.groups.data_version


async def test_only_what_vanished_at_the_master_is_deleted(master: Broker, slave: Broker) -> None:
    master.topics.update(TopicConfig("old", 1, 1))
    master.groups.update(SubscriptionGroupConfig("gone"))
    own = set(slave.topics.configs)
    await sync(slave, master)
    assert {"old", TOPIC} <= slave.topics.configs.keys()
    deleted: list[str] = []
    slave.topics.on_delete = deleted.append
    master.topics.delete("old")
    master.groups.delete("gone")
    await sync(slave, master)
    assert deleted == ["old"]
    assert own | {TOPIC} <= slave.topics.configs.keys()
    assert "gone" not in slave.groups.configs
    assert GROUP in slave.groups.configs


async def test_tables_of_many_pages_are_taken_over(
    master: Broker, slave: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(master_client, "PAGE", 7)
    master.topics.update(*(TopicConfig(f"t-{number}", 1, 1) for number in range(40)))
    master.groups.update(*(SubscriptionGroupConfig(f"g-{number}") for number in range(40)))
    await sync(slave, master)
    assert master.topics.configs.items() <= slave.topics.configs.items()
    assert master.groups.configs.keys() <= slave.groups.configs.keys()


async def test_an_unchanged_table_costs_an_empty_page(master: Broker, slave: Broker) -> None:
    await sync(slave, master)
    async with BrokerPeer.of(master) as peer:
        for code, seq in (
            (RequestCode.GET_ALL_TOPIC_CONFIG, "topicSeq"),
            (RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, "groupSeq"),
        ):
            table = slave.topics if code == RequestCode.GET_ALL_TOPIC_CONFIG else slave.groups
            version = table.data_version.encode().decode()
            answer = await peer.asks(code, **{seq: len(table.configs), "dataVersion": version})
            assert answer.code == ResponseCode.SUCCESS
            assert TOPIC.encode() not in (answer.body or b"")
            assert GROUP.encode() not in (answer.body or b"")


async def test_tables_are_on_the_slaves_disk_when_a_round_ends(
    master: Broker, slave: Broker, slave_disk: MemoryDisk
) -> None:
    send(master)
    master.offsets.commit(GROUP, TOPIC, 0, 1)
    await sync(slave, master)
    config = slave.settings.store.path("config")
    assert TOPIC in TOPICS.load(slave_disk, config).topic_config_table
    assert GROUP in SUBSCRIPTION_GROUPS.load(slave_disk, config).subscription_group_table
    assert CONSUMER_OFFSETS.load(slave_disk, config).offset_table == {f"{TOPIC}@{GROUP}": {0: 1}}


async def test_consumer_offsets_follow_the_master_back_and_forth(master: Broker, slave: Broker) -> None:
    for _ in range(9):
        send(master)
    for offset in (5, 9, 2):
        master.offsets.commit(GROUP, TOPIC, 0, offset)
        await sync(slave, master)
        assert slave.offsets.query(GROUP, TOPIC, 0) == offset
    master.offsets.remove_group(GROUP)
    await sync(slave, master)
    assert slave.offsets.query(GROUP, TOPIC, 0) == -1


async def test_offsets_wait_for_the_messages_that_they_count(
    master: Broker, slave: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orbitmq.broker.slave_sync.service.CATCH_UP_CHECKS", 2)
    send(master)
    master.offsets.commit(GROUP, TOPIC, 0, 1)
    address = master.settings.broker.broker_address
    await sync_of(slave).sync(address)
    assert slave.offsets.query(GROUP, TOPIC, 0) == -1
    assert TOPIC in slave.topics.configs
    copy_log(master, slave)
    await sync_of(slave).sync(address)
    assert slave.offsets.query(GROUP, TOPIC, 0) == 1


async def test_commits_at_the_slave_reach_a_master_that_is_back(master: Broker, slave: Broker) -> None:
    for _ in range(9):
        send(master)
    master.offsets.commit(GROUP, TOPIC, 0, 3)
    await sync(slave, master)
    async with BrokerPeer.of(slave) as consumer:
        fields = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0}
        await consumer.asks(RequestCode.UPDATE_CONSUMER_OFFSET, **fields, commitOffset=7)
        assert sync_of(slave)._merge.unsent == {f"{TOPIC}@{GROUP}": {0: 7}}
        await sync(slave, master)
        assert master.offsets.query(GROUP, TOPIC, 0) == 7
        assert slave.offsets.query(GROUP, TOPIC, 0) == 7
        assert sync_of(slave)._merge.unsent == {}


async def test_commits_at_the_slave_never_move_the_master_back(master: Broker, slave: Broker) -> None:
    for _ in range(9):
        send(master)
    await sync(slave, master)
    async with BrokerPeer.of(slave) as consumer:
        fields = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0}
        await consumer.asks(RequestCode.UPDATE_CONSUMER_OFFSET, **fields, commitOffset=4)
    master.offsets.commit(GROUP, TOPIC, 0, 8)
    await sync(slave, master)
    assert (master.offsets.query(GROUP, TOPIC, 0), slave.offsets.query(GROUP, TOPIC, 0)) == (8, 8)
    async with BrokerPeer.of(master) as peer:
        # A commit that was overtaken between the slave's look and its commit.
        await peer.asks(RequestCode.UPDATE_CONSUMER_OFFSET, **fields, commitOffset=5, **{ONLY_FORWARD: "true"})
    assert master.offsets.query(GROUP, TOPIC, 0) == 8


async def test_commits_at_the_slave_survive_its_restart(master: Broker) -> None:
    disk = MemoryDisk()
    for _ in range(9):
        send(master)
    async with running_slave(disk) as slave:
        await sync(slave, master)
        slave.offsets.commit(GROUP, TOPIC, 0, 6, "127.0.0.1:5")
    async with running_slave(disk) as slave:
        await sync(slave, master)
    assert master.offsets.query(GROUP, TOPIC, 0) == 6


async def test_a_slave_ahead_of_its_master_keeps_its_commits(master: Broker, slave: Broker) -> None:
    for _ in range(9):
        send(master)
    await sync(slave, master)
    slave.offsets.commit(GROUP, TOPIC, 0, 9, "127.0.0.1:5")
    async with running_broker() as shorter:
        shorter.topics.update(TopicConfig(TOPIC, 4, 4))
        shorter.groups.update(SubscriptionGroupConfig(GROUP))
        await sync(slave, shorter)
        assert shorter.offsets.query(GROUP, TOPIC, 0) == -1
        assert slave.offsets.query(GROUP, TOPIC, 0) == 9


async def test_request_modes_follow(master: Broker, slave: Broker) -> None:
    mode = SetMessageRequestModeRequestBody(TOPIC, GROUP, MessageRequestMode.POP, 2)
    master.pop.assignments.set(mode)
    await sync(slave, master)
    assert slave.pop.assignments.mode_of(TOPIC, GROUP) == mode


async def test_delivered_delay_levels_follow(slave_disk: MemoryDisk) -> None:
    clock = ManualClock(T0)
    async with running_broker(clock=clock) as master, running_slave(slave_disk, clock) as slave:
        master.topics.update(TopicConfig(TOPIC, 4, 4))
        async with BrokerPeer.of(master) as producer:
            for _ in range(3):
                await delayed(producer, 1)
        clock.advance(2000)
        master.schedule.deliver_due()
        assert master.schedule.offsets == {1: 3}
        await sync(slave, master)
        assert slave.schedule.offsets == {1: 3}
        await slave.writer.saved(DELAY_OFFSETS)
        config = slave.settings.store.path("config")
        assert DELAY_OFFSETS.load(slave_disk, config) == DelayOffsetSerializeWrapper(
            {1: 3}, master.schedule.data_version
        )


async def delayed(producer: BrokerPeer, level: int = 0, deliver_ms: int = 0) -> None:
    properties = {names.DELAY_LEVEL: str(level)} if level else {names.TIMER_DELIVER_MS: str(deliver_ms)}
    answer = await producer.asks(
        RequestCode.SEND_MESSAGE,
        b"later",
        producerGroup="p",
        topic=TOPIC,
        defaultTopic="TBW102",
        defaultTopicQueueNums=4,
        queueId=0,
        sysFlag=0,
        bornTimestamp=T0,
        flag=0,
        properties=encode_properties(properties).decode(),
    )
    assert answer.code == ResponseCode.SUCCESS, answer.remark


async def test_a_promoted_slave_delivers_timers_that_the_master_had_not() -> None:
    clock, disk = ManualClock(T0), MemoryDisk()
    async with running_broker(clock=clock) as master:
        master.topics.update(TopicConfig(TOPIC, 4, 4))
        async with BrokerPeer.of(master) as producer:
            for seconds in (5, 10, 60, 120):
                await delayed(producer, deliver_ms=T0 + seconds * 1000)
        run_timer(master)
        clock.advance(30_000)
        run_timer(master)
        assert master.store.max_offset(TOPIC, 0) == 2
        async with running_slave(disk, clock) as slave:
            await sync(slave, master)
            run_timer(slave)
            assert slave.timer is not None
            assert master.timer is not None
            assert slave.timer.read_time_ms == master.timer.read_time_ms
            assert slave.timer.counts.waiting() == {TOPIC: 2}
    clock.advance(40_000)
    async with running_broker(disk, clock) as promoted:
        run_timer(promoted)
        assert promoted.store.max_offset(TOPIC, 0) == 3
        clock.advance(60_000)
        run_timer(promoted)
        assert promoted.store.max_offset(TOPIC, 0) == 4


def run_timer(broker: Broker) -> None:
    assert broker.timer is not None
    broker.store.flush()
    broker.store.catch_up()
    for _ in range(1000):
        if broker.timer.run_slice() > broker.clock.now_ms():
            return
    raise AssertionError("the timer is never done")


async def test_queues_of_a_deleted_topic_go_and_those_of_its_successor_stay(master: Broker, slave: Broker) -> None:
    send(master)
    await sync(slave, master)
    assert slave.store.max_offset(TOPIC, 0) == 1
    async with BrokerPeer.of(master) as tool:
        answer = await tool.asks(RequestCode.DELETE_TOPIC_IN_BROKER, topic=TOPIC)
        assert answer.code == ResponseCode.SUCCESS
    await sync(slave, master)
    assert TOPIC not in slave.topics.configs
    assert slave.store.max_offset(TOPIC, 0) == 0
    master.topics.update(TopicConfig(TOPIC, 4, 4))
    assert send(master) == 0
    await sync(slave, master)
    assert slave.store.max_offset(TOPIC, 0) == 1
    assert slave.store.get(TOPIC, 0, 0, 32).count == 1


async def test_offsets_are_sent_as_standard_json(master: Broker) -> None:
    master.offsets.commit(GROUP, TOPIC, 0, 3)
    master.offsets.commit_pull(GROUP, TOPIC, 0, 5)
    async with BrokerPeer.of(master) as peer:
        body = (await peer.asks(RequestCode.GET_ALL_CONSUMER_OFFSET)).body
    assert body is not None
    assert b'"pullOffsetTable":{"orders@readers":{"0":5}}' in body
    assert ConsumerOffsetSerializeWrapper.decode(body).offset_table == {"orders@readers": {0: 3}}


async def test_a_slave_retries_until_its_master_answers(caplog: pytest.LogCaptureFixture) -> None:
    async with running_broker() as master:
        master.topics.update(TopicConfig(TOPIC, 4, 4))
        async with running_slave(slaveMetadataCheckPeriod=20) as slave:
            slave.role.found_master("127.0.0.1:9", "")
            await eventually(lambda: "slave_sync: failed, will retry" in caplog.text)
            slave.role.found_master(master.settings.broker.broker_address, "")
            await eventually(lambda: sync_of(slave).is_in_sync)
            assert TOPIC in slave.topics.configs


async def test_entries_that_no_master_has_are_ignored(
    master: Broker, slave: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    for name, queues in (("../../etc/passwd", 1), ("huge", 1 << 20), ("negative", -1)):
        master.topics.configs[name] = TopicConfig(name, queues, queues)
    master.topics.update(TopicConfig("sound", 1, 1))
    master.groups.configs["../g"] = SubscriptionGroupConfig("../g")
    master.groups.update(SubscriptionGroupConfig("sound-group"))
    await sync(slave, master)
    assert "sound" in slave.topics.configs
    assert "sound-group" in slave.groups.configs
    assert not {"../../etc/passwd", "huge", "negative"} & slave.topics.configs.keys()
    assert "../g" not in slave.groups.configs
    assert "of the master ignored" in caplog.text


async def test_a_reset_at_the_master_reaches_the_slave(master: Broker, slave: Broker) -> None:
    for _ in range(9):
        send(master)
    master.offsets.commit(GROUP, TOPIC, 0, 9)
    await sync(slave, master)
    master.offsets.reset(GROUP, TOPIC, 0, 2)
    await sync(slave, master)
    assert slave.offsets.query(GROUP, TOPIC, 0) == 2
