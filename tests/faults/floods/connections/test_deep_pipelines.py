"""Fairness: a client with a deep pipeline of requests does not starve the others."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from typing import TYPE_CHECKING

from orbitmq.remoting.limits.fair_scheduling import ITERATION_SECONDS
from support.remoting_harness import ECHO, RawPeer, answer_to, echo, eventually, on_each_loop, request, serving

if TYPE_CHECKING:
    from orbitmq.protocol.command.header import Header
    from orbitmq.remoting import Connection

SLOW = 1
WORK = ITERATION_SECONDS / 2


class Slow:
    """A handler that blocks the loop; records the loop iterations in which it was called."""

    def __init__(self) -> None:
        self.turns: list[int] = []
        self.turn = 0
        self.stopped = False

    def __call__(self, _: Connection, header: Header, __: bytes, serialize_type: int) -> bytes:
        self.turns.append(self.turn)
        until = time.monotonic() + WORK
        while time.monotonic() < until:
            pass
        return answer_to(header, serialize_type)

    async def count_turns(self) -> None:
        while not self.stopped:
            self.turn += 1
            await asyncio.sleep(0)


@on_each_loop
async def test_one_loop_iteration_processes_a_bounded_part_of_a_pipeline() -> None:
    slow = Slow()
    async with serving({SLOW: slow}) as server, RawPeer.connected(server) as peer:
        counting = asyncio.create_task(slow.count_turns())
        peer.send(*(request(SLOW, opaque) for opaque in range(40)))
        answered = [(await peer.receive()).opaque for _ in range(40)]
        slow.stopped = True
        await counting

    assert answered == list(range(40))
    # Each takes half of the time of a slice; the one that crosses its end is the last.
    assert max(len(list(calls)) for _, calls in itertools.groupby(slow.turns)) <= 3


@on_each_loop
async def test_a_client_with_one_request_is_served_between_the_slices_of_a_pipeline() -> None:
    slow = Slow()
    async with (
        serving({SLOW: slow, ECHO: echo}) as server,
        RawPeer.connected(server) as deep,
        RawPeer.connected(server) as single,
    ):
        await single.ask(request(ECHO, 0))
        deep.send(*(request(SLOW, opaque) for opaque in range(100)))
        await eventually(lambda: slow.turns)
        answer = await single.ask(request(ECHO, 1))
        processed = len(slow.turns)
        for _ in range(100):
            await deep.receive()

    assert answer.opaque == 1
    assert processed < 50


@on_each_loop
async def test_a_client_with_one_request_does_not_wait_for_a_slice_of_every_pipeline() -> None:
    slow = Slow()
    async with serving({SLOW: slow, ECHO: echo}) as server, contextlib.AsyncExitStack() as stack:
        single = await stack.enter_async_context(RawPeer.connected(server))
        await single.ask(request(ECHO, 0))
        pipelines = [await stack.enter_async_context(RawPeer.connected(server)) for _ in range(30)]
        for deep in pipelines:
            deep.send(*(request(SLOW, opaque) for opaque in range(6)))
        # Every pipeline has had a slice, and has requests left.
        await eventually(lambda: len(slow.turns) > 3 * len(pipelines))
        before = len(slow.turns)
        answer = await single.ask(request(ECHO, 1))
        meanwhile = len(slow.turns) - before
        for deep in pipelines:
            assert [(await deep.receive()).opaque for _ in range(6)] == list(range(6))

    assert answer.opaque == 1
    assert meanwhile < len(pipelines) / 2


@on_each_loop
async def test_a_pipeline_is_answered_in_full_and_in_order_though_its_sender_has_stopped_sending() -> None:
    slow = Slow()
    async with serving({SLOW: slow, ECHO: echo}) as server, RawPeer.connected(server) as peer:
        peer.send(*(request(SLOW if opaque % 2 else ECHO, opaque) for opaque in range(30)))
        peer.writer.write_eof()

        assert [(await peer.receive()).opaque for _ in range(30)] == list(range(30))
        assert await peer.rest() == b""


@on_each_loop
async def test_valid_requests_before_a_malformed_frame_are_answered_in_all_slices() -> None:
    slow = Slow()
    async with serving({SLOW: slow}) as server, RawPeer.connected(server) as peer:
        peer.send(*(request(SLOW, opaque) for opaque in range(12)), b"\xff" * 100)

        assert [(await peer.receive()).opaque for _ in range(12)] == list(range(12))
        assert await peer.rest() == b""
