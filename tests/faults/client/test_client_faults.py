"""Servers, networks and processes that fail under clients: nothing that was acknowledged is lost."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from typing import TYPE_CHECKING, Any

import pytest

from faults.client.cut_network import network_to
from faults.client.load import Load, behind_network, check_at_least_once, client_process, load, said
from orbitmq import Producer as SyncProducer
from orbitmq.client.errors import NoNameServerError, OrbitMQError, SendTimeoutError
from orbitmq.client.lite_pull.consumer import LitePullConsumer
from orbitmq.client.message import Message, SendStatus
from orbitmq.client.producer.producer import Producer
from orbitmq.testing.local_cluster import LocalCluster
from support.cli.server_process import soon
from support.client.cluster_harness import nothing_left, nothing_left_on_loop
from support.client.consumer_harness import GROUP, TOPIC, Inbox, Shop, consuming, shared, shop
from support.client.producer_harness import SILENCE, peer_brokers
from support.remoting_harness import eventually

if TYPE_CHECKING:
    from pathlib import Path


QUICK: dict[str, Any] = {"api_timeout": 0.2, "send_msg_timeout": 0.3}
"""Times after which a test does not wait any longer for what will not come."""
QUICK_PULLS: dict[str, Any] = {
    "api_timeout": 0.2,
    "broker_suspend_max_time": 0.2,
    "consumer_timeout_when_suspend": 0.4,
}


async def sent_at_last(producer: Producer, body: bytes) -> None:
    """Send as an application does that does not give up."""
    async with asyncio.timeout(30):
        while True:
            with contextlib.suppress(OrbitMQError):
                await producer.send(Message(TOPIC, body))
                return


# Name servers


async def test_clients_may_start_before_there_is_a_name_server() -> None:
    inbox = Inbox()
    async with shop() as place:
        await place.cluster.kill("name-server-a")
        async with (
            Producer(place.cluster.name_server, group="early") as producer,
            consuming(place, inbox.take_async),
        ):
            with pytest.raises(NoNameServerError, match="is one running at"):
                await producer.send(Message(TOPIC, b"too early"))
            await place.cluster.start("name-server-a")
            await producer.send(Message(TOPIC, b"a"))
            await inbox.has(b"a")
    assert inbox.bodies == [b"a"]


async def test_with_one_of_two_name_servers_gone_nothing_fails_not_even_what_is_new() -> None:
    inbox = Inbox()
    async with nothing_left_on_loop(), LocalCluster(name_servers=2) as cluster:
        for name in ("name-server-a", "name-server-b"):
            async with Producer(cluster.name_server, group=f"shop-{name}") as producer:
                place = Shop(cluster, producer)
                await place.add_topic(TOPIC)
                async with consuming(place, inbox.take_async, f"group-{name}"), load(producer, 2, name) as sending:
                    await sending.grows()
                    await cluster.kill(name)
                    await sending.grows()
                    # What nobody has asked for before, the other one has to be asked.
                    await producer.send(Message(f"new-since-{name}", b"x"))
                    async with Producer(cluster.name_server, group="new") as another:
                        await another.send(Message(TOPIC, f"{name}-new".encode()))
                await inbox.has_all(sending.acknowledged)
                assert sending.failed == 0
                await cluster.start(name)


async def test_without_any_name_server_what_is_known_goes_on() -> None:
    inbox = Inbox()
    async with shop() as place, consuming(place, inbox.take_async, poll_name_server_interval=0.05):
        await place.send("a")
        async with load(place.producer) as sending:
            await sending.grows()
            await place.cluster.kill("name-server-a")
            await sending.grows(200)
        await inbox.has_all(sending.acknowledged)
        assert sending.failed == 0
        with pytest.raises(NoNameServerError):
            await place.producer.send(Message("unknown", b"x"))
        await place.cluster.start("name-server-a")
        await place.send("b", topic="unknown")


async def test_a_name_server_that_swallows_everything_is_left_for_another() -> None:
    async with (
        shop() as place,
        network_to(place.cluster.name_server) as network,
        Producer([network.address, place.cluster.name_server], group="two", api_timeout=1.0) as producer,
    ):
        network.swallow()
        # Which of the two is asked first is up to chance, and after the silent one the other one is.
        for number in range(4):
            await producer.send(Message(f"topic-{number}", b"x"), timeout=30)
        assert await producer.queues("topic-3")


# Brokers


@pytest.mark.parametrize("seed", [1, 2])
async def test_nothing_acknowledged_is_lost_when_a_broker_is_killed_again_and_again(seed: int) -> None:
    inbox = Inbox()
    settings = {"flushDiskType": "SYNC_FLUSH"}
    async with (
        nothing_left_on_loop(),
        LocalCluster(settings=settings, seed=seed) as cluster,
        Producer(cluster.name_server, group="shop") as producer,
    ):
        place = Shop(cluster, producer)
        await place.add_topic(TOPIC)
        async with consuming(place, inbox.take):
            async with load(producer) as sending:
                for _ in range(3):
                    await sending.grows()
                    await inbox.grows(50)
                    await cluster.kill("broker-a")
                    await cluster.start("broker-a")
                await sending.grows()
            await inbox.has_all(sending.acknowledged)
    check_at_least_once(sending.acknowledged, inbox.bodies)


async def test_while_one_of_two_brokers_is_down_sends_succeed_on_the_other() -> None:
    inbox = Inbox()
    # How soon they hear that it is back, which no failure tells them.
    often: dict[str, Any] = {"poll_name_server_interval": 0.05}
    async with (
        shop(brokers=2, flushDiskType="SYNC_FLUSH") as place,
        Producer(place.cluster.name_server, group="two", **often) as producer,
        consuming(place, inbox.take_async, **often),
    ):
        async with load(producer) as sending:
            await sending.grows()
            await place.cluster.kill("broker-b")
            await sending.grows(200)
            await place.cluster.start("broker-b")
            await eventually(lambda: len(place.cluster.broker("broker-b").connections) >= 2)
            await sending.grows()
        await inbox.has_all(sending.acknowledged)
        assert sending.failed == 0
    check_at_least_once(sending.acknowledged, inbox.bodies)


def test_a_producer_of_plain_code_survives_a_kill_and_leaves_nothing() -> None:
    with nothing_left(), LocalCluster(settings={"flushDiskType": "SYNC_FLUSH"}) as cluster:
        acknowledged: list[bytes] = []
        with SyncProducer(cluster.name_server, group="plain") as producer:

            def send_all(prefix: str) -> None:
                for number in range(100):
                    body = f"{prefix}{number}".encode()
                    with contextlib.suppress(OrbitMQError):
                        # Whoever is told that a message is not on the disk yet knows that it may be lost.
                        if producer.send(Message(TOPIC, body)).status is SendStatus.SEND_OK:
                            acknowledged.append(body)

            threads = [threading.Thread(target=send_all, args=(prefix,)) for prefix in "abc"]
            producer.send(Message(TOPIC, b"first"))
            for thread in threads:
                thread.start()
            cluster.kill()
            cluster.start("broker-a")
            for thread in threads:
                thread.join()
            producer.send(Message(TOPIC, b"last"))
        stored = {message.body for message in cluster.messages(TOPIC)}
    assert {b"first", b"last", *acknowledged} <= stored


# The network


async def test_a_send_whose_answer_is_cut_off_is_sent_again_and_known_by_its_id() -> None:
    inbox = Inbox()
    async with (
        shop() as place,
        behind_network(place) as remote,
        Producer(remote.name_server, group="far", send_msg_timeout=30) as producer,
        remote.consumer(inbox.take),
    ):
        await producer.send(Message(TOPIC, b"before"))
        remote.network.swallow(requests=False)
        sending = asyncio.create_task(producer.send(Message(TOPIC, b"in the middle")))
        await eventually(lambda: b"in the middle" in remote.stored)
        remote.network.heal()
        remote.network.cut()
        remote.network.heal()
        receipt = await sending
        await inbox.has_count(3)
        await place.cluster.wait_until_consumed(GROUP)
        assert remote.stored.count(b"in the middle") == 2

    repeats = check_at_least_once([b"before", b"in the middle"], inbox.bodies)
    ids = {message.message_id for message in inbox.messages if message.body == b"in the middle"}
    assert ids == {receipt.message_id}
    assert repeats >= 1


async def test_under_load_a_network_that_is_cut_and_healed_loses_nothing() -> None:
    inbox = Inbox()
    async with (
        shop() as place,
        behind_network(place) as remote,
        Producer(remote.name_server, group="far", send_msg_timeout=1) as producer,
        remote.consumer(inbox.take),
    ):
        async with load(producer) as sending:
            for _ in range(4):
                await sending.grows()
                refused = remote.network.opened
                remote.network.cut()
                # Somebody has tried in vain.
                await eventually(lambda: remote.network.opened > refused)  # noqa: B023
                remote.network.heal()
            await sending.grows()
        await inbox.has_all(sending.acknowledged)
    check_at_least_once(sending.acknowledged, inbox.bodies)


@pytest.mark.parametrize("nowait", [False, True])
@pytest.mark.parametrize("lost", ["requests", "answers", "both"])
async def test_a_connection_that_is_dead_without_a_word_times_out_and_is_replaced(nowait: bool, lost: str) -> None:
    async with (
        shop() as place,
        behind_network(place) as remote,
        Producer(remote.name_server, group="far", **QUICK) as producer,
    ):
        await sent_at_last(producer, b"before")
        opened = remote.network.opened
        remote.network.swallow(requests=lost != "answers", answers=lost != "requests")
        message = Message(TOPIC, b"swallowed")
        with pytest.raises(SendTimeoutError):
            await (producer.send_nowait(message) if nowait else producer.send(message))
        # Only connections that are made from now on work.
        remote.network.heal()
        await sent_at_last(producer, b"after")
        assert remote.network.opened > opened
        assert {b"before", b"after"} <= set(remote.stored)
        assert (b"swallowed" in remote.stored) == (lost == "answers")


async def test_a_broker_that_is_slow_to_store_keeps_its_connection() -> None:
    async with peer_brokers("broker-a") as peers, Producer(peers.name_server, group="g") as producer:
        (broker,) = peers.brokers
        await producer.send(Message(TOPIC, b"before"))
        connections = broker.server.connections
        broker.codes = [SILENCE]
        heartbeats = len(broker.others)
        with pytest.raises(SendTimeoutError):
            await producer.send(Message(TOPIC, b"slow"), timeout=0.2)
        # It answers the heartbeat by which it is asked.
        await eventually(lambda: len(broker.others) > heartbeats)
        await producer.send(Message(TOPIC, b"after"))
        assert broker.server.connections == connections


async def test_a_consumer_whose_connection_is_dead_without_a_word_goes_on_over_another() -> None:
    inbox = Inbox()
    async with shop() as place, behind_network(place) as remote, remote.consumer(inbox.take, **QUICK_PULLS):
        await place.send_many(20)
        await inbox.has_all(place.sent)
        lost = remote.network.lost_requests
        remote.network.swallow()
        await place.send_many(20)
        await eventually(lambda: remote.network.lost_requests > lost)
        remote.network.heal()
        await inbox.has_all(place.sent)
        await place.cluster.wait_until_consumed(GROUP)
    check_at_least_once(place.sent, inbox.bodies)


async def test_a_pull_consumer_whose_connection_is_dead_without_a_word_goes_on_over_another() -> None:
    from_first: dict[str, Any] = {"consume_from_where": "CONSUME_FROM_FIRST_OFFSET"}
    async with (
        shop() as place,
        behind_network(place) as remote,
        LitePullConsumer(remote.name_server, group=GROUP, **from_first, **QUICK_PULLS) as consumer,
    ):
        consumer.assign(await consumer.fetch_message_queues(TOPIC))
        got: list[bytes] = []

        async def poll_all() -> None:
            async with asyncio.timeout(30):
                while not set(place.sent) <= set(got):
                    got.extend(message.body for message in await consumer.poll(0.1))

        await place.send_many(20)
        await poll_all()
        lost = remote.network.lost_requests
        remote.network.swallow()
        await place.send_many(20)
        await eventually(lambda: remote.network.lost_requests > lost)
        remote.network.heal()
        await poll_all()
    assert sorted(got) == sorted(place.sent)


async def test_clients_close_while_nothing_comes_through_and_leave_nothing() -> None:
    inbox = Inbox()
    async with shop() as place, behind_network(place) as remote:
        producer = Producer(remote.name_server, group="far", **QUICK)
        consumer = remote.consumer(inbox.take, **QUICK_PULLS)
        await producer.start()
        await consumer.start()
        await sent_at_last(producer, b"a")
        await inbox.has(b"a")
        remote.network.swallow()
        sends = [producer.send_nowait(Message(TOPIC, b"x")) for _ in range(10)]
        await asyncio.gather(consumer.close(), producer.close())
        ends = await asyncio.gather(*sends, return_exceptions=True)
        await eventually(lambda: not remote.network.connections)
        assert all(isinstance(end, OrbitMQError) for end in ends), ends


# Processes


async def test_what_a_killed_consumer_had_not_finished_is_consumed_by_the_others(tmp_path: Path) -> None:
    inbox = Inbox()
    async with shop() as place:
        arguments = ("consumer_process.py", place.cluster.name_server, GROUP, TOPIC)
        async with (
            client_process(tmp_path, *arguments) as first,
            client_process(tmp_path, *arguments) as second,
            load(place.producer, 1) as sending,
        ):
            await soon(lambda: len(first.lines) > 50 and len(second.lines) > 50)
            assert await first.stopped(signal.SIGKILL) == -signal.SIGKILL
            # A third one takes its place, and then the last of the two is killed as well.
            async with consuming(place, inbox.take) as third:
                await shared([2], third)
                await inbox.grows(50)
                assert await second.stopped(signal.SIGKILL) == -signal.SIGKILL
                await shared([4], third)
                await sending.grows()
                await finished(place, sending)
    check_at_least_once(sending.acknowledged, [*said(first, second), *inbox.bodies])


async def finished(place: Shop, sending: Load) -> None:
    """Wait until there is nothing left to consume of what was acknowledged."""
    sending.stop()
    await place.cluster.wait_until_consumed(GROUP, timeout=30)


async def test_what_was_acknowledged_to_a_killed_producer_is_there(tmp_path: Path) -> None:
    async with shop() as place:
        arguments = ("producer_process.py", place.cluster.name_server, TOPIC, "n")
        async with client_process(tmp_path, *arguments) as producer:
            await soon(lambda: len(producer.lines) > 100)
            assert await producer.stopped(signal.SIGKILL) == -signal.SIGKILL
            acknowledged = said(producer)
        stored = [message.body for message in place.cluster.messages(TOPIC)]
        await eventually(lambda: "killed" not in place.cluster.broker("broker-a").clients.producers)
    assert set(acknowledged) <= set(stored)
    # One may have been on its way.
    assert len(stored) - len(acknowledged) in {0, 1}
