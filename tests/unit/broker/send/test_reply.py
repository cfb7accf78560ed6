"""Replies through a broker: to the requesting client, and into the log."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from orbitmq.broker.send import reply as replies
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.message.compression import Compression, compress, compressed_flag
from orbitmq.protocol.message.properties import parse
from orbitmq.testing import ManualClock
from support.broker.broker_harness import T0
from support.broker.client_registry_harness import heartbeat
from support.broker.requests import BORN, SEND_NAMES, Talker, properties_of, send_request, stored, talk, talking_to
from support.remoting_harness import HOST

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from orbitmq.broker import Broker
    from orbitmq.protocol.command.command import Command

TOPIC = "DefaultCluster_REPLY_TOPIC"
ASKING = "192.0.2.7@asking"
SAID = {"MSG_TYPE": "reply", "REPLY_TO_CLIENT": ASKING, "TTL": "3000", "CORRELATION_ID": "c-1", "UNIQ_KEY": "K1"}


def reply_request(
    body: bytes = b"pong", properties: dict[str, str] | None = None, *, is_short: bool = True, **more: object
) -> Command:
    """A reply as clients send it: with letters as Java's do, with names as Go's do."""
    made = send_request(body, TOPIC, SAID if properties is None else properties, **more)  # type: ignore[arg-type]
    made.code = RequestCode.SEND_REPLY_MESSAGE_V2
    if not is_short:
        long_names = {letter: name for name, letter in SEND_NAMES.items()}
        made.code = RequestCode.SEND_REPLY_MESSAGE
        made.ext_fields = {long_names[letter]: value for letter, value in made.ext_fields.items()}
    return made


@contextlib.asynccontextmanager
async def asking(broker: Broker, client_id: str = ASKING) -> AsyncIterator[Talker]:
    """A client that waits for a reply."""
    async with talking_to(broker) as client:
        said = heartbeat(client_id, producers=["PG_asking", "CLIENT_INNER_PRODUCER"])
        assert (await client.asks(RequestCode.HEART_BEAT, said.encode())).code == ResponseCode.SUCCESS
        yield client


async def answered(replier: Talker, client: Talker, request: Command, code: int = 0) -> tuple[Command, Command]:
    """The push to the requesting client, and the response to the replying one after that was acknowledged."""
    opaque = replier.posts(request)
    pushed = await client.asked(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT)
    client.send(pushed.response(code).encode())
    return pushed, await replier.answer_to(opaque)


@pytest.mark.parametrize("is_short", [True, False])
async def test_a_reply_is_pushed_to_the_requesting_client_and_then_stored(is_short: bool) -> None:
    async with talk(clock=ManualClock(T0)) as (broker, replier), asking(broker) as client:
        pushed, answer = await answered(replier, client, reply_request(is_short=is_short, flag=7))
        (record,) = stored(broker, TOPIC)

        fields = dict(pushed.ext_fields)
        told = parse(fields.pop("properties"))
        assert fields.pop("bornHost") == replier.address
        assert fields == {
            "producerGroup": "PG_test",
            "topic": TOPIC,
            "defaultTopic": "TBW102",
            "defaultTopicQueueNums": "4",
            "queueId": "0",
            "sysFlag": "0",
            "bornTimestamp": str(BORN),
            "flag": "7",
            "reconsumeTimes": "0",
            "unitMode": "false",
            "storeHost": f"{HOST}:{broker.port}",
            "storeTimestamp": str(T0),
        }
        kept = SAID | {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
        assert told == kept | {"PUSH_REPLY_TIME": str(T0)}
        assert (pushed.body, pushed.is_oneway) == (b"pong", False)

        assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
        assert answer.ext_fields == {
            "queueId": "0",
            "queueOffset": "0",
            "msgId": broker.store.message_id(record.physical_offset),
            "MSG_REGION": "DefaultRegion",
            "TRACE_ON": "true",
        }
        assert (record.body, record.flag, properties_of(record)) == (b"pong", 7, kept)


async def test_a_reply_that_is_not_to_be_kept_is_pushed_only() -> None:
    async with talk(storeReplyMessageEnable=False) as (broker, replier), asking(broker) as client:
        _, answer = await answered(replier, client, reply_request())
        assert (answer.code, stored(broker, TOPIC)) == (ResponseCode.SUCCESS, [])
        assert answer.ext_fields == {
            "queueId": "0",
            "queueOffset": "0",
            "msgId": "0",
            "MSG_REGION": "DefaultRegion",
            "TRACE_ON": "true",
        }


async def test_a_reply_to_a_disconnected_client_is_stored_and_refused() -> None:
    async with talk() as (broker, replier):
        async with asking(broker) as client:
            left = await client.asks(RequestCode.UNREGISTER_CLIENT, clientID=ASKING, producerGroup="PG_asking")
            assert left.code == ResponseCode.SUCCESS
            _, answer = await answered(replier, client, reply_request())
            assert answer.code == ResponseCode.SUCCESS, "it is still known by its other group"
            await client.asks(RequestCode.UNREGISTER_CLIENT, clientID=ASKING, producerGroup="CLIENT_INNER_PRODUCER")
            answer = await replier.says(reply_request())
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark == f"push reply message fail, channel of <{ASKING}> not found."
        assert answer.ext_fields["queueOffset"] == "1"
        assert len(stored(broker, TOPIC)) == 2


async def test_a_disconnected_client_is_not_found() -> None:
    async with talk() as (broker, replier):
        async with asking(broker):
            pass
        answer = await replier.says(reply_request())
        assert "not found" in (answer.remark or "")


async def test_a_client_that_came_back_over_another_connection_gets_the_reply_there() -> None:
    async with talk() as (broker, replier), asking(broker) as old, asking(broker) as new:
        pushed, _ = await answered(replier, new, reply_request())
        assert pushed.body == b"pong"
        await new.leave()
        # The old one is registered again by its next heartbeat.
        said = heartbeat(ASKING, producers=["PG_asking", "CLIENT_INNER_PRODUCER"])
        await old.asks(RequestCode.HEART_BEAT, said.encode())
        await answered(replier, old, reply_request())


async def test_a_reply_that_the_client_refuses_is_refused() -> None:
    async with talk() as (broker, replier), asking(broker) as client:
        _, answer = await answered(replier, client, reply_request(), ResponseCode.SYSTEM_ERROR)
        assert (answer.code, answer.remark) == (
            ResponseCode.SYSTEM_ERROR,
            f"push reply message to {ASKING}fail.",
        )


async def test_a_client_that_says_nothing_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replies, "PUSH_SECONDS", 0.05)
    async with talk() as (broker, replier), asking(broker):
        answer = await replier.says(reply_request())
        assert answer.remark == f"push reply message to {ASKING}fail."
        assert len(stored(broker, TOPIC)) == 1


async def test_a_reply_without_a_client_is_refused_with_the_missing_property() -> None:
    async with talk() as (_, replier):
        answer = await replier.says(reply_request(properties={"MSG_TYPE": "reply"}))
        assert (answer.code, answer.remark) == (
            ResponseCode.SYSTEM_ERROR,
            "reply message properties[REPLY_TO_CLIENT] is null",
        )


async def test_a_compressed_reply_stays_compressed_and_says_so() -> None:
    body = compress(b"pong" * 100, Compression.ZLIB, 5)
    flag = compressed_flag(0, Compression.ZLIB)
    async with talk() as (broker, replier), asking(broker) as client:
        pushed, _ = await answered(replier, client, reply_request(body, sysFlag=flag | 0x4))
        (record,) = stored(broker, TOPIC)
        assert (pushed.body, pushed.ext_fields["sysFlag"]) == (body, str(flag | 0x4))
        assert (record.body, record.sys_flag) == (body, flag), "bits of transactions are not a reply's to set"


async def test_a_message_that_a_send_refuses_is_refused_as_a_reply() -> None:
    async with talk(autoCreateTopicEnable=False) as (broker, replier), asking(broker) as client:
        request = reply_request()
        request.ext_fields["b"] = "Nowhere"
        answer = await replier.says(request)
        illegal = await replier.says(reply_request(queueId=9))
        assert answer.code == ResponseCode.TOPIC_NOT_EXIST
        assert answer.ext_fields == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
        assert illegal.code == ResponseCode.INVALID_PARAMETER
        await client.catch_up()
        assert client.requests == []


async def test_a_reply_is_on_the_disk_before_it_is_answered_where_that_is_wanted() -> None:
    async with talk(flushDiskType="SYNC_FLUSH") as (broker, replier), asking(broker) as client:
        _, answer = await answered(replier, client, reply_request())
        assert answer.code == ResponseCode.SUCCESS
        assert broker.store.log.flushed == broker.store.log.end
