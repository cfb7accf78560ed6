"""The simulated loop and network: virtual time, processes that are killed and paused, and TCP with faults."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from orbitmq.platform.threads import in_thread
from orbitmq.testing.simulation.event_loop import DeadlockError, Process, SimulatedLoop, running_as
from orbitmq.testing.simulation.network import GIVE_UP_SECONDS, WINDOW, Network

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from orbitmq.testing.simulation.network import SimulatedTransport

PORT = 1234


class Peer(asyncio.Protocol):
    """One end of a connection: what it received, and how it ended."""

    def __init__(self) -> None:
        self.received = b""
        self.transport: SimulatedTransport
        self.ended: list[BaseException | None] = []
        self.saw_end = False
        self.is_writing_paused = False

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data

    def eof_received(self) -> None:
        self.saw_end = True

    def connection_lost(self, error: BaseException | None) -> None:
        self.ended.append(error)

    def pause_writing(self) -> None:
        self.is_writing_paused = True

    def resume_writing(self) -> None:
        self.is_writing_paused = False


class Pair:
    """A loop with a server process and a client process, and a connection between them."""

    def __init__(self, seed: int) -> None:
        self.network = Network(seed)
        self.loop = SimulatedLoop(self.network, seed)
        self.server_process = Process("server", "10.0.0.1")
        self.client_process = Process("client", "10.0.0.2")
        self.accepted: list[Peer] = []

    def play(self, scene: Coroutine[Any, Any, None]) -> None:
        self.loop.run_until_complete(scene)

    def _accept(self) -> Peer:
        self.accepted.append(Peer())
        return self.accepted[-1]

    async def connect(self) -> tuple[Peer, Peer]:
        with running_as(self.server_process):
            await self.loop.create_server(self._accept, "10.0.0.1", PORT)
        with running_as(self.client_process):
            _, client = await self.loop.create_connection(Peer, "10.0.0.1", PORT)
        await asyncio.sleep(0)
        return client, self.accepted[-1]


@pytest.fixture(params=range(3))
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    made = Pair(request.param)
    asyncio.set_event_loop(made.loop)
    yield made
    asyncio.set_event_loop(None)
    made.loop.close()


def scene(body: Callable[[Pair], Coroutine[Any, Any, None]]) -> Callable[[Pair], None]:
    """A test that runs on the loop of its pair."""

    def test(pair: Pair) -> None:
        pair.play(body(pair))

    test.__name__ = body.__name__
    return test


@scene
async def test_time_jumps_to_the_next_timer(pair: Pair) -> None:
    await asyncio.sleep(3600)
    assert pair.loop.time() == 3600


def test_a_loop_without_anything_to_do_is_an_error(pair: Pair) -> None:
    with pytest.raises(DeadlockError):
        pair.play(asyncio.Event().wait())  # type: ignore[arg-type]


@scene
async def test_work_in_threads_runs_on_the_loop_and_takes_time(pair: Pair) -> None:
    assert await in_thread(lambda: 42) == 42
    assert await pair.loop.run_in_executor(None, lambda: 43) == 43
    assert pair.loop.time() > 0


@scene
async def test_bytes_arrive_in_order_whatever_their_segments(pair: Pair) -> None:
    client, server = await pair.connect()
    sent = b"".join(b"%d," % number for number in range(2000))
    for at in range(0, len(sent), 100):
        client.transport.write(sent[at : at + 100])
    await asyncio.sleep(10)
    assert server.received == sent


@scene
async def test_bytes_wait_while_their_link_is_cut_and_the_other_direction_works(pair: Pair) -> None:
    client, server = await pair.connect()
    pair.network.cut("10.0.0.2", "10.0.0.1")
    client.transport.write(b"first")
    client.transport.write(b"second")
    server.transport.write(b"answer")
    await asyncio.sleep(5)
    assert (server.received, client.received) == (b"", b"answer")
    pair.network.heal("10.0.0.2", "10.0.0.1")
    await asyncio.sleep(1)
    assert server.received == b"firstsecond"


@scene
async def test_a_connection_breaks_when_nothing_arrives_for_long(pair: Pair) -> None:
    client, _ = await pair.connect()
    pair.network.cut("10.0.0.2", "10.0.0.1")
    client.transport.write(b"lost")
    await asyncio.sleep(2 * GIVE_UP_SECONDS + 1)
    assert [type(error) for error in client.ended] == [TimeoutError]


@scene
async def test_a_close_is_the_end_of_the_stream_behind_the_last_byte(pair: Pair) -> None:
    client, server = await pair.connect()
    client.transport.write(b"all")
    client.transport.close()
    await asyncio.sleep(1)
    assert (server.received, server.saw_end) == (b"all", True)
    assert (client.ended, server.ended) == ([None], [None])


@scene
async def test_a_killed_process_runs_no_line_more_and_its_peers_get_a_reset(pair: Pair) -> None:
    client, server = await pair.connect()
    ran: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(1)
            ran.append("on")
        finally:
            ran.append("finally")

    with running_as(pair.server_process):
        pair.loop.create_task(work())
    await asyncio.sleep(0.5)
    pair.loop.kill(pair.server_process)
    await asyncio.sleep(5)
    assert not ran
    assert not server.ended
    assert [type(error) for error in client.ended] == [ConnectionResetError]
    with running_as(pair.client_process), pytest.raises(ConnectionRefusedError):
        await pair.loop.create_connection(Peer, "10.0.0.1", PORT)


@scene
async def test_a_machine_without_power_is_silent_until_it_is_back_and_knows_nothing(pair: Pair) -> None:
    client, _ = await pair.connect()
    pair.loop.network.power_off("10.0.0.1")
    client.transport.write(b"anybody?")
    await asyncio.sleep(30)
    assert not client.ended
    pair.loop.network.power_on("10.0.0.1")
    await asyncio.sleep(1)
    assert [type(error) for error in client.ended] == [ConnectionResetError]


@scene
async def test_a_paused_process_does_everything_when_it_goes_on(pair: Pair) -> None:
    client, server = await pair.connect()
    ran: list[float] = []
    with running_as(pair.server_process):
        pair.loop.call_later(1, lambda: ran.append(pair.loop.time()))
    pair.loop.pause(pair.server_process)
    client.transport.write(b"are you there?")
    await asyncio.sleep(10)
    assert (ran, server.received) == ([], b"")
    pair.loop.resume(pair.server_process)
    await asyncio.sleep(1)
    assert (len(ran), server.received) == (1, b"are you there?")
    assert ran[0] >= 10


@scene
async def test_a_reader_that_does_not_read_stops_its_writer(pair: Pair) -> None:
    client, server = await pair.connect()
    server.transport.pause_reading()
    for _ in range(40):
        client.transport.write(bytes(16 * 1024))
        await asyncio.sleep(0.1)
    assert client.is_writing_paused
    assert client.transport.get_write_buffer_size() == 40 * 16 * 1024 - WINDOW
    server.transport.resume_reading()
    await asyncio.sleep(5)
    assert (len(server.received), client.is_writing_paused) == (40 * 16 * 1024, False)
