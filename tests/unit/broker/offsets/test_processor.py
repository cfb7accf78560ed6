"""Offset requests of clients and tools, compared with a real broker's responses."""

from __future__ import annotations

import pytest

from orbitmq.broker.offsets.processor import encode_committed_answer, encode_offset_answer
from orbitmq.protocol.bodies import ConsumerOffsetSerializeWrapper, QueryCorrectionOffsetBody
from orbitmq.protocol.codes import RequestCode, ResponseCode, SerializeType
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.command.fast_decode import decode_header
from orbitmq.protocol.message.batch import encode_batch
from orbitmq.protocol.message.flags import ONEWAY
from orbitmq.store import StoredMessage
from support.broker.client_registry_harness import CONFIG_DIR, GROUP, TOPIC, consumer, heartbeat, subscription
from support.broker.offset_harness import QUERIES, exchanges, offset_broker, take_over_captured_messages
from support.store.stores import send
from support.wire_captures import all_captured

QUERY, UPDATE = RequestCode.QUERY_CONSUMER_OFFSET, RequestCode.UPDATE_CONSUMER_OFFSET
NOT_FOUND = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"


# The answers, byte for byte


def test_every_captured_answer_with_an_offset_is_encoded_as_java_encodes_it() -> None:
    found = [frame for frame in all_captured() if frame.is_response and frame.request_code == QUERY]
    found = [frame for frame in found if frame.code == ResponseCode.SUCCESS]
    assert {frame.is_binary for frame in found} == {True, False}
    for frame in found:
        offset = int(frame.ext_fields["offset"])
        assert encode_offset_answer(frame.is_binary, frame.header["opaque"], offset) == frame.wire, frame


def test_every_captured_answer_to_a_commit_is_encoded_as_java_encodes_it() -> None:
    found = [frame for frame in all_captured() if frame.is_response and frame.request_code == UPDATE]
    found = [frame for frame in found if frame.code == ResponseCode.SUCCESS]
    assert found
    for frame in found:
        assert encode_committed_answer(frame.is_binary, frame.header["opaque"]) == frame.wire, frame


@pytest.mark.parametrize("offset", [0, 9, 10, 2**63 - 1])
@pytest.mark.parametrize("serialize_type", list(SerializeType))
def test_answers_are_the_same_as_any_command_makes(offset: int, serialize_type: SerializeType) -> None:
    request = Command(QUERY, 4711, serialize_type=serialize_type)
    plain = request.response(ResponseCode.SUCCESS, ext_fields={"offset": str(offset)}).encode()
    assert encode_offset_answer(serialize_type, 4711, offset) == plain
    committed = encode_committed_answer(serialize_type, 4711)
    assert decode_header((serialize_type, committed[8:], b"")) == request.response(ResponseCode.SUCCESS).header


# Asking for a group's offset


async def test_a_committed_offset_is_returned() -> None:
    async with offset_broker() as broker:
        broker.offsets.commit(GROUP, TOPIC, 2, 123)
        answer = await broker.ask(QUERY, consumerGroup=GROUP, topic=TOPIC, queueId=2)
        assert (answer.code, answer.ext_fields, answer.remark) == (0, {"offset": "123"}, None)


async def test_a_new_group_of_a_young_queue_begins_at_its_beginning() -> None:
    async with offset_broker() as broker:
        send(broker.store, 3, topic=TOPIC, queue_id=1)
        for set_zero in (None, True):
            answer = await broker.ask(
                QUERY, consumerGroup=GROUP, topic=TOPIC, queueId=1, setZeroIfNotFound=set_zero
            )
            assert (answer.code, answer.ext_fields) == (0, {"offset": "0"})
        refused = await broker.ask(QUERY, consumerGroup=GROUP, topic=TOPIC, queueId=1, setZeroIfNotFound=False)
        assert refused.code == ResponseCode.QUERY_NOT_FOUND
        assert refused.remark == "Not found, do not set to zero, maybe this group boot first"


async def test_nothing_is_found_for_a_queue_that_has_no_first_message() -> None:
    async with offset_broker() as broker:
        broker.add_topic()
        for topic in (TOPIC, "TopicNobodyKnows"):
            answer = await broker.ask(QUERY, consumerGroup=GROUP, topic=topic, queueId=0)
            assert (answer.code, answer.remark, answer.ext_fields) == (22, NOT_FOUND, {})


async def test_nothing_is_found_for_a_queue_whose_first_message_is_not_in_memory_any_more() -> None:
    async with offset_broker({"memory_size": 1000}) as broker:
        send(broker.store, 1, topic=TOPIC)
        assert broker.store.reader.memory_window == 400
        answer = await broker.ask(QUERY, consumerGroup=GROUP, topic=TOPIC, queueId=0)
        assert answer.code == ResponseCode.SUCCESS
        send(broker.store, 1, topic="Other", size=500)
        answer = await broker.ask(QUERY, consumerGroup=GROUP, topic=TOPIC, queueId=0)
        assert (answer.code, answer.remark) == (22, NOT_FOUND)


async def test_a_new_group_of_a_batch_queue_begins_at_its_beginning_too() -> None:
    async with offset_broker({"batch_topics": [TOPIC]}) as broker:
        answer = await broker.ask(QUERY, consumerGroup=GROUP, topic=TOPIC, queueId=0)
        assert answer.code == ResponseCode.QUERY_NOT_FOUND
        broker.store.append_inner_batch(StoredMessage(TOPIC, 0, encode_batch([(0, b"hello", b"")])))
        answer = await broker.ask(QUERY, consumerGroup=GROUP, topic=TOPIC, queueId=0)
        assert (answer.code, answer.ext_fields) == (0, {"offset": "0"})


async def test_a_batch_queue_without_messages_has_the_minimum_minus_one_and_the_maximum_zero() -> None:
    async with offset_broker({"batch_topics": [TOPIC]}) as broker:
        for expected in ("-1", "0"):
            low = await broker.ask(RequestCode.GET_MIN_OFFSET, topic=TOPIC, queueId=0)
            high = await broker.ask(RequestCode.GET_MAX_OFFSET, topic=TOPIC, queueId=0)
            assert (low.code, low.ext_fields["offset"]) == (0, expected)
            assert (high.code, high.ext_fields["offset"]) == (0, "0" if expected == "-1" else "1")
            broker.store.append_inner_batch(StoredMessage(TOPIC, 0, encode_batch([(0, b"hello", b"")])))


async def test_a_plain_queue_without_messages_begins_and_ends_at_zero() -> None:
    async with offset_broker() as broker:
        for code in (RequestCode.GET_MIN_OFFSET, RequestCode.GET_MAX_OFFSET):
            answer = await broker.ask(code, topic=TOPIC, queueId=0)
            assert (answer.code, answer.ext_fields["offset"]) == (0, "0")


# Committing


async def test_a_commit_is_applied_and_answered_unless_it_is_oneway() -> None:
    async with offset_broker() as broker:
        broker.add_topic()
        broker.add_group(GROUP)
        answer = await broker.ask(UPDATE, consumerGroup=GROUP, topic=TOPIC, queueId=1, commitOffset=7)
        assert (answer.code, answer.remark, answer.body) == (0, None, None)
        fields = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "1", "commitOffset": "8"}
        broker.tool.send(Command(UPDATE, 5, flag=ONEWAY, ext_fields=fields).encode())
        answer = await broker.ask(QUERY, consumerGroup=GROUP, topic=TOPIC, queueId=1)
        assert answer.ext_fields == {"offset": "8"}


async def test_the_minus_one_of_node_and_go_is_answered_and_not_kept() -> None:
    async with offset_broker() as broker:
        broker.add_topic()
        broker.add_group(GROUP)
        answer = await broker.ask(UPDATE, consumerGroup=GROUP, topic=TOPIC, queueId=1, commitOffset=-1)
        assert answer.code == ResponseCode.SUCCESS
        assert broker.offsets.topics_of(GROUP) == set()


async def test_odd_commits_and_questions_are_answered_in_the_words_of_a_real_broker() -> None:
    async with offset_broker() as broker:
        broker.add_topic("T_push")
        broker.add_group("CG_err")
        send(broker.store, 2, topic="T_push")
        seen = []
        for request, expected in exchanges("java_json_20_errors", UPDATE, QUERY):
            assert await broker.tool.answer(request.wire) == Command.decode(expected.frame), request
            seen.append((request.code, expected.code))
        assert seen == [(15, 26), (14, 0), (14, 22), (14, 22), (15, 17), (15, 0), (14, 0)]


@pytest.mark.parametrize("queue_id", [-1, 4, 2**31 - 1])
async def test_a_commit_for_a_queue_that_never_was_is_refused(queue_id: int) -> None:
    async with offset_broker() as broker:
        broker.add_topic()
        broker.add_group(GROUP)
        answer = await broker.ask(UPDATE, consumerGroup=GROUP, topic=TOPIC, queueId=queue_id, commitOffset=7)
        assert answer.code == ResponseCode.INVALID_PARAMETER
        assert answer.remark is not None
        assert answer.remark.startswith(f"queueId[{queue_id}] is illegal, topic:[{TOPIC}]")
        assert broker.offsets.topics_of(GROUP) == set()


async def test_a_commit_for_a_queue_that_the_topic_no_longer_has_is_applied() -> None:
    async with offset_broker() as broker:
        broker.add_group(GROUP)
        broker.add_topic(queues=8)
        send(broker.store, topic=TOPIC, queue_id=7)
        broker.offsets.commit(GROUP, TOPIC, 6, 1)
        broker.add_topic(queues=4)
        for queue_id, code in ((7, 0), (6, 0), (5, 29)):
            answer = await broker.ask(UPDATE, consumerGroup=GROUP, topic=TOPIC, queueId=queue_id, commitOffset=1)
            assert answer.code == code


async def test_a_commit_after_a_reset_is_answered_and_not_kept() -> None:
    async with offset_broker() as broker:
        broker.add_topic()
        broker.add_group(GROUP)
        broker.offsets.reset(GROUP, TOPIC, 0, 2)
        answer = await broker.ask(UPDATE, consumerGroup=GROUP, topic=TOPIC, queueId=0, commitOffset=7)
        assert (answer.code, answer.remark) == (0, "Offset has been previously reset")
        assert broker.offsets.query(GROUP, TOPIC, 0) == 2


@pytest.mark.parametrize("missing", ["consumerGroup", "topic", "queueId", "commitOffset"])
async def test_a_commit_that_lacks_something_is_refused_by_name(missing: str) -> None:
    async with offset_broker() as broker:
        fields: dict[str, object] = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0, "commitOffset": 1}
        answer = await broker.ask(UPDATE, **{**fields, missing: None})
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert missing in (answer.remark or "")


# Of a queue


async def test_bounds_and_times_of_queues_equal_those_of_a_real_broker() -> None:
    async with offset_broker() as broker:
        take_over_captured_messages(broker)
        codes = (
            *(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, RequestCode.GET_MAX_OFFSET),
            *(RequestCode.GET_MIN_OFFSET, RequestCode.GET_EARLIEST_MSG_STORETIME),
        )
        count = 0
        for request, expected in exchanges(QUERIES, *codes):
            assert await broker.tool.answer(request.wire) == Command.decode(expected.frame), request
            count += 1
        assert count == 10


async def test_a_time_between_messages_is_the_one_after_it_or_the_one_before() -> None:
    async with offset_broker() as broker:
        start = broker.clock.now_ms()
        for _ in range(3):
            send(broker.store, topic=TOPIC)
            broker.clock.advance(100)
        found = {}
        for boundary in (None, "lower", "UPPER", "upper", "neither"):
            answer = await broker.ask(
                RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
                topic=TOPIC,
                queueId=0,
                timestamp=start + 50,
                boundaryType=boundary,
            )
            found[boundary] = int(answer.ext_fields["offset"])
        assert found == {None: 1, "lower": 1, "UPPER": 0, "upper": 0, "neither": 1}


# Of many groups


@pytest.mark.parametrize("scenario", ["ha", "java_json_20_errors"])
async def test_the_whole_table_equals_that_of_a_real_broker(scenario: str) -> None:
    ((request, expected),) = exchanges(scenario, RequestCode.GET_ALL_CONSUMER_OFFSET)
    async with offset_broker() as broker:
        broker.broker.disk.write(f"{CONFIG_DIR}/consumerOffset.json", expected.frame[2])
        broker.offsets.load()
        answer = await broker.tool.answer(request.wire)
        assert (answer.code, answer.remark, answer.ext_fields) == (0, None, {})
        assert answer.body is not None
        ours = ConsumerOffsetSerializeWrapper.decode(answer.body)
        theirs = ConsumerOffsetSerializeWrapper.decode(expected.frame[2])
        assert list(ours.to_json()) == list(theirs.to_json())
        for offsets in theirs.offset_table.values():
            # What the Go client says of queues it has not read.
            for queue_id in [queue_id for queue_id, offset in offsets.items() if offset < 0]:
                del offsets[queue_id]
        assert ours.offset_table == theirs.offset_table
        assert ours.pull_offset_table == theirs.pull_offset_table
        assert ours.data_version == theirs.data_version
        assert ours.group_topic_map is not None
        assert theirs.group_topic_map is not None
        assert {group: set(topics) for group, topics in ours.group_topic_map.items()} == {
            group: set(topics) for group, topics in theirs.group_topic_map.items()
        }


async def test_corrections_are_the_smallest_offsets_and_forget_nothing() -> None:
    async with offset_broker() as broker:
        for group, first, second in (("CG_a", 5, 9), ("CG_b", 3, 8), ("CG_c", 1, 1)):
            broker.offsets.commit(group, TOPIC, 0, first)
            broker.offsets.commit(group, TOPIC, 1, second)
        broker.offsets.commit("CG_a", TOPIC, 2, 6)

        async def corrections(compare: str, left_out: str | None) -> dict[int, int]:
            body = await broker.body(
                RequestCode.QUERY_CORRECTION_OFFSET, topic=TOPIC, compareGroup=compare, filterGroups=left_out
            )
            return QueryCorrectionOffsetBody.decode(body).correction_offsets

        assert await corrections("CG_a", None) == {0: 1, 1: 1, 2: 6}
        assert await corrections("CG_a", "CG_c,CG_x") == {0: 3, 1: 8, 2: 6}
        assert await corrections("CG_c", "CG_c") == {0: 2**63 - 1, 1: 2**63 - 1, 2: 6}
        assert await corrections("CG_unknown", "CG_b,CG_c") == {0: 5, 1: 9, 2: 6}
        assert broker.offsets.groups_of(TOPIC) == {"CG_a", "CG_b", "CG_c"}


async def test_a_group_is_cloned_durably() -> None:
    async with offset_broker() as broker:
        broker.add_topic()
        broker.offsets.commit("CG_src", TOPIC, 0, 5)
        broker.offsets.commit("CG_src", "TopicGone", 0, 6)
        for topic in (None, TOPIC):
            target = f"CG_{topic}"
            answer = await broker.ask(
                RequestCode.CLONE_GROUP_OFFSET, srcGroup="CG_src", destGroup=target, topic=topic, offline=True
            )
            assert (answer.code, answer.remark, answer.body) == (0, None, None)
            assert broker.offsets.topics_of(target) == {TOPIC}
            file = broker.broker.disk.durable_bytes(f"{CONFIG_DIR}/consumerOffset.json")
            assert file is not None
            assert ConsumerOffsetSerializeWrapper.decode(file).offset_table[f"{TOPIC}@{target}"] == {0: 5}


async def test_topics_that_an_online_group_has_not_subscribed_are_cloned_only_with_the_offline_flag() -> None:
    async with offset_broker() as broker, broker.broker.client() as client:
        broker.add_topic()
        broker.add_topic("TopicB")
        await client.beat(heartbeat("c1", consumer("CG_src", subscription("TopicB"))))
        broker.offsets.commit("CG_src", TOPIC, 0, 5)
        broker.offsets.commit("CG_src", "TopicB", 0, 6)
        for target, offline, topics in (("CG_1", False, {"TopicB"}), ("CG_2", True, {TOPIC, "TopicB"})):
            await broker.ask(RequestCode.CLONE_GROUP_OFFSET, srcGroup="CG_src", destGroup=target, offline=offline)
            assert broker.offsets.topics_of(target) == topics
