"""Requests find their handlers and their answers find the way back, however the bytes arrive."""

from __future__ import annotations

import asyncio
import logging
import mmap
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq.platform.limit_counts import Limit
from orbitmq.protocol.codes import SerializeType
from orbitmq.protocol.command.frame import frame_prefix
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.message.flags import ONEWAY, RESPONSE
from orbitmq.remoting import Connection, Limits
from orbitmq.remoting.endpoint import Endpoint
from orbitmq.remoting.gather_write import MAX_JOINED_BYTES, gathered
from support.limit_counts import counts
from support.remoting_harness import (
    ECHO,
    GARBAGE,
    MemoryTransport,
    RawPeer,
    answer_to,
    decoded,
    echo,
    eventually,
    on_each_loop,
    request,
    serving,
)
from support.wire_captures import SCENARIOS, Captured, captured

if TYPE_CHECKING:
    from orbitmq.protocol.command.header import Header
    from orbitmq.remoting import Answer, Buffer, Handler

LATER = 501


def in_memory(handlers: dict[int, Handler]) -> tuple[Connection, MemoryTransport, Endpoint]:
    endpoint = Endpoint(Limits())
    connection = Connection(endpoint, handlers, is_server=True)
    transport = MemoryTransport()
    connection.connection_made(transport)
    return connection, transport, endpoint


@on_each_loop
@pytest.mark.parametrize("binary", [False, True])
async def test_a_request_is_answered_by_the_handler_of_its_code(binary: bool) -> None:
    async with serving({ECHO: echo}) as server, RawPeer.connected(server) as peer:
        answer = await peer.ask(request(ECHO, 7, body=b"hello", binary=binary, ext_fields={"a": "1"}))

    assert (answer.code, answer.opaque, answer.flag) == (0, 7, RESPONSE)
    assert (answer.body, answer.ext_fields) == (b"hello", {"a": "1"})
    assert answer.serialize_type == (SerializeType.ROCKETMQ if binary else SerializeType.JSON)


@on_each_loop
@pytest.mark.parametrize("binary", [False, True])
async def test_an_unknown_code_is_answered_with_3_and_the_connection_stays(binary: bool) -> None:
    async with serving({ECHO: echo}) as server, RawPeer.connected(server) as peer:
        refusal = await peer.ask(request(4711, 8, binary=binary))
        answer = await peer.ask(request(ECHO, 9, binary=binary))

    assert (refusal.code, refusal.opaque, refusal.flag) == (3, 8, RESPONSE)
    assert refusal.remark == " request type 4711 not supported"
    assert refusal.serialize_type == answer.serialize_type
    assert (answer.code, answer.opaque) == (0, 9)


@on_each_loop
async def test_a_handler_that_fails_is_answered_with_1_and_one_line_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(*_: object) -> bytes:
        raise KeyError("queue\nand more")

    async with serving({ECHO: echo, 1: fail}) as server, RawPeer.connected(server) as peer:
        failure = await peer.ask(request(1, 8))
        answer = await peer.ask(request(ECHO, 9))
        address = peer.address

    assert (failure.code, failure.opaque, failure.flag) == (1, 8, RESPONSE)
    assert failure.remark is not None
    assert "KeyError" in failure.remark
    assert "\n" not in failure.remark
    assert answer.code == 0
    (record,) = (record for record in caplog.records if record.levelno >= logging.WARNING)
    assert f"request 1 of {address} failed: KeyError" in record.getMessage()
    assert "test_connection.py:" in record.getMessage()
    assert "\n" not in record.getMessage()


@on_each_loop
async def test_fields_that_a_handler_cannot_read_are_answered_in_the_words_of_their_decoder(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(*_: object) -> bytes:
        raise ProtocolError("queueId must be a number")

    async with serving({1: fail}) as server, RawPeer.connected(server) as peer:
        failure = await peer.ask(request(1, 8))

    assert (failure.code, failure.remark) == (1, "queueId must be a number")
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@on_each_loop
@pytest.mark.parametrize("kind", [ProtocolError, ValueError])
@pytest.mark.parametrize("binary", [False, True])
async def test_an_error_whose_text_cannot_be_sent_is_answered_as_well(kind: type[Exception], binary: bool) -> None:
    def fail(*_: object) -> bytes:
        raise kind("half a character: \ud800")

    async with serving({1: fail}) as server, RawPeer.connected(server) as peer:
        failure = await peer.ask(request(1, 8, binary=binary))

    assert failure.code == 1
    assert "half a character: ?" in str(failure.remark)


@on_each_loop
async def test_a_oneway_request_never_gets_an_answer() -> None:
    held: list[tuple[Connection, Header]] = []

    def fail(*_: object) -> bytes:
        raise KeyError("queue")

    def hold(connection: Connection, header: Header, _: bytes, __: int) -> None:
        held.append((connection, header))

    handlers: dict[int, Handler] = {ECHO: echo, 1: fail, LATER: hold}
    async with serving(handlers) as server, RawPeer.connected(server) as peer:
        peer.send(*(request(code, code, flag=ONEWAY) for code in (ECHO, 1, LATER, 4711)))
        await eventually(lambda: held)
        connection, header = held[0]
        connection.answer(header, answer_to(header, 0))
        answer = await peer.ask(request(ECHO, 9))

        assert answer.opaque == 9
        assert connection.deferred_responses == 0


@on_each_loop
async def test_an_answer_may_come_later_or_never() -> None:
    held: list[tuple[Connection, Header]] = []

    def hold(connection: Connection, header: Header, _: bytes, __: int) -> None:
        held.append((connection, header))

    def never(*_: object) -> bytes:
        return b""

    handlers: dict[int, Handler] = {ECHO: echo, 1: never, LATER: hold}
    async with serving(handlers) as server, RawPeer.connected(server) as peer:
        first = await peer.ask(request(LATER, 1), request(1, 2), request(LATER, 3), request(ECHO, 4))
        (connection,) = server.connections
        owed = connection.deferred_responses
        for owner, header in reversed(held):
            owner.answer(header, answer_to(header, 0))
        later = [(await peer.receive()).opaque for _ in held]

        assert (first.opaque, later) == (4, [3, 1])
        assert (owed, connection.deferred_responses) == (2, 0)


async def test_what_one_piece_of_the_stream_asks_is_answered_in_one_write() -> None:
    connection, transport, endpoint = in_memory({ECHO: echo})
    connection.data_received(b"".join(request(ECHO, opaque) for opaque in range(1, 65)))
    await asyncio.sleep(0)
    endpoint.close()

    assert len(transport.writes) == 1
    assert [answer.opaque for answer in decoded(transport.writes[0])] == list(range(1, 65))


async def test_what_is_sent_in_one_turn_of_the_loop_leaves_in_one_write() -> None:
    connection, transport, endpoint = in_memory({ECHO: echo})
    for opaque in range(1, 9):
        connection.send(request(ECHO, opaque))
    before = list(transport.writes)
    await asyncio.sleep(0)
    connection.send(request(ECHO, 9))
    connection.data_received(request(ECHO, 10))
    await asyncio.sleep(0)
    endpoint.close()

    assert before == []
    assert [[command.opaque for command in decoded(wire)] for wire in transport.writes] == [
        list(range(1, 9)),
        [9, 10],
    ]


async def test_a_handler_that_sends_on_its_own_connection_adds_to_the_same_write() -> None:
    def push(connection: Connection, header: Header, body: bytes, serialize_type: int) -> bytes:
        connection.send(request(1, 100))
        return echo(connection, header, body, serialize_type)

    connection, transport, endpoint = in_memory({ECHO: push})
    connection.data_received(request(ECHO, 1) + request(ECHO, 2))
    await asyncio.sleep(0)
    endpoint.close()

    assert [[command.opaque for command in decoded(wire)] for wire in transport.writes] == [[100, 1, 100, 2]]


@pytest.mark.parametrize("reading", [True, False])
async def test_what_goes_over_a_connection_in_either_direction_keeps_it_open(reading: bool) -> None:
    connection, transport, endpoint = in_memory({ECHO: echo})
    idle = endpoint.limits.idle_seconds
    connection.review(now=0)
    for turn in range(1, 5):
        if reading:
            connection.data_received(request(ECHO, 1, flag=ONEWAY))
        else:
            connection.send(request(40, 1))
            connection.flush()
        connection.review(now=turn * (idle - 1))
    open_until_now = not transport.closed
    connection.review(now=4 * (idle - 1) + idle)
    endpoint.close()

    assert open_until_now
    assert transport.closed


def captured_requests() -> list[Captured]:
    frames = (frame for scenario in SCENARIOS for frame in captured(scenario))
    return [frame for frame in frames if frame.to_server and not frame.is_response]


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_captured_requests_get_the_same_answers_however_they_are_split(data: st.DataObject) -> None:
    every = captured_requests()
    start = data.draw(st.integers(0, len(every) - 20))
    frames = every[start : start + 20]
    stream = b"".join(frame.wire for frame in frames)
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=40).map(sorted))

    async def answers() -> list[tuple[int, int]]:
        connection, transport, endpoint = in_memory({frame.code: echo for frame in frames})
        for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
            connection.data_received(stream[begin:end])
        # As many turns as it takes: a slow machine processes what it was sent in several.
        await eventually(lambda: len(decoded(b"".join(transport.writes))) == len(expected))
        endpoint.close()
        return [(answer.code, answer.opaque) for answer in decoded(b"".join(transport.writes))]

    expected = [(0, frame.header["opaque"]) for frame in frames if not frame.header["flag"] & ONEWAY]
    assert asyncio.run(answers()) == expected


@on_each_loop
@pytest.mark.parametrize("size", [1, 7, 1000, 1 << 20])
async def test_captured_requests_reach_their_handlers_over_a_socket(size: int) -> None:
    frames = captured_requests()
    frames = frames[:: 1 if size > 100 else 40]
    taken: Counter[tuple[int, int, str]] = Counter()

    def take(_: Connection, header: Header, body: bytes, serialize_type: int) -> bytes:
        taken[header[0], len(body), repr(sorted(header[6].items()))] += 1
        return answer_to(header, serialize_type)

    stream = b"".join(frame.wire for frame in frames)
    opaques = [frame.header["opaque"] for frame in frames if not frame.header["flag"] & ONEWAY]
    handlers: dict[int, Handler] = {frame.code: take for frame in frames}
    async with serving(handlers) as server, RawPeer.connected(server) as peer:
        for at in range(0, len(stream), size):
            peer.send(stream[at : at + size])
            await asyncio.sleep(0)
        answered = [(await peer.receive()).opaque for _ in opaques]

    assert answered == opaques
    # A field without a value is no field.
    fields = ({k: v for k, v in frame.ext_fields.items() if v not in {"", "null"}} for frame in frames)
    assert sum(taken.values()) == len(frames)
    assert len(taken) == len(
        {(f.code, f.body_size, repr(sorted(e.items()))) for f, e in zip(frames, fields, strict=True)}
    )


@on_each_loop
async def test_parts_that_lie_in_a_mapped_file_arrive_as_they_lie() -> None:
    with mmap.mmap(-1, 1 << 22) as mapped:
        mapped[:] = bytes(range(256)) * (len(mapped) // 256)
        view = memoryview(mapped)
        sizes = [100, MAX_JOINED_BYTES + 1, 5, 0, 300_000, 1 << 20, 17]

        def parts(_: Connection, header: Header, __: bytes, serialize_type: int) -> Answer:
            head = answer_to(header, serialize_type)[8:]
            pieces: list[Buffer] = [frame_prefix(serialize_type, len(head), sum(sizes)), head]
            at = 0
            for size in sizes:
                pieces.append(view[at : at + size])
                at += size
            return pieces

        async with serving({ECHO: echo, 1: parts}) as server, RawPeer.connected(server) as peer:
            peer.send(request(ECHO, 1), request(1, 2), request(ECHO, 3), request(1, 4))
            answers = [await peer.receive() for _ in range(4)]
        whole = bytes(view[: sum(sizes)])
        view.release()

    assert [answer.opaque for answer in answers] == [1, 2, 3, 4]
    assert [answer.body for answer in answers] == [None, whole, None, whole]


@given(st.lists(st.integers(0, 3 * MAX_JOINED_BYTES), max_size=12))
def test_gathered_parts_are_the_same_bytes_and_the_large_ones_are_not_copied(sizes: list[int]) -> None:
    parts: list[Buffer] = [memoryview(bytes([number]) * size) for number, size in enumerate(sizes)]
    pieces = gathered(parts)

    assert b"".join(pieces) == b"".join(parts)
    assert [id(part) for part in parts if len(part) > MAX_JOINED_BYTES] == [
        id(piece) for piece in pieces if isinstance(piece, memoryview)
    ]


@on_each_loop
@counts(Limit.FRAME)
async def test_good_frames_before_a_malformed_one_are_answered_and_the_connection_is_closed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    gone: list[Exception | None] = []
    async with (
        serving({ECHO: echo}, on_close=lambda _, error: gone.append(error)) as server,
        RawPeer.connected(server) as peer,
    ):
        peer.send(request(ECHO, 1), request(ECHO, 2), GARBAGE, request(ECHO, 3))
        rest = await peer.rest()
        await eventually(lambda: gone)

    assert [answer.opaque for answer in decoded(rest)] == [1, 2]
    assert isinstance(gone[0], ProtocolError)
    assert len([record for record in caplog.records if "malformed frame" in record.getMessage()]) == 1


@on_each_loop
async def test_a_header_that_cannot_be_read_closes_the_connection_after_the_answers_before_it() -> None:
    async with serving({ECHO: echo}) as server, RawPeer.connected(server) as peer:
        peer.send(request(ECHO, 1), frame_prefix(0, 5, 0), b"{oops", request(ECHO, 3))

        assert [answer.opaque for answer in decoded(await peer.rest())] == [1]


@on_each_loop
async def test_a_handler_may_close_and_then_nothing_after_it_is_done() -> None:
    done: list[int] = []

    def last(connection: Connection, header: Header, body: bytes, serialize_type: int) -> bytes:
        done.append(header[1])
        connection.close()
        return echo(connection, header, body, serialize_type)

    async with serving({ECHO: last}) as server, RawPeer.connected(server) as peer:
        peer.send(request(ECHO, 1), request(ECHO, 2))

        assert [answer.opaque for answer in decoded(await peer.rest())] == [1]
        assert done == [1]


@on_each_loop
async def test_owners_hear_of_every_opening_and_closing_and_keep_their_state_between() -> None:
    events: list[tuple[str, object]] = []

    def opened(connection: Connection) -> None:
        connection.state = f"state of {connection.remote_address}"
        events.append(("open", connection.remote_address))

    def closed(connection: Connection, error: Exception | None) -> None:
        events.append((connection.state, error))

    async with serving({ECHO: echo}, on_open=opened, on_close=closed) as server:
        async with RawPeer.connected(server) as peer:
            await peer.ask(request(ECHO, 1))
            address = peer.address
            (connection,) = server.connections
            local = connection.local_address
        await eventually(lambda: len(events) == 2)

        assert local == f"127.0.0.1:{server.ports[0]}"
    assert events == [("open", address), (f"state of {address}", None)]


@on_each_loop
async def test_an_owner_that_fails_at_opening_or_closing_harms_only_that_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    opened: list[Connection] = []

    def at_opening(connection: Connection) -> None:
        opened.append(connection)
        if len(opened) == 1:
            raise LookupError("first")

    def at_closing(*_: object) -> None:
        raise LookupError("always")

    async with serving({ECHO: echo}, on_open=at_opening, on_close=at_closing) as server:
        async with RawPeer.connected(server) as peer:
            peer.send(request(ECHO, 1))
            assert await peer.rest() == b""
        async with RawPeer.connected(server) as peer:
            assert (await peer.ask(request(ECHO, 2))).opaque == 2
        await eventually(lambda: not server.connections)

    assert "on_open of" in caplog.text
    assert "on_close of" in caplog.text
