"""Unfinished frames: they have a deadline and count against the memory budget, and header sizes are limited."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from typing import TYPE_CHECKING

import pytest

from orbitmq.platform.limit_counts import Limit
from orbitmq.platform.memory_budget import MemoryBudget
from orbitmq.protocol.command.frame import ESCAPE_SIZE, FrameError, FrameParser
from orbitmq.remoting import Limits
from orbitmq.remoting.limits.connection_limits import MAX_HEADER_BYTES, MAX_REQUEST_HEADER_BYTES
from support.broker.flood_harness import (
    BUDGET,
    MEGABYTE,
    Canary,
    flooded_broker,
    frame,
    push,
    send_request,
    silent_sockets,
)
from support.limit_counts import counts
from support.remoting_harness import ECHO, RawPeer, echo, eventually, on_each_loop, request, serving

if TYPE_CHECKING:
    from pathlib import Path

    from orbitmq.remoting import Connection

NEARLY_WHOLE = struct.pack(">iI", 16 * MEGABYTE - 4, 20) + bytes(12 * MEGABYTE)
FULL_PROPERTIES = "k\x01v\x02" * 8000
"""32,000 bytes, half of them characters that JSON escapes with six bytes."""


async def test_unfinished_frames_cost_no_more_than_the_budget(tmp_path: Path) -> None:
    async with flooded_broker(tmp_path) as (server, port):
        with Canary(port) as canary, contextlib.ExitStack() as stack:
            assert canary.send().code == 0
            before = server.memory
            peers = [stack.enter_context(peer) for peer in silent_sockets(port, 20)]
            most = 0
            for peer in peers:
                push(peer, NEARLY_WHOLE)
            for _ in range(30):
                for peer in peers:
                    push(peer, bytes(MEGABYTE))
                assert canary.send().code == 0
                most = max(most, server.memory - before)

    # The allocator returns what is freed a moment later, on a busy machine much later. 320 MB came in.
    assert most < 6 * BUDGET


@on_each_loop
@counts(Limit.FRAME_TIME)
async def test_a_frame_that_arrives_byte_by_byte_misses_its_deadline() -> None:
    ends: list[Exception | None] = []

    def gone(_: Connection, error: Exception | None) -> None:
        ends.append(error)

    limits = Limits(frame_seconds=0.05, frame_bytes_per_second=16 * MEGABYTE, sweep_seconds=0.005)
    async with serving({ECHO: echo}, limits, on_close=gone) as server, RawPeer.connected(server) as peer:
        peer.send(request(ECHO, 1), request(ECHO, 2, body=bytes(1000))[:100])
        assert (await peer.receive()).opaque == 1
        with contextlib.suppress(ConnectionError):
            while not ends:
                peer.send(b"\0")
                await asyncio.sleep(0.005)

    assert "slow frame: " in str(ends[0])


@on_each_loop
async def test_the_deadline_of_a_frame_depends_on_its_size() -> None:
    limits = Limits(frame_seconds=0.01, frame_bytes_per_second=1, sweep_seconds=0.001)
    async with serving({ECHO: echo}, limits) as server, RawPeer.connected(server) as peer:
        wire = request(ECHO, 7, body=bytes(2000))
        for begin in range(0, len(wire), 100):
            peer.send(wire[begin : begin + 100])
            await asyncio.sleep(0.005)

        assert (await peer.receive()).opaque == 7


@on_each_loop
async def test_a_header_over_the_limit_closes_its_connection_before_it_is_read() -> None:
    async with serving({ECHO: echo}) as server, RawPeer.connected(server) as peer:
        size = MAX_HEADER_BYTES * ESCAPE_SIZE + 1
        peer.send(request(ECHO, 1), struct.pack(">iI", size + 4, size) + b"{")
        assert (await peer.receive()).opaque == 1
        assert await peer.rest() == b""


async def test_a_send_with_full_properties_fits_however_its_json_is_escaped(tmp_path: Path) -> None:
    async with flooded_broker(tmp_path) as (_, port):
        with Canary(port) as canary:
            escaped = "".join(f"\\u{ord(letter):04x}" for letter in FULL_PROPERTIES).encode()
            wire = send_request(1, b"body", properties="PLACE")
            head = wire[8:-4].replace(b"PLACE", escaped)
            answer = canary.ask(frame(head, b"body"))

    assert answer.code == 0, answer.remark
    assert len(head) > 190_000


def test_a_parser_refuses_a_long_header_at_its_first_bytes() -> None:
    parser = FrameParser(max_header=100)

    with pytest.raises(FrameError, match="header of 601 bytes, at most 100"):
        parser.feed(struct.pack(">iI", 10_000, 601))
    with pytest.raises(FrameError, match="header of 101 bytes, at most 100"):
        FrameParser(max_header=100).feed(struct.pack(">iI", 10_000, 1 << 24 | 101))


def test_a_parser_counts_an_escape_as_one_character() -> None:
    assert len(FrameParser(max_header=100).feed(frame(b"\\u0001" * 90 + bytes(10)))) == 1
    assert len(FrameParser(max_header=100).feed(frame(b'\\"' * 100))) == 1
    for header in (b"\\u0001" * 90 + bytes(11), bytes(101), b'\\"' * 101):
        with pytest.raises(FrameError, match=f"header of {len(header)} bytes, at most 100"):
            FrameParser(max_header=100).feed(frame(header))


async def test_a_broker_reads_requests_with_headers_of_up_to_64_kib(tmp_path: Path) -> None:
    async with flooded_broker(tmp_path) as (_, port):
        with Canary(port) as canary:
            wire = send_request(1, b"body")
            head = wire[8:-4].replace(b'"version"', b'"padding":"%b","version"')
            room = MAX_REQUEST_HEADER_BYTES - len(head % b"")
            assert canary.ask(frame(head % (b"x" * room), b"body")).code == 0
            with pytest.raises(ConnectionError):
                canary.ask(frame(head % (b"x" * (room + 1)), b"body"))


@on_each_loop
async def test_what_is_received_is_charged_and_released() -> None:
    budget = MemoryBudget(64 * MEGABYTE)
    async with serving({ECHO: echo}, budget=budget) as server:
        async with RawPeer.connected(server) as peer:
            peer.send(struct.pack(">iI", 2 * MEGABYTE - 4, 20) + bytes(MEGABYTE))
            await eventually(lambda: budget.categories.get("received", 0) >= MEGABYTE)
        await eventually(lambda: budget.used == 0)
