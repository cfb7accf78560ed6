"""The Python client's consumers do the same with OrbitMQ's servers and with Apache's."""

from __future__ import annotations

import asyncio
import collections
from typing import TYPE_CHECKING

import pytest

from conformance.sdk.sdk_harness import (
    APACHE,
    OURS,
    QUEUES,
    Seen,
    consumer_of,
    create_topic,
    eventually,
    has_route,
    own_name,
    place,
    place_told,
    pull_options,
    push_options,
    read_all,
    reader_of,
    servers_of,
    soon,
)
from orbitmq import (
    Consumer,
    ConsumeResult,
    InvalidMessageError,
    Message,
    MessageQueue,
    Producer,
    aio,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from conformance.servers.processes import Serving
    from orbitmq import ReceivedMessage


@pytest.fixture(scope="module", params=[OURS, APACHE])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with servers_of(request.param, tmp_path_factory.mktemp(request.param)) as running:
        yield running


@pytest.fixture(scope="module")
def producer(server: Serving) -> Iterator[Producer]:
    with Producer(server.nameserver, group="ProducersOfTests", send_msg_timeout=10) as running:
        yield running


@pytest.fixture
def topic(request: pytest.FixtureRequest, server: Serving) -> str:
    return create_topic(server, own_name(request))


# Push consumers


@pytest.mark.parametrize("where", ["threads", "loop"])
async def test_a_consumer_gets_every_message_once(
    server: Serving, producer: Producer, topic: str, where: str
) -> None:
    bodies = [b"message %d" % number for number in range(100)]
    receipts = [producer.send(Message(topic, body)) for body in bodies[:50]]
    seen = Seen()
    consumer = aio.Consumer(server.nameserver, group=topic, **push_options())
    consumer.on(topic)(seen if where == "threads" else seen.on_the_loop)
    async with consumer:
        receipts += [producer.send(Message(topic, body)) for body in bodies[50:]]
        found = await soon(lambda: seen.messages, lambda messages: len(messages) >= 100)
    assert sorted(message.body for message in found) == sorted(bodies)
    assert {place(message) for message in found} == {place_told(receipt) for receipt in receipts}
    assert {message.topic for message in found} == {topic}


def test_a_group_goes_on_where_it_was(server: Serving, producer: Producer, topic: str) -> None:
    for round_ in range(2):
        seen = Seen()
        consumer = consumer_of(server, topic, seen)
        bodies = [b"%d: %d" % (round_, number) for number in range(10)]
        for body in bodies:
            producer.send(Message(topic, body))
        with consumer:
            seen.wait_for(10)
        assert sorted(seen.bodies) == sorted(bodies)


def test_a_new_group_from_the_last_offset_still_gets_what_lies_in_a_young_queue(
    server: Serving, producer: Producer, topic: str
) -> None:
    seen = Seen()
    producer.send(Message(topic, b"before"))
    with consumer_of(server, topic, seen, consume_from_where="CONSUME_FROM_LAST_OFFSET"):
        producer.send(Message(topic, b"after"))
        seen.wait_for(2)
    assert sorted(seen.bodies) == [b"after", b"before"]


def test_in_a_namespace_everything_has_its_plain_name(server: Serving, topic: str) -> None:
    seen = Seen({b"inside": 1})
    create_topic(server, f"space%{topic}")
    with (
        Producer(server.nameserver, namespace="space") as producer,
        consumer_of(server, topic, seen, namespace="space"),
    ):
        assert producer.send(Message(topic, b"inside")).queue.topic == topic
        found = seen.wait_for(2)
    assert [(message.topic, message.reconsume_times) for message in found] == [(topic, 0), (topic, 1)]
    assert [message.record.topic for message in found] == [f"space%{topic}", f"%RETRY%space%{topic}"]


def test_a_handler_may_take_lists_and_say_how_far_it_came(server: Serving, producer: Producer, topic: str) -> None:
    rounds: list[list[bytes]] = []

    def handle(messages: Sequence[ReceivedMessage]) -> ConsumeResult:
        rounds.append([message.body for message in messages])
        return ConsumeResult.success(0, delay_level=1)

    consumer = consumer_of(server, topic, handle, consume_message_batch_max_size=8)
    bodies = [b"message %d" % number for number in range(4)]
    producer.send_batch([Message(topic, body) for body in bodies])
    with consumer:
        # Of each list only the first is done, so what is left gets shorter by one each time.
        eventually(lambda: {body for messages in rounds for body in messages[:1]}, lambda done: len(done) == 4)
    assert rounds[0] == bodies


def test_a_failing_message_is_retried_and_ends_as_a_dead_letter(
    server: Serving, producer: Producer, topic: str
) -> None:
    seen = Seen({b"once": 1, b"always": 99})
    consumer = consumer_of(server, topic, seen, max_reconsume_times=2)
    sent = {body: producer.send(Message(topic, body, tags="T")) for body in (b"once", b"always", b"never")}
    with consumer:
        found = seen.wait_for(6)
        (dead,) = eventually(lambda: _dead_letters(server, topic))
    times = collections.defaultdict(list)
    for message in found:
        assert (message.topic, message.tags) == (topic, "T")
        assert message.message_id == sent[message.body].message_id
        times[message.body].append(message.reconsume_times)
    assert times == {b"never": [0], b"once": [0, 1], b"always": [0, 1, 2]}
    assert (dead.body, dead.reconsume_times, dead.message_id) == (b"always", 3, sent[b"always"].message_id)
    assert dead.properties["RETRY_TOPIC"] == topic
    assert dead.properties["ORIGIN_MESSAGE_ID"] == sent[b"always"].offset_message_id
    assert len(seen.messages) == 6


def test_an_orderly_consumer_keeps_the_order_even_where_it_fails(
    server: Serving, producer: Producer, topic: str
) -> None:
    seen = Seen({b"green:3": 2})
    consumer = consumer_of(server, topic, seen, orderly=True, suspend_current_queue_time=0.05)
    for step in range(10):
        for key in ("red", "green", "blue"):
            producer.send(Message(topic, f"{key}:{step}", sharding_key=key))
    with consumer:
        seen.wait_for(32)
    steps = collections.defaultdict(list)
    for body in seen.bodies:
        key, _, step_ = body.decode().partition(":")
        steps[key].append(int(step_))
    straight = list(range(10))
    assert steps == {"red": straight, "blue": straight, "green": [*straight[:4], 3, 3, *straight[4:]]}


def test_every_broadcast_consumer_gets_everything_and_goes_on_from_its_file(
    server: Serving, producer: Producer, topic: str, tmp_path: Path
) -> None:
    for round_ in range(2):
        everyone = [Seen(), Seen()]
        consumers = []
        for number, seen in enumerate(everyone):
            consumer = consumer_of(
                server,
                topic,
                seen,
                message_model="BROADCASTING",
                instance_name=f"{topic}-{number}",
                local_offset_store_dir=str(tmp_path / str(number)),
            )
            consumers.append(consumer.start())
        bodies = [b"%d: %d" % (round_, number) for number in range(12)]
        for body in bodies:
            producer.send(Message(topic, body))
        for consumer, seen in zip(consumers, everyone, strict=True):
            seen.wait_for(len(bodies))
            consumer.close()
            assert sorted(seen.bodies) == sorted(bodies)


def test_a_consumer_gets_what_its_filter_lets_through(server: Serving, producer: Producer, topic: str) -> None:
    filters: dict[str, dict[str, str]] = {
        # The hashes of Aa and BB are the same, so the broker lets both pass and the client looks again.
        "tags": {"tags": "red || Aa || grün"},
        "sql": {"sql": "(size BETWEEN 3 AND 8 AND colour IN ('red', 'grün')) OR TAGS = 'end'"},
    }
    expected = {
        "tags": {f"{colour} {size}" for colour in ("red", "grün", "Aa") for size in (1, 7)},
        "sql": {"red 7", "grün 7", "end"},
    }
    everyone = {kind: Seen() for kind in filters}
    consumers = []
    for kind, filter_ in filters.items():
        consumer = Consumer(server.nameserver, group=f"{topic}_{kind}", **push_options())
        consumer.subscribe(topic, everyone[kind], **filter_)  # type: ignore[arg-type]
        consumers.append(consumer.start())
    for colour in ("red", "grün", "BB", "Aa"):
        for size in ("1", "7"):
            properties = {"size": size, "colour": colour}
            producer.send(Message(topic, f"{colour} {size}", tags=colour, properties=properties))
    producer.send(Message(topic, "end", tags="end"))
    for consumer, (kind, seen) in zip(consumers, everyone.items(), strict=True):
        seen.wait_for(len(expected[kind]))
        consumer.close()
        assert sorted(body.decode() for body in seen.bodies) == sorted(expected[kind])


async def test_two_members_share_the_queues_until_one_leaves_or_dies(
    server: Serving, producer: Producer, topic: str
) -> None:
    seen = Seen()

    async def joined() -> aio.Consumer:
        consumer = aio.Consumer(server.nameserver, group=topic, **push_options())
        consumer.on(topic)(seen)
        return await consumer.start()

    def share(consumer: aio.Consumer) -> set[int]:
        return {queue.queue_id for queue in consumer.queues if queue.topic == topic}

    def send_to_all() -> None:
        for number in range(len(sent), len(sent) + 2 * QUEUES):
            sent.append(b"message %d" % number)
            producer.send(Message(topic, sent[-1]))

    async def all_seen() -> None:
        await soon(lambda: seen.bodies, lambda bodies: len(bodies) >= len(sent))

    async def commit(consumer: aio.Consumer) -> None:
        """Commit what was handled; a handler may still be returning in its thread."""
        queues = consumer._running().queues
        await soon(
            lambda: sum(len(queue.messages) for queue in queues.process_queues), lambda backlog: backlog == 0
        )
        await consumer.persist_offsets()

    every = set(range(QUEUES))
    sent: list[bytes] = []
    stays = await joined()
    assert share(stays) == every
    for ends in (aio.Consumer.close, aio.Consumer.abort):
        other = await joined()
        await soon(
            lambda other=other: (share(stays), share(other)),  # type: ignore[misc]
            lambda shares: [len(ids) for ids in shares] == [2, 2] and shares[0] | shares[1] == every,
        )
        send_to_all()
        await all_seen()
        assert sorted(seen.bodies) == sorted(sent)
        # A new owner of a queue begins at its committed offset. One that joins reads it before the former owner
        # releases the queue, and a member that dies commits nothing.
        await commit(stays)
        await commit(other)
        await ends(other)
        await soon(lambda: share(stays), lambda mine: mine == every)
    send_to_all()
    await all_seen()
    await stays.close()
    assert sorted(seen.bodies) == sorted(sent)


# Pull consumers


def test_a_pull_consumer_reads_what_it_is_assigned_from_where_it_seeks(
    server: Serving, producer: Producer, topic: str
) -> None:
    queue = MessageQueue(topic, server.broker_name, 1)
    for number in range(10):
        producer.send(Message(topic, b"%d" % number), queue=queue)
    with reader_of(server, topic, auto_commit=False) as reader:
        assert {each.queue_id for each in reader.fetch_message_queues(topic)} == set(range(QUEUES))
        reader.assign([queue])
        assert reader.assignment() == {queue}
        first = reader.poll(30)
        assert first[0].body == b"0"
        # What brokers say of a group that is new to a queue none of whose messages is gone.
        assert reader.committed(queue) == 0
        reader.seek(queue, 7)
        assert [message.body for message in reader.poll(30)] == [b"7", b"8", b"9"]
        assert reader.position(queue) == 10
        reader.seek_to_begin(queue)
        assert reader.poll(30)[0].body == b"0"
        stored = first[0].store_timestamp / 1000
        assert (reader.offset_for_timestamp(queue, stored), reader.offset_for_timestamp(queue, stored + 60)) == (
            0,
            10,
        )
        reader.seek_to_time(queue, stored - 1)
        assert reader.poll(30)[0].body == b"0"
        reader.seek_to_end(queue)
        producer.send(Message(topic, b"at the end"), queue=queue)
        assert [message.body for message in reader.poll(30)] == [b"at the end"]
        with pytest.raises(InvalidMessageError, match="cannot seek to 99"):
            reader.seek(queue, 99)
        reader.commit({queue: 5})
    with reader_of(server, topic) as reader:
        reader.assign([queue])
        assert reader.committed(queue) == 5
        assert reader.poll(30)[0].body == b"5"


async def test_pull_consumers_share_a_topic_and_iterate_over_it(
    server: Serving, producer: Producer, topic: str
) -> None:
    bodies = [b"message %d" % number for number in range(40)]
    found: list[bytes] = []
    readers = [aio.LitePullConsumer(server.nameserver, group=topic, **pull_options()) for _ in range(2)]

    async def read(reader: aio.LitePullConsumer) -> None:
        async for message in reader:
            found.append(message.body)  # noqa: PERF401 - what comes is looked at while it comes

    for reader in readers:
        reader.subscribe(topic, tags="wanted")
        await reader.start()
    await soon(
        lambda: [reader.assignment() for reader in readers],
        lambda shares: [len(queues) for queues in shares] == [2, 2] and not shares[0] & shares[1],
    )
    reading = [asyncio.create_task(read(reader)) for reader in readers]
    for tag, some in (("other", bodies[:QUEUES]), ("wanted", bodies)):
        for body in some:
            producer.send(Message(topic, body, tags=tag))
    await soon(lambda: found, lambda messages: len(messages) >= len(bodies))
    for reader in readers:
        await reader.close()
    await asyncio.gather(*reading)
    assert sorted(found) == sorted(bodies)
    async with aio.LitePullConsumer(server.nameserver, group=topic, **pull_options()) as reader:
        queues = await reader.fetch_message_queues(topic)
        assert sum([await reader.committed(queue) or 0 for queue in queues]) == QUEUES + len(bodies)


# The last one: it restarts the server.


def test_clients_and_offsets_outlive_a_restart_of_the_broker(
    server: Serving, producer: Producer, topic: str
) -> None:
    seen, stayed = Seen(), Seen()
    consumer = consumer_of(server, topic, seen)
    stays = Consumer(server.nameserver, group=f"{topic}_stays", **push_options())
    stays.subscribe(topic, stayed)
    before = [b"before %d" % number for number in range(20)]
    after = [b"after %d" % number for number in range(20)]
    with stays:
        with consumer:
            for body in before:
                producer.send(Message(topic, body))
            seen.wait_for(20)
        stayed.wait_for(20)
        stays.persist_offsets()
        server.restart()
        for body in after:
            producer.send(Message(topic, body))
        stayed.wait_for(40)
    assert sorted(stayed.bodies) == sorted(before + after)
    with consumer_of(server, topic, seen):
        seen.wait_for(40)
    assert sorted(seen.bodies) == sorted(before + after)


def _dead_letters(server: Serving, group: str) -> list[ReceivedMessage]:
    topic = f"%DLQ%{group}"
    return read_all(server, topic, 1) if has_route(server, topic) else []
