"""Progress of all groups and tables of settings, decoded in bulk: the same as one by one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.admin.group.model import GroupSummary, GroupTotals
from orbitmq.admin.group.progress import GroupProgress, Row, add_progress
from orbitmq.admin.tables import KnownSettings
from orbitmq.dashboard.lag_table import LagTable
from orbitmq.protocol.bodies import ConsumeStats, ConsumeStatsList, MessageQueue, OffsetWrapper, TopicConfig
from orbitmq.protocol.errors import ProtocolError

NAMES = st.text(min_size=1, max_size=5) | st.sampled_from(["orders", "%RETRY%g", "ü-topic", 'a"b', "a\\b", "a\0b"])
OFFSETS = st.integers(-1, 2**62)
WRAPPERS = st.builds(OffsetWrapper, OFFSETS, OFFSETS, OFFSETS, OFFSETS)
QUEUES = st.builds(MessageQueue, NAMES, NAMES, st.integers(0, 9))
PARTS = st.builds(ConsumeStats, st.dictionaries(QUEUES, WRAPPERS, max_size=3), st.floats(0, 1e6))
TABLES = st.builds(
    ConsumeStatsList, st.lists(st.dictionaries(NAMES, st.lists(PARTS, max_size=2), max_size=2), max_size=3)
)


def one_by_one(tables: list[ConsumeStatsList]) -> dict[str, tuple[list[Row], float]]:
    found: dict[str, tuple[list[Row], float]] = {}
    for table in tables:
        for entry in table.consume_stats_list:
            for group, parts in entry.items():
                rows, consume_tps = found.get(group, ([], 0.0))
                for part in parts:
                    rows += [
                        (
                            *(queue.topic, queue.broker_name, queue.queue_id),
                            *(ends.broker_offset, ends.consumer_offset, ends.pull_offset, ends.last_timestamp),
                        )
                        for queue, ends in part.offset_table.items()
                    ]
                found[group] = (rows, consume_tps + sum(part.consume_tps for part in parts))
    return found


@given(st.lists(TABLES, max_size=3), st.booleans())
def test_progress_in_bulk_equals_that_of_each_queue(tables: list[ConsumeStatsList], pretty: bool) -> None:
    groups: dict[str, GroupProgress] = {}
    for table in tables:
        add_progress(groups, table.encode(pretty=pretty))
    expected = one_by_one(tables)
    assert {group: one.rows for group, one in groups.items()} == {
        group: rows for group, (rows, _) in expected.items()
    }
    for group, one in groups.items():
        assert one.consume_tps == pytest.approx(expected[group][1])
        lag, totals = one.lag(group), one.totals()
        assert list(lag.queues) == sorted(lag.queues)
        assert totals == GroupTotals(lag.lag, lag.inflight, lag.consume_tps, tuple(sorted(lag.by_topic())))


OTHER_FORMS = (
    # Properties in another order or missing, a number as text, white space, keys as text, and a reference.
    b'{"consumeStatsList":[{"g":[{"offsetTable":{{"topic":"t","queueId":1,"brokerName":"b"}:{"brokerOffset":5}}}]}]}',
    b'{"consumeStatsList":[{"g":[{"offsetTable":{{"brokerName":"b","queueId":1,"topic":"t"}:{"brokerOffset":"5"}}}]}]}',
    b'{"consumeStatsList":[{"g":[{"offsetTable":{ {"brokerName": "b", "queueId": 1, "topic": "t"}:'
    b'{"brokerOffset":5}}}]}]}',
    b'{"consumeStatsList":[{"g":[{"offsetTable":{"{\\"brokerName\\":\\"b\\",\\"queueId\\":1,\\"topic\\":\\"t\\"}":'
    b'{"brokerOffset":5}}}]}]}',
    b'{"consumeStatsList":[{"g":[{"consumeTps":0.0,"offsetTable":{{"brokerName":"b","queueId":1,"topic":"t"}:'
    b'{"brokerOffset":5,"consumerOffset":0,"lastTimestamp":0,"pullOffset":0}}}]},{"h":[{"$ref":"$.consumeStatsList[0].g[0]"}]}]}',
)


@pytest.mark.parametrize("body", OTHER_FORMS)
def test_other_forms_of_the_same_are_read_too(body: bytes) -> None:
    groups: dict[str, GroupProgress] = {}
    add_progress(groups, body)
    assert groups["g"].rows == [("t", "b", 1, 5, 0, 0, 0)]


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b'{"consumeStatsList":[{"g":[{"offsetTable":{"a\\u0000b\\u0000c":{"brokerOffset":5}}}]}]}',
        b'{"consumeStatsList":[{"g":[{"consumeTps":0.0,"offsetTable":{{"brokerName":"b","queueId":1,"topic":"t"}:'
        b'{"brokerOffset":"x","consumerOffset":0,"lastTimestamp":0,"pullOffset":0}}}]}]}',
    ],
)
def test_what_cannot_be_read_is_an_error_and_adds_nothing(body: bytes) -> None:
    groups: dict[str, GroupProgress] = {}
    with pytest.raises(ProtocolError):
        add_progress(groups, body)
    assert groups == {}


def test_a_table_of_lag_has_the_sums_of_groups_and_the_ends_of_topics() -> None:
    # Two groups consume queue 0 of the topic; its end counts once.
    progress = {
        "a": GroupProgress([("t", "b", 0, 10, 4, 6, 0), ("t", "b", 1, 5, 7, 0, 0)], 1.5),
        "b": GroupProgress([("t", "b", 0, 10, 10, 10, 0)]),
        "idle": GroupProgress(),
    }
    table = LagTable.of(progress, 7.0)
    assert table.ends == {"t": 15}
    assert table.totals == {
        "a": GroupTotals(6, 2, 1.5, ("t",)),
        "b": GroupTotals(0, 0, 0.0, ("t",)),
        "idle": GroupTotals(0, 0, 0.0, ()),
    }
    listed = GroupSummary("a", False, ()).with_lag(table.totals["a"])
    assert (listed.lag, listed.inflight, listed.consume_tps, listed.topics) == (6, 2, 1.5, ("t",))
    assert GroupSummary("none", False, ()).with_lag(None).lag == 0


def test_equal_settings_of_brokers_are_one_object() -> None:
    known = KnownSettings(TopicConfig)
    first = known.of("t", {"topicName": "t", "perm": 6})
    assert first == TopicConfig("t")
    assert known.of("t", {"topicName": "t", "perm": 6}) is first
    assert known.of("t", {"topicName": "t", "perm": 4}) == TopicConfig("t", perm=4)
    with pytest.raises(ProtocolError):
        known.of("t", {"perm": "none"})
