"""The life of a producer: its options, how much it lets through, its end, and what fails around it."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import threading
from typing import Any

import pytest

from orbitmq.client.config import ClientConfig
from orbitmq.client.errors import (
    InvalidMessageError,
    NoNameServerError,
    NoRouteError,
    NotRunningError,
    SendError,
    TooManySendsError,
)
from orbitmq.client.message import Message
from orbitmq.client.producer.config import ProducerConfig, ProducerOptions
from orbitmq.client.producer.producer import Producer
from orbitmq.testing.local_cluster import LocalCluster
from support.client.cluster_harness import nothing_left, open_sockets
from support.client.producer_harness import SILENCE, TOPIC, peer_brokers
from support.remoting_harness import eventually, on_each_loop

NOBODY = "127.0.0.1:1"
"""Where nobody listens."""


def producing(name_server: str, **options: Any) -> Producer:
    return Producer(name_server, group="g", **options)


def message(body: bytes = b"x", **more: Any) -> Message:
    return Message(TOPIC, body, **more)


def client_tasks() -> list[str]:
    """What clients let go on by themselves on this loop."""
    names = [getattr(task.get_coro(), "__qualname__", "") for task in asyncio.all_tasks()]
    return [
        name
        for name in names
        if name.startswith(("_repeat", "ClientInstance.", "Sender.", "AsyncSend.", "Producer."))
    ]


# Options


def test_options_have_the_same_names_in_both_places() -> None:
    kinds = (ProducerConfig, ClientConfig)
    configs = {field.name for kind in kinds for field in dataclasses.fields(kind) if field.init}
    assert ProducerOptions.__annotations__.keys() == configs - {"group", "name_servers"}


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"group": "DEFAULT_PRODUCER"}, "DEFAULT_PRODUCER"),
        ({"group": ""}, "blank"),
        ({"group": "a b"}, "illegal"),
        ({"group": "g" * 121}, "at most 120"),
        ({"send_msg_timeout": 0}, "send_msg_timeout must be more than 0"),
        ({"send_msg_max_timeout_per_request": -1}, "or None"),
        ({"back_pressure_for_async_send_num": 9}, "from 10"),
        ({"back_pressure_for_async_send_size": 1}, "back_pressure_for_async_send_size"),
        ({"batch_max_delay": 31}, "batch_max_delay"),
        ({"compress_type": "RAR"}, "ZLIB, LZ4 or ZSTD"),
        ({"compress_level": 10}, "from 0 to 9"),
        ({"topics": ("a b",)}, "illegal"),
        ({"send_message_timeout": 3}, "did you mean send_msg_timeout"),
        ({"xyz": 3}, "no option xyz"),
    ],
)
def test_an_option_that_cannot_be_is_refused_with_a_reason(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InvalidMessageError, match=complaint):
        Producer(NOBODY, **options)


def test_name_servers_come_from_the_environment_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "one:9876; two:9876")
    assert Producer(group="g").client_config.name_servers == ("one:9876", "two:9876")
    monkeypatch.delenv("NAMESRV_ADDR")
    with pytest.raises(InvalidMessageError, match="no name server"):
        Producer(group="g")


# Back-pressure


async def test_one_more_than_allowed_is_refused_or_waits() -> None:
    options = {"enable_backpressure_for_async_mode": True, "back_pressure_for_async_send_num": 10}
    async with peer_brokers("broker-a") as peers, producing(peers.name_server, **options) as producer:
        await producer.send(message())
        peers.brokers[0].holds = True
        futures = [producer.send_nowait(message()) for _ in range(10)]
        with pytest.raises(TooManySendsError, match="10 messages"):
            producer.send_nowait(message())
        with pytest.raises(TooManySendsError, match="no capacity"):
            await producer.send(message(), timeout=0.01)
        waiting = asyncio.create_task(producer.send(message(b"later")))
        room = asyncio.create_task(producer.room())
        await eventually(lambda: len(peers.brokers[0].held) == 10)
        assert not waiting.done()
        assert not room.done()
        peers.brokers[0].let_go()
        await asyncio.gather(*futures, waiting, room)
        assert len(peers.brokers[0].sends) == 12


async def test_bytes_are_limited_as_well() -> None:
    options = {"enable_backpressure_for_async_mode": True, "back_pressure_for_async_send_size": 1 << 20}
    async with peer_brokers("broker-a") as peers, producing(peers.name_server, **options) as producer:
        await producer.send(message())
        peers.brokers[0].holds = True
        large = [producer.send_nowait(message(os.urandom(500_000))) for _ in range(2)]
        with pytest.raises(TooManySendsError, match="1000000 bytes"):
            producer.send_nowait(message(b"x" * 100_000))
        await eventually(lambda: len(peers.brokers[0].held) == 2)
        peers.brokers[0].let_go()
        await asyncio.gather(*large)


# Life


async def test_before_the_start_and_after_the_end_nothing_is_sent() -> None:
    async with peer_brokers() as peers:
        producer = producing(peers.name_server)
        with pytest.raises(NotRunningError, match="not started"):
            await producer.send(message())
        async with producer:
            await producer.send(message())
            with pytest.raises(NotRunningError, match="only once"):
                await producer.start()
        with pytest.raises(NotRunningError, match="closed"):
            producer.send_nowait(message())
        await producer.close()


@on_each_loop
async def test_closing_waits_for_what_is_on_its_way() -> None:
    async with peer_brokers() as peers:
        producer = await producing(peers.name_server).start()
        for queue in await producer.queues(TOPIC):
            await producer.send(message(), queue=queue)
        for broker in peers.brokers:
            broker.holds = True
        futures = [producer.send_nowait(message()) for _ in range(20)]
        closing = asyncio.create_task(producer.close())
        await eventually(lambda: sum(len(broker.held) for broker in peers.brokers) == 20)
        assert not closing.done()
        with pytest.raises(NotRunningError):
            await producer.send(message())
        for broker in peers.brokers:
            broker.let_go()
        await closing
        assert all(future.done() and future.exception() is None for future in futures)


async def test_a_close_that_is_given_up_leaves_nobody_waiting() -> None:
    async with peer_brokers() as peers:
        producer = await producing(peers.name_server).start()
        await producer.send(message())
        for broker in peers.brokers:
            broker.always = SILENCE
        large = [producer.send_nowait(message(os.urandom(1_000_000)), timeout=60) for _ in range(3)]
        small = [producer.send_nowait(message(), timeout=60) for _ in range(3)]
        closing = asyncio.create_task(producer.close())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.gather(closing, return_exceptions=True)
        async with asyncio.timeout(30):
            results = await asyncio.gather(*large, *small, return_exceptions=True)
        assert {isinstance(result, NotRunningError | SendError) for result in results} == {True}


@on_each_loop
async def test_a_producer_leaves_nothing_behind() -> None:
    async with LocalCluster(brokers=2) as cluster:
        async with producing(cluster.name_server) as producer:
            # Brokers have threads of their own from the first messages on.
            await asyncio.gather(*(producer.send(message()) for _ in range(100)))
        await eventually(lambda: not cluster.broker().clients.producers)
        sockets = open_sockets()
        with nothing_left():
            async with producing(cluster.name_server, auto_batch=True) as producer:
                await producer.send(message())
                await asyncio.gather(*(producer.send_nowait(message(), timeout=3) for _ in range(100)))
                assert producer._instance.client.connections
                assert client_tasks()
            assert not client_tasks()
            await eventually(lambda: not cluster.broker().clients.producers)
            # Transports close in a turn of their own.
            await eventually(lambda: open_sockets() <= sockets)


async def test_a_producer_belongs_to_its_loop() -> None:
    async with peer_brokers() as peers, producing(peers.name_server) as producer:
        failures: list[Exception] = []

        def elsewhere() -> None:
            try:
                asyncio.run(producer.send(message()))
            except NotRunningError as error:
                failures.append(error)

        thread = threading.Thread(target=elsewhere)
        thread.start()
        await asyncio.to_thread(thread.join)
        assert "another event loop" in str(failures[0])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
async def test_a_producer_belongs_to_its_process() -> None:
    async with peer_brokers() as peers, producing(peers.name_server) as producer:
        await producer.send(message())
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            said = "it was sent"
            try:
                producer.send_nowait(message())
            except NotRunningError as error:
                said = str(error)
            finally:
                os.write(writing, said.encode())
                os._exit(0)
        os.close(writing)
        await asyncio.to_thread(os.waitpid, child, 0)
        said_there = os.read(reading, 1000)
        os.close(reading)
        assert b"before a fork" in said_there
        await producer.send(message())


async def test_two_producers_of_one_group_in_one_client_are_one_too_many() -> None:
    async with (
        peer_brokers() as peers,
        producing(peers.name_server, instance_name="one"),
        Producer(peers.name_server, group="other", instance_name="one") as other,
    ):
        with pytest.raises(InvalidMessageError, match="already"):
            await producing(peers.name_server, instance_name="one").start()
        await other.send(message())


async def test_routes_can_be_looked_up_before_the_first_send() -> None:
    async with peer_brokers() as peers, producing(peers.name_server, topics=(TOPIC, "none")) as producer:
        assert TOPIC in producer.topics()
        assert "none" not in producer.topics()


# Faults


@on_each_loop
async def test_a_producer_starts_without_a_name_server_and_says_what_is_missing() -> None:
    async with producing(NOBODY, topics=(TOPIC,)) as producer:
        with pytest.raises(NoNameServerError, match="no name server responds"):
            await producer.send(message())
        with pytest.raises(NoNameServerError):
            await producer.send_nowait(message())
        with pytest.raises(NoNameServerError):
            await producer.send_oneway(message())
        assert producer._in_flight.count == 0


async def test_a_name_server_that_is_gone_is_not_missed_while_routes_are_known() -> None:
    async with LocalCluster(name_servers=2) as cluster, producing(cluster.name_server) as producer:
        await producer.send(message())
        await cluster.kill("name-server-a")
        await producer.send(Message("another", b"x"))
        await cluster.kill("name-server-b")
        await producer.send(message())
        with pytest.raises(NoNameServerError):
            await producer.send(Message("third", b"x"))
        await cluster.start("name-server-b")
        async with asyncio.timeout(30):
            while True:
                try:
                    await producer.send(Message("third", b"x"))
                    break
                except (NoNameServerError, NoRouteError):
                    await asyncio.sleep(0.01)


@on_each_loop
async def test_a_broker_that_is_killed_and_comes_back_loses_nothing_that_was_acknowledged() -> None:
    settings = {"flushDiskType": "SYNC_FLUSH"}
    async with LocalCluster(settings=settings) as cluster, producing(cluster.name_server) as producer:
        sent: list[str] = []
        failed = 0

        async def flood() -> None:
            nonlocal failed
            for number in range(400):
                try:
                    sent.append((await producer.send(message(b"%d" % number), timeout=2)).message_id)
                except (SendError, NoRouteError):
                    failed += 1
                    await asyncio.sleep(0.01)

        flooding = asyncio.create_task(flood())
        await eventually(lambda: len(sent) > 50)
        await cluster.kill("broker-a")
        await eventually(lambda: failed > 0)
        await cluster.start("broker-a")
        await flooding
        stored = {m.message_id for m in cluster.messages(TOPIC)}
        assert len(sent) > 100
        assert set(sent) <= stored


@on_each_loop
async def test_with_two_brokers_the_death_of_one_is_not_noticed() -> None:
    async with LocalCluster(brokers=2) as cluster, producing(cluster.name_server) as producer:
        for _ in range(8):
            await producer.send(message())
        await cluster.kill("broker-b")
        receipts = [await producer.send(message()) for _ in range(20)]
        receipts += await asyncio.gather(*(producer.send_nowait(message()) for _ in range(20)))
        assert {receipt.queue.broker_name for receipt in receipts} == {"broker-a"}


async def test_a_topic_that_nobody_serves_and_nobody_creates_is_an_error_that_says_so() -> None:
    settings = {"autoCreateTopicEnable": "false"}
    async with LocalCluster(settings=settings) as cluster, producing(cluster.name_server) as producer:
        with pytest.raises(NoRouteError, match=r"'orders'; create it"):
            await producer.send(message())


async def test_a_stalled_broker_does_not_stop_the_close_for_ever() -> None:
    async with peer_brokers() as peers:
        async with producing(peers.name_server) as producer:
            for broker in peers.brokers:
                broker.always = SILENCE
            future = producer.send_nowait(message(), timeout=0.2)
        assert isinstance(future.exception(), SendError)
