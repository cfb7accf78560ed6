"""Connections of HTTP/2: calls, windows, limits, and what a peer must not send."""

from __future__ import annotations

import asyncio
import gzip

import pytest

from orbitmq.platform.limit_counts import Limit
from orbitmq.proxy.http2 import frames
from orbitmq.proxy.http2.control import MAX_CONTROL, MAX_RESETS
from orbitmq.proxy.http2.frames import MESSAGE_HEAD, NUMBER, PREFACE, SETTING, ErrorCode, frame
from orbitmq.proxy.http2.hpack import encode
from support.http2_peer import CHAT, ECHO, MANY, SLOW, Peer, data, message, request, settled
from support.limit_counts import counts

RST, GOAWAY = frames.RST_STREAM, frames.GOAWAY
_HEADERS = frames.HEADERS
_END_HEADERS = frames.END_HEADERS
_BOTH = frames.END_HEADERS | frames.END_STREAM


@pytest.fixture
async def peer() -> Peer:
    peer = Peer()
    await peer.greet()
    return peer


async def status_of(peer: Peer) -> tuple[str, str]:
    """The status of the only call that ended."""
    *_, last = [one for one in await peer.answers() if one.kind == _HEADERS]
    assert last.flags & frames.END_STREAM
    fields = peer.fields(last)
    return fields["grpc-status"], fields.get("grpc-message", "")


async def test_a_connection_begins_with_settings_and_acknowledges_those_of_the_client() -> None:
    peer = Peer(max_streams=7)
    first, window = await peer.answers()
    assert dict(SETTING.iter_unpack(first.payload))[frames.MAX_CONCURRENT_STREAMS] == 7
    assert window.kind == frames.WINDOW_UPDATE
    await peer.feed(PREFACE[:5])
    await peer.feed(PREFACE[5:] + frame(frames.SETTINGS, 0, 0))
    assert [(one.kind, one.flags) for one in await peer.answers()] == [(frames.SETTINGS, frames.ACK)]


async def test_a_call_is_answered_with_headers_the_message_and_its_status(peer: Peer) -> None:
    await peer.feed(peer.call(ECHO) + data(1, b"hello"))
    head, body, end = await peer.answers()
    assert peer.fields(head) == {":status": "200", "content-type": "application/grpc"}
    assert (body.kind, body.payload) == (frames.DATA, message(b"hello"))
    assert peer.fields(end) == {"grpc-status": "0"}
    assert end.flags & frames.END_STREAM
    assert not peer.connection.streams
    assert peer.server.calls == 0


async def test_a_request_may_arrive_a_byte_at_a_time(peer: Peer) -> None:
    for byte in peer.call(ECHO) + data(1, b"hello"):
        peer.connection.data_received(bytes([byte]))
    assert (await peer.answers())[1].payload == message(b"hello")
    assert peer.server.held == 0


async def test_a_message_may_be_split_compressed_and_padded(peer: Peer) -> None:
    packed = gzip.compress(b"x" * 1000)
    whole = MESSAGE_HEAD.pack(1, len(packed)) + packed
    padded = bytes([3]) + whole[10:] + bytes(3)
    await peer.feed(
        peer.call(ECHO, ("grpc-encoding", "gzip"))
        + frame(frames.DATA, 0, 1, whole[:10])
        + frame(frames.DATA, frames.PADDED | frames.END_STREAM, 1, padded)
    )
    assert (await peer.answers())[1].payload == message(b"x" * 1000)


async def test_header_blocks_may_be_continued_and_prioritised(peer: Peer) -> None:
    block = encode(*request(ECHO))
    await peer.feed(
        frame(_HEADERS, frames.HAS_PRIORITY, 1, bytes(5) + block[:9])
        + frame(frames.CONTINUATION, 0, 1, block[9:20])
        + frame(frames.CONTINUATION, _END_HEADERS, 1, block[20:])
        + data(1, b"hello")
    )
    assert (await peer.answers())[1].payload == message(b"hello")


async def test_both_sides_of_a_stream_speak_as_they_like(peer: Peer) -> None:
    await peer.feed(peer.call(CHAT) + data(1, b"one", end=False))
    assert [one.payload for one in await peer.answers() if one.kind == frames.DATA] == [message(b"one")]
    await peer.feed(data(1, b"two", end=False) + frame(_HEADERS, _BOTH, 1, encode(("x", "y"))))
    assert [one.payload for one in await peer.answers() if one.kind == frames.DATA] == [message(b"two")]
    assert not peer.connection.streams


@pytest.mark.parametrize(
    ("path", "fields", "body", "status"),
    [
        ("/test.Echo/None", (), b"\0\0\0\0\0", "12"),
        (ECHO, (), b"", "13"),
        (ECHO, (), b"\0\0\0\0\0\0\0\0\0\0", "13"),
        (ECHO, (), b"\0\0\0\0\5abc", "13"),
        (ECHO, (), MESSAGE_HEAD.pack(0, 1 << 21), "8"),
        (ECHO, (("grpc-encoding", "br"),), b"\1\0\0\0\1x", "12"),
        (ECHO, (("grpc-encoding", "gzip"),), b"\1\0\0\0\1x", "13"),
        (ECHO, (("x", "y" * 9000), ("z", "y" * 9000)), b"\0\0\0\0\0", "8"),
    ],
    ids=["method", "nothing", "two", "part", "large", "encoding", "gzip", "metadata"],
)
async def test_calls_that_fail_alone(
    peer: Peer, path: str, fields: tuple[tuple[str, str], ...], body: bytes, status: str
) -> None:
    block = encode(*request(path), *fields)
    rest = block[16_000:]
    begin = frame(_HEADERS, 0 if rest else _END_HEADERS, 1, block[:16_000])
    if rest:
        begin += frame(frames.CONTINUATION, _END_HEADERS, 1, rest)
    await peer.feed(begin + frame(frames.DATA, frames.END_STREAM, 1, body))
    assert (await status_of(peer))[0] == status
    await peer.feed(peer.call(ECHO, number=3) + data(3, b"hello"))
    assert (await status_of(peer))[0] == "0"
    assert (peer.server.calls, peer.server.held) == (0, 0)


async def test_a_request_that_is_not_grpc_is_answered_with_415(peer: Peer) -> None:
    block = encode((":method", "GET"), (":scheme", "http"), (":path", "/"))
    await peer.feed(frame(_HEADERS, _BOTH, 1, block))
    (answer,) = await peer.answers()
    assert peer.fields(answer) == {":status": "415"}


async def test_a_response_keeps_to_the_windows_of_the_client() -> None:
    peer = Peer()
    await peer.greet((frames.INITIAL_WINDOW_SIZE, 10), (frames.MAX_FRAME_SIZE, 16_384))
    await peer.feed(peer.call(MANY) + data(1, b"2 20"))
    found = [one for one in await peer.answers() if one.kind == frames.DATA]
    assert [len(one.payload) for one in found] == [10]
    await peer.feed(frame(frames.WINDOW_UPDATE, 0, 1, NUMBER.pack(30)))
    assert [len(one.payload) for one in await peer.answers() if one.kind == frames.DATA] == [15, 15]
    await peer.feed(frame(frames.SETTINGS, 0, 0, SETTING.pack(frames.INITIAL_WINDOW_SIZE, 20)))
    found = await peer.answers()
    assert sum(len(one.payload) for one in found if one.kind == frames.DATA) == 10
    assert peer.fields(found[-1]) == {"grpc-status": "0"}
    assert not peer.connection.streams


async def test_a_response_keeps_to_the_window_of_the_connection(peer: Peer) -> None:
    await peer.feed(peer.call(MANY) + data(1, b"1 70000"))
    assert sum(len(one.payload) for one in await peer.answers() if one.kind == frames.DATA) == 0xFFFF
    await peer.feed(frame(frames.WINDOW_UPDATE, 0, 1, NUMBER.pack(100_000)))
    assert not await peer.answers()
    await peer.feed(peer.call(ECHO) + data(3, b"later"))
    await peer.feed(frame(frames.WINDOW_UPDATE, 0, 0, NUMBER.pack(100_000)))
    found = await peer.answers()
    assert {one.stream for one in found if one.flags & frames.END_STREAM and one.kind == _HEADERS} == {1, 3}


async def test_a_writer_waits_for_a_transport_that_is_full(peer: Peer) -> None:
    peer.connection.pause_writing()
    await peer.feed(peer.call(MANY) + data(1, b"3 10"))
    assert len([one for one in await peer.answers() if one.kind == frames.DATA]) == 1
    peer.connection.resume_writing()
    await settled()
    peer.connection.pause_writing()
    assert len([one for one in await peer.answers() if one.kind == frames.DATA]) == 2
    peer.connection.resume_writing()


async def test_a_slow_reader_is_given_up_at_its_deadline() -> None:
    peer = Peer()
    await peer.greet((frames.INITIAL_WINDOW_SIZE, 0))
    await peer.feed(peer.call(MANY, ("grpc-timeout", "50m")) + data(1, b"1 10"))
    for _ in range(500):
        if peer.connection.streams[1].is_ended:
            break
        await asyncio.sleep(0.01)
    assert peer.connection.streams[1].is_ended
    await peer.feed(frame(frames.RST_STREAM, 0, 1, NUMBER.pack(ErrorCode.CANCEL)))
    assert not peer.connection.streams


async def test_large_requests_get_room_again(peer: Peer) -> None:
    body = bytes(600_000)
    whole = message(body)
    await peer.feed(peer.call(ECHO))
    for start in range(0, len(whole), 16_000):
        await peer.feed(frame(frames.DATA, 0, 1, whole[start : start + 16_000]))
    room = sum(NUMBER.unpack(one.payload)[0] for one in await peer.answers() if one.kind == frames.WINDOW_UPDATE)
    assert room >= 1 << 19
    assert peer.server.held == 0
    await peer.feed(frame(frames.DATA, frames.END_STREAM, 1))
    assert any(one.kind == frames.DATA for one in await peer.answers())


async def test_a_reset_cancels_the_call(peer: Peer) -> None:
    await peer.feed(peer.call(SLOW) + data(1, b""))
    await peer.feed(frame(frames.RST_STREAM, 0, 1, NUMBER.pack(ErrorCode.CANCEL)))
    assert peer.cancelled == 1
    assert (peer.connection.streams, peer.server.calls) == ({}, 0)


async def test_a_lost_connection_cancels_its_calls(peer: Peer) -> None:
    await peer.feed(peer.call(SLOW) + data(1, b"") + peer.call(CHAT) + peer.call(ECHO) + data(5, b"x", end=False))
    peer.connection.connection_lost(None)
    await settled()
    assert peer.cancelled == 1
    assert (peer.server.connections, peer.server.calls, peer.server.held) == (set(), 0, 0)


async def test_pings_are_answered(peer: Peer) -> None:
    await peer.feed(frame(frames.PING, 0, 0, b"12345678"))
    assert await peer.answers() == [(frames.PING, frames.ACK, 0, b"12345678")]


async def test_more_streams_than_allowed_are_refused() -> None:
    peer = Peer(max_streams=1, max_calls=1)
    await peer.greet()
    await peer.feed(peer.call(SLOW) + data(1, b"") + peer.call(ECHO))
    assert await peer.answers() == [(RST, 0, 3, NUMBER.pack(ErrorCode.REFUSED_STREAM))]


@counts(Limit.GRPC_CALLS)
async def test_more_calls_than_allowed_are_refused() -> None:
    peer = Peer(max_calls=1)
    await peer.greet()
    await peer.feed(peer.call(SLOW) + data(1, b"") + peer.call(ECHO) + data(3, b""))
    assert (await status_of(peer))[0] == "8"


async def test_a_draining_connection_takes_no_more_calls_and_closes(peer: Peer) -> None:
    await peer.feed(peer.call(CHAT))
    peer.connection.drain()
    await peer.feed(peer.call(ECHO))
    assert [one.kind for one in await peer.answers()] == [GOAWAY, RST]
    await peer.feed(frame(frames.DATA, frames.END_STREAM, 1))
    assert peer.transport.closed


HEADERS_OF_1 = frame(_HEADERS, _END_HEADERS, 1, encode(*request(CHAT)))


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (frame(frames.DATA, 0, 0, b""), ErrorCode.PROTOCOL_ERROR),
        (frame(frames.DATA, 0, 1, b""), ErrorCode.PROTOCOL_ERROR),
        (frame(_HEADERS, _BOTH, 2, encode(*request(ECHO))), ErrorCode.PROTOCOL_ERROR),
        (frame(_HEADERS, 0, 1, b"") + frame(frames.PING, 0, 0, bytes(8)), ErrorCode.PROTOCOL_ERROR),
        (frame(_HEADERS, 0, 1, b"") + frame(frames.CONTINUATION, 0, 3), ErrorCode.PROTOCOL_ERROR),
        (frame(frames.CONTINUATION, 0, 1), ErrorCode.PROTOCOL_ERROR),
        (frame(_HEADERS, _END_HEADERS, 1, b"\x80"), ErrorCode.COMPRESSION_ERROR),
        (frame(_HEADERS, _END_HEADERS | frames.PADDED, 1, b"\x05"), ErrorCode.PROTOCOL_ERROR),
        (frame(frames.SETTINGS, 0, 1), ErrorCode.PROTOCOL_ERROR),
        (frame(frames.SETTINGS, 0, 0, b"12345"), ErrorCode.FRAME_SIZE_ERROR),
        (frame(frames.SETTINGS, frames.ACK, 0, bytes(6)), ErrorCode.FRAME_SIZE_ERROR),
        (frame(frames.SETTINGS, 0, 0, SETTING.pack(frames.ENABLE_PUSH, 2)), ErrorCode.PROTOCOL_ERROR),
        (frame(frames.SETTINGS, 0, 0, SETTING.pack(frames.MAX_FRAME_SIZE, 1)), ErrorCode.PROTOCOL_ERROR),
        (
            frame(frames.SETTINGS, 0, 0, SETTING.pack(frames.INITIAL_WINDOW_SIZE, 1 << 31)),
            ErrorCode.FLOW_CONTROL_ERROR,
        ),
        (frame(frames.PING, 0, 0, b"short"), ErrorCode.FRAME_SIZE_ERROR),
        (frame(frames.PING, 0, 1, bytes(8)), ErrorCode.PROTOCOL_ERROR),
        (frame(frames.RST_STREAM, 0, 1, bytes(4)), ErrorCode.PROTOCOL_ERROR),
        (frame(frames.RST_STREAM, 0, 1, bytes(3)), ErrorCode.FRAME_SIZE_ERROR),
        (frame(frames.PRIORITY, 0, 0, bytes(5)), ErrorCode.PROTOCOL_ERROR),
        (frame(frames.PRIORITY, 0, 1, bytes(4)), ErrorCode.FRAME_SIZE_ERROR),
        (frame(frames.PUSH_PROMISE, 0, 1, bytes(4)), ErrorCode.PROTOCOL_ERROR),
        (frame(frames.GOAWAY, 0, 1, bytes(8)), ErrorCode.PROTOCOL_ERROR),
        (frame(frames.WINDOW_UPDATE, 0, 0, bytes(4)), ErrorCode.PROTOCOL_ERROR),
        (frame(frames.WINDOW_UPDATE, 0, 0, bytes(3)), ErrorCode.FRAME_SIZE_ERROR),
        (frame(frames.WINDOW_UPDATE, 0, 1, NUMBER.pack(1)), ErrorCode.PROTOCOL_ERROR),
        (frame(frames.WINDOW_UPDATE, 0, 0, NUMBER.pack(frames.MAX_WINDOW)), ErrorCode.FLOW_CONTROL_ERROR),
        (b"\xff\xff\xff\0\0\0\0\0\1", ErrorCode.FRAME_SIZE_ERROR),
        (HEADERS_OF_1 + frame(_HEADERS, _END_HEADERS, 1, b""), ErrorCode.PROTOCOL_ERROR),
        (HEADERS_OF_1 + frame(frames.DATA, 0, 1, bytes(16_000)) * 70, ErrorCode.FLOW_CONTROL_ERROR),
        (HEADERS_OF_1 + data(1, b"") + frame(_HEADERS, _BOTH, 1, b""), ErrorCode.STREAM_CLOSED),
        (frame(frames.PING, 0, 0, bytes(8)) * (MAX_CONTROL + 1), ErrorCode.ENHANCE_YOUR_CALM),
        (frame(frames.SETTINGS, 0, 0) * (MAX_CONTROL + 1), ErrorCode.ENHANCE_YOUR_CALM),
        (HEADERS_OF_1 + frame(frames.DATA, 0, 1) * (MAX_CONTROL + 1), ErrorCode.ENHANCE_YOUR_CALM),
        (frame(_HEADERS, 0, 1) + frame(frames.CONTINUATION, 0, 1) * (MAX_CONTROL + 1), ErrorCode.ENHANCE_YOUR_CALM),
        (frame(_HEADERS, 0, 1) + frame(frames.CONTINUATION, 0, 1, bytes(16_000)) * 5, ErrorCode.ENHANCE_YOUR_CALM),
    ],
)
async def test_a_connection_that_breaks_the_protocol_is_closed(peer: Peer, sent: bytes, code: int) -> None:
    await peer.feed(sent)
    last = (await peer.answers())[-1]
    assert last.kind == GOAWAY
    assert NUMBER.unpack_from(last.payload, 4)[0] == code
    assert peer.transport.closed


@pytest.mark.parametrize(
    "fields",
    [
        [(":path", ECHO), (":scheme", "http")],
        [*request(ECHO)[1:], (":method", "POST")],
        [*request(ECHO), (":path", ECHO)],
        [(":method", "POST"), (":method", "POST"), (":scheme", "http"), (":path", ECHO)],
        [(":status", "200"), *request(ECHO)],
        [*request(ECHO), ("Upper", "x")],
        [*request(ECHO), ("connection", "close")],
        [*request(ECHO), ("te", "gzip")],
    ],
)
async def test_a_malformed_request_resets_its_stream(peer: Peer, fields: list[tuple[str, str]]) -> None:
    await peer.feed(frame(_HEADERS, _BOTH, 1, encode(*fields)))
    assert await peer.answers() == [(RST, 0, 1, NUMBER.pack(ErrorCode.PROTOCOL_ERROR))]
    assert not peer.transport.closed


async def test_frames_of_unknown_types_and_of_streams_that_ended_are_ignored(peer: Peer) -> None:
    await peer.feed(peer.call(ECHO) + data(1, b"x"))
    await peer.answers()
    await peer.feed(
        frame(0x77, 0xFF, 1, b"x")
        + frame(frames.WINDOW_UPDATE, 0, 1, NUMBER.pack(1))
        + frame(frames.RST_STREAM, 0, 1, NUMBER.pack(ErrorCode.CANCEL))
        + frame(frames.GOAWAY, 0, 0, bytes(8))
        + frame(frames.DATA, 0, 1, b"late")
        + frame(frames.SETTINGS, 0, 0, SETTING.pack(0x99, 1))
    )
    assert [one.kind for one in await peer.answers()] == [frames.SETTINGS]
    assert not peer.transport.closed


async def test_a_client_that_only_resets_is_closed(peer: Peer) -> None:
    for number in range(1, 2 * MAX_RESETS + 4, 2):
        begun = frame(_HEADERS, _END_HEADERS, number, encode(*request(CHAT)))
        peer.connection.data_received(begun + frame(frames.RST_STREAM, 0, number, NUMBER.pack(ErrorCode.CANCEL)))
    await settled()
    last = (await peer.answers())[-1]
    assert (last.kind, NUMBER.unpack_from(last.payload, 4)[0]) == (GOAWAY, ErrorCode.ENHANCE_YOUR_CALM)


async def test_http_1_is_refused() -> None:
    peer = Peer()
    await peer.feed(b"GET / HTTP/1.1\r\n\r\n")
    assert (await peer.answers())[-1].kind == GOAWAY
    assert peer.transport.closed


async def test_silent_connections_are_closed(peer: Peer) -> None:
    now = peer.connection.last_active
    peer.connection.review(now + 59)
    assert not peer.transport.closed
    await peer.feed(peer.call(CHAT))
    now = peer.connection.last_active
    peer.connection.review(now + 61)
    assert [one.kind for one in await peer.answers()] == [frames.PING]
    peer.connection.review(now + 81)
    assert peer.transport.closed
