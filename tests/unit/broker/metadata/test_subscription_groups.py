"""Subscription group table: system groups, auto-creation, forbidden topics, persistence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from orbitmq.broker.config.broker_config import BrokerConfig
from orbitmq.broker.config.persistence import ConfigWriter
from orbitmq.broker.metadata import subscription_groups as groups_module
from orbitmq.broker.metadata.subscription_groups import GroupTable, group_name_problem
from orbitmq.protocol.bodies import DataVersion, GroupRetryPolicy, SubscriptionGroupConfig, SubscriptionGroupWrapper
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.names import GROUPS_OF_A_NEW_BROKER
from orbitmq.remoting.processor import RequestRefusedError
from orbitmq.testing import ManualClock, MemoryDisk
from support.wire_captures import captured

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

T0 = 1_700_000_000_000


async def at_once(work: Callable[[], T]) -> T:
    return work()


class Groups:
    """A group table on a virtual disk."""

    def __init__(self, disk: MemoryDisk | None = None, **settings: Any) -> None:
        self.disk = disk or MemoryDisk()
        self.clock = ManualClock(T0)
        self.writer = ConfigWriter(self.disk, "/store/config", at_once)
        self.table = GroupTable(self.writer, BrokerConfig(**settings), self.clock)
        self.table.load()

    async def after_restart(self, **settings: Any) -> GroupTable:
        await self.writer.stop()
        return Groups(self.disk, **settings).table


async def test_a_new_broker_has_the_system_groups_of_a_real_one() -> None:
    groups = Groups().table
    answer = next(
        frame
        for frame in captured("ha")
        if frame.request_code == RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG and frame.is_response
    )
    real = SubscriptionGroupWrapper.decode(answer.frame[2]).subscription_group_table
    assert groups.configs == {name: real[name] for name in GROUPS_OF_A_NEW_BROKER}
    assert groups.data_version == DataVersion(0, 0, T0)


async def test_a_lookup_creates_a_group_with_default_settings() -> None:
    groups = Groups()
    groups.clock.advance(3)
    made = groups.table.find("g")
    assert made == SubscriptionGroupConfig("g", group_retry_policy=GroupRetryPolicy())
    assert groups.table.find("g") is made
    assert groups.table.data_version == DataVersion(1, 0, T0 + 3)
    assert (await groups.after_restart()).configs["g"] == made


async def test_groups_are_auto_created_only_if_enabled() -> None:
    groups = Groups(auto_create_subscription_group=False).table
    assert groups.find("g") is None
    assert groups.find("TOOLS_CONSUMER") is not None
    assert groups.find("CID_RMQ_SYS_x") is not None
    neither = Groups(auto_create_subscription_group=False, enable_create_sys_group=False).table
    assert neither.find("CID_RMQ_SYS_x") is None


@pytest.mark.parametrize("name", ["", " ", "a b", "x" * 121])
async def test_an_invalid_name_creates_no_group(name: str) -> None:
    groups = Groups().table
    assert groups.find(name) is None
    assert groups.data_version.counter == 0


async def test_a_client_that_invents_group_names_reaches_the_limit(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    groups = Groups().table
    monkeypatch.setattr(groups_module, "MAX_GROUPS", len(groups.configs) + 1)
    assert groups.find("g1") is not None
    assert groups.find("g2") is groups.find("g3") is None
    assert len(caplog.records) == 1
    with pytest.raises(RequestRefusedError, match=r"group limit reached: .* at most \d+ are allowed"):
        groups.check_room(1)
    groups.check_room(0)
    groups.delete("g1")
    assert groups.find("g2") is not None


async def test_deleting_a_group_removes_its_forbidden_topics() -> None:
    groups = Groups()
    groups.table.find("g")
    groups.table.set_readable("g", "T", False)
    assert groups.table.delete("g")
    assert not groups.table.delete("g")
    assert not groups.table.is_forbidden("g", "T")
    assert groups.table.data_version.counter == 3
    later = await groups.after_restart()
    assert "g" not in later.configs
    assert later.forbidden_table == {}


async def test_forbidden_topics_survive_a_restart() -> None:
    groups = Groups()
    groups.table.set_readable("g", "T", False)
    groups.table.set_readable("g", "T", False)
    assert groups.table.forbidden("g", "T") == 4
    assert groups.table.data_version.counter == 1
    later = await groups.after_restart()
    assert later.is_forbidden("g", "T")
    assert not later.is_forbidden("g", "U")
    assert not later.is_forbidden("h", "T")
    assert later.data_version.counter == 1


async def test_allowing_one_topic_again_leaves_the_others_forbidden() -> None:
    groups = Groups()
    groups.table.set_readable("g", "T", False)
    groups.table.set_readable("g", "U", False)
    groups.table.set_readable("g", "T", True)
    assert not groups.table.is_forbidden("g", "T")
    assert groups.table.is_forbidden("g", "U")
    groups.table.set_readable("g", "U", True)
    assert groups.table.forbidden_table == {}
    assert (await groups.after_restart()).forbidden_table == {}


async def test_other_bits_of_what_is_forbidden_are_kept() -> None:
    groups = Groups().table
    groups.forbidden_table["g"] = {"T": 2}
    assert not groups.is_forbidden("g", "T")
    groups.set_readable("g", "T", False)
    assert groups.forbidden("g", "T") == 6
    groups.set_readable("g", "T", True)
    assert groups.forbidden("g", "T") == 2


async def test_the_number_of_forbidden_topics_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = Groups().table
    monkeypatch.setattr(groups_module, "MAX_FORBIDDEN", 2)
    groups.set_readable("g", "T", False)
    groups.set_readable("h", "T", False)
    with pytest.raises(RequestRefusedError, match=r"limit of \d+ forbidden pairs of group and topic reached"):
        groups.set_readable("g", "U", False)
    groups.set_readable("h", "T", True)
    groups.set_readable("g", "U", False)


async def test_the_configs_dict_is_never_replaced() -> None:
    groups = Groups().table
    held = groups.configs
    groups.load()
    groups.update(SubscriptionGroupConfig("g"))
    groups.delete("g")
    assert groups.configs is held


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("g", None),
        ("x" * 120, None),
        ("", "The specified group is blank."),
        ("a b", "The specified group: a b, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        ("x" * 121, f"The specified group: {'x' * 121}, is longer than group max length: 120"),
    ],
)
def test_invalid_group_names_get_the_errors_of_rocketmq(name: str, problem: str | None) -> None:
    assert group_name_problem(name) == problem
