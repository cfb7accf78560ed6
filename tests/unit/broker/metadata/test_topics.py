"""Topic table: system topics, auto-creation, persistence; topic attributes."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from orbitmq.broker.config.broker_config import BrokerConfig
from orbitmq.broker.config.persistence import ConfigWriter
from orbitmq.broker.metadata import topics as topics_module
from orbitmq.broker.metadata.attributes import GROUP_ATTRIBUTES, TOPIC_ATTRIBUTES, altered, parse_changes
from orbitmq.broker.metadata.topics import TopicTable, topic_name_problem
from orbitmq.protocol.bodies import DataVersion, RegisterBrokerBody, TopicConfig, TopicFilterType, TopicList
from orbitmq.protocol.codes import RequestCode
from orbitmq.remoting.processor import NotReadyError, RequestRefusedError
from orbitmq.store.config_tables import TOPICS
from orbitmq.testing import ManualClock, MemoryDisk
from support.wire_captures import captured

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")

T0 = 1_700_000_000_000
CONFIG = "/store/config"


async def at_once(work: Callable[[], T]) -> T:
    return work()


async def made(create: Callable[[], T]) -> T:
    while True:
        try:
            return create()
        except NotReadyError as error:
            await error.wait()


class Topics:
    """A topic table on a virtual disk, with its reported changes."""

    def __init__(self, disk: MemoryDisk | None = None, *, timer_wheel: bool = True, **settings: Any) -> None:
        self.disk = disk or MemoryDisk()
        self.clock = ManualClock(T0)
        self.config = BrokerConfig(**{"broker_name": "broker-w", **settings})
        self.writer = ConfigWriter(self.disk, CONFIG, at_once)
        self.table = TopicTable(self.writer, self.config, self.clock, timer_wheel=timer_wheel)
        self.table.load()
        self.told: list[Sequence[str]] = []
        self.table.on_change = self.told.append

    async def sent(self, *asked: Any) -> TopicConfig | None:
        """The topic of a send, once it can be used."""
        return await made(lambda: self.table.create_for_send(*asked))

    async def sent_back(self, *asked: Any, **more: Any) -> TopicConfig:
        return await made(lambda: self.table.create_for_send_back(*asked, **more))

    def after_restart(self, **settings: Any) -> Topics:
        return Topics(self.disk, **settings)


def first_registration() -> dict[str, TopicConfig]:
    """The first registration of a real broker with ``traceTopicEnable=true``."""
    request = next(frame for frame in captured("broker_register_json") if frame.code == RequestCode.REGISTER_BROKER)
    body = RegisterBrokerBody.decode(request.frame[2])
    return body.topic_config_serialize_wrapper.topic_config_table


async def test_a_new_broker_has_the_topics_that_a_real_one_registers() -> None:
    assert Topics(trace_topic_enable=True).table.configs == first_registration()


async def test_the_system_topics_follow_the_settings() -> None:
    topics = Topics(
        broker_cluster_name="c1",
        auto_create_topic_enable=False,
        cluster_topic_enable=False,
        broker_topic_enable=False,
        revive_queue_num=3,
        timer_wheel=False,
    ).table
    assert "TBW102" not in topics.configs
    assert "RMQ_SYS_TRACE_TOPIC" not in topics.configs
    assert "rmq_sys_wheel_timer" not in topics.configs
    assert topics.configs["c1"].perm == topics.configs["broker-w"].perm == 1
    assert topics.configs["rmq_sys_REVIVE_LOG_c1"].read_queue_nums == 3
    assert topics.configs["c1_REPLY_TOPIC"] == TopicConfig("c1_REPLY_TOPIC", 1, 1, 6)
    assert topics.data_version == DataVersion(0, 0, T0)


async def test_the_system_topics_are_those_that_a_real_broker_lists() -> None:
    answer = next(
        frame
        for frame in captured("admin2")
        if frame.request_code == RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER and frame.is_response
    )
    topics = Topics(trace_topic_enable=True).table
    assert topics.system_topics == set(TopicList.decode(answer.frame[2]).topic_list)
    assert topics.is_system_topic("DefaultCluster")
    assert topics.is_system_topic("rmq_sys_anything")
    assert not topics.is_system_topic("T")


async def test_a_send_creates_its_topic_from_the_default_topic_without_the_inherit_bit() -> None:
    topics = Topics()
    topics.clock.advance(5)
    made = await topics.sent("T", "TBW102", 4, 1)
    assert made == TopicConfig("T", 4, 4, 6, topic_sys_flag=1)
    assert topics.table.configs["T"] is made
    assert topics.table.data_version == DataVersion(1, 0, T0 + 5)
    assert topics.told == [["T"]]
    assert await topics.sent("T", "TBW102", 8, 0) is made
    assert topics.told == [["T"]]


async def test_a_send_creates_at_most_the_queues_of_the_default_topic() -> None:
    topics = Topics(default_topic_queue_nums=3)
    for asked, queues in ((2, 2), (3, 3), (100, 3), (0, 0), (-4, 0)):
        made = await topics.sent(f"T{asked}", "TBW102", asked, 0)
        assert made is not None
        assert (made.read_queue_nums, made.write_queue_nums) == (queues, queues)


async def test_any_topic_with_the_inherit_bit_can_be_the_default_topic_of_a_send() -> None:
    topics = Topics()
    topics.table.update(TopicConfig("Model", 2, 5, 5, TopicFilterType.MULTI_TAG))
    made = await topics.sent("T", "Model", 10, 0)
    assert made == TopicConfig("T", 5, 5, 4, TopicFilterType.MULTI_TAG)


@pytest.mark.parametrize("model", ["Nowhere", "BenchmarkTest", ""])
async def test_a_send_whose_default_topic_is_missing_or_not_inheritable_creates_no_topic(model: str) -> None:
    topics = Topics()
    assert await topics.sent("T", model, 4, 0) is None
    assert "T" not in topics.table.configs
    assert topics.told == []


async def test_no_topic_is_auto_created_while_disabled_even_if_the_file_has_the_default_topic() -> None:
    topics = Topics()
    topics.table.persist()
    await topics.writer.stop()
    later = topics.after_restart(auto_create_topic_enable=False)
    assert later.table.configs["TBW102"].perm == 7
    assert await later.sent("T", "TBW102", 4, 0) is None
    later.config.auto_create_topic_enable = True
    assert await later.sent("T", "TBW102", 4, 0) is not None


async def test_a_retry_topic_is_created_once() -> None:
    topics = Topics()
    made = await topics.sent_back("%RETRY%g", 2, 6)
    assert made == TopicConfig("%RETRY%g", 2, 2, 6)
    assert await topics.sent_back("%RETRY%g", 5, 4) is made
    assert topics.told == [["%RETRY%g"]]


async def test_a_retry_topic_follows_whether_its_group_reads_in_order() -> None:
    topics = Topics()
    for order, expected in ((True, True), (None, True), (False, False)):
        assert (await topics.sent_back("%RETRY%g", 1, 6, order=order)).order is expected
        assert topics.table.configs["%RETRY%g"].order is expected
    assert topics.told == [["%RETRY%g"]] * 2


async def test_a_client_that_invents_topic_names_reaches_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    topics = Topics()
    monkeypatch.setattr(topics_module, "MAX_TOPICS", len(topics.table.configs) + 1)
    assert await topics.sent("T1", "TBW102", 1, 0) is not None
    with pytest.raises(RequestRefusedError, match=r"topic limit reached: .* at most \d+ are allowed") as refused:
        await topics.sent("T2", "TBW102", 1, 0)
    assert refused.value.code == 1
    with pytest.raises(RequestRefusedError):
        await topics.sent_back("%RETRY%g", 1, 6)
    assert await topics.sent("T1", "TBW102", 1, 0) is not None
    topics.table.delete("T1")
    assert await topics.sent("T2", "TBW102", 1, 0) is not None


async def test_a_store_with_more_topics_than_allowed_keeps_them_all(monkeypatch: pytest.MonkeyPatch) -> None:
    topics = Topics()
    topics.table.update(*(TopicConfig(f"T{number}") for number in range(20)))
    await topics.writer.stop()
    monkeypatch.setattr(topics_module, "MAX_TOPICS", 10)
    assert "T19" in topics.after_restart().table.configs


async def test_topics_and_their_version_survive_a_restart() -> None:
    topics = Topics()
    await topics.sent("T", "TBW102", 4, 0)
    topics.table.update(TopicConfig("U", 1, 2, 4, order=True, attributes={"message.type": "FIFO"}))
    await topics.writer.stop()
    later = topics.after_restart()
    assert later.table.configs == topics.table.configs
    assert later.table.data_version == DataVersion(2, 0, T0)


async def test_the_file_replaces_default_topics() -> None:
    topics = Topics()
    topics.table.update(TopicConfig("BenchmarkTest", 4, 4))
    await topics.writer.stop()
    assert topics.after_restart().table.configs["BenchmarkTest"].read_queue_nums == 4


async def test_an_unchanged_table_is_written_when_the_broker_stops() -> None:
    topics = Topics()
    topics.table.persist()
    await topics.writer.stop()
    assert TOPICS.load(topics.disk, CONFIG).topic_config_table == topics.table.configs


async def test_the_configs_dict_is_never_replaced() -> None:
    topics = Topics()
    held = topics.table.configs
    topics.table.load()
    topics.table.update(TopicConfig("T"))
    topics.table.set_ordered(["T"])
    topics.table.delete("BenchmarkTest")
    assert topics.table.configs is held


async def test_a_deleted_topic_is_not_reported_to_name_servers() -> None:
    topics = Topics()
    assert topics.table.delete("BenchmarkTest")
    assert not topics.table.delete("BenchmarkTest")
    assert topics.table.data_version.counter == 1
    assert topics.told == []


async def test_several_changed_topics_are_reported_together() -> None:
    topics = Topics()
    topics.table.update(TopicConfig("T1"), TopicConfig("T2"))
    assert topics.table.data_version.counter == 2
    assert topics.told == [["T1", "T2"]]


async def test_a_data_version_object_never_changes() -> None:
    topics = Topics()
    held = topics.table.data_version
    topics.table.bump()
    assert held == DataVersion(0, 0, T0)
    assert topics.table.data_version.counter == 1


async def test_topics_become_ordered_by_the_list_of_a_name_server_and_stay_ordered() -> None:
    topics = Topics()
    before = topics.table.configs["BenchmarkTest"]
    topics.table.set_ordered(["BenchmarkTest", "unknown"])
    assert topics.table.configs["BenchmarkTest"] == dataclasses.replace(before, order=True)
    assert "unknown" not in topics.table.configs
    assert topics.table.data_version.counter == 1
    topics.table.set_ordered(["BenchmarkTest"])
    topics.table.set_ordered([])
    assert topics.table.data_version.counter == 1
    assert topics.table.configs["BenchmarkTest"].order
    assert topics.told == []


async def test_the_store_gets_the_batch_topics() -> None:
    topics = Topics().table
    topics.update(
        TopicConfig("B", attributes={"queue.type": "BatchCQ"}),
        TopicConfig("S", attributes={"queue.type": "SimpleCQ"}),
    )
    assert topics.batch_topics() == ["B"]


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("T", None),
        ("%RETRY%group_|-9", None),
        ("x" * 127, None),
        ("%RETRY%" + "x" * 248, None),
        ("%DLQ%" + "x" * 250, None),
        ("", "The specified topic is blank."),
        (" \t", "The specified topic is blank."),
        (
            "bad name",
            "The specified topic: bad name, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$",
        ),
        ("a/b", "The specified topic: a/b, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        ("T\n", "The specified topic: T\n, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        ("é", "The specified topic: é, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        ("x" * 128, f"The specified topic: {'x' * 128}, is longer than topic max length: 127"),
        (
            "%DLQ%" + "x" * 251,
            f"The specified topic is DLQ or Retry topic: %DLQ%{'x' * 251}, "
            "and it's longer than topic max length: 255",
        ),
    ],
)
def test_invalid_topic_names_get_the_errors_of_rocketmq(name: str, problem: str | None) -> None:
    assert topic_name_problem(name) == problem


# Results of RocketMQ 5.5.0 for these changes, for a new topic and for one with the two attributes below.
PRESENT = {"message.type": "FIFO", "queue.type": "BatchCQ"}
NO_TYPE = "value is not in set: [UNSPECIFIED, MIXED, TRANSACTION, PRIORITY, FIFO, DELAY, LITE, NORMAL]"
UNCHANGEABLE = "attempt to update an unchangeable attribute. key: "
ONLY_ADD = "only add attribute is supported while creating topic. key: "
CHANGES: list[tuple[str, dict[str, str] | str, dict[str, str] | str]] = [
    ("", {}, PRESENT),
    (",", {}, PRESENT),
    ("+message.type=FIFO", {"message.type": "FIFO"}, PRESENT),
    ("+message.type=FIFO,", {"message.type": "FIFO"}, PRESENT),
    ("+message.type=LITE", {"message.type": "LITE"}, PRESENT | {"message.type": "LITE"}),
    ("+message.type=fifo", NO_TYPE, NO_TYPE),
    ("+message.type=A=B", NO_TYPE, NO_TYPE),
    ("+message.type= FIFO", NO_TYPE, NO_TYPE),
    ("+queue.type=BatchCQ", {"queue.type": "BatchCQ"}, UNCHANGEABLE + "queue.type"),
    ("+queue.type=X", "value is not in set: [SimpleCQ, BatchCQ]", UNCHANGEABLE + "queue.type"),
    ("+cleanup.policy=X", "value is not in set: [DELETE, COMPACTION]", UNCHANGEABLE + "cleanup.policy"),
    ("+cleanup.policy=COMPACTION", {"cleanup.policy": "COMPACTION"}, UNCHANGEABLE + "cleanup.policy"),
    ("-queue.type", ONLY_ADD + "queue.type", UNCHANGEABLE + "queue.type"),
    ("-message.type", ONLY_ADD + "message.type", {"queue.type": "BatchCQ"}),
    ("-reserve.time", ONLY_ADD + "reserve.time", "attempt to delete a nonexistent key: reserve.time"),
    ("+nope=1", "unsupported key: nope", "unsupported key: nope"),
    *(
        (text, f"{kind} attribute format is wrong: {key}", f"{kind} attribute format is wrong: {key}")
        for text, kind, key in (
            ("message.type=FIFO", "add/alter", "message.type"),
            ("message.type", "delete", "message.type"),
            ("+message.type", "delete", "+message.type"),
            ("+", "delete", "+"),
        )
    ),
    ("+a=1,+a=2", "key duplication: +a", "key duplication: +a"),
    (
        "+message.type=FIFO,-message.type",
        ONLY_ADD + "message.type",
        "alter duplication key. key: message.type",
    ),
    *(
        (text, "kv string format wrong.", "kv string format wrong.")
        for text in ("++message.type=FIFO", "+=x", "-", "a+b=c", " +message.type=FIFO", "+message-type=1", "x-y")
    ),
    ("+reserve.time=5", {"reserve.time": "5"}, PRESENT | {"reserve.time": "5"}),
    ("+reserve.time=-1", {"reserve.time": "-1"}, PRESENT | {"reserve.time": "-1"}),
    *(
        (text, problem, problem)
        for text, problem in (
            ("+reserve.time=-2", "value is not in range(-1, 9223372036854775807)"),
            ("+reserve.time=x", 'For input string: "x"'),
            ("+reserve.time=9223372036854775808", 'For input string: "9223372036854775808"'),
            ("+lite.topic.expiration=43201", "value is not in range(-1, 43200)"),
        )
    ),
    (
        "+lite.topic.expiration=43200",
        {"lite.topic.expiration": "43200"},
        PRESENT | {"lite.topic.expiration": "43200"},
    ),
]


@pytest.mark.parametrize(("text", "of_new", "of_present"), CHANGES)
def test_attributes_change_as_in_rocketmq(
    text: str, of_new: dict[str, str] | str, of_present: dict[str, str] | str
) -> None:
    for present, expected in ((None, of_new), (PRESENT, of_present)):
        before = dict(PRESENT)
        if isinstance(expected, dict):
            assert altered(TOPIC_ATTRIBUTES, present, parse_changes(text)) == expected
        else:
            with pytest.raises(RequestRefusedError) as refused:
                altered(TOPIC_ATTRIBUTES, present, parse_changes(text))
            assert str(refused.value) == expected
            assert refused.value.code == 1
        assert before == PRESENT


@pytest.mark.parametrize("text", ["+message.type=", "=", "=x", "a,,b"])
def test_attribute_changes_that_crash_rocketmq_are_refused(text: str) -> None:
    with pytest.raises(RequestRefusedError, match="attribute format is wrong"):
        parse_changes(text)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("+priority.factor=101", "value is not in range(0, 100)"),
        ("+lite.sub.model=X", "value is not in set: [Shared, Exclusive]"),
        ("+lite.sub.reset.offset.exclusive=yes", "boolean attribute format is wrong."),
        ("+lite.sub.client.quota=-2", "value is not in range(-1, 9223372036854775807)"),
        ("+lite.sub.client.max.event.cnt=9", "value is not in range(10, 9223372036854775807)"),
        ("+message.type=FIFO", "unsupported key: message.type"),
        ("+priority.factor=5", None),
        ("+lite.bind.topic=x", None),
        ("+lite.sub.reset.offset.unsubscribe=TRUE", None),
        ("+lite.sub.wildcard=y", None),
    ],
)
def test_groups_have_attributes_of_their_own(change: str, problem: str | None) -> None:
    if problem is None:
        key, _, value = change[1:].partition("=")
        assert altered(GROUP_ATTRIBUTES, None, parse_changes(change)) == {key: value}
    else:
        with pytest.raises(RequestRefusedError) as refused:
            altered(GROUP_ATTRIBUTES, None, parse_changes(change))
        assert str(refused.value) == problem
