"""Requests and replies with the client: every answer finds its question, and what has no answer says so in time."""

from __future__ import annotations

import asyncio
import pickle
from typing import TYPE_CHECKING

import pytest

import orbitmq as omq
from orbitmq import Message
from orbitmq.aio import (
    CannotReplyError,
    Consumer,
    InvalidMessageError,
    NotRunningError,
    Producer,
    RequestTimeoutError,
    SendError,
    create_reply,
)
from orbitmq.client.errors import TooManySendsError
from orbitmq.client.producer import request_reply
from orbitmq.protocol.bodies import TopicConfig
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command.command import Command
from orbitmq.remoting import CallTimeoutError
from orbitmq.testing import LocalCluster
from support.client.cluster_harness import nothing_left, nothing_left_on_loop
from support.client.producer_harness import peer_brokers
from support.remoting_harness import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from orbitmq.aio import ReceivedMessage

TOPIC = "questions"


@pytest.fixture
async def cluster() -> AsyncIterator[LocalCluster]:
    async with LocalCluster() as running:
        yield running


def replier(name_server: str, producer: Producer, seen: list[ReceivedMessage] | None = None) -> Consumer:
    """A consumer that answers everything by repeating it in capitals."""
    consumer = Consumer(name_server, group="answering", consume_from_where="CONSUME_FROM_FIRST_OFFSET")

    @consumer.on(TOPIC)
    async def answer(message: ReceivedMessage) -> None:
        if seen is not None:
            seen.append(message)
        await producer.reply_to(message, message.body.upper())

    return consumer


async def test_a_request_is_answered(cluster: LocalCluster) -> None:
    seen: list[ReceivedMessage] = []
    async with Producer(cluster.name_server, group="asking") as asking, Producer(cluster.name_server) as answering:
        async with replier(cluster.name_server, answering, seen):
            message = Message(TOPIC, b"how are you?", tags="polite", keys="k1", properties={"mood": "good"})
            reply = await asking.request(message, timeout=10)
        (request,) = seen
        assert (request.tags, request.keys, request.properties["mood"]) == ("polite", ["k1"], "good")
        assert request.properties["TTL"] == "10000"
        assert reply.body == b"HOW ARE YOU?"
        assert reply.properties["CORRELATION_ID"] == request.properties["CORRELATION_ID"]
        assert reply.properties["MSG_TYPE"] == "reply"
        assert int(reply.properties["PUSH_REPLY_TIME"]) <= int(reply.properties["ARRIVE_TIME"])
        assert "CORRELATION_ID" not in message.properties, "the application's message is its own"
        assert [kept.body for kept in cluster.messages("DefaultCluster_REPLY_TOPIC")] == [b"HOW ARE YOU?"]


async def test_many_requests_at_a_time_get_each_their_own_answer(cluster: LocalCluster) -> None:
    async with Producer(cluster.name_server, group="asking") as asking, Producer(cluster.name_server) as answering:
        async with replier(cluster.name_server, answering):
            questions = [f"question {number}" for number in range(200)]
            replies = await asyncio.gather(
                *(asking.request(Message(TOPIC, text), timeout=30) for text in questions)
            )
        assert [reply.text() for reply in replies] == [text.upper() for text in questions]
        assert len(asking._instance.replies) == 0


async def test_a_long_answer_arrives_as_it_was(cluster: LocalCluster) -> None:
    body = b"All work and no play. " * 5000
    async with Producer(cluster.name_server, group="asking") as asking, Producer(cluster.name_server) as answering:
        async with replier(cluster.name_server, answering):
            reply = await asking.request(Message(TOPIC, body), timeout=10)
        assert reply.record.sys_flag & 1, "it was compressed on the way"
        assert reply.body == body.upper()


async def test_a_request_that_nobody_answers_ends_in_time(cluster: LocalCluster) -> None:
    async with Producer(cluster.name_server, group="asking") as asking:
        with pytest.raises(RequestTimeoutError, match=r"no reply arrived within 0\.2 s") as raised:
            await asking.request(Message(TOPIC, b"?"), timeout=0.2)
        assert isinstance(raised.value, TimeoutError)
        assert raised.value.code == 10006
        assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)
        assert len(asking._instance.replies) == 0
        assert len(cluster.messages(TOPIC)) == 1


async def test_an_answer_that_comes_too_late_is_dropped(cluster: LocalCluster) -> None:
    async with Producer(cluster.name_server, group="asking") as asking, Producer(cluster.name_server) as answering:
        with pytest.raises(RequestTimeoutError):
            await asking.request(Message(TOPIC, b"?"), timeout=0.05)
        (request,) = cluster.messages(TOPIC)
        receipt = await answering.reply_to(request, b"sorry, I was busy")
        assert receipt.queue.topic == "DefaultCluster_REPLY_TOPIC"


async def test_an_answer_to_a_client_that_is_gone_is_refused(cluster: LocalCluster) -> None:
    async with Producer(cluster.name_server, group="asking") as asking:
        with pytest.raises(RequestTimeoutError):
            await asking.request(Message(TOPIC, b"?"), timeout=1.0)
    (request,) = cluster.messages(TOPIC)
    async with Producer(cluster.name_server) as answering:
        with pytest.raises(SendError, match=r"channel of .* not found"):
            await answering.reply_to(request, b"hello?")


async def test_the_answer_may_go_to_another_broker_than_the_question() -> None:
    async with LocalCluster(brokers=3) as cluster:
        cluster.broker("broker-a").topics.update(TopicConfig(TOPIC, 1, 1))
        async with Producer(cluster.name_server, group="asking") as asking, Producer(cluster.name_server) as other:
            consumer = Consumer(
                cluster.name_server, group="answering", consume_from_where="CONSUME_FROM_FIRST_OFFSET"
            )

            @consumer.on(TOPIC)
            async def answer(message: ReceivedMessage) -> None:
                # As Java's clients do: to any queue of the topic for replies.
                queues = await other.queues(create_reply(message, b"x").topic)
                (elsewhere, *_) = [queue for queue in queues if queue.broker_name != message.broker_name]
                await other.send(create_reply(message, b"from afar"), queue=elsewhere)

            async with consumer:
                reply = await asking.request(Message(TOPIC, b"?"), timeout=10)
            assert reply.body == b"from afar"


async def test_only_requests_can_be_answered(cluster: LocalCluster) -> None:
    async with Producer(cluster.name_server) as producer:
        await producer.send(Message(TOPIC, b"no question"))
        (message,) = cluster.messages(TOPIC)
        with pytest.raises(CannotReplyError, match="not a request") as raised:
            await producer.reply_to(message, b"answer")
        assert raised.value.code == 10007
        message.properties.pop("CLUSTER")
        with pytest.raises(CannotReplyError, match="CLUSTER"):
            create_reply(message, b"answer")


async def test_what_cannot_be_asked_is_refused_before_it_is_sent(cluster: LocalCluster) -> None:
    async with Producer(cluster.name_server, group="asking") as asking:
        with pytest.raises(InvalidMessageError, match="more than 0"):
            await asking.request(Message(TOPIC, b"?"), timeout=0)
        with pytest.raises(InvalidMessageError, match="at once"):
            await asking.request(Message(TOPIC, b"?", delay_level=3))
        with pytest.raises(InvalidMessageError, match="empty"):
            await asking.request(Message(TOPIC, b""))
        assert cluster.messages(TOPIC) == []
    with pytest.raises(NotRunningError):
        await asking.request(Message(TOPIC, b"?"))


async def test_so_many_requests_may_wait_and_no_more(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_reply, "MAX_WAITING", 2)
    async with Producer(cluster.name_server, group="asking") as asking:
        waiting = [asyncio.create_task(asking.request(Message(TOPIC, b"?"), timeout=0.5)) for _ in range(2)]
        await eventually(lambda: len(asking._instance.replies) == 2)
        with pytest.raises(TooManySendsError, match="2 requests are waiting"):
            await asking.request(Message(TOPIC, b"?"), timeout=5)
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(result) for result in results] == [RequestTimeoutError, RequestTimeoutError]


async def test_a_cancelled_request_leaves_nothing() -> None:
    async with (
        nothing_left_on_loop(),
        LocalCluster() as cluster,
        Producer(cluster.name_server, group="asking") as asking,
    ):
        task = asyncio.create_task(asking.request(Message(TOPIC, b"?"), timeout=60))
        await eventually(lambda: len(asking._instance.replies) == 1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert len(asking._instance.replies) == 0


async def test_a_reply_that_cannot_be_read_is_refused_to_the_broker() -> None:
    async with peer_brokers("broker-a") as peers, Producer(peers.name_server, group="asking") as asking:
        instance = asking._instance
        await instance.call(peers.brokers[0].address, Command(RequestCode.HEART_BEAT))
        (connection,) = peers.brokers[0].server.connections
        fields = dict.fromkeys(
            ("defaultTopicQueueNums", "queueId", "bornTimestamp", "flag", "storeTimestamp", "reconsumeTimes"), "0"
        )
        fields |= {"producerGroup": "p", "topic": "r", "defaultTopic": "d", "bornHost": "/127.0.0.1:1"}
        fields |= {"storeHost": "?", "sysFlag": "1", "properties": "CORRELATION_ID\x01c\x02"}
        pushed = Command(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, ext_fields=fields, body=b"not compressed")
        answer = await connection.call(pushed, 5)
        assert (answer.code, answer.remark) == (1, "process reply message fail")
        fields["sysFlag"] = "0"
        pushed = Command(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, ext_fields=fields, body=b"nobody asked")
        try:
            answer = await connection.call(pushed, 5)
        except CallTimeoutError:
            pytest.fail("the client does not answer")
        assert answer.code == 0


def test_plain_code_asks_and_answers() -> None:
    with (
        nothing_left(),
        LocalCluster() as cluster,
        omq.Producer(cluster.name_server, group="asking") as asking,
        omq.Producer(cluster.name_server) as answering,
    ):
        consumer = omq.Consumer(
            cluster.name_server, group="answering", consume_from_where="CONSUME_FROM_FIRST_OFFSET"
        )

        @consumer.on(TOPIC)
        def answer(message: omq.ReceivedMessage) -> None:
            answering.reply_to(message, f"{message.text()}? 42")

        with consumer:
            reply = asking.request(Message(TOPIC, "life"), timeout=10)
            future = asking.request_async(Message(TOPIC, "the universe"), timeout=10)
            assert (reply.text(), future.result().text()) == ("life? 42", "the universe? 42")
        with pytest.raises(omq.RequestTimeoutError):
            asking.request(Message(TOPIC, "everything"), timeout=0.1)
