"""Servers, networks, handlers and processes that fail under producers and consumers: nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from typing import TYPE_CHECKING, Any

import pytest

from cluster_ends import nothing_left, nothing_left_on_loop
from consumer_ends import GROUP, TOPIC, Inbox, Shop, consuming, shared, shop
from faults.client_load import Load, behind_network, check_at_least_once, client_process, load, said
from faults.cut_network import network_to
from orbitmq import Producer as SyncProducer
from orbitmq.client.errors import NoNameServerError, OrbitMQError, SendError, SendTimeoutError
from orbitmq.client.messages import Message
from orbitmq.client.producer import Producer
from orbitmq.testing.local_cluster import LocalCluster
from producer_ends import SILENCE, peer_brokers
from remoting_ends import eventually
from server_process import soon

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from orbitmq.client.consumer import Consumer
    from orbitmq.client.messages import ReceivedMessage
    from orbitmq.client.process_queue import ProcessQueue

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
            with contextlib.suppress(SendError):
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
        Producer([network.address, place.cluster.name_server], group="two", **QUICK) as producer,
    ):
        network.swallow()
        # Which of the two is asked first is up to chance, and after the silent one the other one is.
        for number in range(4):
            await producer.send(Message(f"topic-{number}", b"x"), timeout=30)
        assert await producer.queues("topic-3")


# Brokers


@pytest.mark.parametrize("seed", [1, 2])
async def test_nothing_acknowledged_is_lost_when_a_broker_is_killed_again_and_again(
    seed: int, record_property: Callable[[str, object], None]
) -> None:
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
    check_at_least_once(sending.acknowledged, inbox.bodies, record_property)


async def test_while_one_of_two_brokers_is_down_sends_succeed_on_the_other(
    record_property: Callable[[str, object], None],
) -> None:
    inbox = Inbox()
    # How soon they hear that it is back, which no failure tells them.
    often = {"poll_name_server_interval": 0.05}
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
    check_at_least_once(sending.acknowledged, inbox.bodies, record_property)


def test_a_producer_of_plain_code_survives_a_kill_and_leaves_nothing() -> None:
    with nothing_left(), LocalCluster(settings={"flushDiskType": "SYNC_FLUSH"}) as cluster:
        acknowledged: list[bytes] = []
        with SyncProducer(cluster.name_server, group="plain") as producer:

            def send_all(prefix: str) -> None:
                for number in range(100):
                    body = f"{prefix}{number}".encode()
                    with contextlib.suppress(OrbitMQError):
                        producer.send(Message(TOPIC, body))
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


async def test_a_send_whose_answer_is_cut_off_is_sent_again_and_known_by_its_id(
    record_property: Callable[[str, object], None],
) -> None:
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

    repeats = check_at_least_once([b"before", b"in the middle"], inbox.bodies, record_property)
    ids = {message.message_id for message in inbox.messages if message.body == b"in the middle"}
    assert ids == {receipt.message_id}
    assert repeats >= 1


async def test_under_load_a_network_that_is_cut_and_healed_loses_nothing(
    record_property: Callable[[str, object], None],
) -> None:
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
    check_at_least_once(sending.acknowledged, inbox.bodies, record_property)


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


async def test_a_consumer_whose_connection_is_dead_without_a_word_goes_on_over_another(
    record_property: Callable[[str, object], None],
) -> None:
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
    check_at_least_once(place.sent, inbox.bodies, record_property)


async def test_clients_close_while_nothing_comes_through_and_leave_nothing() -> None:
    inbox = Inbox()
    async with shop() as place, behind_network(place) as remote:
        producer = Producer(remote.name_server, group="far", **QUICK)
        consumer = remote.consumer(inbox.take, **QUICK_PULLS)
        async with nothing_left_on_loop():
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


# Handlers


def windows(consumer: Consumer) -> list[ProcessQueue]:
    return list(consumer._running().queues.process_queues)


@pytest.mark.parametrize(
    ("option", "most", "measured", "step"),
    [
        ("pull_threshold_for_queue", 40, lambda queue: len(queue.messages), 16),
        ("pull_threshold_size_for_queue", 1, lambda queue: queue.size / (1 << 20), 0.3),
        ("consume_concurrently_max_span", 40, lambda queue: queue.span, 16),
    ],
)
async def test_a_slow_consumer_holds_no_more_than_it_is_allowed(
    option: str, most: int, measured: Callable[[ProcessQueue], float], step: float
) -> None:
    """One pull may go over the limit, by what it brings (``step``), and no more."""
    inbox, gate = Inbox(), asyncio.Event()
    peaks: list[float] = []

    async def slow(message: ReceivedMessage) -> None:
        peaks.extend(measured(queue) for queue in windows(consumer) if queue.queue.topic == TOPIC)
        # The first alone is slow where it is the distance to it that counts.
        if option != "consume_concurrently_max_span" or message.queue_offset == 0:
            await gate.wait()
        inbox.take(message)

    options = {option: most, "pull_batch_size": 16, "consume_thread_max": 4, "pull_batch_size_in_bytes": 1 << 18}
    async with shop(queues=1) as place:
        for number in range(200):
            await place.send(b"%d:" % number + os.urandom(20_000))
        async with consuming(place, slow, **options) as consumer:
            await eventually(lambda: any(queue.is_full for queue in windows(consumer)))
            gate.set()
            await inbox.has_count(200)
            await place.cluster.wait_until_consumed(GROUP)
        assert most - step <= max(peaks) <= most + step
        assert inbox.repeats == 0
        assert sorted(inbox.bodies) == sorted(place.sent)


async def until_consumed(place: Shop) -> None:
    """Let time pass for messages that wait for another attempt, until none is left."""
    async with asyncio.timeout(30):
        while True:
            with contextlib.suppress(TimeoutError):
                await place.cluster.wait_until_consumed(GROUP, timeout=0.2)
                return
            await place.cluster.advance(30)


@pytest.mark.parametrize("error", [ValueError, SystemExit, asyncio.CancelledError])
async def test_what_handlers_raise_delays_their_messages_and_no_others(
    error: type[BaseException], record_property: Callable[[str, object], None]
) -> None:
    done, tried = Inbox(), Inbox()

    def fail_some(message: ReceivedMessage) -> None:
        tried.take(message)
        if message.body.endswith(b"3") and message.reconsume_times < 2:
            raise error("not now")
        done.take(message)

    async with shop() as place, consuming(place, fail_some):
        await place.send_many(50)
        await done.has_all(body for body in place.sent if not body.endswith(b"3"))
        await until_consumed(place)
        assert place.cluster.dead_letters(GROUP) == []
    assert check_at_least_once(place.sent, done.bodies, record_property) == 0
    assert tried.repeats == 2 * 5


@pytest.mark.parametrize("kind", ["thread", "coroutine"])
async def test_a_message_whose_handler_hangs_comes_again_and_the_others_do_not_wait(kind: str) -> None:
    inbox, gate = Inbox(), threading.Event()
    hung: list[bytes] = []

    def hang(message: ReceivedMessage) -> None:
        if message.body == b"3" and message.reconsume_times == 0:
            hung.append(message.body)
            gate.wait()
        else:
            inbox.take(message)

    async def hang_on_loop(message: ReceivedMessage) -> None:
        if message.body == b"3" and message.reconsume_times == 0:
            hung.append(message.body)
            await asyncio.get_running_loop().create_future()
        inbox.take(message)

    async with shop() as place:
        handler = hang if kind == "thread" else hang_on_loop
        async with consuming(place, handler, consume_timeout=0.3):
            await place.send_many(20)
            await inbox.has_all(body for body in place.sent if body != b"3")
            await until_consumed(place)
            await inbox.has_all(place.sent)
            gate.set()
        assert hung == [b"3"]
        # What a handler says that was given up does not count.
        assert place.committed() == 20


async def test_a_handler_that_never_returns_does_not_keep_a_consumer_from_closing() -> None:
    inbox, gate = Inbox(), threading.Event()
    hung: list[threading.Thread] = []

    def hang(_: ReceivedMessage) -> None:
        hung.append(threading.current_thread())
        gate.wait()

    async with shop() as place:
        async with consuming(place, hang, await_termination_when_shutdown=0.05):
            await place.send("a")
            await eventually(lambda: hung)
        assert hung[0].is_alive()
        async with consuming(place, inbox.take):
            await inbox.has(b"a")
        gate.set()
        await eventually(lambda: not hung[0].is_alive())


# Processes


async def test_what_a_killed_consumer_had_not_finished_is_consumed_by_the_others(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    inbox = Inbox()
    async with shop() as place:
        arguments = ("consuming_process.py", place.cluster.name_server, GROUP, TOPIC)
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
    check_at_least_once(sending.acknowledged, [*said(first, second), *inbox.bodies], record_property)


async def finished(place: Shop, sending: Load) -> None:
    """Wait until there is nothing left to consume of what was acknowledged."""
    sending.stop()
    await place.cluster.wait_until_consumed(GROUP, timeout=30)


async def test_what_was_acknowledged_to_a_killed_producer_is_there(tmp_path: Path) -> None:
    async with shop() as place:
        arguments = ("producing_process.py", place.cluster.name_server, TOPIC, "n")
        async with client_process(tmp_path, *arguments) as producer:
            await soon(lambda: len(producer.lines) > 100)
            assert await producer.stopped(signal.SIGKILL) == -signal.SIGKILL
            acknowledged = said(producer)
        stored = [message.body for message in place.cluster.messages(TOPIC)]
        await eventually(lambda: len(place.cluster.broker("broker-a").connections) == 1)
    assert set(acknowledged) <= set(stored)
    # One may have been on its way.
    assert len(stored) - len(acknowledged) in {0, 1}
