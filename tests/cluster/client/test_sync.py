"""The client for plain code: it waits for what it asks, from any thread, and leaves nothing behind."""

from __future__ import annotations

import concurrent.futures
import os
import signal
import threading
import time
from typing import TYPE_CHECKING

import pytest

import orbitmq as omq
from orbitmq import Consumer, InvalidMessageError, LitePullConsumer, Message, NotRunningError, Producer
from orbitmq.testing import LocalCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from orbitmq.testing.cluster_thread import ThreadCluster

PATIENCE = 30.0
FROM_FIRST = "CONSUME_FROM_FIRST_OFFSET"


@pytest.fixture
def cluster() -> Iterator[ThreadCluster]:
    with LocalCluster() as running:
        yield running


def eventually(condition: Callable[[], object]) -> None:
    until = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < until, "it did not come to that"
        time.sleep(0.005)


def client_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "orbitmq-client"]


def test_what_is_sent_is_consumed(cluster: ThreadCluster) -> None:
    bodies = set()
    consumer = Consumer(cluster.name_server, group="billing", consume_from_where=FROM_FIRST)

    @consumer.on("orders", tags="paid")
    def handle(message: omq.ReceivedMessage) -> None:
        bodies.add(message.body)

    with Producer(cluster.name_server) as producer:
        receipt = producer.send(Message("orders", b"0", tags="paid", keys=["42"], properties={"amount": "9"}))
        assert (receipt.status, receipt.queue.topic, receipt.queue_offset) == (omq.SendStatus.SEND_OK, "orders", 0)
        producer.send(Message("orders", b"unpaid", tags="open"))
        with consumer:
            receipts = producer.send_batch([Message("orders", b"%d" % number, tags="paid") for number in (1, 2)])
            producer.send_oneway(Message("orders", b"3", tags="paid"))
            eventually(lambda: len(bodies) == 4)
    assert len({receipt.message_id for receipt in receipts}) == 2
    assert bodies == {b"0", b"1", b"2", b"3"}


def test_many_threads_share_a_producer(cluster: ThreadCluster) -> None:
    with Producer(cluster.name_server) as producer, concurrent.futures.ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda number: producer.send(Message("orders", b"%d" % number)), range(200)))
    assert len({message.body for message in cluster.messages("orders")}) == 200


def test_a_callback_is_told_what_became_of_a_send(cluster: ThreadCluster) -> None:
    told = []
    with Producer(cluster.name_server) as producer:
        good = producer.send_async(Message("orders", b"x"), callback=lambda *outcome: told.append(outcome))
        assert good.result(PATIENCE).queue_offset == 0
        bad = producer.send_async(Message("bad topic!", b"x"), callback=lambda *outcome: told.append(outcome))
        with pytest.raises(InvalidMessageError):
            bad.result(PATIENCE)
        eventually(lambda: len(told) == 2)
    assert [type(error) for _, error in told] == [type(None), InvalidMessageError]


def test_a_pull_consumer_is_iterated_over(cluster: ThreadCluster) -> None:
    with Producer(cluster.name_server) as producer:
        for number in range(5):
            producer.send(Message("orders", b"%d" % number, sharding_key="one"))
    with LitePullConsumer(cluster.name_server, group="reports", consume_from_where=FROM_FIRST) as consumer:
        consumer.subscribe("orders")
        bodies = [next(consumer).body for _ in range(5)]
        consumer.commit()
        (queue,) = [queue for queue in consumer.assignment() if consumer.committed(queue)]
        assert consumer.position(queue) == 5
        consumer.seek_to_begin(queue)
        assert next(consumer).body == b"0"
    assert bodies == [b"0", b"1", b"2", b"3", b"4"]


def test_a_handler_that_raises_gets_its_message_again(cluster: ThreadCluster) -> None:
    times: list[int] = []
    consumer = Consumer(cluster.name_server, group="billing", consume_from_where=FROM_FIRST)

    @consumer.on("orders")
    def handle(message: omq.ReceivedMessage) -> None:
        times.append(message.reconsume_times)
        if message.reconsume_times == 0:
            raise RuntimeError("not yet")

    with Producer(cluster.name_server) as producer, consumer:
        producer.send(Message("orders", b"x"))
        eventually(lambda: times == [0])

        def came_again() -> bool:
            cluster.advance(15)
            return times == [0, 1]

        eventually(came_again)


def test_running_ends_at_a_signal(cluster: ThreadCluster) -> None:
    handled = threading.Event()
    consumer = Consumer(cluster.name_server, group="billing", consume_from_where=FROM_FIRST)

    @consumer.on("orders")
    def handle(_: omq.ReceivedMessage) -> None:
        handled.set()
        os.kill(os.getpid(), signal.SIGTERM)

    with Producer(cluster.name_server) as producer:
        producer.send(Message("orders", b"x"))
    before = signal.getsignal(signal.SIGTERM)
    consumer.run()
    assert handled.is_set()
    assert signal.getsignal(signal.SIGTERM) is before


def test_the_thread_is_there_while_somebody_needs_it(cluster: ThreadCluster) -> None:
    assert client_threads() == []
    with Producer(cluster.name_server):
        (thread,) = client_threads()
        with Producer(cluster.name_server, group="other"):
            assert client_threads() == [thread]
    assert client_threads() == []
    with Producer(cluster.name_server):
        assert len(client_threads()) == 1
    assert client_threads() == []


def test_what_does_not_run_says_so() -> None:
    producer = Producer("127.0.0.1:1")
    with pytest.raises(NotRunningError, match="use `with`, or start"):
        producer.send(Message("orders", b"x"))
    producer.close()
    with pytest.raises(NotRunningError):
        Consumer("127.0.0.1:1", group="g").pause()


def test_after_a_fork_a_client_says_what_to_do(cluster: ThreadCluster) -> None:
    with Producer(cluster.name_server) as producer:
        producer.send(Message("orders", b"x"))
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                producer.send(Message("orders", b"y"))
            except NotRunningError as error:
                os.write(writing, str(error).encode())
            finally:
                os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as said:
            assert b"in the process that uses them" in said.read()
        os.waitpid(child, 0)
        producer.send(Message("orders", b"z"))


def test_the_public_names_are_there() -> None:
    from orbitmq import aio

    assert set(aio.__all__) == set(omq.__all__)
    assert all(getattr(omq, name) is not None for name in omq.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = omq.Nothing
