"""The broker as a whole: its ports, its start and stop, and what it knows again after a restart."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import TYPE_CHECKING

import pytest

from orbitmq.broker import Broker
from orbitmq.broker import broker as server
from orbitmq.broker.config.loader import load_settings
from orbitmq.filter import parsing
from orbitmq.nameserver import NameServer, NameServerConfig
from orbitmq.protocol.bodies import SubscriptionGroupConfig, TopicConfig
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.message.flags import PULL_COMMIT_OFFSET, PULL_SUBSCRIPTION
from orbitmq.remoting import ListenError
from orbitmq.store import StoreLockedError
from orbitmq.store.config_tables import CONSUMER_OFFSETS
from orbitmq.testing import ManualClock, MemoryDisk
from support.broker.broker_harness import ROOT, SMALL, free_port_pair, running_broker
from support.broker.client_registry_harness import T0
from support.broker.requests import (
    CONSUMERS,
    HOLD_MS,
    TOPIC,
    bodies,
    pull_request,
    send_request,
    stored,
    talk,
    talking_to,
)
from support.nameserver_harness import as_text
from support.remoting_harness import HOST, PATIENCE, eventually

if TYPE_CHECKING:
    from orbitmq.platform.disk import Disk

UNKNOWN_CODE = 9999
ABORT = f"{ROOT}/abort"


def broker_on(disk: Disk, **settings: object) -> Broker:
    """A broker that has not been started."""
    texts = as_text({"bindAddress": HOST, "brokerName": "a", "storePathRootDir": ROOT, **SMALL, **settings})
    loaded, _ = load_settings(disk, None, texts)
    return Broker(loaded, disk=disk, clock=ManualClock(T0))


# Ports


async def test_the_vip_port_takes_everything_but_pulls() -> None:
    async with running_broker() as broker, talking_to(broker, vip=True) as client:
        await client.stores(b"by the side door")
        assert broker.vip_port == broker.port - 2
        for code in (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE):
            answer = await client.pulls(code=code)
            assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            assert answer.remark == f" request type {int(code)} not supported"
        await client.subscribes()
        async with talking_to(broker) as other:
            assert bodies(await other.pulls()) == [b"by the side door"]


@pytest.mark.parametrize("vip", [False, True])
async def test_an_unknown_request_is_answered_and_the_connection_stays(vip: bool) -> None:
    async with running_broker() as broker, talking_to(broker, vip=vip) as client:
        answer = await client.asks(UNKNOWN_CODE)

        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert answer.remark == f" request type {UNKNOWN_CODE} not supported"
        await client.stores()


async def test_a_broker_that_may_listen_anywhere_finds_two_ports_and_says_which() -> None:
    broker = broker_on(MemoryDisk(), listenPort=0)
    await broker.start()
    try:
        assert broker.port > 0
        assert broker.vip_port == broker.port - 2
        assert broker.settings.broker.broker_address == f"{HOST}:{broker.port}"
        assert broker.settings.ha_address == f"{HOST}:{broker.port + 1}"
        async with talking_to(broker) as client:
            answer = await client.stores()
            assert answer.ext_fields["msgId"] == f"7F000001{broker.port:08X}{0:016X}"
    finally:
        await broker.stop()


@pytest.mark.parametrize("distance", [0, 2])
async def test_a_port_in_use_is_named_and_the_store_is_released(distance: int) -> None:
    disk = MemoryDisk()
    port = free_port_pair()
    with socket.create_server((HOST, port - distance)):
        broker = broker_on(disk, listenPort=port)
        with pytest.raises(ListenError, match=str(port - distance)):
            await broker.start()
    assert disk.stat(ABORT) is None
    async with talk(disk=disk) as (_, client):
        await client.stores()


# Stopping


async def test_a_broker_that_stops_answers_held_pulls_and_leaves_a_clean_store() -> None:
    disk = MemoryDisk()
    async with talk(disk=disk) as (broker, client):
        await client.stores(queueId=1)
        opaques = [client.posts(pull_request(queue_id=queue_id, hold_ms=HOLD_MS)) for queue_id in (0, 2, 3)]
        await eventually(lambda: len(broker.pulls.held) == 3)
        assert disk.stat(ABORT) is not None
        await broker.stop()

        for opaque in opaques:
            assert (await client.answer_to(opaque)).code == ResponseCode.PULL_NOT_FOUND
        assert await client.reader.read() == b""
        assert disk.stat(ABORT) is None
        assert not broker.store.is_open


async def test_stopping_twice_or_before_the_start_is_harmless() -> None:
    await broker_on(MemoryDisk()).stop()
    async with running_broker() as broker:
        await broker.stop()
        await broker.stop()
        assert not broker.connections


async def test_a_client_that_reads_nothing_does_not_keep_it_from_stopping(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "DRAIN_SECONDS", 0.01)
    async with running_broker() as broker:
        broker.topics.update(TopicConfig(TOPIC, 4, 4))
        with socket.socket() as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf.connect((HOST, broker.port))
            deaf.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(deaf, send_request(bytes(1 << 20)).encode())
            for _ in range(16):
                await loop.sock_sendall(deaf, pull_request().encode())
            await eventually(lambda: not all(known.is_writable for known in broker.connections))
            async with asyncio.timeout(PATIENCE):
                await broker.stop()
        assert not broker.store.is_open


async def test_tables_that_cannot_be_written_do_not_keep_the_store_from_closing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = MemoryDisk()
    async with talk(disk=disk) as (broker, client):
        await client.stores()
        await broker.writer.saved()
        disk.fail("write", times=1000, path_contains="/config/")
        await broker.stop()
        disk.heal()

        assert "broker: failed to persist the tables" in caplog.text
        assert disk.stat(ABORT) is None


# Starting again


async def test_a_restart_keeps_topics_groups_offsets_and_messages() -> None:
    disk = MemoryDisk()
    async with talk(disk=disk) as (broker, client):
        broker.topics.update(TopicConfig("made", 3, 3, attributes={"message.type": "NORMAL"}))
        broker.groups.update(SubscriptionGroupConfig(CONSUMERS, retry_max_times=5))
        for number in range(5):
            await client.stores(b"%d" % number)
        await client.stores(b"delayed", properties={"DELAY": "18"})
        await client.pulls(3, sys_flag=PULL_SUBSCRIPTION | PULL_COMMIT_OFFSET, commitOffset=3)
        version = broker.topics.data_version
    async with talk(disk=disk) as (broker, client):
        assert broker.store.recovery.clean
        assert broker.topics.configs["made"] == TopicConfig("made", 3, 3, attributes={"message.type": "NORMAL"})
        assert broker.topics.configs[TOPIC].write_queue_nums == 4
        assert broker.topics.data_version.counter > version.counter
        assert broker.groups.configs[CONSUMERS].retry_max_times == 5
        assert broker.offsets.query(CONSUMERS, TOPIC, 0) == 3
        assert bodies(await client.pulls(3)) == [b"3", b"4"]
        assert (await client.stores(b"5")).ext_fields["queueOffset"] == "5"
        assert len(stored(broker, "SCHEDULE_TOPIC_XXXX", 17)) == 1


async def test_a_new_broker_leaves_its_tables_behind() -> None:
    disk = MemoryDisk()
    async with running_broker(disk):
        pass

    assert {"topics.json", "subscriptionGroup.json"} <= set(disk.list(f"{ROOT}/config"))


async def test_offsets_are_written_while_it_runs() -> None:
    disk = MemoryDisk()
    async with talk(disk=disk, flushConsumerOffsetInterval=1) as (_, client):
        await client.stores()
        await client.pulls(sys_flag=PULL_SUBSCRIPTION | PULL_COMMIT_OFFSET, commitOffset=1)

        def kept() -> bool:
            table = CONSUMER_OFFSETS.load(disk, f"{ROOT}/config", read_only=True)
            return table.offset_table == {f"{TOPIC}@{CONSUMERS}": {0: 1}}

        await eventually(kept)


async def test_a_second_broker_on_the_same_store_is_refused_in_a_sentence() -> None:
    disk = MemoryDisk()
    async with talk(disk=disk) as (_, client):
        second = broker_on(disk, listenPort=0)
        with pytest.raises(StoreLockedError, match=ROOT) as refused:
            await second.start()
        assert "\n" not in str(refused.value)
        await client.stores()


# Others


async def test_a_name_server_knows_it_while_it_runs() -> None:
    names = NameServer(NameServerConfig(listen_port=0, bind_address=HOST), disk=MemoryDisk())
    await names.start()
    try:
        async with talk(namesrvAddr=f"{HOST}:{names.port}") as (broker, client):
            await eventually(lambda: names.table.brokers)
            await client.stores()
            await eventually(lambda: TOPIC in names.table.topics)
            address = broker.settings.broker.broker_address
            assert [known for _, known in names.table.brokers] == [address]
        await eventually(lambda: not names.table.brokers)
    finally:
        await names.stop()


async def test_a_disconnected_client_is_not_a_member_any_more() -> None:
    async with running_broker() as broker:
        async with talking_to(broker) as client:
            await client.subscribes()
            assert CONSUMERS in broker.clients.consumers
        await eventually(lambda: CONSUMERS not in broker.clients.consumers)


async def test_a_job_that_fails_comes_round_again(caplog: pytest.LogCaptureFixture) -> None:
    rounds = []

    def job() -> None:
        rounds.append(1)
        raise ValueError("not today")

    running = asyncio.create_task(server._every(0.001, job))
    await eventually(lambda: len(rounds) > 2)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)

    assert "not today" in caplog.text
    assert caplog.records[0].levelno == logging.ERROR


# Filters


async def test_the_grammar_of_filters_is_ready_before_the_first_expression() -> None:
    parsing._parser.cache_clear()
    async with running_broker(enablePropertyFilter="true"):
        await eventually(lambda: parsing._parser.cache_info().currsize == 1)


async def test_a_broker_without_filters_does_not_build_their_grammar() -> None:
    parsing._parser.cache_clear()
    async with talk() as (_, client):
        await client.pass_time()
    assert parsing._parser.cache_info().currsize == 0
