"""The table of what each request needs."""

from __future__ import annotations

import pytest

from orbitmq.auth.requirements import RULES, Environment, requirements_of
from orbitmq.protocol.bodies import (
    BatchAck,
    BatchAckMessageRequestBody,
    ConsumerData,
    HeartbeatData,
    LiteSubscriptionCtlRequestBody,
    LiteSubscriptionDTO,
    LockBatchRequestBody,
    MessageQueue,
    SubscriptionData,
    SubscriptionGroupConfig,
)
from orbitmq.protocol.broker_events import GET_BROKER_EVENTS
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.errors import ProtocolError

OFFSETS = {100: "orders", 200: "%RETRY%billing"}
HERE = Environment("Alpha", OFFSETS.get)


def needs(code: int, fields: dict[str, str] | None = None, body: bytes = b"") -> list[str]:
    found = requirements_of(code, fields or {}, body, HERE)
    assert found is not None
    return [f"{one.resource} {'|'.join(action.value for action in one.actions)}" for one in found]


def test_every_request_code_has_an_entry() -> None:
    missing = [code.name for code in RequestCode if int(code) not in RULES]
    assert not missing, f"add them to auth/requirements.py: {missing}"
    assert GET_BROKER_EVENTS in RULES


def test_a_code_without_an_entry_has_no_requirements() -> None:
    assert requirements_of(999_999, {}, b"", HERE) is None


@pytest.mark.parametrize(
    ("code", "fields", "needed"),
    [
        (10, {"topic": "orders"}, ["Topic:orders Pub"]),
        (310, {"b": "orders"}, ["Topic:orders Pub"]),
        (320, {"b": "%RETRY%billing"}, ["Group:billing Sub"]),
        (310, {"b": "RMQ_SYS_TRACE_TOPIC"}, []),
        (11, {"topic": "orders", "consumerGroup": "billing"}, ["Topic:orders Sub", "Group:billing Sub"]),
        (11, {"topic": "%RETRY%billing", "consumerGroup": "billing"}, ["Group:billing Sub"]),
        (11, {"topic": "%RETRY%other", "consumerGroup": "billing"}, ["Group:other Sub", "Group:billing Sub"]),
        (200051, {"topic": "%RETRY%billing_orders", "consumerGroup": "billing"}, ["Group:billing Sub"]),
        (105, {"topic": "orders"}, ["Topic:orders Pub|Sub|Get"]),
        (15, {"topic": "orders", "consumerGroup": "g"}, ["Topic:orders Sub|Update", "Group:g Sub|Update"]),
        (36, {"group": "billing", "offset": "100"}, ["Group:billing Sub", "Topic:orders Sub"]),
        (36, {"group": "billing", "offset": "200"}, ["Group:billing Sub"]),
        (33, {"topic": "mine", "offset": "100"}, ["Topic:orders Get|Sub"]),
        (33, {"topic": "mine", "offset": "200"}, ["Group:billing Sub"]),
        (37, {"topic": "mine", "commitLogOffset": "100"}, ["Topic:orders Pub"]),
        (17, {"topic": "new"}, ["Topic:new Create"]),
        (207, {"groupName": "billing"}, ["Group:billing Delete"]),
        (25, {}, ["Cluster:Alpha Update"]),
        (26, {}, ["Cluster:Alpha Get"]),
        (206, {}, ["Topic:* List"]),
        (
            314,
            {"srcGroup": "a", "destGroup": "b", "topic": "t"},
            ["Group:a Get|Update", "Topic:t Update", "Group:b Update"],
        ),
    ],
)
def test_fields_name_the_resources(code: int, fields: dict[str, str], needed: list[str]) -> None:
    assert needs(code, fields) == needed


def test_a_heartbeat_needs_the_groups_and_topics_that_it_subscribes_to() -> None:
    consumer = ConsumerData(
        group_name="billing",
        subscription_data_set=[SubscriptionData(topic="orders"), SubscriptionData(topic="%RETRY%billing")],
    )
    body = HeartbeatData(client_id="c", consumer_data_set=[consumer]).encode()
    assert needs(34, {}, body) == ["Group:billing Sub", "Topic:orders Sub"]


def test_bodies_name_the_resources_of_requests_without_fields() -> None:
    locks = LockBatchRequestBody(
        "billing", "c", mq_set=[MessageQueue("orders", "b", 0), MessageQueue("orders", "b", 1)]
    )
    assert needs(41, {}, locks.encode()) == ["Group:billing Sub", "Topic:orders Sub"]
    acks = BatchAckMessageRequestBody("b", [BatchAck("billing", "orders"), BatchAck("billing", "orders")])
    assert needs(200151, {}, acks.encode()) == ["Topic:orders Sub", "Group:billing Sub"]
    change = LiteSubscriptionDTO(group="agents", topic="sessions")
    lite = LiteSubscriptionCtlRequestBody([change, change]).encode()
    assert needs(200071, {}, lite) == ["Topic:sessions Sub", "Group:agents Sub"]
    assert needs(200, {}, SubscriptionGroupConfig("billing").encode()) == ["Group:billing Create"]


def test_a_malformed_body_is_an_error() -> None:
    with pytest.raises(ProtocolError):
        needs(34, {}, b"{")


@pytest.mark.parametrize("offset", ["", "-1", "x", "9" * 40, "300"])
def test_an_offset_without_a_record_needs_nothing(offset: str) -> None:
    # The handler answers that there is no message.
    assert needs(33, {"offset": offset}) == []
