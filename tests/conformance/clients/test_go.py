"""Apache's Go client, unmodified, sends and consumes as it does with Apache's servers."""

from __future__ import annotations

import dataclasses
import random
import re
import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from conformance.servers.processes import against_apache, serving
from peers import apache
from peers.agent import Outgoing, RefusedError
from peers.frames import ask
from peers.go_client import FOUND, OFFSET_ILLEGAL, GoClient, available

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from conformance.servers.processes import Serving
    from peers.agent import Received

QUERY_CONSUMER_OFFSET = 14
READ, WRITE = 4, 2
SENT = 0
PATIENCE = 60


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if reason := available() or (against_apache() and apache.available()):
        pytest.skip(reason)
    return tmp_path_factory.mktemp("go-client")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Serving]:
    with serving(folder / "server", {"enablePropertyFilter": "true"}) as running:
        yield running


@pytest.fixture(scope="module")
def go(server: Serving, folder: Path) -> Iterator[GoClient]:
    with GoClient(home=folder / "client", nameserver=server.nameserver) as client:
        yield client


@pytest.fixture(scope="module")
def producer(go: GoClient) -> str:
    return go.producer("Producer")


@pytest.fixture
def new_topic(go: GoClient, server: Serving) -> Callable[..., str]:
    """Creates a topic that has a route."""

    def create(topic: str, *, queues: int = 4, perm: int = READ | WRITE) -> str:
        go.create_topic(topic, broker=server.broker_address, queues=queues, perm=perm)
        _wait_for(lambda: topic in go.topics())
        return topic

    return create


def test_a_topic_is_created_found_and_deleted(go: GoClient, server: Serving, new_topic: Callable[..., str]) -> None:
    topic = new_topic("GoAdmin", queues=3)
    assert go.publish_queues(topic) == {(server.broker_name, queue) for queue in range(3)}
    go.delete_topic(topic, broker=server.broker_address)
    assert topic not in go.topics()


def test_a_topic_nobody_created_is_created_by_the_first_send(go: GoClient, server: Serving, producer: str) -> None:
    (told,) = go.send(producer, [Outgoing(topic="GoAuto", body=b"first")])
    assert (told.status, told.broker, told.queue_offset) == (SENT, server.broker_name, 0)
    assert re.fullmatch(r"[0-9A-F]{32}", told.offset_id)
    _wait_for(lambda: "GoAuto" in go.topics())
    assert go.publish_queues("GoAuto") == {(server.broker_name, queue) for queue in range(4)}
    go.consumer("AutoConsumer", "GoAuto", group="GoAutoGroup")
    (message,) = go.take("AutoConsumer", 1)
    assert (message.body, message.message_id, message.offset_id) == (b"first", told.message_id, told.offset_id)
    assert message.store_host == server.broker_address
    assert "GoAutoGroup" in go.groups(server.broker_address)
    go.close("AutoConsumer")


@pytest.mark.parametrize("mode", ["sync", "async", "oneway"])
def test_what_is_sent_is_consumed_once(
    go: GoClient, producer: str, new_topic: Callable[..., str], mode: str
) -> None:
    topic = new_topic(f"GoSend_{mode}")
    bodies = [f"{mode} {number}".encode() for number in range(50)]
    sent = go.send(producer, [Outgoing(topic=topic, body=body, keys=[str(body)]) for body in bodies], mode=mode)
    name = go.consumer(f"Consumer_{mode}", topic, group=f"GoSend_{mode}_Group")
    received = go.take(name, len(bodies))
    assert sorted(message.body for message in received) == sorted(bodies)
    if mode == "oneway":
        assert sent == []
    else:
        places = {(told.message_id, told.queue_id, told.queue_offset, told.offset_id) for told in sent}
        assert {_place(message) for message in received} == places
        assert Counter(told.queue_id for told in sent).keys() == {0, 1, 2, 3}
    go.close(name)


def test_a_batch_is_stored_as_single_messages_of_one_queue(
    go: GoClient, producer: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic("GoBatch")
    numbers = [str(number) for number in range(8)]
    batch = [Outgoing(topic=topic, body=n.encode(), tag="B", properties={"n": n}) for n in numbers]
    (told,) = go.send(producer, batch, batch=True)
    assert (told.status, told.queue_offset) == (SENT, 0)
    assert told.offset_id.count(",") == len(batch) - 1
    name = go.consumer("BatchConsumer", topic, group="GoBatchGroup", expression="B")
    received = sorted(go.take(name, len(batch)), key=lambda message: message.queue_offset)
    assert [message.body for message in received] == [message.body for message in batch]
    assert [message.queue_offset for message in received] == list(range(len(batch)))
    assert {message.queue_id for message in received} == {told.queue_id}
    assert [message.properties["n"] for message in received] == numbers
    assert [message.offset_id for message in received] == told.offset_id.split(",")
    go.close(name)


def test_messages_of_a_sharding_key_are_consumed_in_the_order_they_were_sent(
    go: GoClient, new_topic: Callable[..., str]
) -> None:
    topic = new_topic("GoOrder")
    go.producer("OrderProducer", selector="hash")
    messages = [
        Outgoing(topic=topic, body=f"{key}:{step}".encode(), sharding=key)
        for step in range(20)
        for key in ("red", "green", "blue", "white")
    ]
    sent = go.send("OrderProducer", messages)
    queues = defaultdict(set)
    for message, told in zip(messages, sent, strict=True):
        queues[message.sharding].add(told.queue_id)
    assert all(len(ids) == 1 for ids in queues.values())
    # Green is refused once on its way: what comes after it in the same queue has to wait.
    name = go.consumer("OrderConsumer", topic, group="GoOrderGroup", orderly=True, failures={"green:3": 1})
    received = go.take(name, len(messages) + 1)
    steps = defaultdict(list)
    for given in received:
        key, _, step = given.body.decode().partition(":")
        steps[key].append(int(step))
    straight = list(range(20))
    assert steps["red"] == steps["blue"] == steps["white"] == straight
    assert steps["green"] == [*straight[:4], *straight[3:]]
    go.close(name)
    go.close("OrderProducer")


@pytest.mark.parametrize(
    ("what", "body"),
    [
        ("compressed", b"again and again " * 4000),
        ("three_mebibytes", random.Random(3).randbytes(3 << 20)),
        ("empty_text", b" "),
        ("binary", bytes(range(256))),
    ],
)
def test_a_body_arrives_as_it_was_sent(
    go: GoClient, producer: str, new_topic: Callable[..., str], what: str, body: bytes
) -> None:
    topic = new_topic(f"GoBody_{what}", queues=1)
    go.send(producer, [Outgoing(topic=topic, body=body, keys=["k1", "k2"], properties={"ключ": "значение"})])
    name = go.consumer(f"BodyConsumer_{what}", topic, group=f"GoBody_{what}_Group")
    (message,) = go.take(name, 1)
    assert message.body == body
    assert message.keys == "k1 k2"
    assert message.properties["ключ"] == "значение"
    go.close(name)


def test_a_message_that_is_too_large_is_refused(go: GoClient, producer: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic("GoTooLarge")
    body = random.Random(5).randbytes((4 << 20) + 100_000)
    with pytest.raises(RefusedError, match="CODE: 13, DESC: the message is illegal"):
        go.send(producer, [Outgoing(topic=topic, body=body)])


def test_a_topic_without_the_right_to_write_has_no_queue_to_send_to(
    go: GoClient, producer: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic("GoReadOnly", perm=READ)
    with pytest.raises(RefusedError, match=f"topic={topic} route info not found"):
        go.send(producer, [Outgoing(topic=topic, body=b"in")])


def test_a_topic_without_the_right_to_read_refuses_pulls(
    go: GoClient, producer: str, new_topic: Callable[..., str], server: Serving
) -> None:
    topic = new_topic("GoWriteOnly")
    go.send(producer, [Outgoing(topic=topic, body=b"in")])
    go.puller("ForbiddenPuller", topic, group="GoWriteOnlyGroup")
    new_topic(topic, perm=WRITE)
    with pytest.raises(RefusedError, match=rf"Code: 16, remark: the topic\[{topic}\] pulling message is forbidden"):
        go.pull_from("ForbiddenPuller", broker=server.broker_name, queue=0, offset=0)
    go.close("ForbiddenPuller")


def test_a_delayed_message_comes_after_its_delay(
    go: GoClient, producer: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic("GoDelay", queues=1)
    go.send(producer, [Outgoing(topic=topic, body=b"later", delay=1), Outgoing(topic=topic, body=b"now")])
    name = go.consumer("DelayConsumer", topic, group="GoDelayGroup")
    assert [message.body for message in go.take(name, 2)] == [b"now", b"later"]
    go.close(name)


@pytest.mark.parametrize(
    ("kind", "expression", "expected"),
    [
        ("TAG", "red || blue", {b"red 1", b"red 7", b"blue 1", b"blue 7"}),
        ("SQL92", "size > 5 AND TAGS <> 'blue'", {b"red 7", b"green 7"}),
        ("SQL92", "size BETWEEN 0 AND 3 AND missing IS NULL", {b"red 1", b"green 1", b"blue 1"}),
    ],
)
def test_a_consumer_gets_what_its_filter_lets_through(
    go: GoClient, producer: str, new_topic: Callable[..., str], kind: str, expression: str, expected: set[bytes]
) -> None:
    digest = sum(map(ord, expression))
    topic = new_topic(f"GoFilter{digest}", queues=2)
    messages = [
        Outgoing(topic=topic, body=f"{tag} {size}".encode(), tag=tag, properties={"size": str(size)})
        for tag in ("red", "green", "blue")
        for size in (1, 7)
    ]
    name = go.consumer(
        f"FilterConsumer{digest}", topic, group=f"GoFilter{digest}Group", type=kind, expression=expression
    )
    go.send(producer, messages)
    assert {message.body for message in go.take(name, len(expected))} == expected
    assert go.take(name, 1, seconds=0.5) == []
    go.close(name)


def test_two_members_share_the_queues_and_one_that_leaves_hands_over(
    go: GoClient, producer: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic("GoMembers", queues=4)
    go.consumer("MemberA", topic, group="GoMembersGroup")
    go.consumer("MemberB", topic, group="GoMembersGroup")
    seen: Counter[bytes] = Counter()
    sent = 0

    def shares(*members: str) -> list[set[int]]:
        """Send to every queue, and tell from which of them each member is given messages."""
        nonlocal sent
        batch = [Outgoing(topic=topic, body=f"number {sent + number}".encode()) for number in range(8)]
        sent += len(go.send(producer, batch))
        queues: dict[str, set[int]] = {member: set() for member in members}
        deadline = time.monotonic() + PATIENCE
        while len(seen) < sent and time.monotonic() < deadline:
            for member in members:
                for message in go.take(member, 1, seconds=0.05):
                    queues[member].add(message.queue_id)
                    seen[message.body] += 1
        return list(queues.values())

    # While queues change hands a member may see some of another, so this is repeated until it has settled.
    _wait_for(lambda: sorted(map(sorted, shares("MemberA", "MemberB"))) == [[0, 1], [2, 3]])
    go.close("MemberB")
    _wait_for(lambda: shares("MemberA") == [{0, 1, 2, 3}])
    assert len(seen) == sent
    go.close("MemberA")


def test_every_broadcast_consumer_gets_everything(
    go: GoClient, producer: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic("GoBroadcast")
    names = [
        go.consumer(f"Broadcast{letter}", topic, group="GoBroadcastGroup", model="broadcast") for letter in "AB"
    ]
    bodies = [f"to all {number}".encode() for number in range(12)]
    go.send(producer, [Outgoing(topic=topic, body=body) for body in bodies])
    for name in names:
        assert sorted(message.body for message in go.take(name, len(bodies))) == sorted(bodies)
        go.close(name)


def test_a_refused_message_is_retried_and_at_last_laid_aside(
    go: GoClient, producer: str, new_topic: Callable[..., str], server: Serving
) -> None:
    topic, group = new_topic("GoRetry"), "GoRetryGroup"
    # The first start makes the retry topic; a client only looks for its route when it starts, or after 30 s.
    go.close(go.consumer("RetryScout", topic, group=group))
    _wait_for(lambda: f"%RETRY%{group}" in go.topics())
    name = go.consumer("RetryConsumer", topic, group=group, failures={"once": 1, "always": 99}, maxTimes=2)
    first = go.send(
        producer, [Outgoing(topic=topic, body=body, tag="T") for body in (b"once", b"always", b"never")]
    )
    received = go.take(name, 6)
    times = defaultdict(list)
    for message in received:
        assert message.topic == topic
        times[message.body].append(message.reconsume_times)
    assert times == {b"never": [0], b"once": [0, 1], b"always": [0, 1, 2]}
    retried = next(message for message in received if message.reconsume_times == 2)
    assert retried.properties["RETRY_TOPIC"] == topic
    assert retried.properties["ORIGIN_MESSAGE_ID"] in {told.offset_id for told in first}
    assert retried.tag == "T"
    dead = f"%DLQ%{group}"
    _wait_for(lambda: dead in go.topics())
    go.puller("DeadLetters", dead, group="GoDeadLettersGroup")
    found = go.pull_from("DeadLetters", broker=server.broker_name, queue=0, offset=0)
    assert [(message.body, message.reconsume_times) for message in found.messages] == [(b"always", 3)]
    go.close(name)
    go.close("DeadLetters")


def test_a_pull_consumer_reads_where_it_points(
    go: GoClient, new_topic: Callable[..., str], server: Serving, tmp_path: Path
) -> None:
    topic = new_topic("GoPull", queues=2)
    go.producer("PullProducer", selector="manual")
    here = Outgoing(topic=topic, body=b"", queue=1, broker=server.broker_name)
    go.send("PullProducer", [dataclasses.replace(here, body=b"%d" % number) for number in range(10)])
    go.puller("Puller", topic, group="GoPullGroup")
    found = go.pull_from("Puller", broker=server.broker_name, queue=1, offset=3, count=4)
    assert (found.status, found.next_begin, found.minimum, found.maximum) == (FOUND, 7, 0, 10)
    assert [message.body for message in found.messages] == [b"3", b"4", b"5", b"6"]
    beyond = go.pull_from("Puller", broker=server.broker_name, queue=1, offset=1000)
    assert (beyond.status, beyond.next_begin) == (OFFSET_ILLEGAL, 10)
    # A pull at the end of a queue is answered by the message that comes next.
    with ThreadPoolExecutor(1) as elsewhere:
        later = elsewhere.submit(go.pull_from, "Puller", broker=server.broker_name, queue=1, offset=10)
        with GoClient(home=tmp_path, nameserver=server.nameserver) as second:
            second.producer("Waker", selector="manual")
            second.send("Waker", [dataclasses.replace(here, body=b"awake")])
        woken = later.result()
    assert (woken.status, [message.body for message in woken.messages]) == (FOUND, [b"awake"])
    go.close("Puller")
    go.close("PullProducer")


def test_a_group_goes_on_where_its_last_consumer_stopped(
    go: GoClient, producer: str, new_topic: Callable[..., str], server: Serving
) -> None:
    topic, group = new_topic("GoOffsets", queues=1), "GoOffsetsGroup"
    go.send(producer, [Outgoing(topic=topic, body=b"%d" % number) for number in range(10)])
    go.puller("First", topic, group=group)
    question = {"consumerGroup": group, "topic": topic, "queueId": "0"}

    def stored() -> bool:
        # A consumer stores the offsets of the queues it was given, and that takes it a moment.
        go.commit("First", broker=server.broker_name, queue=0, offset=6)
        return ask(server.broker_address, QUERY_CONSUMER_OFFSET, question).fields["offset"] == "6"

    _wait_for(stored)
    go.close("First")
    go.puller("Second", topic, group=group)
    assert go.committed("Second", broker=server.broker_name, queue=0) == 6
    go.close("Second")


# The last one: it restarts the server.


def test_offsets_survive_a_restart_of_the_broker(
    go: GoClient, producer: str, new_topic: Callable[..., str], server: Serving
) -> None:
    topic, group = new_topic("GoRestart"), "GoRestartGroup"
    before = [f"before {number}".encode() for number in range(20)]
    go.send(producer, [Outgoing(topic=topic, body=body) for body in before])
    go.consumer("BeforeRestart", topic, group=group)
    assert sorted(message.body for message in go.take("BeforeRestart", len(before))) == sorted(before)
    go.close("BeforeRestart")
    server.stop()
    server.start()
    after = [f"after {number}".encode() for number in range(20)]
    _wait_for(lambda: bool(go.publish_queues(topic)))
    _send_when_reachable(go, producer, [Outgoing(topic=topic, body=body) for body in after])
    go.consumer("AfterRestart", topic, group=group)
    assert sorted(message.body for message in go.take("AfterRestart", len(after))) == sorted(after)
    assert go.take("AfterRestart", 1, seconds=0.5) == []
    go.close("AfterRestart")


def _send_when_reachable(go: GoClient, producer: str, messages: list[Outgoing]) -> None:
    """A client that lost its connection notices with the next send, which fails; the one after it connects anew."""

    def reached() -> bool:
        try:
            go.send(producer, messages[:1])
        except RefusedError:
            return False
        return True

    _wait_for(reached)
    go.send(producer, messages[1:])


def _place(message: Received) -> tuple[str, int, int, str]:
    return message.message_id, message.queue_id, message.queue_offset, message.offset_id


def _wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "what was waited for did not come"
        time.sleep(0.05)
