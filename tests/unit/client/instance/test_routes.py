"""Routes: which queues a topic has for whom, and where brokers are."""

from __future__ import annotations

import pytest

from orbitmq.client.instance.routes import Route
from orbitmq.protocol.bodies import BrokerData, MessageQueue, QueueData, TopicRouteData
from orbitmq.protocol.message.flags import PERM_READ, PERM_READ_WRITE, PERM_WRITE


def broker(name: str, **addresses: str) -> BrokerData:
    """``_0="a:1"`` is the master."""
    return BrokerData("c", name, {int(number[1:]): address for number, address in addresses.items()})


def queues(name: str, read: int = 2, write: int = 2, perm: int = PERM_READ_WRITE) -> QueueData:
    return QueueData(name, read, write, perm)


def route(*queue_datas: QueueData, brokers: list[BrokerData] | None = None, **more: object) -> Route:
    names = [data.broker_name for data in queue_datas]
    data = TopicRouteData(
        queue_datas=list(queue_datas),
        broker_datas=[broker(name, _0=f"{name}:1") for name in names] if brokers is None else brokers,
        **more,  # type: ignore[arg-type]
    )
    return Route.of("t", data)


def named(found: object) -> list[str]:
    assert isinstance(found, list)
    assert all(queue.topic == "t" for queue in found)
    return [f"{queue.broker_name}{queue.queue_id}" for queue in found]


def test_queues_come_by_broker_name_and_number_whatever_the_order_of_the_answer() -> None:
    made = route(queues("b", 1, 3), queues("a", 3, 1))
    assert named(made.publish_queues) == ["a0", "b0", "b1", "b2"]
    assert named(made.subscribe_queues) == ["a0", "a1", "a2", "b0"]


def test_permissions_say_who_may_use_them() -> None:
    made = route(queues("a", perm=PERM_READ), queues("b", perm=PERM_WRITE), queues("c", perm=0))
    assert named(made.publish_queues) == ["b0", "b1"]
    assert named(made.subscribe_queues) == ["a0", "a1"]


def test_without_a_master_a_broker_can_be_read_and_not_written() -> None:
    made = route(queues("a"), queues("b"), brokers=[broker("a", _1="a:2")])
    assert made.publish_queues == []
    assert made.why_not_writable.startswith("the master of a, b is missing")
    assert route(queues("a", perm=PERM_READ)).why_not_writable == "its queues do not take messages"
    assert named(made.subscribe_queues) == ["a0", "a1", "b0", "b1"]


def test_an_ordered_topic_has_the_queues_of_its_setting_in_that_order() -> None:
    made = route(queues("a"), queues("b"), order_topic_conf="b:3;a:1;:4;c:x")
    assert made.is_ordered
    assert named(made.publish_queues) == ["b0", "b1", "b2", "a0"]
    assert not route(queues("a"), order_topic_conf="").is_ordered


def test_a_topic_to_be_created_has_no_more_queues_than_wanted() -> None:
    data = TopicRouteData(queue_datas=[queues("a", 8, 8), queues("b", 2, 8)], broker_datas=[])
    data.broker_datas = [broker("a", _0="a:1"), broker("b", _0="b:1")]
    made = Route.of("t", data, max_queues=4)
    assert named(made.publish_queues) == ["a0", "a1", "a2", "a3", "b0", "b1"]
    assert named(made.subscribe_queues) == ["a0", "a1", "a2", "a3", "b0", "b1"]
    assert made.is_model
    assert not Route.of("t", data).is_model


ADDRESSES = {"_0": "m:1", "_1": "s:1", "_3": "s:3"}


@pytest.mark.parametrize(
    ("broker_id", "only_this", "address"),
    [
        (0, True, "m:1"),
        (1, True, "s:1"),
        (2, True, "s:3"),
        (4, True, None),
        (4, False, "m:1"),
        (2, False, "s:3"),
    ],
)
def test_a_slave_that_is_missing_is_replaced_by_the_next_and_then_by_any(
    broker_id: int, only_this: bool, address: str | None
) -> None:
    made = route(queues("a"), brokers=[broker("a", **ADDRESSES)])
    assert made.address("a", broker_id, only_this=only_this) == address


def test_a_master_that_is_missing_is_replaced_only_if_any_will_do() -> None:
    made = route(queues("a"), brokers=[broker("a", _2="s:2", _1="s:1")])
    assert made.address("a") is None
    assert made.address("a", only_this=False) == "s:1"
    assert made.address("nobody", only_this=False) is None


def test_the_order_of_an_answer_is_no_news() -> None:
    made = route(queues("a"), queues("b"))
    same = TopicRouteData(queue_datas=made.data.queue_datas[::-1], broker_datas=made.data.broker_datas[::-1])
    assert made.has_data(same)
    for other in (
        route(queues("a"), queues("b", 3)),
        route(queues("a")),
        route(queues("a"), queues("b"), order_topic_conf="a:1"),
        route(queues("a"), queues("b"), brokers=[broker("a", _0="a:1"), broker("b", _0="b:2")]),
    ):
        assert not made.has_data(other.data)


def test_a_queue_of_a_route_can_be_named() -> None:
    assert route(queues("a")).publish_queues[1] == MessageQueue("t", "a", 1)
