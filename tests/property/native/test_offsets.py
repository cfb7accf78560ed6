"""Consumer offsets are changed and answered the same whoever does it."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orbitmq.broker.fast_path.offsets import OffsetFastPath
from orbitmq.broker.offsets.processor import OffsetRequests
from orbitmq.protocol.codes import LanguageCode, RequestCode, SerializeType
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.command.frame import encode_frame
from orbitmq.testing import MemoryDisk
from support.broker.broker_harness import running_broker
from support.native.marks import needs_native
from support.native.twin_brokers import SETTINGS, Awaited, Life, lives_of_both, talk

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

pytestmark = needs_native

QUERY, UPDATE = RequestCode.QUERY_CONSUMER_OFFSET, RequestCode.UPDATE_CONSUMER_OFFSET


def request(code: int, body: bytes | None = None, **fields: str) -> Callable[[int], bytes]:
    return lambda opaque: Command(code, opaque, ext_fields=fields, body=body).encode()


def commit(offset: int, queue_id: int = 0, group: str = "shop", topic: str = "orders") -> Callable[[int], bytes]:
    fields = {"consumerGroup": group, "topic": topic, "queueId": str(queue_id), "commitOffset": str(offset)}
    return request(UPDATE, None, **fields)


def query(queue_id: int = 0, group: str = "shop", topic: str = "orders") -> Callable[[int], bytes]:
    return request(QUERY, consumerGroup=group, topic=topic, queueId=str(queue_id))


def group_named(name: str) -> Callable[[int], bytes]:
    body = json.dumps({"groupName": name}).encode()
    return request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)


def topic_named(name: str, queues: int) -> Callable[[int], bytes]:
    return request(
        RequestCode.UPDATE_AND_CREATE_TOPIC, topic=name, defaultTopic="TBW102", readQueueNums=str(queues),
        writeQueueNums="2", perm="6", topicFilterType="SINGLE_TAG", topicSysFlag="0", order="false",
    )  # fmt: skip


GROUPS = [group_named("shop"), group_named("bänk")]
CHANGES = [
    *(topic_named("orders", 1), topic_named("orders", 2), group_named("shop")),
    request(RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName="shop", cleanOffset="true"),
    request(RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName="shop", cleanOffset="false"),
    request(RequestCode.DELETE_TOPIC_IN_BROKER, topic="orders"),
    request(RequestCode.CLONE_GROUP_OFFSET, srcGroup="bänk", destGroup="shop", topic="orders", offline="true"),
    request(RequestCode.UPDATE_BROKER_CONFIG, b"maxConsumerOffsets=1"),
    request(
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, topic="orders", group="shop", timestamp="0", isForce="true",
        queueId="0", offset="1",
    ),
]  # fmt: skip
"""Answered when they are on the disk; what comes meanwhile may be before them."""

usual = st.fixed_dictionaries(
    {
        "consumerGroup": st.sampled_from(["shop", "shop", "shop", "bänk"]),
        "topic": st.sampled_from(["orders", "orders", "bills"]),
        "queueId": st.sampled_from(["0", "0", "1"]),
        "commitOffset": st.sampled_from(["0", "1", "2", "3", "5", "5", "1000", "9223372036854775807"]),
    },
    optional={
        "bname": st.just("broker-a"),
        "setZeroIfNotFound": st.sampled_from(["true", "false"]),
    },
)
odd_values = st.sampled_from(
    ["", "-1", "-2", "x", "1_0", "007", "٣", " 1", "+1", "2147483648", "9" * 19, "0" * 40, 'a"b', "ä", "a\\b"]
)
names = st.sampled_from(["shop", "unknown", "TOOLS", "CID_RMQ_SYS_TRANS", "a@b", "", "%RETRY%shop", "TBW102"])


@st.composite
def requests(draw: st.DrawFn) -> Callable[[int], bytes]:
    fields: dict[str, Any] = draw(usual)
    code = draw(st.sampled_from([UPDATE, UPDATE, UPDATE, QUERY]))
    is_odd = draw(st.integers(0, 4)) == 0
    if is_odd:
        name = draw(st.sampled_from([*fields, "onlyForward", "setZeroIfNotFound"]))
        match draw(st.integers(0, 3)):
            case 0:
                fields[name] = draw(odd_values)
            case 1:
                fields.pop(name, None)
            case 2:
                fields[draw(st.sampled_from(["consumerGroup", "topic"]))] = draw(names)
            case _:
                fields["onlyForward"] = draw(st.sampled_from(["true", "false", "x"]))
    fields = dict(draw(st.permutations([*fields.items()])))
    flag = draw(st.sampled_from([0, 0, 2]))
    if draw(st.integers(0, 2)) == 0:
        kind = SerializeType.ROCKETMQ
        return lambda opaque: Command(
            code, opaque, flag, ext_fields=fields, language=LanguageCode.GO, serialize_type=kind
        ).encode()
    if draw(st.booleans()):
        # As the Node client writes them.
        fields = {
            name: int(value) if value in {"0", "1", "2", "3", "5"} else value for name, value in fields.items()
        }
    head: dict[str, Any] = {"code": code, "extFields": fields, "flag": flag, "language": "JAVA", "version": 493}
    more: dict[str, Any] = draw(
        st.sampled_from([{}, {}, {"remark": None}, {"language": "ELVISH"}, {"version": -1}])
        if is_odd
        else st.just({})
    )
    body = draw(st.sampled_from([b"", b"", b"body"])) if is_odd else b""
    escapes, order = draw(st.booleans()), draw(st.permutations([*head, "opaque"]))

    def frame(opaque: int) -> bytes:
        members = head | more | {"opaque": opaque}
        ordered = {name: members[name] for name in [*order, *more] if name in members}
        return encode_frame(0, json.dumps(ordered, separators=(",", ":"), ensure_ascii=escapes).encode(), body)

    return frame


parts = st.one_of(
    st.lists(requests(), min_size=1, max_size=12),
    st.lists(requests(), min_size=1, max_size=12),
    st.sampled_from(CHANGES).map(lambda change: [change]),
)


def check_alike(compiled: Life, general: Life) -> None:
    assert compiled.answers == general.answers
    assert compiled.counted == general.counted


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture], deadline=None)
@given(made=st.lists(parts, min_size=1, max_size=6), cut=st.integers(1, 3000))
async def test_whatever_is_committed_and_queried_is_entered_and_answered_alike(
    made: Sequence[Sequence[Callable[[int], bytes]]], cut: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    opaques = itertools.count(1)
    chunks: list[list[bytes]] = [[Awaited(one(next(opaques)))] for one in GROUPS]
    for part in made:
        data = b"".join([frame(next(opaques)) for frame in part])
        if part[0] in CHANGES:
            chunks.append([Awaited(data)])
        else:
            chunks.append([data[:cut], data[cut:]] if cut < len(data) else [data])
    check_alike(*await lives_of_both(monkeypatch, chunks, notifyConsumerIdsChangedEnable="false"))


@pytest.mark.parametrize("change", CHANGES)
async def test_a_change_is_heeded_by_the_next_commit(
    change: Callable[[int], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    all_kinds = [commit(1), query(), commit(2), commit(2, 1), commit(3, 1), query(1), commit(1), commit(7)]
    before = b"".join([frame(opaque) for opaque, frame in enumerate([*all_kinds, commit(4, group="bänk")], 1)])
    after = b"".join([frame(opaque) for opaque, frame in enumerate([query(), *all_kinds, commit(8), query()], 1)])
    chunks: list[list[bytes]] = [[Awaited(one(90))] for one in GROUPS]
    chunks += [[before], [before], [Awaited(change(91))], [after], [after]]
    check_alike(*await lives_of_both(monkeypatch, chunks))


async def test_usual_commits_and_queries_do_not_reach_the_python_path(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    for name in ("update", "query"):
        original = getattr(OffsetRequests, name)

        def watched(self: OffsetRequests, *given: Any, original: Any = original) -> Any:
            seen.append(original.__name__)
            return original(self, *given)

        monkeypatch.setattr(OffsetRequests, name, watched)
    async with running_broker(MemoryDisk(), **SETTINGS) as broker:
        await talk(broker, [Awaited(topic_named("orders", 2)(1)), Awaited(GROUPS[0](2)), Awaited(commit(1)(3))])
        assert seen == ["update"], "the first offset is counted by the table"
        version = broker.offsets.data_version
        data = b"".join([commit(offset)(offset) + query()(offset) for offset in range(2, 600)])
        await talk(broker, [data])
        assert seen == ["update"]
        assert broker.offsets.query("shop", "orders", 0) == 599
        assert broker.offsets.data_version.counter == version.counter + 1, "of every 500 commits"
        fast_path = broker._fast_path
        assert fast_path is not None
        assert isinstance(fast_path._offsets, OffsetFastPath)
        assert fast_path._offsets.served == 2 * 598
