"""Pops are answered, noted and counted the same whoever serves them."""

from __future__ import annotations

import itertools
import json
import random
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orbitmq.broker.pop import processor
from orbitmq.broker.pop.processor import PopRequests
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.command.frame import FrameParser, encode_frame
from orbitmq.testing import MemoryDisk
from support.broker.broker_harness import T0, running_broker
from support.broker.requests import bodies
from support.native.marks import needs_native
from support.native.twin_brokers import SETTINGS, Awaited, lives_of_both, plain_send, talk

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

pytestmark = needs_native

MINUTE = 60_000
FEW = settings.default.max_examples // 5 if settings.default else 20
"""A timer's files are large, and each example makes them twice."""


def request(code: int, body: bytes | None = None, **fields: str) -> Callable[[int], bytes]:
    return lambda opaque: Command(code, opaque, ext_fields=fields, body=body).encode()


def send(topic: str, queue_id: int, tag: str) -> bytes:
    ext_fields = {**dict(zip("acdfgh", ("shop", "TBW102", "4", "0", "17", "0"), strict=True)), "b": topic}
    ext_fields |= {"e": str(queue_id), "i": "UNIQ_KEY\x01AB\x02" + (f"TAGS\x01{tag}\x02" if tag else "")}
    return Command(310, 7, ext_fields=ext_fields, body=tag.encode() or b"none").encode()


def pop_request(**fields: object) -> Callable[[int], bytes]:
    made: dict[str, Any] = {
        "pollTime": "0", "invisibleTime": str(MINUTE), "queueId": "-1", "bornTime": str(T0), "maxMsgNums": "32",
        "bname": "broker-a", "topic": "orders", "expType": "TAG", "exp": "*", "consumerGroup": "shop",
        "initMode": "0", "order": "false",
    }  # fmt: skip
    made |= fields
    made = {name: value for name, value in made.items() if value is not None}
    head = {"code": 200050, "extFields": made, "flag": 0, "language": "JAVA", "version": 513}

    def frame(opaque: int) -> bytes:
        text = json.dumps({**head, "opaque": opaque}, separators=(",", ":"), ensure_ascii=False)
        return encode_frame(0, text.encode(), b"")

    return frame


usual = st.builds(
    pop_request,
    consumerGroup=st.sampled_from(["shop", "shop", "shop", "bank"]),
    topic=st.sampled_from(["orders", "orders", "bills"]),
    maxMsgNums=st.sampled_from(["32", "32", "3", "1", "2"]),
    invisibleTime=st.sampled_from([str(MINUTE), "10000", "1001", "2000"]),
    expType=st.sampled_from(["TAG", "TAG", None, ""]),
    exp=st.sampled_from(["*", "*", "*", "", None, "TagA", "TagA", "TagB || TagC", "TagC"]),
)
odd_values = st.sampled_from(
    ["", "-1", "-2", "0", "1", "5", "33", "x", "007", "true", "false", "ä", 'a"b', None, "9" * 19]
)
odd = st.builds(
    lambda name, value: pop_request(**{name: value}),
    st.sampled_from(
        [
            *("pollTime", "invisibleTime", "queueId", "bornTime", "maxMsgNums", "topic", "expType", "exp"),
            *("consumerGroup", "initMode", "order", "attemptId"),
        ]
    ),
    odd_values | st.sampled_from(["TagA", "TagA || TagB", "SQL92", "%RETRY%shop_orders", "SCHEDULE_TOPIC_XXXX"]),
)
sends = st.builds(
    lambda topic, queue_id, tags, count: lambda _: b"".join([send(topic, queue_id, tag) for tag in tags] * count),
    st.sampled_from(["orders", "orders", "bills"]),
    st.integers(0, 1),
    st.lists(st.sampled_from(["", "TagA", "TagB", "TagB"]), min_size=1, max_size=12),
    st.sampled_from([1, 1, 5]),
)
others = st.sampled_from(
    [
        request(
            RequestCode.UPDATE_CONSUMER_OFFSET, consumerGroup="shop", topic="orders", queueId="0", commitOffset="0"
        ),
        request(
            RequestCode.UPDATE_CONSUMER_OFFSET, consumerGroup="shop", topic="orders", queueId="1", commitOffset="9"
        ),
    ]
)
CHANGES_LATER = [
    request(
        RequestCode.UPDATE_AND_CREATE_TOPIC, topic="%RETRY%shop_orders", defaultTopic="TBW102", readQueueNums="1",
        writeQueueNums="1", perm="6", topicFilterType="SINGLE_TAG", topicSysFlag="0", order="false",
    ),
    request(
        RequestCode.UPDATE_AND_CREATE_TOPIC, topic="orders", defaultTopic="TBW102", readQueueNums="1",
        writeQueueNums="2", perm="6", topicFilterType="SINGLE_TAG", topicSysFlag="0", order="false",
    ),
    request(
        RequestCode.UPDATE_AND_CREATE_TOPIC, topic="orders", defaultTopic="TBW102", readQueueNums="2",
        writeQueueNums="2", perm="2", topicFilterType="SINGLE_TAG", topicSysFlag="0", order="false",
    ),
    request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, b'{"groupName":"shop","consumeEnable":false}'),
    request(RequestCode.DELETE_TOPIC_IN_BROKER, topic="orders"),
    request(RequestCode.UPDATE_BROKER_CONFIG, b"maxTransferCountOnMessageInMemory=2"),
    request(RequestCode.UPDATE_BROKER_CONFIG, b"maxTransferBytesOnMessageInMemory=300"),
    request(RequestCode.UPDATE_BROKER_CONFIG, b"popInflightMessageThreshold=1\nenablePopMessageThreshold=true"),
    request(RequestCode.UPDATE_BROKER_CONFIG, b"brokerPermission=2"),
    request(
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, topic="orders", group="shop", timestamp="0", isForce="true",
        queueId="0", offset="1",
    ),
]  # fmt: skip
"""Answered when they are on the disk."""


@settings(
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    deadline=None,
    max_examples=FEW,
)
@given(
    parts=st.lists(
        st.lists(st.one_of(usual, usual, usual, odd, sends, others), min_size=1, max_size=12)
        | st.sampled_from(CHANGES_LATER).map(lambda change: [change]),
        min_size=1,
        max_size=5,
    ),
    draw=st.integers(0, 99),
    is_ascending=st.booleans(),
    units=st.sampled_from([16000, 16000, 100, 0, 1 << 20]),
)
async def test_whatever_is_popped_is_answered_noted_and_counted_alike(
    parts: list[list[Callable[[int], bytes]]],
    draw: int,
    is_ascending: bool,
    units: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opaques = itertools.count(1)
    # Both have their queues and offsets, and the timer its queue.
    first = [send("orders", queue_id, tag) for queue_id in (0, 1) for tag in ("", "TagA", "TagB", "TagB")] * 5
    chunks: list[list[bytes]] = [[b"".join([*first, *[pop_request()(next(opaques)) for _ in range(2)]])]]
    for made in parts:
        data = b"".join([frame(next(opaques)) for frame in made])
        chunks.append([Awaited(data)] if made[0] in CHANGES_LATER else [data])
    more: dict[str, Any] = {
        "timerWheelEnable": "true",
        "priorityOrderAsc": str(is_ascending).lower(),
        "maxFilterMessageSize": str(units),
        "notifyConsumerIdsChangedEnable": "false",
    }
    with monkeypatch.context() as patched:
        # The native path draws for a pop that it then leaves to the other.
        patched.setattr(random.Random, "randrange", lambda *_: draw)
        patched.setattr(processor, "POP_SECONDS", 3600)
        compiled, general = await lives_of_both(patched, chunks, **more)
    assert compiled.answers == general.answers
    assert compiled.counted == general.counted
    assert compiled.stored == general.stored


async def test_pops_of_a_java_client_are_served_without_the_python_path(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_broker(MemoryDisk(), **SETTINGS | {"timerWheelEnable": "true"}) as broker:
        sent = [Awaited(plain_send("orders", queue_id)) for queue_id in (0, 1)]
        await talk(broker, [*sent, Awaited(pop_request()(1))])
        monkeypatch.setattr(PopRequests, "_pop", None)
        answers = await talk(broker, [*sent, pop_request(maxMsgNums="1")(2), pop_request()(3)])
        one, other = [
            answer for answer in map(Command.decode, FrameParser().feed(answers)) if answer.opaque in {2, 3}
        ]
        assert (one.code, other.code) == (ResponseCode.SUCCESS, ResponseCode.SUCCESS)
        assert (one.ext_fields["restNum"], other.ext_fields["restNum"]) == ("1", "0")
        assert bodies(one) == bodies(other) == [b"first"]
