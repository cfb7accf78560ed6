"""RocketMQ's first access control: its file, its addresses, what its accounts may do, and reloading."""

from __future__ import annotations

import ipaddress
import logging
from typing import TYPE_CHECKING

import pytest

from orbitmq.auth.decision import Requirement, authorize
from orbitmq.auth.errors import AuthorizationError
from orbitmq.auth.plain import table as plain_table
from orbitmq.auth.plain.accounts import imported, read_plain_access
from orbitmq.auth.plain.addresses import is_any_of, read_patterns
from orbitmq.auth.plain.table import PlainTable
from orbitmq.auth.policies import UserType
from orbitmq.auth.resources import Action, group_resource, topic_resource
from orbitmq.platform.settings import ConfigError
from orbitmq.platform.threads import in_thread
from support.remoting_harness import eventually

if TYPE_CHECKING:
    from pathlib import Path

FILE = """
globalWhiteRemoteAddresses: [10.10.103.*, "192.168.0.1-9"]
accounts:
- accessKey: RocketMQ
  secretKey: "12345678"
  whiteRemoteAddress:
  admin: false
  defaultTopicPerm: SUB
  defaultGroupPerm: DENY
  topicPerms: [topicA=DENY, topicB=PUB|SUB, topicC=PUB]
  groupPerms: [groupA=DENY, groupB=PUB|SUB, groupC=SUB]
- accessKey: operator
  secretKey: "87654321"
  whiteRemoteAddress: 192.168.1.*
  admin: true
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "plain_acl.yml").write_text(FILE)
    return tmp_path


@pytest.fixture
def table(home: Path) -> PlainTable:
    found = PlainTable(str(home), in_thread)
    found.load()
    return found


# Addresses


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("*", ["1.2.3.4", "::1"], []),
        ("*.*.*.*", ["1.2.3.4"], ["::1"]),
        ("10.1.2.3", ["10.1.2.3", "::ffff:10.1.2.3"], ["10.1.2.4"]),
        ("10.1.2.3,10.1.2.4", ["10.1.2.3", "10.1.2.4"], ["10.1.2.5"]),
        ("10.1.2.{3,5}", ["10.1.2.3", "10.1.2.5"], ["10.1.2.4"]),
        ("10.1.2.{3,5},9.9.9.9", ["10.1.2.5", "9.9.9.9"], ["10.1.2.4"]),
        ("10.1.*.*", ["10.1.0.0", "10.1.255.255"], ["10.2.0.0", "110.1.0.0"]),
        ("10.1.2-4.*", ["10.1.2.9", "10.1.4.9"], ["10.1.5.9"]),
        ("2001:db8:0:0:0:0:0:*", ["2001:db8::5"], ["2001:db8::1:5"]),
        ("2001:db8:0:0:0:0:a:1-f", ["2001:db8::a:f"], ["2001:db8::a:10"]),
        ("::1", ["::1"], ["::2", "0.0.0.1"]),
        ("", [], ["127.0.0.1", "0.0.0.0", ""]),
    ],
)
def test_a_pattern_has_these_addresses(pattern: str, matching: list[str], others: list[str]) -> None:
    patterns = read_patterns([pattern], "here")
    assert [host for host in matching + others if is_any_of(patterns, host)] == matching
    assert all(ipaddress.ip_address(host) for host in matching)


@pytest.mark.parametrize(
    "text", ["10.1.2", "10.1.2.256", "somewhere", "10.1.2.3/24", "1.2.3.4.*", "10.1.2.{3", "::*"]
)
def test_what_is_not_a_pattern_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"here: .* is not an address"):
        read_patterns([text], "here")


# Rights


def may(table: PlainTable, requirement: Requirement) -> bool:
    try:
        authorize(table.users["RocketMQ"], table.acls["RocketMQ"], [requirement], "10.0.0.1")
    except AuthorizationError:
        return False
    return True


@pytest.mark.parametrize(
    ("topic", "rights"),
    [("topicA", []), ("topicB", ["PUB", "SUB"]), ("topicC", ["PUB"]), ("other", ["SUB"])],
)
def test_permissions_of_topics(table: PlainTable, topic: str, rights: list[str]) -> None:
    found = [
        name
        for name, action in (("PUB", Action.PUB), ("SUB", Action.SUB))
        if may(table, Requirement(topic_resource(topic), (action,)))
    ]
    assert found == rights, "a permission of its own replaces that by default"


@pytest.mark.parametrize(
    ("group", "is_allowed"), [("groupA", False), ("groupB", True), ("groupC", True), ("x", False)]
)
def test_permissions_of_groups(table: PlainTable, group: str, is_allowed: bool) -> None:
    assert may(table, Requirement(group_resource(group), (Action.SUB,))) is is_allowed


def test_addresses_without_a_signature(table: PlainTable) -> None:
    assert table.trusts("10.10.103.7", None)
    assert table.trusts("192.168.0.9", "nobody")
    assert not table.trusts("192.168.0.10", None)
    assert table.trusts("192.168.1.7", "operator")
    assert not table.trusts("192.168.1.7", "RocketMQ")
    assert not table.trusts("", "RocketMQ")


def test_an_admin_is_a_super_user_and_accounts_can_be_imported(home: Path) -> None:
    users, acls = imported(str(home / "conf"))
    assert users["operator"].type is UserType.SUPER
    assert users["RocketMQ"].type is UserType.NORMAL
    assert not acls["RocketMQ"].is_plain
    assert "12345678" not in repr((users, acls, read_plain_access(str(home / "conf"))))


# Files


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("accounts: [", "is not YAML at line 1"),
        ("- 1", "are expected"),
        ("accounts:\n- accessKey: short\n  secretKey: '12345678'\n", "at least 7 characters"),
        (
            "accounts:\n- accessKey: RocketMQ\n  secretKey: '12345678'\n  topicPerms: [x]\n",
            "is not name=permission",
        ),
        (FILE.replace("operator", "RocketMQ"), "in another file too, or twice"),
        (FILE.replace("10.10.103.*", "10.10.*"), "globalWhiteRemoteAddresses: '10.10.\\*' is not an address"),
        ("accounts: !!python/object/apply:os.system ['true']", "is not YAML"),
    ],
)
def test_files_that_cannot_be_used_say_why_and_show_no_secret(home: Path, text: str, said: str) -> None:
    (home / "conf" / "plain_acl.yml").write_text(text)
    with pytest.raises(ConfigError, match=said) as caught:
        PlainTable(str(home), in_thread).load()
    assert "12345678" not in str(caught.value)


def test_files_below_acl_are_read_too(home: Path) -> None:
    (home / "conf" / "acl").mkdir()
    (home / "conf" / "acl" / "more.yaml").write_text(
        "accounts:\n- {accessKey: another, secretKey: '12345678', admin: true}"
    )
    (home / "conf" / "acl" / "tools.yml").write_text("accessKey: x")
    table = PlainTable(str(home), in_thread)
    table.load()
    assert set(table.users) == {"RocketMQ", "operator", "another"}


async def test_changed_files_are_reloaded_and_broken_ones_are_not(
    home: Path, table: PlainTable, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(plain_table, "RELOAD_SECONDS", 0.01)
    file = home / "conf" / "plain_acl.yml"
    table.start()
    try:
        file.write_text("accounts: [")
        await eventually(lambda: "the former ones stay in use" in caplog.text)
        assert set(table.users) == {"RocketMQ", "operator"}
        file.write_text(FILE.replace("operator", "director"))
        await eventually(lambda: set(table.users) == {"RocketMQ", "director"})
        file.unlink()
        await eventually(lambda: caplog.text.count("the former ones stay in use") == 2)
        assert set(table.users) == {"RocketMQ", "director"}
    finally:
        await table.stop()
