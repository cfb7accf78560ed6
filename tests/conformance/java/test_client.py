"""Apache's unmodified Java clients, old and new: producers, pulls and all queries."""

from __future__ import annotations

import hashlib
import random
import re
from typing import TYPE_CHECKING

import pytest

from conformance.java.java_harness import DELAYS_MS, QUEUES, as_stored, eventually, everything_in
from conformance.servers.processes import Serving, serving
from peers.java_client import JavaAdmin, JavaClientError, JavaProducer, Queue, RouteEntry
from peers.java_consumers import JavaPullConsumer, JavaPushConsumer, Offsets

if TYPE_CHECKING:
    from collections.abc import Iterator

    from peers.java_client import JavaClient

pytest_plugins = ["conformance.java.java_fixtures"]

SEND_MESSAGE = 10
MESSAGE_ILLEGAL = 13
NO_PERMISSION = 16
TOPIC_NOT_EXIST = 17
INVALID_PARAMETER = 29
NO_MESSAGE = 208
NO_ROUTE = 10005

COMPRESSION_TYPES = {"LZ4": 0x100, "ZSTD": 0x200, "ZLIB": 0x300}
"""The bits of the stored sysFlag that tell what a body was compressed with."""

LARGEST_BODY = 4 << 20
READ, WRITE = 4, 2


@pytest.fixture(scope="module")
def strict_server(java_server: Serving, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """Servers that create no topics by themselves. They are stopped and killed, too."""
    settings = {"autoCreateTopicEnable": "false", "mappedFileSizeCommitLog": str(16 << 20)}
    with serving(tmp_path_factory.mktemp("strict"), settings) as running:
        yield running


def raw_send(topic: str, *, group: str = "RawGroup", default_topic: str = "TBW102") -> dict[str, str]:
    """The fields of a send that no client would do."""
    return {
        "producerGroup": group,
        "topic": topic,
        "defaultTopic": default_topic,
        "defaultTopicQueueNums": "4",
        "queueId": "0",
        "sysFlag": "0",
        "bornTimestamp": "1700000000000",
        "flag": "0",
        "properties": "",
        "reconsumeTimes": "0",
        "unitMode": "false",
        "batch": "false",
    }


def test_a_missing_topic_is_created_by_the_first_send(
    producer: JavaProducer, puller: JavaPullConsumer, admin: JavaAdmin, java_server: Serving, name: str
) -> None:
    receipt = producer.send(name, "first")
    assert (receipt.status, receipt.queue.topic, receipt.queue.broker) == ("SEND_OK", name, java_server.broker_name)
    assert (receipt.queue_offset, receipt.region_id, receipt.trace_on) == (0, "DefaultRegion", True)
    # The client's own address is part of it, and may be of the longer kind.
    assert re.fullmatch(r"[0-9A-F]{32}|[0-9A-F]{56}", receipt.message_id)
    assert re.fullmatch(r"[0-9A-F]{32}", receipt.offset_id)
    route = eventually(lambda: admin.route(name))
    assert route == [RouteEntry(java_server.broker_name, 4, 4, 6)]
    message = as_stored(puller, receipt)
    assert (message.text, message.message_id, message.offset_id) == ("first", receipt.message_id, receipt.offset_id)
    assert message.store_host == java_server.broker_address


def test_a_created_topic_has_the_requested_queues(
    producer: JavaProducer, puller: JavaPullConsumer, admin: JavaAdmin, java_server: Serving, name: str
) -> None:
    admin.update_topic(name, read_queues=5, write_queues=2)
    assert len(eventually(lambda: puller.queues(name))) == 5
    assert len(eventually(lambda: producer.queues(name))) == 2
    assert admin.route(name) == [RouteEntry(java_server.broker_name, 5, 2, 6)]


def test_messages_arrive_however_they_are_sent(
    producer: JavaProducer, puller: JavaPullConsumer, queues: list[Queue], name: str
) -> None:
    receipts = [producer.send(name, f"{how} {number}", how=how) for how in ("sync", "async") for number in range(8)]
    receipts += [producer.send(name, f"chosen {how}", how=how, queue=queues[3]) for how in ("sync", "async")]
    assert {sent.queue for sent in receipts} == set(queues)
    assert [sent.queue for sent in receipts[-2:]] == [queues[3]] * 2
    for number in range(4):
        producer.send_oneway(name, f"oneway {number}")
    found = everything_in(puller, queues, 22)
    by_id = {message.message_id: message for message in found}
    assert len(by_id) == 22
    assert sorted(message.text or "" for message in found if (message.text or "").startswith("oneway")) == [
        f"oneway {number}" for number in range(4)
    ]
    for sent in receipts:
        message = by_id[sent.message_id]
        assert (message.queue_id, message.queue_offset) == (sent.queue.id, sent.queue_offset)
        assert message.offset_id == sent.offset_id


def test_a_batch_lies_together_in_one_queue(
    producer: JavaProducer, puller: JavaPullConsumer, queues: list[Queue], name: str
) -> None:
    receipt = producer.send_batch(name, [f"item {number}" for number in range(10)], tags="TagB", keys="batch")
    assert receipt.status == "SEND_OK"
    pulled = eventually(lambda: puller.pull(receipt.queue, 0), is_enough=lambda pulled: len(pulled.messages) == 10)
    assert pulled.texts == [f"item {number}" for number in range(10)]
    assert [message.message_id for message in pulled.messages] == receipt.message_id.split(",")
    assert [message.offset_id for message in pulled.messages] == receipt.offset_id.split(",")
    assert {message.properties["TAGS"] for message in pulled.messages} == {"TagB"}


def test_messages_of_one_shard_stay_in_one_queue_in_order(
    producer: JavaProducer, puller: JavaPullConsumer, queues: list[Queue], name: str
) -> None:
    shards = [f"order{number}" for number in range(6)]
    for step in range(4):
        for shard in shards:
            producer.send(name, f"{shard} step {step}", shard=shard, how=("sync", "async")[step % 2])
    found = everything_in(puller, queues, 24)
    for shard in shards:
        mine = [message for message in found if (message.text or "").startswith(shard)]
        assert [message.text for message in mine] == [f"{shard} step {step}" for step in range(4)]
        assert len({message.queue_id for message in mine}) == 1


def test_all_that_a_message_carries_arrives(
    producer: JavaProducer, puller: JavaPullConsumer, queues: list[Queue], name: str
) -> None:
    properties = {"größe": "zwölf", "empty-ish": " x ", "emoji": "😀", "json": '{"a": [1, 2]}'}
    receipt = producer.send(
        name, "schöne Grüße 消息 😀", tags="标签", keys="k1 k2 ключ", flag=-77, properties=properties
    )
    message = as_stored(puller, receipt)
    assert (message.text, message.flag) == ("schöne Grüße 消息 😀", -77)
    expected = {"TAGS": "标签", "KEYS": "k1 k2 ключ", "UNIQ_KEY": receipt.message_id, **properties}
    assert {key: message.properties.get(key) for key in expected} == expected


@pytest.mark.parametrize("kind", COMPRESSION_TYPES)
def test_a_compressed_body_is_stored_as_it_is(
    java: JavaClient, puller: JavaPullConsumer, queues: list[Queue], name: str, kind: str
) -> None:
    body = b"compress me " * 5000
    with JavaProducer(java, name, properties={"rocketmq.message.compressType": kind}) as compressing:
        receipt = compressing.send(name, body)
    message = as_stored(puller, receipt)
    assert (message.body_size, message.body_sha256) == (len(body), hashlib.sha256(body).hexdigest())
    assert message.store_size < len(body) // 10
    assert message.sys_flag & 0x700 == COMPRESSION_TYPES[kind]


def test_a_message_of_three_mebibytes_arrives(
    producer: JavaProducer, puller: JavaPullConsumer, queues: list[Queue], name: str
) -> None:
    body = random.Random(3).randbytes(3 << 20)
    for how in ("sync", "async"):
        receipt = producer.send(name, body, how=how)
        message = as_stored(puller, receipt)
        assert (message.body_size, message.body_sha256) == (len(body), hashlib.sha256(body).hexdigest())


def test_a_delayed_message_arrives_after_its_delay(
    producer: JavaProducer, puller: JavaPullConsumer, queues: list[Queue], name: str
) -> None:
    level = 4
    receipt = producer.send(name, "later", delayLevel=level, tags="TagD", keys="delayed", queue=queues[2])
    assert (receipt.status, receipt.queue) == ("SEND_OK", queues[2])
    (message,) = eventually(lambda: puller.pull(queues[2], 0).messages)
    assert (message.text, message.message_id) == ("later", receipt.message_id)
    expected = {"TAGS": "TagD", "KEYS": "delayed", "DELAY": str(level), "REAL_TOPIC": name, "REAL_QID": "2"}
    assert {key: message.properties.get(key) for key in expected} == expected
    deferred = eventually(lambda: puller.view(name, receipt.offset_id))
    assert deferred.topic == "SCHEDULE_TOPIC_XXXX"
    assert deferred.queue_id == level - 1
    assert message.store_timestamp - deferred.store_timestamp >= DELAYS_MS[level - 1]


def test_the_vip_port_takes_messages_too(
    java: JavaClient, puller: JavaPullConsumer, queues: list[Queue], name: str
) -> None:
    with JavaProducer(java, name, properties={"com.rocketmq.sendMessageWithVIPChannel": "true"}) as vip:
        receipt = vip.send(name, "important")
    assert as_stored(puller, receipt).text == "important"


def test_a_message_that_is_too_large_is_refused(java: JavaClient, queues: list[Queue], name: str) -> None:
    with JavaProducer(java, name, max_message_size=2 * LARGEST_BODY) as producer:
        body = random.Random(4).randbytes(LARGEST_BODY + 1)
        with pytest.raises(JavaClientError) as refused:
            producer.send(name, body)
        assert (refused.value.kind, refused.value.code) == ("MQBrokerException", MESSAGE_ILLEGAL)
        with pytest.raises(JavaClientError) as refused:
            producer.send(name, "small", properties={"large": "p" * 40_000})
        assert (refused.value.kind, refused.value.code) == ("MQBrokerException", MESSAGE_ILLEGAL)
        assert producer.send(name, "small").status == "SEND_OK"


@pytest.mark.parametrize("topic", ["SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "SELF_TEST_TOPIC"])
def test_sends_to_the_brokers_own_topics_are_refused(
    producer: JavaProducer, java_server: Serving, topic: str
) -> None:
    with pytest.raises(JavaClientError, match="forbidden"):
        producer.send(topic, "refused by the client")
    answer = producer.raw(java_server.broker_address, SEND_MESSAGE, raw_send(topic), b"refused by the broker")
    assert (answer.code, answer.remark) == (NO_PERMISSION, f"Sending message to topic[{topic}] is forbidden.")


def test_a_topic_with_a_bad_name_is_refused(producer: JavaProducer, java_server: Serving) -> None:
    for topic in ("bad topic", "bad.topic", "t" * 128):
        with pytest.raises(JavaClientError):
            producer.send(topic, "refused by the client")
        answer = producer.raw(java_server.broker_address, SEND_MESSAGE, raw_send(topic), b"refused by the broker")
        assert (answer.code, answer.remark.startswith("The specified topic")) == (INVALID_PARAMETER, True)


def test_the_permission_of_a_topic_counts(
    producer: JavaProducer, puller: JavaPullConsumer, admin: JavaAdmin, queues: list[Queue], name: str
) -> None:
    producer.send(name, "readable", queue=queues[0])
    admin.update_topic(name, read_queues=QUEUES, write_queues=QUEUES, permission=READ)
    eventually(lambda: admin.route(name), is_enough=lambda route: route[0].permission == READ)
    with pytest.raises(JavaClientError) as refused:
        producer.queues(name)
    assert eventually(lambda: puller.pull(queues[0], 0).texts) == ["readable"]
    admin.update_topic(name, read_queues=QUEUES, write_queues=QUEUES, permission=WRITE)
    with pytest.raises(JavaClientError, match="pulling message is forbidden") as refused:
        puller.pull(queues[0], 0)
    assert refused.value.code == NO_PERMISSION
    assert eventually(lambda: producer.send(name, "writable")).status == "SEND_OK"


def test_an_unknown_topic_is_refused_where_topics_are_not_created_by_themselves(
    java: JavaClient, strict_server: Serving, name: str
) -> None:
    with JavaProducer(java, name, nameserver=strict_server.nameserver) as strict:
        with pytest.raises(JavaClientError, match="No route info of this topic") as refused:
            strict.send(name, "to nowhere")
        assert refused.value.code == NO_ROUTE
        answer = strict.raw(strict_server.broker_address, SEND_MESSAGE, raw_send(name), b"refused")
        assert answer.code == TOPIC_NOT_EXIST
        assert answer.remark.startswith(f"topic[{name}] not exist, apply first please!")


def test_a_pull_answers_by_where_its_offset_lies(
    producer: JavaProducer, puller: JavaPullConsumer, queues: list[Queue], name: str
) -> None:
    filled, empty = queues[0], queues[1]
    for number in range(10):
        producer.send(name, f"message {number}", queue=filled, tags="TagA")
    everything_in(puller, [filled], 10)
    pulled = puller.pull(filled, 0, count=4)
    assert (pulled.status, pulled.next, pulled.min, pulled.max) == ("FOUND", 4, 0, 10)
    assert pulled.texts == [f"message {number}" for number in range(4)]
    assert puller.pull(filled, 7).texts == ["message 7", "message 8", "message 9"]
    outcomes = {
        (queue.id, offset, tags): puller.pull(queue, offset, tags=tags)
        for queue, offset, tags in ((filled, 10, "*"), (filled, 11, "*"), (filled, 999, "*"), (filled, 0, "TagB"))
    } | {(empty.id, offset, "*"): puller.pull(empty, offset) for offset in (0, 5)}
    assert {
        wanted: (pulled.status, pulled.next, pulled.min, pulled.max) for wanted, pulled in outcomes.items()
    } == {
        (filled.id, 10, "*"): ("NO_NEW_MSG", 10, 0, 10),
        (filled.id, 11, "*"): ("OFFSET_ILLEGAL", 10, 0, 10),
        (filled.id, 999, "*"): ("OFFSET_ILLEGAL", 10, 0, 10),
        (filled.id, 0, "TagB"): ("NO_MATCHED_MSG", 10, 0, 10),
        (empty.id, 0, "*"): ("NO_NEW_MSG", 0, 0, 0),
        (empty.id, 5, "*"): ("OFFSET_ILLEGAL", 0, 0, 0),
    }


def test_a_pull_from_a_queue_that_is_not_there_is_refused(puller: JavaPullConsumer, queues: list[Queue]) -> None:
    with pytest.raises(JavaClientError) as refused:
        puller.pull(Queue(queues[0].topic, queues[0].broker, 99), 0)
    assert refused.value.kind == "MQBrokerException"
    assert refused.value.code == INVALID_PARAMETER


def test_a_held_pull_is_woken_by_the_first_matching_message(
    producer: JavaProducer, puller: JavaPullConsumer, queues: list[Queue], name: str
) -> None:
    held = puller.hold(queues[0], 0, tags="TagA")
    producer.send(name, "not for it", queue=queues[0], tags="TagB")
    producer.send(name, "for it", queue=queues[0], tags="TagA")
    pulled = eventually(lambda: puller.held(held))
    assert pulled is not None
    if pulled.status == "NO_MATCHED_MSG":
        # It came between the two, was not held and is to go on behind the first.
        assert pulled.next == 1
        again = puller.hold(queues[0], pulled.next, tags="TagA")
        pulled = eventually(lambda: puller.held(again))
        assert pulled is not None
    assert (pulled.status, pulled.texts, pulled.next) == ("FOUND", ["for it"], 2)


def test_the_bounds_of_a_queue_and_its_times_are_reported(
    producer: JavaProducer, puller: JavaPullConsumer, queues: list[Queue], name: str
) -> None:
    filled, empty = queues[0], queues[1]
    for number in range(5):
        producer.send(name, f"message {number}", queue=filled)
    stored = [message.store_timestamp for message in everything_in(puller, [filled], 5)]
    assert puller.offsets(filled) == Offsets(0, 5, stored[0])
    assert puller.offsets(empty) == Offsets(0, 0, -1)
    assert puller.search(filled, stored[0] - 1000) == 0
    assert puller.search(filled, stored[0]) == 0
    assert puller.search(filled, stored[4]) == stored.index(stored[4])
    assert puller.search(filled, stored[4] + 3_600_000) == 5
    assert puller.search(empty, stored[0]) == 0


def test_a_message_is_found_by_its_id_and_by_its_keys(
    producer: JavaProducer, puller: JavaPullConsumer, queues: list[Queue], name: str
) -> None:
    receipts = [producer.send(name, f"message {number}", keys=f"key{number % 2} all") for number in range(6)]
    assert puller.view(name, receipts[3].offset_id).text == "message 3"
    by_unique_key = eventually(lambda: puller.view(name, receipts[3].message_id))
    assert (by_unique_key.text, by_unique_key.message_id) == ("message 3", receipts[3].message_id)
    found = eventually(lambda: puller.query(name, "key1"), is_enough=lambda found: len(found) == 3)
    assert {message.text for message in found} == {"message 1", "message 3", "message 5"}
    assert len(eventually(lambda: puller.query(name, "all"), is_enough=lambda found: len(found) == 6)) == 6
    assert len(puller.query(name, "all", limit=4)) == 4
    stored = puller.view(name, receipts[0].offset_id).store_timestamp
    for key, end in (("nothing", stored), ("all", stored - 10_000)):
        with pytest.raises(JavaClientError) as refused:
            puller.query(name, key, end=end)
        assert refused.value.code == NO_MESSAGE


def test_a_committed_offset_is_returned_to_the_next_member_of_the_group(
    java: JavaClient, producer: JavaProducer, queues: list[Queue], name: str
) -> None:
    for number in range(3):
        producer.send(name, f"message {number}", queue=queues[0])
    with JavaPullConsumer(java, name) as first:
        before = {queue.id: first.committed(queue) for queue in queues}
        # The group is known to the broker from the consumer's first heartbeat on.
        eventually(lambda: first.commit(queues[0], 2), is_enough=lambda _: True)
    with JavaPullConsumer(java, name) as second:
        assert second.committed(queues[0]) == 2
        assert {queue.id: second.committed(queue) for queue in queues[1:]} == {
            queue.id: before[queue.id] for queue in queues[1:]
        }
    with JavaPullConsumer(java, f"{name}_stranger") as stranger:
        assert stranger.committed(queues[0]) == before[queues[0].id]


def test_a_deleted_topic_is_gone_and_restarts_at_zero(
    producer: JavaProducer, puller: JavaPullConsumer, admin: JavaAdmin, queues: list[Queue], name: str
) -> None:
    producer.send(name, "old", queue=queues[0])
    admin.delete_topic(name)
    with pytest.raises(JavaClientError) as refused:
        admin.route(name)
    assert refused.value.code == TOPIC_NOT_EXIST
    with pytest.raises(JavaClientError):
        puller.pull(queues[0], 0)
    producer.create_topic(name, queues=QUEUES)
    receipt = eventually(lambda: producer.send(name, "new", queue=queues[0]))
    assert receipt.queue_offset == 0
    assert eventually(lambda: puller.pull(queues[0], 0).texts) == ["new"]


def test_messages_and_offsets_survive_a_restart_and_consumers_go_on(
    java: JavaClient, strict_server: Serving, name: str
) -> None:
    at = strict_server.nameserver
    with (
        JavaProducer(java, name, nameserver=at) as producer,
        JavaPullConsumer(java, name, nameserver=at) as puller,
    ):
        admin = JavaAdmin(java, broker=strict_server.broker_address, cluster="DefaultCluster", nameserver=at)
        admin.update_topic(name, read_queues=2, write_queues=2)
        queue, other = eventually(lambda: producer.queues(name))
        receipts = [producer.send(name, f"message {number}", queue=queue, keys="kept") for number in range(6)]
        with JavaPullConsumer(java, f"{name}_g", nameserver=at) as committing:
            eventually(lambda: committing.commit(queue, 4), is_enough=lambda _: True)
        with JavaPushConsumer(java, f"{name}_push", name, nameserver=at) as pushed:
            eventually(pushed.texts, is_enough=lambda texts: len(texts) == 6)
            strict_server.restart()
            eventually(lambda: producer.send(name, "after", queue=other))
            eventually(pushed.texts, is_enough=lambda texts: "after" in texts)
            assert sorted(str(text) for text in pushed.texts()) == ["after", *(f"message {n}" for n in range(6))]
        assert [message.text for message in everything_in(puller, [queue], 6)] == [
            f"message {number}" for number in range(6)
        ]
        assert puller.offsets(queue).max == 6
        assert puller.view(name, receipts[2].offset_id).text == "message 2"
        assert len(puller.query(name, "kept")) == 6
        with JavaPullConsumer(java, f"{name}_g", nameserver=at) as again:
            assert again.committed(queue) == 4
        with JavaPullConsumer(java, f"{name}_push", nameserver=at) as again:
            assert (again.committed(queue), again.committed(other)) == (6, 1)


def test_messages_survive_a_kill(java: JavaClient, strict_server: Serving, name: str) -> None:
    at = strict_server.nameserver
    with (
        JavaProducer(java, name, nameserver=at) as producer,
        JavaPullConsumer(java, name, nameserver=at) as puller,
    ):
        admin = JavaAdmin(java, broker=strict_server.broker_address, cluster="DefaultCluster", nameserver=at)
        admin.update_topic(name, read_queues=1, write_queues=1)
        (queue,) = eventually(lambda: producer.queues(name))
        receipts = [producer.send(name, f"message {number}", keys="kept") for number in range(20)]
        strict_server.kill()
        strict_server.start()
        found = everything_in(puller, [queue], 20)
        assert [message.text for message in found] == [f"message {number}" for number in range(20)]
        assert [message.offset_id for message in found] == [sent.offset_id for sent in receipts]
        assert len(eventually(lambda: puller.query(name, "kept"), is_enough=lambda found: len(found) == 20)) == 20
        assert producer.send(name, "after").queue_offset == 20
