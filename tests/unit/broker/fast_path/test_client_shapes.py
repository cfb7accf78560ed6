"""Client shapes: sends and pulls are served natively, however a client of any language writes their headers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from orbitmq.broker.pull.processor import PullRequests
from orbitmq.broker.send.processor import SendRequests
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.command.frame import encode_frame
from orbitmq.protocol.command.header import CODE, EXT_FIELDS
from orbitmq.protocol.command.json_header import decode_json_header
from orbitmq.protocol.message.flags import ONEWAY
from orbitmq.protocol.message.properties import parse
from support.broker.client_registry_harness import subscription
from support.broker.requests import CONSUMERS, TOPIC, Talker, properties_of, pulled, stored, talk
from support.native.marks import needs_native
from support.wire_captures import captured

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.protocol.command.command import Command
    from orbitmq.protocol.command.header import Header

pytestmark = needs_native

OPAQUE = 1 << 20
UNIQUE_KEY = "C00002027B55000000004c8e9e180001"
PROPERTIES = f"TAGS\x01G\x02KEYS\x01gk1 gk2\x02UNIQ_KEY\x01{UNIQUE_KEY}\x02"
LONG_FIELDS: dict[str, Any] = {
    "properties": PROPERTIES,
    "producerGroup": "shop",
    "topic": TOPIC,
    "queueId": "0",
    "sysFlag": "0",
    "reconsumeTimes": "0",
    "unitMode": "false",
    "maxReconsumeTimes": "0",
    "defaultTopic": "TBW102",
    "bornTimestamp": "1794775615160",
    "flag": "0",
    "defaultTopicQueueNums": "4",
    "batch": "false",
}
CPP_FIELDS = {
    **dict(sorted(LONG_FIELDS.items())),
    "queueId": 0,
    "sysFlag": 0,
    "flag": 0,
    "defaultTopicQueueNums": 4,
    "batch": "0",
    "unitMode": "0",
    "AccessKey": "",
    "OnsChannel": "ALIYUN",
    "Signature": "95UDf8pxXAATFLiuxV+/lTXE02M=",
}
SHORT_FIELDS: dict[str, Any] = {
    "a": "shop",
    "b": TOPIC,
    "c": "TBW102",
    "d": 4,
    "e": 0,
    "f": 0,
    "g": 1794775660736,
    "h": 0,
    "i": PROPERTIES,
    "j": 0,
    "k": False,
}


def header(code: int, fields: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "code": code,
        "language": "GO",
        "version": 317,
        "opaque": OPAQUE,
        "flag": 0,
        "extFields": fields,
        **more,
    }


def compact(document: dict[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def in_reverse(document: dict[str, Any]) -> dict[str, Any]:
    return dict(reversed(document.items()))


SENDS = {
    "of the Go client": compact(header(10, LONG_FIELDS, remark="")),
    "of the Node client": compact(header(310, {**SHORT_FIELDS, "i": "TAGS\x01TagN\x02KEYS\x01nk1 nk2\x02"})),
    "of the C++ client": compact(header(10, CPP_FIELDS, remark="", language="CPP")) + b"\n",
    "without the last separator": compact(header(310, {**SHORT_FIELDS, "i": PROPERTIES[:-1]})),
    "without properties": compact(header(310, {**SHORT_FIELDS, "i": None, "l": None})),
    "with a null remark and spaces": json.dumps(header(310, SHORT_FIELDS, remark=None)).encode(),
    "in any order": compact(in_reverse(header(310, in_reverse(SHORT_FIELDS)))),
    "in any order and indented": json.dumps(in_reverse(header(10, LONG_FIELDS)), indent=2).encode(),
    "with text in UTF-8": compact(header(310, {**SHORT_FIELDS, "i": PROPERTIES + "TAGS\x01已付款\x02"})),
    "with escaped text": json.dumps(
        header(310, {**SHORT_FIELDS, "i": PROPERTIES + "KEYS\x01数 😀\x02"}), ensure_ascii=True
    ).encode(),
    "with the least": compact({"code": 310, "opaque": OPAQUE, "extFields": SHORT_FIELDS}),
}


PULL_FIELDS: dict[str, Any] = {
    "consumerGroup": CONSUMERS,
    "topic": TOPIC,
    "queueId": 0,
    "queueOffset": 0,
    "maxMsgNums": 32,
    "sysFlag": 2,
    "commitOffset": 0,
    "suspendTimeoutMillis": 15000,
    "subscription": "*",
    "subVersion": 1794775670100,
}
PULLS = {
    "of the Go client": compact(
        header(11, {**PULL_FIELDS, "expressionType": "TAG", "subscription": ""}, remark="")
    ),
    "of the Node client": compact(header(11, PULL_FIELDS)),
    "in any order and indented": json.dumps(in_reverse(header(11, PULL_FIELDS)), indent=1).encode(),
}


@pytest.fixture
def python_path(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The codes of sends and pulls that reach the Python path."""
    seen: list[int] = []

    def noting(handler: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: Any, connection: Any, request: Header, *rest: Any) -> Any:
            seen.append(request[CODE])
            return handler(self, connection, request, *rest)

        return call

    monkeypatch.setattr(SendRequests, "send", noting(SendRequests.send))
    monkeypatch.setattr(PullRequests, "pull", noting(PullRequests.pull))
    return seen


async def answer_to(client: Talker, *frames: bytes) -> Command:
    """The response to the last of these frames, whose opaques are the same."""
    client.send(b"".join(frames))
    return await client.answer_to(OPAQUE)


@pytest.mark.parametrize("shape", SENDS)
async def test_a_send_is_served_natively(shape: str, python_path: list[int]) -> None:
    async with talk(autoCreateTopicEnable="true") as (broker, client):
        await client.stores()  # the first message creates the queue
        python_path.clear()
        answer = await answer_to(client, encode_frame(0, SENDS[shape], b"body"))
        assert (answer.code, python_path) == (ResponseCode.SUCCESS, [])
        record = stored(broker)[-1]
        fields = decode_json_header(SENDS[shape])[EXT_FIELDS]
        sent = parse((fields.get("properties") or fields.get("i", "")).encode())
        kept = properties_of(record)
        assert record.body == b"body"
        assert sent.items() <= kept.items()
        assert kept["UNIQ_KEY"] == answer.ext_fields["transactionId"]


async def test_messages_without_a_unique_key_get_different_ones() -> None:
    frame = encode_frame(0, compact(header(310, {**SHORT_FIELDS, "i": ""})), b"body")
    async with talk(autoCreateTopicEnable="true") as (broker, client):
        await client.stores()
        await answer_to(client, *[frame] * 5)
        await client.pass_time()
        keys = [properties_of(record)["UNIQ_KEY"] for record in stored(broker)[1:]]
        assert len(set(keys)) == 5
        assert {len(key) for key in keys} == {32}


@pytest.mark.parametrize("shape", PULLS)
async def test_a_pull_is_served_natively(shape: str, python_path: list[int]) -> None:
    async with talk(autoCreateTopicEnable="true") as (_, client):
        await client.stores()
        await client.subscribes(subscription(TOPIC, version=PULL_FIELDS["subVersion"]))
        python_path.clear()
        answer = await answer_to(client, encode_frame(0, PULLS[shape], b""))
        assert (len(pulled(answer)), python_path) == (1, [])


@pytest.mark.parametrize("scenario", ["go_producer", "node_producer", "java_json_05_send", "java_binary_05_send"])
async def test_captured_sends_are_served_natively(scenario: str, python_path: list[int]) -> None:
    sends = [
        frame
        for frame in captured(scenario)
        if frame.to_server and frame.code in {10, 310} and "DELAY" not in str(frame.ext_fields)
    ]
    assert sends
    async with talk(autoCreateTopicEnable="true") as (_, client):
        for frame in sends:
            # Once by itself, which may create the topic or the queue: that is answered when it is on the disk.
            client.send(frame.wire)
            if not frame.header["flag"] & ONEWAY:
                await client.answer_to(frame.header["opaque"])
        python_path.clear()
        for frame in sends:
            client.send(frame.wire)
        await client.pass_time()
        assert python_path == []
