"""Frames received in one loop iteration are batched for the interceptor, and none is lost."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING

import pytest

from orbitmq.remoting import Connection, Limits
from orbitmq.remoting.endpoint import Endpoint
from orbitmq.remoting.interceptor import MAX_BATCHED_BYTES
from support.remoting_harness import ECHO, MemoryTransport, decoded, echo, request

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

TAKEN = 501


class FirstTaken:
    """Takes requests of one code from the front and answers them with one byte; fails if it is told to."""

    together = (b'{"code":501,',)

    def __init__(self) -> None:
        self.shown: list[list[bytes]] = []
        self.alone: list[bytes] = []
        self.fails = False

    def take(self, connection: Connection, data: bytes) -> tuple[int, int]:
        self.alone.append(data)
        size = taken_size(data)
        if size:
            connection.send(b"!")
        return size, len(data) - size

    def take_together(self, received: list[tuple[Connection, bytes]]) -> list[int]:
        self.shown.append([data for _, data in received])
        if self.fails:
            raise RuntimeError("no")
        sizes = [taken_size(data) for _, data in received]
        for connection, _ in itertools.compress(received, sizes):
            connection.send_now(b"!")
        return sizes


def taken_size(data: bytes) -> int:
    """How many bytes the requests have that a interceptor takes from the front."""
    size = 0
    while data.startswith(b'{"code":501,', size + 8):
        end = size + 4 + int.from_bytes(data[size : size + 4], "big")
        if end > len(data):
            break
        size = end
    return size


def wanted(opaque: int = 1) -> bytes:
    return request(TAKEN, opaque)


class Ends:
    """Connections of one server in memory, and what takes from them."""

    def __init__(self, count: int) -> None:
        self.interceptor = FirstTaken()
        self.endpoint = Endpoint(Limits())
        self.connections: list[Connection] = []
        self.transports: list[MemoryTransport] = []
        for _ in range(count):
            connection = Connection(self.endpoint, {ECHO: echo}, is_server=True, interceptor=self.interceptor)
            transport = MemoryTransport()
            connection.connection_made(transport)
            self.connections.append(connection)
            self.transports.append(transport)

    def written(self) -> list[bytes]:
        return [b"".join(transport.writes) for transport in self.transports]


@pytest.fixture
async def ends() -> AsyncIterator[Ends]:
    made = Ends(3)
    yield made
    made.endpoint.close()


async def test_requests_of_one_iteration_are_intercepted_in_a_batch_and_answered_at_its_end(ends: Ends) -> None:
    for connection in ends.connections:
        connection.data_received(wanted())
    assert ends.written() == [b"", b"", b""]

    await asyncio.sleep(0)

    assert ends.interceptor.shown == [[wanted()] * 3]
    assert ends.interceptor.alone == []
    assert ends.written() == [b"!"] * 3


async def test_frames_declined_in_a_batch_are_intercepted_alone_or_handled(ends: Ends) -> None:
    first, second, third = ends.connections
    first.data_received(wanted() + request(ECHO, 2, body=b"and"))
    second.data_received(request(ECHO, 3, body=b"only"))
    third.data_received(wanted()[:10])

    await asyncio.sleep(0)

    one, other, none = ends.written()
    assert one[:1] == b"!"
    assert [answer.body for answer in decoded(one[1:]) + decoded(other)] == [b"and", b"only"]
    assert none == b""

    third.data_received(wanted()[10:])
    await asyncio.sleep(0)
    assert ends.written()[2] == b"!"


async def test_a_second_piece_of_a_connection_comes_behind_the_first(ends: Ends) -> None:
    connection = ends.connections[0]
    connection.data_received(request(ECHO, 1, body=b"a"))
    connection.data_received(request(ECHO, 2, body=b"b"))
    connection.data_received(request(ECHO, 3, body=b"c"))

    await asyncio.sleep(0)

    assert [answer.body for answer in decoded(ends.written()[0])] == [b"a", b"b", b"c"]


async def test_many_requests_of_one_connection_do_not_wait(ends: Ends) -> None:
    many = wanted() * (MAX_BATCHED_BYTES // len(wanted()) + 1)
    ends.connections[0].data_received(many)

    assert ends.interceptor.alone == [many]
    assert ends.interceptor.shown == []


@pytest.mark.parametrize("end", ["close", "drain", "eof_received", "connection_lost"])
async def test_bytes_received_before_a_connection_closes_are_intercepted(ends: Ends, end: str) -> None:
    first, second, _ = ends.connections
    second.data_received(wanted())
    first.data_received(wanted())
    getattr(first, end)(*[None] if end == "connection_lost" else [])
    await asyncio.sleep(0)

    assert ends.interceptor.shown == [[wanted()] * 2]
    assert ends.written()[:2] == [b"!", b"!"]


async def test_nothing_is_handled_of_a_connection_that_was_aborted(ends: Ends) -> None:
    first, second, _ = ends.connections
    first.data_received(request(ECHO, 1))
    second.data_received(request(ECHO, 2))
    first.abort()
    await asyncio.sleep(0)

    assert ends.written()[0] == b""
    assert [answer.opaque for answer in decoded(ends.written()[1])] == [2]


async def test_if_taking_fails_all_whom_it_concerns_are_closed(
    ends: Ends, caplog: pytest.LogCaptureFixture
) -> None:
    ends.interceptor.fails = True
    for connection in ends.connections[:2]:
        connection.data_received(wanted())
    await asyncio.sleep(0)

    assert [transport.closed for transport in ends.transports] == [True, True, False]
    assert "interceptor failed" in caplog.text

    ends.interceptor.fails = False
    ends.connections[2].data_received(wanted())
    await asyncio.sleep(0)
    assert ends.written()[2] == b"!"
