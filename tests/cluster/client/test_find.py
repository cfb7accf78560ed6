"""Messages found again by their keys."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING

import pytest

from orbitmq import InvalidMessageError, Message, NoRouteError, Producer
from orbitmq.client.errors import OrbitMQError
from orbitmq.client.instance.instance import ClientInstance
from orbitmq.testing import LocalCluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orbitmq.client.instance.routes import Route
    from orbitmq.testing import ThreadCluster


@pytest.fixture
def pair() -> Iterator[ThreadCluster]:
    with LocalCluster(brokers=2) as running:
        yield running


def test_messages_are_found_by_any_of_their_keys_at_all_brokers(pair: ThreadCluster) -> None:
    producer: Producer = pair.producer()
    queues = producer.queues("orders")
    for number in range(8):
        producer.send(Message("orders", str(number), keys=["all", f"order-{number}"]), queue=queues[number % 8])
    assert [message.text() for message in producer.find("orders", "all")] == [str(number) for number in range(8)]
    assert {message.broker_name for message in producer.find("orders", "all")} == {"broker-a", "broker-b"}
    (found,) = producer.find("orders", "order-5")
    assert (found.topic, found.text(), found.keys) == ("orders", "5", ["all", "order-5"])
    assert producer.find("orders", "order-9") == []
    # Letters of another case are another key, and a part of a key is none.
    assert producer.find("orders", "ORDER-5") == producer.find("orders", "order") == []
    assert len(producer.find("orders", "all", most=1)) == 2  # of each broker one


def test_the_id_of_a_receipt_is_a_key(orbitmq: ThreadCluster) -> None:
    producer: Producer = orbitmq.producer()
    receipt = producer.send(Message("orders", "1"))
    producer.send(Message("orders", "2"))
    assert [message.text() for message in producer.find("orders", receipt.message_id)] == ["1"]


def test_a_time_limits_what_is_found(orbitmq: ThreadCluster) -> None:
    producer: Producer = orbitmq.producer()
    producer.send(Message("orders", "old", keys=["k"]))
    orbitmq.advance(3600)
    producer.send(Message("orders", "new", keys=["k"]))
    old, new = producer.find("orders", "k")
    between = (old.store_timestamp + new.store_timestamp) / 2000
    assert [message.text() for message in producer.find("orders", "k", since=between)] == ["new"]
    moment = datetime.datetime.fromtimestamp(between, datetime.UTC)
    assert [message.text() for message in producer.find("orders", "k", until=moment)] == ["old"]


def test_names_are_those_of_the_namespace(orbitmq: ThreadCluster) -> None:
    with Producer(orbitmq.name_server, namespace="tenant") as producer:
        producer.send(Message("orders", "1", keys=["k"]))
        assert [(message.topic, message.text()) for message in producer.find("orders", "k")] == [("orders", "1")]
    other: Producer = orbitmq.producer()
    other.send(Message("orders", "2", keys=["k"]))
    assert [message.text() for message in other.find("orders", "k")] == ["2"]


def test_messages_are_found_before_name_servers_know_their_topic(
    orbitmq: ThreadCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unknown(_: ClientInstance, __: str) -> Route | None:
        return None

    monkeypatch.setattr(ClientInstance, "_look_up", unknown)
    producer: Producer = orbitmq.producer()
    with pytest.raises(NoRouteError):
        producer.find("orders", "k")
    producer.send(Message("orders", "1", keys=["k"]))
    assert [message.text() for message in producer.find("orders", "k")] == ["1"]


def test_a_broker_that_is_away_is_left_out(pair: ThreadCluster) -> None:
    producer: Producer = pair.producer()
    for queue in producer.queues("orders"):
        producer.send(Message("orders", queue.broker_name, keys=["k"]), queue=queue)
    pair.stop("broker-a")
    assert {message.text() for message in producer.find("orders", "k")} == {"broker-b"}
    pair.stop("broker-b")
    with pytest.raises(OrbitMQError):
        producer.find("orders", "k")


def test_what_cannot_be_asked_is_refused(orbitmq: ThreadCluster) -> None:
    producer: Producer = orbitmq.producer()
    for key, most in (("", 1), ("k", 0)):
        with pytest.raises(InvalidMessageError, match="find needs a key"):
            producer.find("orders", key, most=most)
    with pytest.raises(NoRouteError):
        producer.find("nowhere", "k")
