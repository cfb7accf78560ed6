"""The Python client sends, is refused and reads back the same with OrbitMQ's servers and with Apache's."""

from __future__ import annotations

import asyncio
import collections
import random
from typing import TYPE_CHECKING, Any

import pytest

from conformance.sdk.sdk_harness import (
    APACHE,
    OURS,
    QUEUES,
    READ,
    WRITE,
    Seen,
    consumer_of,
    create_topic,
    eventually,
    has_route,
    own_name,
    place,
    place_told,
    read_all,
    reader_of,
    servers_of,
)
from orbitmq import (
    BrokerError,
    Consumer,
    InvalidMessageError,
    LitePullConsumer,
    Message,
    MessageQueue,
    NoRouteError,
    Producer,
    SendStatus,
    aio,
)
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.message.flags import (
    COMPRESSED,
    COMPRESSION_LZ4,
    COMPRESSION_MASK,
    COMPRESSION_ZLIB,
    COMPRESSION_ZSTD,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from conformance.servers.processes import Serving
    from orbitmq import Receipt
    from orbitmq.client.producer.hooks import SendContext

COMPRESSIONS = {"ZLIB": COMPRESSION_ZLIB, "LZ4": COMPRESSION_LZ4, "ZSTD": COMPRESSION_ZSTD}


@pytest.fixture(scope="module", params=[OURS, APACHE])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with servers_of(request.param, tmp_path_factory.mktemp(request.param)) as running:
        yield running


@pytest.fixture(scope="module")
def producer(server: Serving) -> Iterator[Producer]:
    with Producer(server.nameserver, group="ProducersOfTests", send_msg_timeout=10) as running:
        yield running


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return own_name(request)


@pytest.fixture
def topic(server: Serving, name: str) -> str:
    return create_topic(server, name)


def test_a_receipt_says_where_the_message_lies(server: Serving, producer: Producer, topic: str) -> None:
    properties = {"ключ": "значение", "amount": "9"}
    message = Message(topic, "größer ✓", tags="paid", keys=["42", "43"], properties=properties, flag=7)
    receipt = producer.send(message)
    assert receipt.status is SendStatus.SEND_OK
    assert (receipt.queue.topic, receipt.queue.broker_name) == (topic, server.broker_name)
    assert (receipt.queue_offset, receipt.region_id) == (0, "DefaultRegion")
    (stored,) = read_all(server, topic, 1)
    assert (stored.text(), stored.tags, stored.keys, stored.flag) == ("größer ✓", "paid", ["42", "43"], 7)
    assert properties.items() <= stored.properties.items()
    assert place(stored) == place_told(receipt)
    assert stored.offset_message_id == receipt.offset_message_id
    assert (stored.store_host, stored.reconsume_times) == (server.broker_address, 0)
    assert 0 <= stored.store_timestamp - stored.born_timestamp < 60_000


def test_the_first_send_creates_a_topic(server: Serving, producer: Producer, name: str) -> None:
    receipt = producer.send(Message(name, b"first"))
    assert receipt.queue_offset == 0
    eventually(lambda: has_route(server, name))
    assert [message.body for message in read_all(server, name, 1)] == [b"first"]
    assert [queue.queue_id for queue in producer.queues(name)] == list(range(QUEUES))


def test_messages_are_sent_side_by_side(server: Serving, producer: Producer, topic: str) -> None:
    told: list[Receipt | BaseException | None] = []
    bodies = [b"message %d" % number for number in range(40)]
    futures = [
        producer.send_async(Message(topic, body), callback=lambda receipt, error: told.append(receipt or error))
        for body in bodies
    ]
    receipts = [future.result(30) for future in futures]
    eventually(lambda: len(told) == len(bodies))
    stored = read_all(server, topic, len(bodies))
    assert {place(message) for message in stored} == {place_told(receipt) for receipt in receipts}
    assert {receipt.message_id for receipt in receipts} == {getattr(each, "message_id", each) for each in told}
    assert sorted(message.body for message in stored) == sorted(bodies)
    assert collections.Counter(receipt.queue.queue_id for receipt in receipts) == dict.fromkeys(range(QUEUES), 10)


async def test_coroutines_send_side_by_side_and_without_waiting(server: Serving, topic: str) -> None:
    async with aio.Producer(server.nameserver, send_msg_timeout=10) as producer:
        awaited = await asyncio.gather(*(producer.send(Message(topic, b"awaited")) for _ in range(20)))
        posted = [producer.send_nowait(Message(topic, b"posted")) for _ in range(20)]
        receipts = [*awaited, *await asyncio.gather(*posted)]
    stored = await asyncio.to_thread(read_all, server, topic, 40)
    assert {place(message) for message in stored} == {place_told(receipt) for receipt in receipts}


def test_messages_sent_one_way_arrive(server: Serving, producer: Producer, topic: str) -> None:
    bodies = [b"message %d" % number for number in range(20)]
    for body in bodies:
        producer.send_oneway(Message(topic, body))
    assert sorted(message.body for message in read_all(server, topic, 20)) == sorted(bodies)


def test_a_batch_lies_in_one_queue_as_single_messages(server: Serving, producer: Producer, topic: str) -> None:
    bodies = [b"message %d" % number for number in range(30)]
    receipts = producer.send_batch(
        Message(topic, body, tags="T", properties={"body": body.decode()}) for body in bodies
    )
    assert [receipt.queue_offset for receipt in receipts] == list(range(30))
    stored = read_all(server, topic, 30)
    assert [message.body for message in stored] == bodies
    assert [place(message) for message in stored] == [place_told(receipt) for receipt in receipts]
    assert [message.offset_message_id for message in stored] == [each.offset_message_id for each in receipts]
    assert [message.properties["body"].encode() for message in stored] == bodies


def test_a_batch_over_the_size_limit_goes_in_parts(server: Serving, topic: str) -> None:
    requests = _Requests()
    with Producer(server.nameserver, max_message_size=100_000, send_msg_timeout=10, hooks=[requests]) as producer:
        receipts = producer.send_batch(Message(topic, random.Random(n).randbytes(30_000)) for n in range(10))
    assert requests.sizes == [3, 3, 3, 1]
    stored = read_all(server, topic, 10)
    assert {place(message) for message in stored} == {place_told(receipt) for receipt in receipts}


def test_gathered_messages_have_receipts_of_their_own(server: Serving, topic: str) -> None:
    requests = _Requests()
    with Producer(server.nameserver, auto_batch=True, batch_max_delay=0.05, hooks=[requests]) as producer:
        futures = [producer.send_async(Message(topic, b"message %d" % number)) for number in range(50)]
        receipts = [future.result(30) for future in futures]
    stored = read_all(server, topic, 50)
    assert {place(message) for message in stored} == {place_told(receipt) for receipt in receipts}
    assert sum(requests.sizes) == 50
    assert len(requests.sizes) < 50


@pytest.mark.parametrize("kind", list(COMPRESSIONS))
def test_a_long_body_travels_and_lies_compressed(server: Serving, topic: str, kind: str) -> None:
    body = b"again and again " * 4000
    with Producer(server.nameserver, compress_type=kind) as producer:
        producer.send(Message(topic, body))
        producer.send(Message(topic, b"short"))
    long, short = sorted(read_all(server, topic, 2), key=lambda message: -len(message.body))
    assert (long.body, short.body) == (body, b"short")
    assert len(long.record.body) < len(body) // 10
    assert long.record.sys_flag & (COMPRESSED | COMPRESSION_MASK) == COMPRESSED | COMPRESSIONS[kind]
    assert not short.record.sys_flag & COMPRESSED


def test_three_mebibytes_arrive_as_they_were_sent(server: Serving, producer: Producer, topic: str) -> None:
    body = random.Random(3).randbytes(3 << 20)
    producer.send(Message(topic, body), timeout=30)
    assert [message.body for message in read_all(server, topic, 1)] == [body]


def test_a_sharding_key_keeps_its_messages_in_one_queue_in_order(
    server: Serving, producer: Producer, topic: str
) -> None:
    keys = ["red", "green", "blue", "white"]
    for step in range(8):
        for key in keys:
            producer.send(Message(topic, f"{key}:{step}", sharding_key=key))
    stored = [message.text().split(":") for message in read_all(server, topic, 32)]
    by_key = {key: [int(step) for of, step in stored if of == key] for key in keys}
    assert by_key == {key: list(range(8)) for key in keys}


def test_a_message_goes_to_the_queue_that_was_chosen(server: Serving, producer: Producer, topic: str) -> None:
    def choose(queues: Sequence[MessageQueue], message: Message, arg: Any) -> MessageQueue:
        chosen: MessageQueue = queues[arg]
        return chosen

    producer.send(Message(topic, b"selected"), selector=choose, arg=2)
    producer.send(Message(topic, b"named"), queue=MessageQueue(topic, server.broker_name, 1))
    producer.send_batch([Message(topic, b"with others")], queue=MessageQueue(topic, server.broker_name, 3))
    found = [(message.queue_id, message.body) for message in read_all(server, topic, 3)]
    assert found == [(1, b"named"), (2, b"selected"), (3, b"with others")]


def test_a_delayed_message_comes_after_its_delay(server: Serving, producer: Producer, topic: str) -> None:
    seen = Seen()
    consumer = consumer_of(server, topic, seen)
    with consumer:
        producer.send(Message(topic, b"later", delay_level=1))
        producer.send(Message(topic, b"now"))
        seen.wait_for(2)
    assert seen.bodies == [b"now", b"later"]


# What is refused


def test_without_a_route_nothing_is_sent_or_read(server: Serving, name: str) -> None:
    with Producer(server.nameserver, create_topic_key="NobodyCreatesThis") as producer:
        with pytest.raises(NoRouteError, match=name):
            producer.send(Message(name, b"to nobody"))
        with pytest.raises(NoRouteError, match=name):
            producer.send_async(Message(name, b"to nobody")).result(30)
    with LitePullConsumer(server.nameserver, group=name) as reader, pytest.raises(NoRouteError, match=name):
        reader.fetch_message_queues(name)


def test_what_is_too_large_is_refused_here_or_by_the_broker(
    server: Serving, producer: Producer, topic: str
) -> None:
    body = random.Random(5).randbytes((4 << 20) + 100_000)
    with pytest.raises(InvalidMessageError, match="max_message_size"):
        producer.send(Message(topic, body))
    with (
        Producer(server.nameserver, max_message_size=8 << 20, send_msg_timeout=10) as generous,
        pytest.raises(BrokerError) as refused,
    ):
        generous.send(Message(topic, body))
    assert refused.value.code == ResponseCode.MESSAGE_ILLEGAL


def test_a_topic_that_forbids_writing_has_no_queue_to_send_to(server: Serving, name: str) -> None:
    create_topic(server, name, perm=READ)
    # Without this the producer would take the topic for a new one, whose queues it may choose.
    with (
        Producer(server.nameserver, create_topic_key="NobodyCreatesThis") as producer,
        pytest.raises(NoRouteError, match=name),
    ):
        producer.send(Message(name, b"in"))


def test_a_topic_that_forbids_reading_is_read_as_soon_as_it_allows_it(
    server: Serving, producer: Producer, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    producer.send(Message(topic, b"in"))
    with reader_of(server, topic) as reader:
        queues = reader.fetch_message_queues(topic)
        create_topic(server, topic, perm=WRITE)
        reader.assign(queues)
        eventually(lambda: "pulling message is forbidden" in caplog.text)
        assert reader.poll(0.1) == []
        create_topic(server, topic)
        assert [message.body for message in reader.poll(30)] == [b"in"]


def test_a_filter_that_cannot_be_read_is_refused(server: Serving, topic: str) -> None:
    consumer = Consumer(server.nameserver, group=topic)
    consumer.subscribe(topic, Seen(), sql="number > > 3")
    with pytest.raises(BrokerError) as refused:
        consumer.start()
    assert refused.value.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    with pytest.raises(InvalidMessageError, match="invalid filter of"):
        LitePullConsumer(server.nameserver, group=topic).subscribe(topic, sql="number > > 3")


class _Requests:
    """Notes how many messages each request has."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def before_send(self, context: SendContext) -> None:
        self.sizes.append(len(context.messages))

    def after_send(self, context: SendContext) -> None:
        """There is nothing to note."""
