"""Admin requests for subscription groups, over a real socket, with tables on a virtual disk."""

from __future__ import annotations

import contextlib
import itertools
from typing import TYPE_CHECKING, Any

import pytest

from orbitmq.broker.config.broker_config import BrokerConfig
from orbitmq.broker.config.persistence import ConfigWriter
from orbitmq.broker.metadata import subscription_groups as groups_module
from orbitmq.broker.metadata.group_admin import GroupRequests
from orbitmq.broker.metadata.subscription_groups import GroupTable
from orbitmq.broker.offsets.table import OffsetTable
from orbitmq.broker.stats.counters import GROUP_GET_NUMS, BrokerStats
from orbitmq.protocol.bodies import (
    GroupForbidden,
    GroupRetryPolicy,
    GroupRetryPolicyType,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
    SubscriptionGroupWrapper,
)
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command.command import Command
from orbitmq.store.config_tables import CONSUMER_OFFSETS, SUBSCRIPTION_GROUPS
from orbitmq.testing import ManualClock, MemoryDisk
from support.broker.client_registry_harness import run_here
from support.nameserver_harness import as_text
from support.remoting_harness import RawPeer, decoded, serving
from support.wire_captures import captured

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from support.wire_captures import Captured

T0 = 1_700_000_000_000
CONFIG = "/store/config"
UPDATE = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
UPDATE_LIST = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST
ALL = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
SHOW = RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG
DELETE = RequestCode.DELETE_SUBSCRIPTIONGROUP
FORBID = RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN

_opaques = itertools.count(1)


class GroupBroker:
    """The group tables and processors of a broker, and a client."""

    peer: RawPeer

    def __init__(self, **settings: Any) -> None:
        self.disk = MemoryDisk()
        clock = ManualClock(T0)
        config = BrokerConfig(**settings)
        self.writer = ConfigWriter(self.disk, CONFIG, run_here)
        self.groups = GroupTable(self.writer, config, clock)
        self.offsets = OffsetTable(self.writer, clock)
        self.stats = BrokerStats(clock, "DefaultCluster")
        self.handlers = GroupRequests(self.groups, self.offsets, config, self.writer, self.stats).handlers

    @classmethod
    @contextlib.asynccontextmanager
    async def running(cls, **settings: Any) -> AsyncIterator[GroupBroker]:
        broker = cls(**settings)
        async with serving(broker.handlers) as server, RawPeer.connected(server) as broker.peer:
            yield broker
        await broker.writer.stop()

    async def ask(self, code: int, body: bytes | None = None, /, **fields: object) -> Command:
        return await self.peer.ask(Command(code, next(_opaques), ext_fields=as_text(fields), body=body).encode())

    def saved(self) -> SubscriptionGroupWrapper:
        return SUBSCRIPTION_GROUPS.load(self.disk, CONFIG)


async def test_a_created_group_is_on_disk_before_the_response() -> None:
    async with GroupBroker.running() as broker:
        policy = GroupRetryPolicy(GroupRetryPolicyType.EXPONENTIAL)
        group = SubscriptionGroupConfig("g", consume_enable=False, retry_max_times=3, group_retry_policy=policy)
        answer = await broker.ask(UPDATE, group.encode())
        assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
        assert broker.groups.configs["g"] == broker.saved().subscription_group_table["g"] == group


async def test_a_changed_group_keeps_its_other_attributes() -> None:
    async with GroupBroker.running() as broker:
        for attributes in ({"+priority.factor": "5"}, {}, {"+lite.bind.topic": "T"}):
            await broker.ask(UPDATE, SubscriptionGroupConfig("g", attributes=attributes).encode())
        assert broker.groups.configs["g"].attributes == {"priority.factor": "5", "lite.bind.topic": "T"}
        await broker.ask(UPDATE, SubscriptionGroupConfig("g", attributes={"-priority.factor": ""}).encode())
        assert broker.groups.configs["g"].attributes == {"lite.bind.topic": "T"}


@pytest.mark.parametrize(
    ("group", "code", "remark"),
    [
        (SubscriptionGroupConfig(""), 29, "The specified group is blank."),
        (
            SubscriptionGroupConfig("a b"),
            29,
            "The specified group: a b, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$",
        ),
        (SubscriptionGroupConfig("g", retry_queue_nums=65536), 29, "retryQueueNums 65536 is more than 65535"),
        (SubscriptionGroupConfig("g", attributes={"+nope": "1"}), 1, "unsupported key: nope"),
    ],
)
async def test_an_invalid_group_is_refused_and_nothing_changes(
    group: SubscriptionGroupConfig, code: int, remark: str
) -> None:
    async with GroupBroker.running() as broker:
        for asked, body in (
            (UPDATE, group),
            (UPDATE_LIST, SubscriptionGroupList([SubscriptionGroupConfig("h"), group])),
        ):
            answer = await broker.ask(asked, body.encode())
            assert (answer.code, answer.remark) == (code, remark)
        assert broker.groups.data_version.counter == 0
        assert "h" not in broker.groups.configs


async def test_a_request_without_a_group_does_nothing() -> None:
    async with GroupBroker.running() as broker:
        assert (await broker.ask(UPDATE)).code == ResponseCode.SUCCESS
        assert (await broker.ask(UPDATE_LIST)).code == ResponseCode.SUCCESS
        assert (await broker.ask(UPDATE, b"[]")).code == ResponseCode.SYSTEM_ERROR
        assert broker.groups.data_version.counter == 0


async def test_a_list_of_groups_is_created_at_once() -> None:
    async with GroupBroker.running() as broker:
        wanted = [SubscriptionGroupConfig("g"), SubscriptionGroupConfig("h", retry_max_times=2)]
        answer = await broker.ask(UPDATE_LIST, SubscriptionGroupList(wanted).encode())
        assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
        assert [broker.saved().subscription_group_table[name] for name in "gh"] == wanted


async def test_the_number_of_groups_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    async with GroupBroker.running() as broker:
        monkeypatch.setattr(groups_module, "MAX_GROUPS", len(broker.groups.configs) + 1)
        wanted = [SubscriptionGroupConfig("g"), SubscriptionGroupConfig("h")]
        answer = await broker.ask(UPDATE_LIST, SubscriptionGroupList(wanted).encode())
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "group limit reached" in (answer.remark or "")
        assert (await broker.ask(UPDATE, wanted[0].encode())).code == ResponseCode.SUCCESS
        assert (await broker.ask(UPDATE, wanted[0].encode())).code == ResponseCode.SUCCESS
        answer = await broker.ask(SHOW, group="h")
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "consumer groups, and at most" in (answer.remark or "")


async def test_all_groups_are_listed_at_once_or_by_page() -> None:
    async with GroupBroker.running(split_metadata_size=3) as broker:
        for name in ("g", "TOOLS_CONSUMER"):
            broker.groups.set_readable(name, "T", False)
        answer = await broker.ask(ALL)
        assert answer.ext_fields == {"totalGroupNum": "8"}
        everything = SubscriptionGroupWrapper.decode(answer.body or b"")
        assert everything.subscription_group_table == broker.groups.configs
        assert everything.forbidden_table == {"g": {"T": 4}, "TOOLS_CONSUMER": {"T": 4}}
        version = everything.data_version.encode().decode()
        pages = []
        for start in (0, 3, 6):
            answer = await broker.ask(ALL, groupSeq=start, maxGroupNum=2000, dataVersion=version)
            assert answer.ext_fields == {"totalGroupNum": "8"}
            pages.append(SubscriptionGroupWrapper.decode(answer.body or b""))
        assert [len(page.subscription_group_table) for page in pages] == [3, 3, 2]
        assert [page.forbidden_table for page in pages] == [{}, {}, {"TOOLS_CONSUMER": {"T": 4}}]
        again = await broker.ask(ALL, groupSeq=6, maxGroupNum=2, dataVersion="")
        first = SubscriptionGroupWrapper.decode(again.body or b"").subscription_group_table
        assert list(first) == sorted(broker.groups.configs)[:2]


@pytest.mark.parametrize(
    ("fields", "left"),
    [({}, 5), ({"cleanOffset": True}, -1), ({"removeOffset": True}, -1), ({"cleanOffset": False}, 5)],
)
async def test_deleting_a_group_removes_its_offsets_on_request(fields: dict[str, object], left: int) -> None:
    async with GroupBroker.running() as broker:
        broker.groups.find("g")
        broker.offsets.commit("g", "T", 0, 5)
        broker.offsets.commit("h", "T", 0, 6)
        answer = await broker.ask(DELETE, groupName="g", **fields)
        assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
        assert "g" not in broker.saved().subscription_group_table
        assert broker.offsets.query("g", "T", 0) == left
        assert broker.offsets.query("h", "T", 0) == 6
        if left < 0:
            assert set(CONSUMER_OFFSETS.load(broker.disk, CONFIG).offset_table) == {"T@h"}


@pytest.mark.parametrize("deletes", [True, False])
async def test_the_counters_of_a_deleted_group_are_dropped_unless_disabled(deletes: bool) -> None:
    async with GroupBroker.running(auto_delete_unused_stats=deletes) as broker:
        broker.stats.got("g", "T", 0, 1, 10)
        await broker.ask(DELETE, groupName="g")
        assert (broker.stats.view(GROUP_GET_NUMS, "T@g") is None) is deletes


async def test_deleting_a_missing_group_succeeds() -> None:
    async with GroupBroker.running() as broker:
        assert (await broker.ask(DELETE, groupName="g")).code == ResponseCode.SUCCESS


async def test_a_missing_group_is_an_error_without_auto_creation() -> None:
    async with GroupBroker.running(auto_create_subscription_group=False) as broker:
        answer = await broker.ask(SHOW, group="TOOLS_CONSUMER")
        assert answer.body == SubscriptionGroupConfig("TOOLS_CONSUMER").encode()
        answer = await broker.ask(SHOW, group="g")
        assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        assert answer.remark == "No group in this broker"


async def test_a_topic_is_forbidden_to_a_group_and_allowed_again() -> None:
    async with GroupBroker.running() as broker:
        for readable, expected in ((None, True), (False, False), (None, False), (True, True)):
            answer = await broker.ask(FORBID, group="g", topic="T", readable=readable)
            assert answer.code == ResponseCode.SUCCESS
            assert GroupForbidden.decode(answer.body or b"") == GroupForbidden("T", "g", expected)
            assert broker.groups.is_forbidden("g", "T") is not expected
            assert bool(broker.saved().forbidden_table) is not expected
        assert (
            await broker.ask(FORBID, group="g", topic="", readable=False)
        ).code == ResponseCode.INVALID_PARAMETER
        assert (
            await broker.ask(FORBID, group="", topic="T", readable=False)
        ).code == ResponseCode.INVALID_PARAMETER


def exchanges() -> list[tuple[Captured, Captured]]:
    """Group requests to a real broker, with its responses."""
    found = []
    for scenario in ("admin", "admin2", "java_json_20_errors", "ha"):
        asked: dict[tuple[int, int], Captured] = {}
        for frame in captured(scenario):
            key = frame.connection, frame.header["opaque"]
            if not frame.is_response and frame.code in {UPDATE, ALL, SHOW, DELETE}:
                asked[key] = frame
            elif frame.is_response and key in asked:
                found.append((asked.pop(key), frame))
    return found


async def test_real_requests_are_answered_as_a_real_broker_answered_them() -> None:
    """Replayed in order; groups created before the recording are created before they are first listed."""
    pairs = exchanges()
    assert {request.code for request, _ in pairs} == {UPDATE, ALL, SHOW, DELETE}
    async with GroupBroker.running() as broker:
        for request, real in pairs:
            (theirs,) = decoded(real.wire)
            group = request.ext_fields.get("group")
            # CG_nope did not exist when it was requested.
            if request.code == SHOW and group != "CG_nope":
                broker.groups.update(SubscriptionGroupConfig.decode(theirs.body or b""))
            ours = await broker.peer.ask(request.wire)
            assert (ours.code, ours.remark) == (theirs.code, theirs.remark), request
            assert ours.ext_fields.keys() == theirs.ext_fields.keys(), request
            if request.code == ALL:
                mine, real_table = (
                    SubscriptionGroupWrapper.decode(body or b"") for body in (ours.body, theirs.body)
                )
                assert mine.to_json().keys() == real_table.to_json().keys()
                shared = mine.subscription_group_table.keys() & real_table.subscription_group_table.keys()
                assert len(shared) >= 8
                for name in shared:
                    assert mine.subscription_group_table[name] == real_table.subscription_group_table[name], name
            else:
                assert ours.body == theirs.body, request
