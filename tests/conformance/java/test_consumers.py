"""Apache's unmodified Java clients, old and new: consumers that are given messages, and groups of them."""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

import pytest

from conformance.java.java_harness import DELAYS_MS, eventually, everything_in
from peers.java_client import NEW, JavaClient, JavaClientError, JavaProducer, Queue
from peers.java_consumers import (
    BROADCASTING,
    LAST,
    JavaLitePullConsumer,
    JavaPullConsumer,
    JavaPushConsumer,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from peers.java_client import Message

pytest_plugins = ["conformance.java.java_fixtures"]

SUBSCRIPTION_PARSE_FAILED = 23
FIRST_RETRY_LEVEL = 3


def consumed_all(consumer: JavaPushConsumer, texts: Sequence[str]) -> list[Message]:
    """The deliveries, as soon as they include all of these."""
    return eventually(
        consumer.consumed,
        is_enough=lambda found: set(texts) <= {message.text for message in found},
    )


def polled_from(consumers: Sequence[JavaLitePullConsumer], count: int) -> list[Message]:
    """The messages of the consumers, as soon as there are that many."""
    polled: list[Message] = []

    def poll() -> list[Message]:
        for consumer in consumers:
            polled.extend(consumer.poll(100))
        return polled

    return eventually(poll, is_enough=lambda found: len(found) >= count)


def test_a_push_consumer_gets_every_message_once(
    java: JavaClient, producer: JavaProducer, queues: list[Queue], name: str
) -> None:
    texts = [f"message {number}" for number in range(100)]
    for text in texts[:50]:
        producer.send(name, text)
    with JavaPushConsumer(java, name, name) as consumer:
        for text in texts[50:]:
            producer.send(name, text)
        found = consumed_all(consumer, texts)
    assert Counter(message.text for message in found) == Counter(texts)
    assert {message.queue_id for message in found} == {queue.id for queue in queues}
    assert {message.reconsume_times for message in found} == {0}


def test_a_consumer_goes_on_where_its_group_left_off(
    java: JavaClient, producer: JavaProducer, queues: list[Queue], name: str
) -> None:
    early, late = [f"early {number}" for number in range(10)], [f"late {number}" for number in range(10)]
    for text in early:
        producer.send(name, text)
    with JavaPushConsumer(java, name, name) as consumer:
        consumed_all(consumer, early)
    for text in late:
        producer.send(name, text)
    with JavaPushConsumer(java, name, name) as consumer:
        found = consumed_all(consumer, late)
    assert Counter(message.text for message in found) == Counter(late)


def test_a_new_group_from_the_last_offset_still_gets_what_lies_in_a_young_queue(
    java: JavaClient, producer: JavaProducer, queues: list[Queue], name: str
) -> None:
    producer.send(name, "before")
    with JavaPushConsumer(java, name, name, begin=LAST) as consumer:
        # A client that starts at the end asks for it queue by queue; what comes in between is skipped.
        consumed_all(consumer, ["before"])
        producer.send(name, "after")
        found = consumed_all(consumer, ["before", "after"])
    assert len(found) == 2


def test_an_orderly_consumer_keeps_the_order_of_each_queue_even_where_it_fails(
    java: JavaClient, producer: JavaProducer, queues: list[Queue], name: str
) -> None:
    texts = [f"order {number % 8} step {number // 8}" for number in range(48)]
    for text in texts:
        producer.send(name, text, shard=text.split(" step")[0])
    with JavaPushConsumer(java, name, name, orderly=True, failures=2, failing="order 3 step 2") as consumer:
        found = consumed_all(consumer, texts)
    by_queue = defaultdict(list)
    for message in found:
        by_queue[message.queue_id].append(message)
    assert Counter(message.text for message in found) == Counter([*texts, *["order 3 step 2"] * 2])
    for messages in by_queue.values():
        offsets = [message.queue_offset for message in messages]
        assert offsets == sorted(offsets)
        assert sorted(set(offsets)) == list(range(len(set(offsets))))


def test_every_broadcast_consumer_gets_every_message(
    java: JavaClient, producer: JavaProducer, queues: list[Queue], name: str
) -> None:
    texts = [f"message {number}" for number in range(20)]
    with (
        JavaPushConsumer(java, name, name, model=BROADCASTING) as one,
        JavaPushConsumer(java, name, name, model=BROADCASTING) as two,
    ):
        for text in texts:
            producer.send(name, text)
        for consumer in (one, two):
            assert Counter(message.text for message in consumed_all(consumer, texts)) == Counter(texts)
            assert consumer.queues() == {queue.id for queue in queues}


def test_queues_are_rebalanced_as_consumers_come_and_go(
    notified_java: JavaClient, producer: JavaProducer, queues: list[Queue], name: str
) -> None:
    every = {queue.id for queue in queues}
    with contextlib.ExitStack() as running:
        one = running.enter_context(JavaPushConsumer(notified_java, name, name))
        eventually(one.queues, is_enough=lambda mine: mine == every)
        two = JavaPushConsumer(notified_java, name, name)
        eventually(
            lambda: (one.queues(), two.queues()),
            is_enough=lambda shares: len(shares[0]) == len(shares[1]) == 2 and shares[0] | shares[1] == every,
        )
        texts = [f"message {number}" for number in range(20)]
        for text in texts:
            producer.send(name, text)
        found = eventually(lambda: one.consumed() + two.consumed(), is_enough=lambda found: len(found) >= 20)
        assert {message.text for message in found} == set(texts)
        two.stop()
        eventually(one.queues, is_enough=lambda mine: mine == every)
        for text in texts:
            producer.send(name, f"late {text}")
        consumed_all(one, [f"late {text}" for text in texts])


def test_the_queues_of_a_killed_consumer_go_to_the_others(
    notified_java: JavaClient, other_java: JavaClient, producer: JavaProducer, queues: list[Queue], name: str
) -> None:
    every = {queue.id for queue in queues}
    with JavaPushConsumer(notified_java, name, name) as survivor:
        eventually(survivor.queues, is_enough=lambda mine: mine == every)
        victim = JavaPushConsumer(other_java, name, name)
        eventually(
            lambda: (survivor.queues(), victim.queues()),
            is_enough=lambda shares: len(shares[0]) == len(shares[1]) == 2 and shares[0] | shares[1] == every,
        )
        other_java.kill()
        eventually(survivor.queues, is_enough=lambda mine: mine == every)
        texts = [f"message {number}" for number in range(20)]
        for text in texts:
            producer.send(name, text)
        consumed_all(survivor, texts)


def test_a_failing_message_is_tried_again_ever_later_and_ends_as_a_dead_letter(
    java: JavaClient, producer: JavaProducer, puller: JavaPullConsumer, queues: list[Queue], name: str
) -> None:
    receipt = producer.send(name, "never good", tags="TagF", keys="failing")
    producer.send(name, "good")
    with JavaPushConsumer(java, name, name, failures=99, failing="never good", max_reconsume_times=2) as consumer:
        found = eventually(consumer.consumed, is_enough=lambda found: len(found) >= 4)
        (dead,) = eventually(lambda: everything_in(puller, puller.queues(f"%DLQ%{name}"), 1))
        assert len(consumer.consumed()) == 4
    tries = [message for message in found if message.text == "never good"]
    assert [message.reconsume_times for message in tries] == [0, 1, 2]
    assert {(message.topic, message.message_id) for message in tries} == {(name, receipt.message_id)}
    for number, (before, after) in enumerate(itertools.pairwise(tries)):
        delay = DELAYS_MS[FIRST_RETRY_LEVEL + number - 1]
        assert after.store_timestamp - before.store_timestamp >= delay
        assert after.properties["ORIGIN_MESSAGE_ID"] == receipt.offset_id
    assert (dead.text, dead.message_id, dead.properties["TAGS"]) == ("never good", receipt.message_id, "TagF")
    expected = {"RETRY_TOPIC": name, "ORIGIN_MESSAGE_ID": receipt.offset_id, "KEYS": "failing"}
    assert {key: dead.properties.get(key) for key in expected} == expected
    assert dead.reconsume_times == 3


@pytest.mark.parametrize("how", ["exception", "null"])
def test_a_listener_that_breaks_is_given_the_message_again(
    java: JavaClient, producer: JavaProducer, queues: list[Queue], name: str, how: str
) -> None:
    producer.send(name, "difficult")
    with JavaPushConsumer(java, name, name, failures=1, fail_with=how, delay_level=1) as consumer:
        found = eventually(consumer.consumed, is_enough=lambda found: len(found) >= 2)
    assert [message.reconsume_times for message in found] == [0, 1]


def test_a_message_sent_back_without_delay_is_a_dead_letter_at_once(
    java: JavaClient, producer: JavaProducer, puller: JavaPullConsumer, queues: list[Queue], name: str
) -> None:
    producer.send(name, "hopeless", queue=queues[0])
    with JavaPullConsumer(java, name) as sender:
        sender.send_back(queues[0], 0, delay_level=-1)
    (dead,) = eventually(lambda: everything_in(puller, puller.queues(f"%DLQ%{name}"), 1))
    assert (dead.text, dead.reconsume_times) == ("hopeless", 1)


def test_a_consumer_gets_only_the_tags_of_its_subscription(
    java: JavaClient, producer: JavaProducer, puller: JavaPullConsumer, queues: list[Queue], name: str
) -> None:
    tags = ["TagA", "TagB", "Umläut", "Aa", "BB", None]
    for number, tag in enumerate(tags * 4):
        producer.send(name, f"{tag} {number}", tags=tag)
    # The hashes of Aa and BB are the same, so the broker lets both pass and the client looks again.
    wanted = ["TagA", "Umläut", "Aa"]
    expected = [f"{tag} {number}" for number, tag in enumerate(tags * 4) if tag in wanted]
    with JavaPushConsumer(java, name, name, tags="TagA || Umläut || Aa") as consumer:
        found = consumed_all(consumer, expected)
        producer.send(name, "the last", tags="TagA")
        found = consumed_all(consumer, ["the last"])
    assert Counter(message.text for message in found) == Counter([*expected, "the last"])
    pulled = [text for queue in queues for text in puller.pull(queue, 0, tags="TagB").texts]
    assert sorted(map(str, pulled)) == sorted(f"TagB {number}" for number in range(1, 24, 6))


SQL = "(number BETWEEN 3 AND 8 AND colour IN ('red', 'grün')) OR TAGS = 'Always'"


def test_a_consumer_gets_only_what_its_expression_is_true_for(
    java: JavaClient, producer: JavaProducer, puller: JavaPullConsumer, queues: list[Queue], name: str
) -> None:
    colours = ["red", "grün", "blue"]
    for number in range(12):
        properties = {"number": str(number), "colour": colours[number % 3]}
        producer.send(name, f"message {number}", properties=properties)
    producer.send(name, "tagged", tags="Always")
    expected = [*(f"message {number}" for number in (3, 4, 6, 7)), "tagged"]
    with JavaPushConsumer(java, name, name, sql=SQL) as consumer:
        consumed_all(consumer, expected)
        producer.send(name, "the last", tags="Always")
        found = consumed_all(consumer, ["the last"])
    assert Counter(message.text for message in found) == Counter([*expected, "the last"])
    pulled = [text for queue in queues for text in puller.pull(queue, 0, sql="number > 9").texts]
    assert sorted(map(str, pulled)) == ["message 10", "message 11"]
    with JavaLitePullConsumer(java, f"{name}_lite", name, sql="number < 2") as lite:
        polled = polled_from([lite], 2)
    assert {message.text for message in polled} == {"message 0", "message 1"}


def test_a_wrong_expression_is_refused_when_the_consumer_starts(
    java: JavaClient, queues: list[Queue], name: str
) -> None:
    with pytest.raises(JavaClientError) as refused:
        JavaPushConsumer(java, name, name, sql="number > > 3")
    assert refused.value.code == SUBSCRIPTION_PARSE_FAILED


def test_a_lite_consumer_reads_what_it_is_assigned_from_where_it_seeks(
    java: JavaClient, producer: JavaProducer, queues: list[Queue], name: str
) -> None:
    for number in range(10):
        producer.send(name, f"message {number}", queue=queues[1])
    with JavaLitePullConsumer(java, name) as lite:
        assert lite.queues(name) == queues
        lite.assign([queues[1]])
        # Messages that the client was fetching at the seek may still come first.
        lite.seek(queues[1], 7)
        polled = eventually(lite.poll, is_enough=lambda polled: [m.queue_offset for m in polled] == [7, 8, 9])
        assert [message.text for message in polled] == ["message 7", "message 8", "message 9"]
        lite.seek(queues[1], "begin")
        eventually(lite.poll, is_enough=lambda polled: [m.text for m in polled][:1] == ["message 0"])
        lite.seek(queues[1], "end")
        producer.send(name, "at the end", queue=queues[1])
        eventually(lite.poll, is_enough=lambda polled: [m.text for m in polled] == ["at the end"])
        with pytest.raises(JavaClientError, match="Seek offset illegal"):
            lite.seek(queues[1], 99)
        stored = polled[0].store_timestamp
        assert lite.search(queues[1], stored) <= 7
        lite.commit(queues[1], 5)
    with JavaLitePullConsumer(java, name) as lite:
        lite.assign([queues[1]])
        assert lite.committed(queues[1]) == 5
        assert eventually(lite.poll)[0].text == "message 5"


def test_lite_consumers_of_a_group_share_a_topic(
    java: JavaClient, producer: JavaProducer, queues: list[Queue], name: str
) -> None:
    with (
        JavaLitePullConsumer(java, name, name) as one,
        JavaLitePullConsumer(java, name, name) as two,
    ):
        eventually(
            lambda: (one.assignment(), two.assignment()),
            is_enough=lambda shares: len(shares[0]) == len(shares[1]) == 2 and not set(shares[0]) & set(shares[1]),
        )
        texts = [f"message {number}" for number in range(16)]
        for text in texts:
            producer.send(name, text)
        polled = polled_from([one, two], len(texts))
    assert Counter(message.text for message in polled) == Counter(texts)


def test_a_client_with_binary_headers_is_served_the_same(
    java: JavaClient, other_java: JavaClient, queues: list[Queue], name: str
) -> None:
    sender, reader = JavaProducer(other_java, name), JavaPullConsumer(other_java, f"{name}_pull")
    receipts = [
        sender.send(name, f"message {number}", keys="binary", queue=queues[number % 2]) for number in range(6)
    ]
    sender.send_batch(name, ["batched 0", "batched 1"])
    sender.send(name, "async", how="async")
    texts = [*(f"message {number}" for number in range(6)), "batched 0", "batched 1", "async"]
    assert sorted(str(message.text) for message in everything_in(reader, queues, len(texts))) == sorted(texts)
    assert reader.pull(queues[0], 99).status == "OFFSET_ILLEGAL"
    assert reader.view(name, receipts[0].offset_id).text == "message 0"
    assert len(eventually(lambda: reader.query(name, "binary"), is_enough=lambda found: len(found) == 6)) == 6
    reader.commit(queues[0], 2)
    assert reader.committed(queues[0]) == 2
    binary = JavaPushConsumer(other_java, name, name, failures=1, failing="async", delay_level=1)
    with JavaPushConsumer(java, f"{name}_json", name, orderly=True) as plain:
        consumed_all(plain, texts)
    consumed_all(binary, texts)
    eventually(binary.consumed, is_enough=lambda found: any(message.reconsume_times == 1 for message in found))


def test_short_heartbeats_keep_a_consumer_in_its_group(
    java: JavaClient, producer: JavaProducer, queues: list[Queue], name: str
) -> None:
    if java.version != NEW:
        pytest.skip("only the new client has heartbeats that leave out what has not changed")
    properties = {"com.rocketmq.heartbeat.v2": "true"}
    texts = [f"message {number}" for number in range(8)]
    with JavaPushConsumer(java, name, name, properties=properties) as stays:
        leaves = JavaPushConsumer(java, name, name, properties=properties)
        eventually(
            lambda: (stays.queues(), leaves.queues()),
            is_enough=lambda shares: len(shares[0]) == len(shares[1]) == 2,
        )
        for text in texts:
            producer.send(name, text)
        leaves.stop()
        eventually(stays.queues, is_enough=lambda mine: mine == {queue.id for queue in queues})
        eventually(lambda: stays.texts() + leaves.texts(), is_enough=lambda found: set(texts) <= set(found))
