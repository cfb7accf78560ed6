"""Pulls are answered and counted the same whoever answers them."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from orbitmq.broker.pull.processor import PullRequests
from orbitmq.protocol.bodies import MessageModel
from orbitmq.protocol.codes import LanguageCode, RequestCode, ResponseCode, SerializeType
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.command.frame import FrameParser, encode_frame
from orbitmq.store.background import service
from orbitmq.testing import MemoryDisk
from support.broker.broker_harness import running_broker
from support.broker.client_registry_harness import consumer, heartbeat, subscription
from support.broker.requests import bodies
from support.native.marks import needs_native
from support.native.twin_brokers import SETTINGS, Awaited, Earlier, lives_of_both, plain_send, talk

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = needs_native

SUBSCRIBED, COMMITS, SUSPENDS = 4, 1, 2


def tagged_send(topic: str, queue_id: int, body: bytes, tag: str) -> bytes:
    ext_fields = {**dict(zip("acdfgh", ("shop", "TBW102", "4", "0", "17", "0"), strict=True)), "b": topic}
    ext_fields |= {"e": str(queue_id), "i": f"UNIQ_KEY\x01AB\x02TAGS\x01{tag}\x02"}
    return Command(310, 7, ext_fields=ext_fields, body=body).encode()


def request(code: int, body: bytes | None = None, **fields: str) -> Callable[[int], bytes]:
    return lambda opaque: Command(code, opaque, ext_fields=fields, body=body).encode()


usual = st.fixed_dictionaries(
    {
        "consumerGroup": st.sampled_from(["shop", "shop", "shop", "bank"]),
        "topic": st.sampled_from(["orders", "orders", "bills"]),
        "queueId": st.sampled_from(["0", "0", "1"]),
        "queueOffset": st.sampled_from(["0", "0", "1", "2", "5"]),
        "maxMsgNums": st.sampled_from(["32", "32", "2", "1"]),
        "sysFlag": st.sampled_from([str(SUBSCRIBED), str(SUBSCRIBED | COMMITS), "0", "1"]),
        "commitOffset": st.sampled_from(["0", "0", "3", "-1"]),
        "suspendTimeoutMillis": st.just("0"),
        "subVersion": st.sampled_from(["0", "1", "9"]),
    },
    optional={
        "subscription": st.sampled_from(["*", "*", "", "TagA", "TagA", "TagB", "TagA || TagB", "TagC", "||", " "]),
        "expressionType": st.sampled_from(["TAG", "TAG", "", "SQL92", "no such"]),
        "maxMsgBytes": st.sampled_from(["1000", "300", "1", "100000"]),
        "requestSource": st.sampled_from(["0", "1"]),
        "bname": st.just("broker-a"),
    },
)
odd_values = st.sampled_from(
    ["", "-1", "-2", "x", "1_0", "007", "٣", " 1", "+1", "2147483648", "9" * 19, "0" * 40, 'a"b', "ä", "a\\b"]
)


@st.composite
def pulls(draw: st.DrawFn) -> Callable[[int], bytes]:
    fields = draw(usual)
    is_odd = draw(st.integers(0, 4)) == 0
    if is_odd:
        name = draw(st.sampled_from([*fields, "orbitmqInBulk", "requestSource", "maxMsgBytes"]))
        if draw(st.booleans()):
            fields[name] = draw(odd_values)
        else:
            fields.pop(name, None)
    fields = dict(draw(st.permutations([*fields.items()])))
    code = draw(st.sampled_from([11, 11, 11, 361]))
    flag = draw(st.sampled_from([0] * 8 + [2])) if is_odd else 0
    if draw(st.integers(0, 2)) == 0:
        kind = SerializeType.ROCKETMQ
        return lambda opaque: Command(
            code, opaque, flag, ext_fields=fields, language=LanguageCode.GO, serialize_type=kind
        ).encode()
    head: dict[str, Any] = {"code": code, "extFields": fields, "flag": flag, "language": "JAVA", "version": 493}
    more: dict[str, Any] = draw(
        st.sampled_from([{}, {}, {"remark": None}, {"language": "ELVISH"}]) if is_odd else st.just({})
    )
    body = draw(st.sampled_from([b"", b"", b"body"])) if is_odd else b""
    escapes = draw(st.booleans())

    def frame(opaque: int) -> bytes:
        text = json.dumps(head | more | {"opaque": opaque}, separators=(",", ":"), ensure_ascii=escapes)
        return encode_frame(0, text.encode(), body)

    return frame


def beat(*subscriptions: Any, model: MessageModel = MessageModel.CLUSTERING) -> Callable[[int], bytes]:
    body = heartbeat("one@1", consumer("shop", *subscriptions, message_model=model)).encode()
    return request(RequestCode.HEART_BEAT, body)


def topic_with(queues: int, perm: int, sys_flag: int = 0) -> Callable[[int], bytes]:
    return request(
        RequestCode.UPDATE_AND_CREATE_TOPIC, topic="orders", defaultTopic="TBW102", readQueueNums=str(queues),
        writeQueueNums="2", perm=str(perm), topicFilterType="SINGLE_TAG", topicSysFlag=str(sys_flag), order="false",
    )  # fmt: skip


def group_with(**more: object) -> Callable[[int], bytes]:
    body = json.dumps({"groupName": "shop", **more}).encode()
    return request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)


SUBSCRIBE = beat(subscription("orders", version=1))
BROADCASTING = beat(subscription("orders", version=2), model=MessageModel.BROADCASTING)
CHANGES_AT_ONCE = [
    *(SUBSCRIBE, beat(subscription("orders", "TagA", version=3)), BROADCASTING),
    *(beat(subscription("orders", "*", version=10)), beat(subscription("bills", "*", version=10))),
    request(RequestCode.UNREGISTER_CLIENT, clientID="one@1", consumerGroup="shop"),
    request(
        RequestCode.UPDATE_CONSUMER_OFFSET, consumerGroup="shop", topic="orders", queueId="0", commitOffset="2"
    ),
    lambda _: plain_send("orders", 1),
]
CHANGES_LATER = [
    *(topic_with(1, 6), topic_with(2, 2), topic_with(2, 6), topic_with(2, 6, 5)),
    *(group_with(consumeEnable=False), group_with(consumeBroadcastEnable=False), group_with(groupSysFlag=3)),
    request(RequestCode.DELETE_TOPIC_IN_BROKER, topic="bills"),
    request(RequestCode.DELETE_TOPIC_IN_BROKER, topic="orders"),
    request(RequestCode.UPDATE_BROKER_CONFIG, b"maxTransferCountOnMessageInMemory=2"),
    request(RequestCode.UPDATE_BROKER_CONFIG, b"maxFilterMessageSize=100"),
    request(RequestCode.UPDATE_BROKER_CONFIG, b"maxTransferBytesOnMessageInMemory=300"),
    request(RequestCode.UPDATE_BROKER_CONFIG, b"brokerPermission=2"),
    request(RequestCode.UPDATE_BROKER_CONFIG, b"litePullMessageEnable=false"),
    request(
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, topic="orders", group="shop", timestamp="0", isForce="true",
        queueId="0", offset="1",
    ),
]  # fmt: skip
"""Answered when they are on the disk; what comes meanwhile may be before them."""

fillings = st.lists(
    st.builds(
        tagged_send,
        st.sampled_from(["orders", "orders", "bills"]),
        st.integers(0, 1),
        st.sampled_from([b"one", b"two" * 30, b"x" * 3000]),
        st.sampled_from(["TagA", "TagB", "TagB"]),
    ),
    max_size=25,
)
asked = st.one_of(
    st.lists(st.one_of(pulls(), pulls(), pulls(), st.sampled_from(CHANGES_AT_ONCE)), min_size=1, max_size=12),
    st.sampled_from(CHANGES_LATER).map(lambda change: [change]),
)


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture], deadline=None)
@given(
    fillings=fillings,
    units=st.sampled_from([16000, 16000, 400, 60, 0]),
    parts=st.lists(asked, min_size=1, max_size=5),
    cut=st.integers(1, 3000),
    earlier=st.none() | fillings,
)
async def test_whatever_is_pulled_is_answered_and_counted_alike(
    fillings: list[bytes],
    units: int,
    parts: list[list[Callable[[int], bytes]]],
    cut: int,
    earlier: list[bytes] | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opaques = itertools.count(1)
    chunks = [[b"".join(fillings)]] if fillings else []
    for made in parts:
        data = b"".join([frame(next(opaques)) for frame in made])
        if made[0] in CHANGES_LATER:
            chunks.append([Awaited(data)])
            continue
        chunks.append([data[:cut], data[cut:]] if cut < len(data) else [data])
    # Notices come when there is time for them.
    more = {"notifyConsumerIdsChangedEnable": "false", "maxFilterMessageSize": str(units)}
    compiled, general = await lives_of_both(
        monkeypatch, chunks, 0, None if earlier is None else Earlier(earlier), **more
    )
    assert compiled.answers == general.answers
    assert compiled.counted == general.counted
    assert compiled.stored == general.stored


def pull(sys_flag: int) -> Callable[[int], bytes]:
    fields = {"consumerGroup": "shop", "topic": "orders", "queueId": "0", "queueOffset": "0", "maxMsgNums": "32"}
    fields |= {"sysFlag": str(sys_flag), "commitOffset": "0", "suspendTimeoutMillis": "0", "subVersion": "1"}
    return request(RequestCode.PULL_MESSAGE, None, **fields)


def in_one_piece(*asked: Callable[[int], bytes]) -> list[bytes]:
    return [b"".join([frame(number) for number, frame in enumerate(asked)])]


ONE_BY_ONE = group_with(consumeBroadcastEnable=False)
ASKED = [pull(0), pull(SUBSCRIBED), pull(SUBSCRIBED | COMMITS)]


@pytest.mark.parametrize("change", CHANGES_AT_ONCE)
async def test_what_a_client_says_is_heeded_by_the_next_pull(
    change: Callable[[int], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = in_one_piece(SUBSCRIBE, *ASKED, *ASKED, change, *ASKED, *ASKED)
    chunks: list[list[bytes]] = [[Awaited(ONE_BY_ONE(1))], asked]
    compiled, general = await lives_of_both(monkeypatch, chunks, notifyConsumerIdsChangedEnable="false")
    assert compiled.answers == general.answers
    assert compiled.counted == general.counted


@pytest.mark.parametrize("change", CHANGES_LATER)
async def test_a_change_of_the_broker_is_heeded_by_the_next_pull(
    change: Callable[[int], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = in_one_piece(*ASKED[1:])
    chunks: list[list[bytes]] = [asked, asked, [Awaited(change(1))], asked]
    compiled, general = await lives_of_both(monkeypatch, chunks, notifyConsumerIdsChangedEnable="false")
    assert compiled.answers == general.answers
    assert compiled.counted == general.counted


@given(at=st.integers(0, 1300), byte=st.integers(0, 255))
@example(at=997, byte=1)  # the end of a property: the record has lost its tags
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=30)
async def test_what_was_damaged_while_no_broker_ran_is_given_by_nobody(
    at: int, byte: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def harm(disk: MemoryDisk) -> None:
        log = f"/messages/commitlog/{0:020}"
        disk.write(log, disk.read(log)[:at] + bytes([byte]) + disk.read(log)[at + 1 :])

    # Repaired at another moment, a queue would answer differently in the other life.
    monkeypatch.setattr(service, "REPAIR_INTERVAL", 3600)
    earlier = Earlier([tagged_send("orders", 0, b"one", "TagA")] * 4, harm)
    chunks = [in_one_piece(*ASKED[1:]), in_one_piece(*ASKED[1:])]
    compiled, general = await lives_of_both(monkeypatch, chunks, 0, earlier)
    assert compiled.answers == general.answers
    assert compiled.counted == general.counted


@pytest.mark.parametrize(
    ("subscription", "wanted"), [("TagA", range(0, 40, 10)), ("TagA || TagC", range(0, 40, 10))]
)
async def test_a_pull_with_a_tag_filter_is_answered_without_the_python_path(
    subscription: str, wanted: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the Python path")

    monkeypatch.setattr(PullRequests, "pull", refuse)
    fields = {"consumerGroup": "shop", "topic": "orders", "queueId": "0", "queueOffset": "0", "maxMsgNums": "32"}
    fields |= {"sysFlag": str(SUBSCRIBED), "commitOffset": "0", "suspendTimeoutMillis": "0", "subVersion": "0"}
    asked = request(RequestCode.PULL_MESSAGE, None, subscription=subscription, **fields)(7)
    async with running_broker(MemoryDisk(), **SETTINGS) as broker:
        sent = [tagged_send("orders", 0, b"%d" % n, "TagB" if n % 10 else "TagA") for n in range(40)]
        answers = await talk(broker, [*map(Awaited, sent), asked])
        *_, answer = map(Command.decode, FrameParser().feed(answers))
    assert (answer.code, answer.ext_fields["nextBeginOffset"]) == (ResponseCode.SUCCESS, "40")
    assert bodies(answer) == [b"%d" % number for number in wanted]
