"""Pulls: what is read of a queue and from where, what is refused and why, and what a pull tells besides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from orbitmq.protocol.bodies import MessageModel, SubscriptionGroupConfig, TopicConfig
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.message.flags import PERM_WRITE, PULL_COMMIT_OFFSET, PULL_SUBSCRIPTION
from support.broker.client_registry_harness import sql, subscription
from support.broker.requests import (
    CONSUMERS,
    TOPIC,
    Talker,
    bodies,
    pulled,
    stored,
    talk,
)
from support.remoting_harness import HOST

if TYPE_CHECKING:
    from orbitmq.protocol.command.command import Command

SMALL_QUEUES = {"mappedFileSizeCommitLog": 4096, "mappedFileSizeConsumeQueue": 200}
BY_HEARTBEAT: dict[str, Any] = {"sys_flag": 0, "tags": None}
"""A pull that says nothing of what it wants, as those of Java's push consumer do."""


async def fill(client: Talker, *messages: str, topic: str = TOPIC) -> None:
    """Send messages, each ``body`` or ``body:tag``."""
    for message in messages:
        body, _, tag = message.partition(":")
        await client.stores(body.encode(), topic=topic, properties={"TAGS": tag, "length": str(len(body))})


def stands(answer: Command) -> tuple[int, str | None, int, int, int]:
    """Code, remark, the next offset, and where the queue begins and ends."""
    fields = answer.ext_fields
    places = (int(fields[name]) for name in ("nextBeginOffset", "minOffset", "maxOffset"))
    return (answer.code, answer.remark, *places)  # type: ignore[return-value]


# What is there


@pytest.mark.parametrize("binary", [False, True], ids=["json", "binary"])
@pytest.mark.parametrize("code", [RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE])
async def test_messages_come_in_their_order_as_they_lie_in_the_log(code: RequestCode, binary: bool) -> None:
    async with talk() as (broker, client):
        await fill(client, "a", "b", "c")
        await client.stores(b"elsewhere", queueId=1)
        await fill(client, "d")
        answer = await client.pulls(code=code, binary=binary)

        assert stands(answer) == (ResponseCode.SUCCESS, "FOUND", 4, 0, 4)
        assert bodies(answer) == [b"a", b"b", b"c", b"d"]
        lying = [bytes(broker.store.record(record.physical_offset) or b"") for record in stored(broker)]
        assert answer.body == b"".join(lying)
        assert set(answer.ext_fields) == {
            *("suggestWhichBrokerId", "nextBeginOffset", "minOffset", "maxOffset", "topicSysFlag", "groupSysFlag")
        }
        assert answer.ext_fields["suggestWhichBrokerId"] == "0"


async def test_records_of_several_files_come_in_one_answer() -> None:
    async with talk(**SMALL_QUEUES) as (broker, client):
        sent = [b"%d" % number * 200 for number in range(20)]
        for body in sent:
            await client.stores(body)
        answer = await client.pulls()

        assert bodies(answer) == sent
        assert stored(broker)[-1].physical_offset > 4096


async def test_a_pull_returns_at_most_the_requested_number() -> None:
    async with talk() as (_, client):
        await fill(client, *"abcdef")

        assert stands(await client.pulls(1, most=2)) == (ResponseCode.SUCCESS, "FOUND", 3, 0, 6)
        assert bodies(await client.pulls(1, most=2)) == [b"b", b"c"]


async def test_a_pull_returns_at_most_the_requested_bytes_but_at_least_one_message() -> None:
    async with talk() as (_, client):
        for _ in range(5):
            await client.stores(bytes(1000))
        size = pulled(await client.pulls())[0].size

        assert len(bodies(await client.pulls(maxMsgBytes=2 * size))) == 2
        assert len(bodies(await client.pulls(maxMsgBytes=2 * size - 1))) == 1
        assert len(bodies(await client.pulls(maxMsgBytes=1))) == 1


async def test_an_answer_has_the_settings_of_topic_and_group() -> None:
    async with talk() as (broker, client):
        broker.topics.update(TopicConfig(TOPIC, 4, 4, topic_sys_flag=2))
        broker.groups.update(SubscriptionGroupConfig(CONSUMERS, group_sys_flag=1))
        answer = await client.pulls()

        assert (answer.ext_fields["topicSysFlag"], answer.ext_fields["groupSysFlag"]) == ("2", "1")


# What is not there


async def test_a_queue_without_messages_has_none_yet() -> None:
    async with talk() as (_, client):
        await client.stores(queueId=1)
        answer = await client.pulls()

        assert stands(answer) == (ResponseCode.PULL_NOT_FOUND, "NO_MESSAGE_IN_QUEUE", 0, 0, 0)
        assert answer.body is None
        assert stands(await client.pulls(5)) == (ResponseCode.PULL_OFFSET_MOVED, "NO_MESSAGE_IN_QUEUE", 0, 0, 0)


@pytest.mark.parametrize(
    ("offset", "code", "status", "next_offset"),
    [
        (3, ResponseCode.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE", 3),
        (4, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY", 3),
        (99, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY", 3),
        (-1, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_TOO_SMALL", 0),
    ],
)
async def test_a_pull_outside_the_queue_gets_the_offset_to_continue_at(
    offset: int, code: ResponseCode, status: str, next_offset: int
) -> None:
    async with talk() as (_, client):
        await fill(client, *"abc")

        assert stands(await client.pulls(offset)) == (code, status, next_offset, 0, 3)


async def test_a_pull_of_expired_messages_gets_the_minimum_offset() -> None:
    at_any_hour = ";".join(map(str, range(24)))
    async with talk(**SMALL_QUEUES, fileReservedTime=0, deleteWhen=at_any_hour) as (broker, client):
        for _ in range(60):
            await client.stores(bytes(100))
        broker.store.flush()
        broker.service.retention.run()
        begin = broker.store.min_offset(TOPIC, 0)

        assert begin > 0
        assert stands(await client.pulls(0)) == (
            *(ResponseCode.PULL_OFFSET_MOVED, "OFFSET_TOO_SMALL", begin, begin, 60),
        )
        assert stands(await client.pulls(begin))[:2] == (ResponseCode.SUCCESS, "FOUND")


# Filters


async def test_a_pull_that_carries_its_tags_gets_only_those() -> None:
    async with talk() as (_, client):
        await fill(client, "a:red", "b:blue", "c:red", "d", "e:green")

        assert bodies(await client.pulls(tags="red")) == [b"a", b"c"]
        assert bodies(await client.pulls(tags="red || green")) == [b"a", b"c", b"e"]
        assert bodies(await client.pulls(tags="*")) == [b"a", b"b", b"c", b"d", b"e"]
        assert bodies(await client.pulls(tags=None)) == [b"a", b"b", b"c", b"d", b"e"]
        assert stands(await client.pulls(tags="red")) == (ResponseCode.SUCCESS, "FOUND", 5, 0, 5)


async def test_if_no_tag_matches_the_client_continues_behind_what_was_read() -> None:
    async with talk() as (_, client):
        await fill(client, "a:red", "b:blue")

        assert stands(await client.pulls(tags="green")) == (
            *(ResponseCode.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE", 2, 0, 2),
        )


async def test_a_pull_with_an_expression_gets_only_matching_messages() -> None:
    async with talk(enablePropertyFilter="true") as (_, client):
        await fill(client, "a", "bbb", "cc:red", "dddd:red")
        said = {"expressionType": "SQL92"}

        assert bodies(await client.pulls(tags="length > 2", **said)) == [b"bbb", b"dddd"]
        assert bodies(await client.pulls(tags="length < 4 AND TAGS = 'red'", **said)) == [b"cc"]
        answer = await client.pulls(tags="length > 100", **said)
        assert stands(answer) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE", 4, 0, 4)


async def test_a_long_expression_filters_like_a_short_one() -> None:
    async with talk(enablePropertyFilter="true") as (_, client):
        await fill(client, "a", "bbb")
        expression = " OR ".join(f"length = {number}" for number in range(3, 200))

        assert bodies(await client.pulls(tags=expression, expressionType="SQL92")) == [b"bbb"]


async def test_an_expression_is_refused_if_the_broker_does_not_filter_by_properties() -> None:
    async with talk() as (_, client):
        await fill(client, "a")
        carried = await client.pulls(tags="length > 2", expressionType="SQL92")
        await client.subscribes(sql(TOPIC, "length > 2"), group="sql")
        subscribed = await client.pulls(group="sql", **BY_HEARTBEAT)

        for answer in (carried, subscribed):
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert answer.remark == (
                "The broker does not support consumer to filter message by SQL92; enablePropertyFilter=false in "
                "its settings, set enablePropertyFilter=true"
            )


@pytest.mark.parametrize(("kind", "expression"), [("SQL92", "length >"), ("XPATH", "//a")])
async def test_an_expression_that_is_none_is_refused(kind: str, expression: str) -> None:
    async with talk(enablePropertyFilter="true") as (_, client):
        await fill(client, "a")
        answer = await client.pulls(tags=expression, expressionType=kind)

        assert answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
        assert (answer.remark or "").startswith("parse the consumer's subscription failed")


# What the group has subscribed


async def test_a_pull_without_a_subscription_goes_by_the_heartbeat() -> None:
    async with talk() as (_, client):
        await fill(client, "a:red", "b:blue", "c:red")
        await client.subscribes(subscription(TOPIC, "red"))
        assert bodies(await client.pulls(**BY_HEARTBEAT)) == [b"a", b"c"]
        await client.subscribes(subscription(TOPIC, "blue", version=2))
        assert bodies(await client.pulls(**BY_HEARTBEAT)) == [b"b"]
        await client.subscribes(subscription(TOPIC, "*", version=3))
        assert len(bodies(await client.pulls(**BY_HEARTBEAT))) == 3


async def test_a_group_that_subscribed_with_an_expression_gets_matching_messages() -> None:
    async with talk(enablePropertyFilter="true") as (_, client):
        await fill(client, "a", "bbb", "cc")
        await client.subscribes(sql(TOPIC, "length BETWEEN 2 AND 3"))

        assert bodies(await client.pulls(**BY_HEARTBEAT)) == [b"bbb", b"cc"]


async def test_a_group_without_members_has_no_subscription() -> None:
    async with talk() as (_, client):
        await fill(client, "a")
        answer = await client.pulls(**BY_HEARTBEAT)

        assert answer.code == ResponseCode.SUBSCRIPTION_NOT_EXIST
        assert (answer.remark or "").startswith("the consumer's group info not exist")


async def test_a_group_that_subscribed_other_topics_has_no_subscription_of_this_one() -> None:
    async with talk() as (_, client):
        await fill(client, "a")
        await client.subscribes(subscription("other"))
        answer = await client.pulls(**BY_HEARTBEAT)

        assert answer.code == ResponseCode.SUBSCRIPTION_NOT_EXIST
        assert (answer.remark or "").startswith("the consumer's subscription not exist")


async def test_a_pull_whose_subscription_is_newer_than_the_heartbeat_waits_for_it() -> None:
    async with talk() as (_, client):
        await fill(client, "a")
        await client.subscribes(subscription(TOPIC, version=7))
        assert bodies(await client.pulls(subVersion=7, **BY_HEARTBEAT)) == [b"a"]
        answer = await client.pulls(subVersion=8, **BY_HEARTBEAT)

        assert answer.code == ResponseCode.SUBSCRIPTION_NOT_LATEST
        assert answer.remark == "the consumer's subscription not latest"


async def test_a_pull_is_refused_if_the_expression_of_the_heartbeat_does_not_compile() -> None:
    async with talk(enablePropertyFilter="true") as (_, client):
        await fill(client, "a")
        await client.subscribes(sql(TOPIC, "length >"))
        answer = await client.pulls(**BY_HEARTBEAT)

        assert answer.code == ResponseCode.FILTER_DATA_NOT_EXIST
        assert (answer.remark or "").startswith("The broker's consumer filter data is not exist!")


async def test_a_pull_is_refused_if_the_filter_is_older_than_the_subscription() -> None:
    async with talk(enablePropertyFilter="true") as (broker, client):
        await fill(client, "a")
        await client.subscribes(sql(TOPIC, "length > 0", version=5))
        known = broker.filters.find(CONSUMERS, TOPIC)
        assert known is not None
        known.data.client_version = 4
        answer = await client.pulls(**BY_HEARTBEAT)

        assert answer.code == ResponseCode.FILTER_DATA_NOT_LATEST
        assert answer.remark == "The broker's consumer filter data is not latest!"


# What is forbidden


def forbidden(answer: Command) -> tuple[int, str, str | None]:
    return answer.code, answer.ext_fields["forbiddenType"], answer.remark


async def test_a_broker_that_may_not_be_read_says_so() -> None:
    async with talk(brokerPermission=2) as (_, client):
        await fill(client, "a")

        assert forbidden(await client.pulls()) == (
            *(ResponseCode.NO_PERMISSION, "1", f"the broker[{HOST}] pulling message is forbidden"),
        )


async def test_lite_pulls_may_be_forbidden() -> None:
    async with talk(litePullMessageEnable="false") as (_, client):
        await fill(client, "a")

        assert forbidden(await client.pulls(code=RequestCode.LITE_PULL_MESSAGE)) == (
            *(ResponseCode.NO_PERMISSION, "1", f"the broker[{HOST}] for lite pull consumer is forbidden"),
        )
        assert bodies(await client.pulls()) == [b"a"]


async def test_a_group_that_may_not_consume_says_so() -> None:
    async with talk() as (broker, client):
        await fill(client, "a")
        broker.groups.update(SubscriptionGroupConfig(CONSUMERS, consume_enable=False))

        assert forbidden(await client.pulls()) == (
            *(ResponseCode.NO_PERMISSION, "2", f"subscription group no permission, {CONSUMERS}"),
        )


async def test_a_topic_that_may_not_be_read_says_so() -> None:
    async with talk() as (broker, client):
        broker.topics.update(TopicConfig(TOPIC, 4, 4, PERM_WRITE))

        assert forbidden(await client.pulls()) == (
            *(ResponseCode.NO_PERMISSION, "3", f"the topic[{TOPIC}] pulling message is forbidden"),
        )


async def test_a_group_that_may_not_broadcast_says_so() -> None:
    async with talk() as (broker, client):
        await fill(client, "a")
        broker.groups.update(SubscriptionGroupConfig(CONSUMERS, consume_broadcast_enable=False))
        await client.subscribes(message_model=MessageModel.BROADCASTING)
        assert forbidden(await client.pulls(**BY_HEARTBEAT)) == (
            *(ResponseCode.NO_PERMISSION, "4", f"the consumer group[{CONSUMERS}] can not consume by broadcast way"),
        )
        await client.subscribes(message_model=MessageModel.CLUSTERING)
        assert bodies(await client.pulls(**BY_HEARTBEAT)) == [b"a"]


async def test_a_topic_may_be_forbidden_to_a_group() -> None:
    async with talk() as (broker, client):
        await fill(client, "a")
        await client.subscribes()
        broker.groups.set_readable(CONSUMERS, TOPIC, False)
        assert forbidden(await client.pulls(**BY_HEARTBEAT)) == (
            *(ResponseCode.NO_PERMISSION, "5", f"the consumer group[{CONSUMERS}] is forbidden for topic[{TOPIC}]"),
        )
        broker.groups.set_readable(CONSUMERS, TOPIC, True)
        assert bodies(await client.pulls(**BY_HEARTBEAT)) == [b"a"]


async def test_an_unknown_group_is_made_or_refused_as_the_broker_is_set() -> None:
    async with talk() as (broker, client):
        await fill(client, "a")
        await client.pulls(group="new")
        assert "new" in broker.groups.configs
    async with talk(autoCreateSubscriptionGroup="false") as (broker, client):
        await fill(client, "a")
        answer = await client.pulls(group="new")
        assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        assert (answer.remark or "").startswith("subscription group [new] does not exist, ")


async def test_an_unknown_topic_is_refused_and_not_made() -> None:
    async with talk() as (broker, client):
        answer = await client.pulls()

        assert answer.code == ResponseCode.TOPIC_NOT_EXIST
        assert (answer.remark or "").startswith(f"topic[{TOPIC}] not exist, apply first please! ")
        assert TOPIC not in broker.topics.configs


@pytest.mark.parametrize("queue_id", [-1, 4])
async def test_a_queue_that_the_topic_does_not_have_is_refused(queue_id: int) -> None:
    async with talk() as (_, client):
        await fill(client, "a")
        answer = await client.pulls(queue_id=queue_id)

        assert answer.code == ResponseCode.INVALID_PARAMETER
        assert answer.remark == (
            f"queueId[{queue_id}] is illegal, topic:[{TOPIC}] topicConfig.readQueueNums:[4] "
            f"consumer:[/{client.address}]"
        )


async def test_missing_fields_are_answered_with_an_error_and_the_connection_stays() -> None:
    async with talk() as (_, client):
        await fill(client, "a")
        for wrong in ({"queueOffset": None}, {"queueId": "x"}, {"maxMsgNums": ""}):
            assert (await client.pulls(**wrong)).code == ResponseCode.SYSTEM_ERROR
        assert bodies(await client.pulls()) == [b"a"]


# Offsets


async def test_a_pull_with_the_commit_flag_commits_its_offset() -> None:
    async with talk() as (broker, client):
        await fill(client, *"abc")
        await client.pulls(2, sys_flag=PULL_SUBSCRIPTION, commitOffset=1)
        assert broker.offsets.query(CONSUMERS, TOPIC, 0) == -1
        await client.pulls(2, sys_flag=PULL_SUBSCRIPTION | PULL_COMMIT_OFFSET, commitOffset=1)
        assert broker.offsets.query(CONSUMERS, TOPIC, 0) == 1


async def test_a_pull_that_is_refused_commits_nothing() -> None:
    async with talk() as (broker, client):
        await fill(client, "a")
        await client.pulls(sys_flag=PULL_COMMIT_OFFSET, commitOffset=1, tags=None)

        assert broker.offsets.query(CONSUMERS, TOPIC, 0) == -1


async def test_every_pull_notes_where_the_next_one_will_be() -> None:
    async with talk() as (broker, client):
        await fill(client, *"abc")
        for offset, next_offset in ((0, 2), (2, 3), (3, 3), (99, 3)):
            await client.pulls(offset, most=2)
            assert broker.offsets.pull_offset(CONSUMERS, TOPIC, 0) == next_offset


async def test_a_group_whose_offset_was_reset_is_sent_there_once() -> None:
    async with talk() as (broker, client):
        await fill(client, *"abc")
        broker.offsets.reset(CONSUMERS, TOPIC, 0, 1)
        other = await client.pulls(2, group="other")
        moved = await client.pulls(2, sys_flag=PULL_SUBSCRIPTION | PULL_COMMIT_OFFSET, commitOffset=2)
        after = await client.pulls(1)

        assert bodies(other) == [b"c"]
        assert stands(moved) == (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET", 1, 0, 3)
        assert bodies(after) == [b"b", b"c"]
        assert broker.offsets.query(CONSUMERS, TOPIC, 0) == 1


async def test_pulled_messages_are_counted() -> None:
    async with talk() as (broker, client):
        await fill(client, *"abc")
        await client.pulls()
        await client.pulls(3)
        broker.stats.sample_counters()

        found = broker.stats.view("GROUP_GET_NUMS", f"{TOPIC}@{CONSUMERS}")
        assert found is not None
        assert found.stats_minute is not None
        assert found.stats_minute.sum == 3


# Records that cannot be returned


async def test_a_damaged_record_is_never_served() -> None:
    async with talk() as (broker, client):
        await fill(client, "aaaa", "bbbb", "cccc")
        disk, settings = broker.disk, broker.settings
        await client.leave()
        await broker.stop()
        path = f"{settings.store.commit_log_dirs[0]}/{0:020d}"
        at = disk.read(path).index(b"bbbb")
        disk.pwrite(path, at, b"bXbb")
    async with talk(disk=disk, storePathRootDir=settings.store.store_path_root_dir) as (_, client):
        assert bodies(await client.pulls(0)) == [b"aaaa", b"cccc"]
        assert bodies(await client.pulls(1, most=1)) == [b"cccc"]
