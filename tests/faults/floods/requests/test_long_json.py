"""Long JSON in requests: what would block the loop is refused, what clients send is parsed."""

from __future__ import annotations

import contextlib
import struct
from typing import TYPE_CHECKING

import pytest

from orbitmq.protocol import fastjson
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.fastjson import loads, reading_request
from support.broker.flood_harness import Canary, flooded_broker, frame, json_request
from support.remoting_harness import ECHO, RawPeer, answer_to, on_each_loop, request, serving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from orbitmq.protocol.command.header import Header
    from orbitmq.remoting import Connection

MANY = 600_000


@pytest.fixture
def in_request() -> Iterator[None]:
    before = reading_request.set(True)
    yield
    reading_request.reset(before)


@pytest.mark.usefixtures("in_request")
@pytest.mark.parametrize(
    ("text", "limit"),
    [
        (b"{" + b"a:1," * 10_000 + b"}", "tokens"),
        (b"{a:[" + b"[]," * 10_000 + b"]}", "tokens"),
        (b"{" + b"//\n" * 10_000 + b"}", "tokens"),
        (b"{a:'" + b"\\n" * 50_000 + b"'}", "escapes"),
        (b"{a:'" + b"x" * MANY + b"'}", "not plain JSON"),
        (b'{"b":[' + b"1," * 50_000 + b'1],"a":{"$ref":"$.b"}}', "\\$ref"),
        (b"[" + b"[]," * MANY + b"1]", "objects and arrays"),
        (b"[" + b"1," * 2_200_000 + b"1]", "values"),
        (b"[" * 2000 + b"]" * 2000, "nested deeper"),
    ],
)
def test_json_of_a_request_that_would_block_the_loop_is_refused(text: bytes, limit: str) -> None:
    with pytest.raises(ProtocolError, match=limit):
        loads(text)


@pytest.mark.usefixtures("in_request")
def test_long_plain_json_and_short_tolerant_json_of_a_request_are_parsed() -> None:
    topic = b'{"topicName":"t","readQueueNums":8,"writeQueueNums":8,"perm":6,"attributes":{}},'
    assert len(loads(b"[" + topic * 100_000 + b"1]")) == 100_001
    assert loads(b"{0:1,a:'b',}") == {0: 1, "a": "b"}
    assert len(loads(b"{a:'" + b"\\u0001" * 32_767 + b"'}")["a"]) == 32_767


def test_answers_that_a_client_reads_have_no_such_limit() -> None:
    assert len(loads(b"[" + b"{a:1}," * 20_000 + b"]")) == 20_000


@on_each_loop
async def test_handlers_of_a_server_read_with_the_limits_of_requests() -> None:
    seen: list[bool] = []

    def note(_: Connection, header: Header, __: bytes, serialize_type: int) -> bytes:
        seen.append(reading_request.get())
        return answer_to(header, serialize_type)

    async with serving({ECHO: note}) as server, RawPeer.connected(server) as peer:
        await peer.ask(request(ECHO, 1))

    assert seen == [True]
    assert not reading_request.get()


async def test_a_broker_refuses_long_tolerant_json_and_keeps_serving(tmp_path: Path) -> None:
    body = b"{" + b"a:1," * (4 << 20) + b"}"
    async with flooded_broker(tmp_path) as (_, port):
        with Canary(port) as canary:
            answer = canary.ask(json_request(RequestCode.HEART_BEAT, 1, {}, body[: 3 << 20]))
            assert (answer.code, "at most 524288" in (answer.remark or "")) == (1, True), answer.remark
            assert canary.send().code == 0
        with Canary(port) as canary, contextlib.suppress(ConnectionError):
            canary.ask(struct.pack(">iI", 15 << 20, (15 << 20) - 4) + body[: 1 << 20])
        with Canary(port) as canary, contextlib.suppress(ConnectionError):
            canary.ask(frame(body[:200_000]))
        with Canary(port) as canary:
            assert canary.send().code == 0
    assert len(body) > fastjson.REQUEST_TOLERANT_BYTES
