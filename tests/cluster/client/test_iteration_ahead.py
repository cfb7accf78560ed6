"""The blocking iteration takes many messages at a time; offsets are as if it took one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from orbitmq import LitePullConsumer, Message, MessageQueue, Producer

if TYPE_CHECKING:
    from orbitmq.testing import ThreadCluster

QUEUE = MessageQueue("orders", "broker-a", 0)


@pytest.fixture
def filled(orbitmq: ThreadCluster) -> ThreadCluster:
    with Producer(orbitmq.name_server) as producer:
        for number in range(20):
            producer.send(Message("orders", str(number)), queue=QUEUE)
    return orbitmq


def consumer_of(cluster: ThreadCluster, **options: Any) -> LitePullConsumer:
    consumer = LitePullConsumer(
        cluster.name_server, group="audit", start_from="earliest", pull_batch_size=20, **options
    )
    consumer.subscribe("orders")
    return consumer


def take(consumer: LitePullConsumer, count: int) -> list[int]:
    return [int(next(consumer).body) for _ in range(count)]


def test_a_commit_covers_what_was_handed_out_and_no_more(filled: ThreadCluster) -> None:
    with consumer_of(filled, auto_commit=False) as consumer:
        assert take(consumer, 3) == [0, 1, 2]
        assert consumer.position(QUEUE) == 3
        consumer.commit()
        assert consumer.committed(QUEUE) == 3
        assert consumer.lag()[QUEUE] == 17
        # The rest comes as before, by either way.
        assert take(consumer, 2) == [3, 4]
        assert [int(message.body) for message in consumer.poll()] == list(range(5, 20))
    assert filled.consumer_offsets("audit")[QUEUE] == 3


def test_a_seek_drops_what_was_taken_ahead(filled: ThreadCluster) -> None:
    with consumer_of(filled, auto_commit=False) as consumer:
        assert take(consumer, 3) == [0, 1, 2]
        consumer.seek(QUEUE, 10)
        assert take(consumer, 2) == [10, 11]
        consumer.pause(QUEUE)
        assert consumer.poll(timeout=0.05) == []
        consumer.resume(QUEUE)
        assert take(consumer, 2) == [12, 13]


def test_after_an_exception_only_the_last_message_comes_again(filled: ThreadCluster) -> None:
    with pytest.raises(ZeroDivisionError):
        fail_at_fourth(filled)
    with consumer_of(filled) as consumer:
        assert take(consumer, 3) == [3, 4, 5]
    with consumer_of(filled) as consumer:
        assert take(consumer, 1) == [6]


def fail_at_fourth(cluster: ThreadCluster) -> None:
    with consumer_of(cluster) as consumer:
        assert take(consumer, 4) == [0, 1, 2, 3]
        raise ZeroDivisionError
