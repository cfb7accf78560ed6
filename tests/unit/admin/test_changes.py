"""Differences, settings of topics and groups after a change, and the text of attributes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.admin import Change, InvalidRequestError
from orbitmq.admin.changes import differences
from orbitmq.admin.cluster.brokers import parse_settings, settings_text
from orbitmq.admin.group.groups import as_request
from orbitmq.admin.group.groups import merged as merged_group
from orbitmq.admin.group.model import GroupSettings
from orbitmq.admin.topic.changes import attributes_text, merged
from orbitmq.admin.topic.model import TopicKind, TopicSettings, kind_of, perm_text
from orbitmq.protocol.bodies import SubscriptionGroupConfig, TopicConfig


def test_differences_name_what_is_created_altered_and_removed() -> None:
    changes = differences("topic t", {"a": 1, "b": 2, "c": 3}, {"a": 1, "b": 5, "d": 4})
    assert changes == [
        Change("topic t", "b", 2, 5),
        Change("topic t", "c", 3, None),
        Change("topic t", "d", None, 4),
    ]
    assert [str(one) for one in changes] == [
        "topic t: b 2 -> 5",
        "topic t: c removed (was 3)",
        "topic t: d = 4",
    ]


def test_a_change_of_a_topic_keeps_what_it_does_not_name() -> None:
    before = TopicConfig("t", 4, 4, 6, attributes={"message.type": "FIFO", "other": "1"})
    after = merged("broker-a", before, TopicSettings(write_queues=2, remove_attributes=("other",)))
    assert (after.read_queues, after.write_queues, after.perm) == (4, 2, 6)
    assert after.attributes == {"message.type": "FIFO"}


def test_a_new_topic_has_eight_queues() -> None:
    after = merged("broker-a", None, TopicSettings(unit=True))
    assert (after.read_queues, after.write_queues, after.perm, after.sys_flag) == (8, 8, 6, 1)


@pytest.mark.parametrize("settings", [TopicSettings(read_queues=-1), TopicSettings(perm=99)])
def test_impossible_settings_of_a_topic_are_refused(settings: TopicSettings) -> None:
    with pytest.raises(InvalidRequestError):
        merged("broker-a", None, settings)


def test_attributes_are_sent_as_changes() -> None:
    before = TopicConfig("t", attributes={"old": "1"})
    settings = TopicSettings(attributes={"message.type": "FIFO"}, remove_attributes=("old", "unknown"))
    assert attributes_text(settings, before) == "+message.type=FIFO,-old"
    assert attributes_text(TopicSettings(), before) is None
    with pytest.raises(InvalidRequestError, match="','"):
        attributes_text(TopicSettings(attributes={"a": "1,2"}), None)


def test_a_change_of_a_group_keeps_what_it_does_not_name() -> None:
    before = SubscriptionGroupConfig("g", retry_max_times=3, attributes={"x": "1"})
    settings = GroupSettings(consume_enable=False, attributes={"y": "2"}, remove_attributes=("x",))
    after = merged_group("g", before, settings)
    assert (after.consume_enable, after.retry_max_times, after.attributes) == (False, 3, {"y": "2"})
    assert as_request(after, before, settings).attributes == {"+y": "2", "-x": ""}


def test_a_malformed_retry_policy_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="retry policy"):
        merged_group("g", None, GroupSettings(group_retry_policy={"customizedRetryPolicy": 5}))


@pytest.mark.parametrize(
    ("topic", "kind"),
    [
        ("orders", TopicKind.NORMAL),
        ("%RETRY%g", TopicKind.RETRY),
        ("%DLQ%g", TopicKind.DEAD_LETTER),
        ("TBW102", TopicKind.SYSTEM),
        ("broker-a", TopicKind.SYSTEM),
        ("DefaultCluster_REPLY_TOPIC", TopicKind.SYSTEM),
    ],
)
def test_kinds_of_topics(topic: str, kind: TopicKind) -> None:
    assert kind_of(topic, {"broker-a", "DefaultCluster"}) is kind


def test_permissions_are_written_as_rocketmq_writes_them() -> None:
    assert [perm_text(perm) for perm in (0, 2, 4, 6)] == ["---", "-W-", "R--", "RW-"]


VALUES = st.text(st.characters(min_codepoint=32, max_codepoint=0x10FFFF, exclude_categories=("Cs", "Cc")))


@given(st.dictionaries(st.from_regex(r"[A-Za-z][A-Za-z0-9]{0,20}", fullmatch=True), VALUES, min_size=1))
def test_settings_arrive_as_they_were_given(values: dict[str, str]) -> None:
    """All but blanks around a value, which a properties file does not keep."""
    read = parse_settings(settings_text(values), "broker")
    assert {name: value.strip() for name, value in values.items()} == {
        name: value.strip() for name, value in read.items()
    }


@pytest.mark.parametrize("values", [{}, {"a": "1\nb=2"}, {" ": "1"}])
def test_settings_of_several_lines_are_refused(values: dict[str, str]) -> None:
    with pytest.raises(InvalidRequestError):
        settings_text(values)
