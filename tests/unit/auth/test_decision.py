"""Rules and the decision, with RocketMQ's order of precedence."""

from __future__ import annotations

import pytest

from orbitmq.auth.decision import Requirement, authorize
from orbitmq.auth.errors import AuthorizationError
from orbitmq.auth.policies import Acl, User, UserType, acl_of, entry_of
from orbitmq.auth.resources import Action, resource_of, topic_resource
from orbitmq.protocol.bodies import AclInfo, PolicyEntryInfo, PolicyInfo

ALICE = User("alice", "secret")


def rules(*entries: tuple[str, str, str], default: tuple[tuple[str, str, str], ...] = ()) -> Acl:
    infos = [
        PolicyInfo(
            kind, [PolicyEntryInfo(name, actions.split(","), None, decision) for name, actions, decision in given]
        )
        for kind, given in (("Custom", entries), ("Default", default))
        if given
    ]
    return acl_of(AclInfo("User:alice", infos), "")


def allows(acl: Acl | None, resource: str, *actions: Action, source: str = "10.0.0.1") -> bool:
    wanted = resource_of(resource)
    assert wanted is not None
    try:
        authorize(ALICE, acl, [Requirement(wanted, actions or (Action.PUB,))], source)
    except AuthorizationError:
        return False
    return True


def test_without_rules_nothing_is_allowed() -> None:
    with pytest.raises(AuthorizationError) as caught:
        authorize(ALICE, None, [Requirement(topic_resource("orders"), (Action.PUB,))], "10.0.0.1")
    assert (
        str(caught.value)
        == "User:alice has no permission to access Topic:orders from 10.0.0.1, no matched policies."
    )


def test_a_denied_action_says_so() -> None:
    acl = rules(("Topic:orders", "Pub", "Deny"))
    with pytest.raises(AuthorizationError, match=r"the decision is deny\.$"):
        authorize(ALICE, acl, [Requirement(topic_resource("orders"), (Action.PUB,))], "10.0.0.1")


def test_a_super_user_may_do_everything() -> None:
    authorize(User("root", "s", UserType.SUPER), None, [Requirement(topic_resource("orders"), (Action.PUB,))], "")


def test_literal_rules_come_before_prefixes_before_all() -> None:
    acl = rules(
        ("Topic:*", "Pub", "Allow"),
        ("Topic:ord*", "Pub", "Deny"),
        ("Topic:orders*", "Pub", "Allow"),
        ("Topic:orders-secret", "Pub", "Deny"),
    )
    assert allows(acl, "Topic:other")
    assert not allows(acl, "Topic:ordinary")
    assert allows(acl, "Topic:orders-eu")
    assert not allows(acl, "Topic:orders-secret")


def test_a_rule_for_a_type_comes_before_one_for_everything() -> None:
    assert not allows(rules(("*", "All", "Allow"), ("Topic:*", "Pub", "Deny")), "Topic:orders")
    assert allows(rules(("*", "All", "Deny"), ("Topic:*", "Pub", "Allow")), "Topic:orders")


def test_deny_comes_before_allow() -> None:
    allow = rules(("Topic:orders", "Pub", "Allow"))
    both = Acl("User:alice", (*allow.policies, *()))
    policy = both.policies[0]
    denied = entry_of(PolicyEntryInfo("Topic:orders", ["Pub"], None, "Deny"))
    mixed = Acl("User:alice", (type(policy)(policy.type, (*policy.entries, denied)),))
    assert not allows(mixed, "Topic:orders")


def test_default_rules_count_where_no_custom_one_matches() -> None:
    acl = rules(("Topic:orders", "Pub", "Deny"), default=(("Topic:*", "All", "Allow"),))
    assert not allows(acl, "Topic:orders")
    assert allows(acl, "Topic:orders", Action.SUB)
    assert allows(acl, "Topic:other")


def test_one_of_the_requested_actions_is_enough() -> None:
    acl = rules(("Topic:orders", "Get", "Allow"))
    assert allows(acl, "Topic:orders", Action.SUB, Action.GET)
    assert not allows(acl, "Topic:orders", Action.SUB)


@pytest.mark.parametrize(
    ("source", "allowed"),
    [
        ("10.1.2.3", True),
        ("192.168.0.7", True),
        ("192.168.0.8", False),
        ("::ffff:10.1.2.3", True),
        ("fd00::1", True),
        ("fe80::1", False),
        ("not an address", False),
        ("", False),
    ],
)
def test_rules_for_addresses_match_single_ones_and_blocks(source: str, allowed: bool) -> None:
    entry = PolicyEntryInfo("Topic:*", ["All"], ["10.0.0.0/8", "192.168.0.7", "fd00::/16"], "Allow")
    acl = acl_of(AclInfo("User:alice", [PolicyInfo("Custom", [entry])]), "")
    assert allows(acl, "Topic:orders", source=source) is allowed


@pytest.mark.parametrize(
    ("entry", "remark"),
    [
        (PolicyEntryInfo("Queue:a", ["Pub"], None, "Allow"), "The resource is null."),
        (PolicyEntryInfo(None, ["Pub"], None, "Allow"), "The resource is null."),
        (PolicyEntryInfo("Topic:a", [], None, "Allow"), "The actions is empty."),
        (PolicyEntryInfo("Topic:a", ["Any"], None, "Allow"), "The actions can not be Any."),
        (PolicyEntryInfo("Topic:a", ["Pub"], [""], "Allow"), "The source ip is empty."),
        (PolicyEntryInfo("Topic:a", ["Pub"], ["host"], "Allow"), "The source ip is invalid."),
        (PolicyEntryInfo("Topic:a", ["Pub"], None, "Perhaps"), "The decision is null or illegal."),
    ],
)
def test_malformed_rules_are_refused_with_rocketmqs_remarks(entry: PolicyEntryInfo, remark: str) -> None:
    with pytest.raises(AuthorizationError) as caught:
        entry_of(entry)
    assert str(caught.value) == remark


def test_new_rules_replace_those_for_the_same_resource() -> None:
    acl = rules(("Topic:a", "Pub", "Allow"), ("Topic:b", "Sub", "Allow")).merged(rules(("Topic:a", "Sub", "Deny")))
    assert not allows(acl, "Topic:a", Action.SUB)
    assert not allows(acl, "Topic:a", Action.PUB)
    assert allows(acl, "Topic:b", Action.SUB)


def test_a_retry_topic_is_the_resource_of_its_group() -> None:
    assert str(topic_resource("%RETRY%billing")) == "Group:billing"
    assert str(topic_resource("orders")) == "Topic:orders"
