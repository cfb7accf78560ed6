"""Pulls from a slave, and when a master sends consumers there."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from orbitmq.protocol.bodies import SubscriptionGroupConfig, TopicConfig
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.message.flags import PULL_SUBSCRIPTION, PULL_SUSPEND
from orbitmq.store import StoredMessage
from support.broker.broker_harness import BrokerPeer, running_broker
from support.broker.replica_pair import running_slave, sync, sync_of
from support.remoting_harness import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from orbitmq.broker.broker import Broker
    from orbitmq.protocol.command.command import Command

GROUP, TOPIC = "readers", "orders"


@pytest.fixture
async def master() -> AsyncIterator[Broker]:
    async with running_broker(slaveReadEnable=True) as broker:
        broker.topics.update(TopicConfig(TOPIC, 1, 1))
        broker.groups.update(SubscriptionGroupConfig(GROUP))
        for number in range(10):
            broker.store.append(StoredMessage(TOPIC, 0, b"%d" % number * 100, b""))
        yield broker


@pytest.fixture
async def slave(master: Broker) -> AsyncIterator[Broker]:
    async with running_slave(slaveReadEnable=True) as broker:
        await sync(broker, master)
        set_alive(broker, True)
        yield broker


def set_alive(slave: Broker, is_alive: bool) -> None:
    sync_of(slave)._set_alive(is_alive)


async def pull(broker: Broker, offset: int, *, hold_ms: int = 0, count: int = 4) -> Command:
    async with BrokerPeer.of(broker) as peer:
        return await pulled(peer, offset, hold_ms=hold_ms, count=count)


async def pulled(peer: BrokerPeer, offset: int, *, hold_ms: int = 0, count: int = 4) -> Command:
    return await peer.asks(
        RequestCode.PULL_MESSAGE,
        consumerGroup=GROUP,
        topic=TOPIC,
        queueId=0,
        queueOffset=offset,
        maxMsgNums=count,
        sysFlag=PULL_SUBSCRIPTION | (PULL_SUSPEND if hold_ms else 0),
        commitOffset=0,
        suspendTimeoutMillis=hold_ms,
        subscription="*",
        subVersion=0,
        expressionType="TAG",
    )


def suggestion(answer: Command) -> int:
    return int(answer.ext_fields["suggestWhichBrokerId"])


async def test_a_slave_refuses_pulls_unless_its_operator_allows_them(master: Broker) -> None:
    async with running_slave() as slave:
        await sync(slave, master)
        answer = await pull(slave, 0)
        assert answer.code == ResponseCode.SYSTEM_BUSY
        assert answer.remark == "[REJECTREQUEST]system busy, start flow control for a while"


async def test_a_slave_serves_the_records_of_its_master(master: Broker, slave: Broker) -> None:
    ours, theirs = await pull(slave, 0), await pull(master, 0)
    assert ours.code == ResponseCode.SUCCESS
    assert ours.body == theirs.body


async def test_readers_far_behind_are_sent_to_the_slave_and_back(master: Broker, slave: Broker) -> None:
    assert suggestion(await pull(master, 0)) == 0
    window = master.store.log.end - 500
    for broker in (master, slave):
        broker.store.reader.memory_window = window
    assert suggestion(await pull(master, 0, count=1)) == 1
    assert suggestion(await pull(slave, 0, count=1)) == 1
    assert suggestion(await pull(master, 5)) == 0
    assert suggestion(await pull(slave, 5)) == 0


@pytest.mark.parametrize(("ratio", "expected"), [(0, 1), (40, 0)])
async def test_the_share_of_memory_decides_who_is_far_behind(ratio: int, expected: int) -> None:
    async with running_broker(slaveReadEnable=True, accessMessageInMemoryMaxRatio=ratio) as master:
        master.topics.update(TopicConfig(TOPIC, 1, 1))
        master.groups.update(SubscriptionGroupConfig(GROUP))
        for _ in range(3):
            master.store.append(StoredMessage(TOPIC, 0, b"body", b""))
        assert suggestion(await pull(master, 0, count=1)) == expected


async def test_the_group_names_its_brokers(master: Broker) -> None:
    master.groups.update(SubscriptionGroupConfig(GROUP, broker_id=2, which_broker_when_consume_slowly=3))
    assert suggestion(await pull(master, 0)) == 2
    master.store.reader.memory_window = 10
    assert suggestion(await pull(master, 0)) == 3


async def test_a_master_suggests_itself_unless_slaves_may_be_read() -> None:
    async with running_broker() as master:
        master.topics.update(TopicConfig(TOPIC, 1, 1))
        master.groups.update(SubscriptionGroupConfig(GROUP, broker_id=2))
        for _ in range(3):
            master.store.append(StoredMessage(TOPIC, 0, b"body", b""))
        master.store.reader.memory_window = 10
        assert suggestion(await pull(master, 0)) == 0


async def test_who_finds_nothing_at_the_slave_goes_to_the_master(slave: Broker) -> None:
    answer = await pull(slave, 10, hold_ms=60_000)
    assert (answer.code, suggestion(answer)) == (ResponseCode.PULL_RETRY_IMMEDIATELY, 0)


async def test_without_a_master_the_slave_holds_pulls(master: Broker, slave: Broker) -> None:
    set_alive(slave, False)
    async with BrokerPeer.of(slave) as peer:
        held = asyncio.create_task(pulled(peer, 10, hold_ms=60_000))
        await eventually(lambda: len(slave.pulls.held) == 1)
        # It suggests itself: the route of the client may still have the master.
        assert suggestion(await pull(slave, 0)) == 1
        set_alive(slave, True)
        answer = await held
        assert (answer.code, suggestion(answer)) == (ResponseCode.PULL_RETRY_IMMEDIATELY, 0)


@pytest.mark.parametrize("offset", [11, 500])
async def test_a_slave_that_lacks_messages_never_moves_a_consumer(slave: Broker, offset: int) -> None:
    answer = await pull(slave, offset)
    assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
    assert answer.ext_fields["nextBeginOffset"] == str(offset)
    set_alive(slave, False)
    answer = await pull(slave, offset)
    assert answer.code == ResponseCode.PULL_NOT_FOUND
    assert answer.ext_fields["nextBeginOffset"] == str(offset)
    slave.store.config.offset_check_in_slave = True
    answer = await pull(slave, offset)
    assert answer.code == ResponseCode.PULL_OFFSET_MOVED
    assert answer.ext_fields["nextBeginOffset"] == "10"


async def test_messages_are_found_on_a_slave_by_key_and_id(master: Broker, slave: Broker) -> None:
    master.store.append(StoredMessage(TOPIC, 0, b"keyed", b"KEYS\1k-1\2UNIQ_KEY\1u-1\2"))
    await sync(slave, master)
    async with BrokerPeer.of(slave) as peer:
        found = await peer.asks(
            RequestCode.QUERY_MESSAGE, topic=TOPIC, key="k-1", maxNum=8, beginTimestamp=0, endTimestamp=1 << 62
        )
        assert found.code == ResponseCode.SUCCESS
        assert b"keyed" in (found.body or b"")
        record = slave.store.get(TOPIC, 0, 10, 1).slices[0]
        offset = int.from_bytes(record[28:36], "big")
        seen = await peer.asks(RequestCode.VIEW_MESSAGE_BY_ID, offset=offset)
        assert b"keyed" in (seen.body or b"")


async def test_a_slave_refuses_pops_and_moves_nothing(master: Broker, slave: Broker) -> None:
    more: dict[int, dict[str, object]] = {
        RequestCode.POP_MESSAGE: {
            "maxMsgNums": 4, "pollTime": 60_000, "bornTime": slave.clock.now_ms(), "initMode": 0, "order": "false",
        },
        RequestCode.ACK_MESSAGE: {"offset": 0, "extraInfo": f"0 {slave.clock.now_ms()} 60000 0 0 broker-a 0 0"},
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME: {
            "offset": 0, "extraInfo": f"0 {slave.clock.now_ms()} 60000 0 0 broker-a 0 0",
        },
    }  # fmt: skip
    end = slave.store.log.end
    async with BrokerPeer.of(slave) as peer:
        for code, fields in more.items():
            answer = await peer.asks(
                code, consumerGroup=GROUP, topic=TOPIC, queueId=0, invisibleTime=60_000, **fields
            )
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert "A slave does not serve POP" in (answer.remark or "")
    assert slave.store.log.end == end
    assert slave.offsets.query(GROUP, TOPIC, 0) == -1
