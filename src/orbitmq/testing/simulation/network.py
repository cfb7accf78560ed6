"""Network: TCP between the machines of a simulated cluster, with faults.

Like TCP, a connection delivers its bytes in order and once, or breaks. Everything else may happen to it: delays
that differ with every segment, segments that end anywhere in a frame, a link that is cut in one direction or both
(bytes wait, as retransmission does it, and the connection breaks after ``GIVE_UP_SECONDS``), resets, and peers that
are gone without a word because their machine lost power.
"""

from __future__ import annotations

import asyncio
import collections
import contextvars
import errno
import itertools
import random
from typing import TYPE_CHECKING, Any, cast

from orbitmq.testing.simulation.event_loop import current_process, running_as

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from orbitmq.testing.simulation.event_loop import Process, SimulatedLoop

WINDOW = 256 * 1024
"""Bytes in flight and unread by the peer, after which a sender's bytes wait in its own buffer."""

GIVE_UP_SECONDS = 60.0
"""A connection whose bytes do not arrive for so long is broken for its sender. Linux gives up after 15 minutes by
default; a shorter time has more connections break in a run."""

DELAY_SECONDS = (0.000_05, 0.002)
"""Delay of a segment: shortest and usual longest; one of a hundred takes up to fifty times as long."""

FIRST_EPHEMERAL_PORT = 40_000

OWN_HOST = "10.0.9.9"
"""The address of the simulation itself, which creates topics."""


class Network:
    """The machines' network. ``seed`` decides delays and segments."""

    def __init__(self, seed: int = 0) -> None:
        self.random = random.Random(seed)
        self.bytes_delivered = 0
        self._servers: dict[tuple[str, int], SimulatedServer] = {}
        self._cut: set[tuple[str, str]] = set()
        self._dark: set[str] = set()
        """Machines without power."""
        self._transports: dict[SimulatedTransport, None] = {}
        self._ports = itertools.count(FIRST_EPHEMERAL_PORT)

    # Faults

    def cut(self, source: str, target: str) -> None:
        """No byte arrives from one machine at another until ``heal``. The other direction is not affected."""
        self._cut.add((source, target))

    def heal(self, source: str, target: str) -> None:
        self._cut.discard((source, target))
        self._wake((source, target))

    def heal_all(self) -> None:
        for link in sorted(self._cut):
            self.heal(*link)

    def power_off(self, host: str) -> None:
        """A machine loses power: its peers see nothing of it, neither an end nor a reset."""
        self._dark.add(host)
        self._servers = {key: server for key, server in self._servers.items() if key[0] != host}
        for transport in [one for one in self._transports if one.host == host]:
            transport.vanish()

    def power_on(self, host: str) -> None:
        self._dark.discard(host)
        for transport in list(self._transports):
            transport.pump()

    def process_died(self, process: Process) -> None:
        """The system of its machine closes what it had open: peers get a reset."""
        self._servers = {key: server for key, server in self._servers.items() if server.process is not process}
        for transport in [one for one in self._transports if one.process is process]:
            transport.reset_peer()
            transport.vanish()

    def reset_connections(self, host: str, peer: str) -> int:
        """Break all connections between two machines; returns how many."""
        broken = [one for one in self._transports if {one.host, one.peer_host} == {host, peer}]
        for transport in broken:
            transport.break_with(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))
        return len(broken)

    def is_open(self, source: str, target: str) -> bool:
        return (source, target) not in self._cut and not {source, target} & self._dark

    def _wake(self, link: tuple[str, str]) -> None:
        for transport in list(self._transports):
            if (transport.host, transport.peer_host) == link:
                transport.pump()

    # Connections

    def listen(self, loop: SimulatedLoop, factory: Callable[[], Any], host: str, port: int) -> SimulatedServer:
        process = current_process()
        if process is not None:
            host = process.host
        if not port:
            port = next(self._ports)
        if (host, port) in self._servers:
            raise OSError(errno.EADDRINUSE, "Address already in use")
        server = SimulatedServer(self, loop, factory, (host, port), process)
        self._servers[host, port] = server
        return server

    def forget_server(self, server: SimulatedServer) -> None:
        if self._servers.get(server.address) is server:
            del self._servers[server.address]

    async def connect(
        self, loop: SimulatedLoop, factory: Callable[[], Any], host: str, port: int
    ) -> tuple[SimulatedTransport, Any]:
        process = current_process()
        source = OWN_HOST if process is None else process.host
        while True:
            await asyncio.sleep(self.delay())
            if self.is_open(source, host) and self.is_open(host, source):
                break
            # The first segment is sent again and again; the caller has a time-out.
            await asyncio.sleep(0.5)
        server = self._servers.get((host, port))
        if server is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
        own = (source, next(self._ports))
        mine = SimulatedTransport(self, loop, own, server.address, process)
        theirs = SimulatedTransport(self, loop, server.address, own, server.process)
        mine.peer, theirs.peer = theirs, mine
        with running_as(server.process):
            accepted = server.factory()
            loop.call_soon(theirs.start, accepted)
        # Its system has accepted the connection, even if the process is paused, or dies before it knows.
        self.add(theirs)
        protocol = factory()
        mine.start(protocol)
        return mine, protocol

    def add(self, transport: SimulatedTransport) -> None:
        self._transports[transport] = None

    def remove(self, transport: SimulatedTransport) -> None:
        self._transports.pop(transport, None)

    def delay(self) -> float:
        shortest, longest = DELAY_SECONDS
        delay = self.random.uniform(shortest, longest)
        return delay * self.random.uniform(1, 50) if self.random.random() < 0.01 else delay

    def segment(self, size: int) -> int:
        """Bytes of the next segment of so many: mostly all, sometimes any part."""
        return size if size < 2 or self.random.random() < 0.9 else self.random.randint(1, size - 1)


class SimulatedServer:
    """A listening port, as ``asyncio.Server``."""

    def __init__(
        self,
        network: Network,
        loop: SimulatedLoop,
        factory: Callable[[], Any],
        address: tuple[str, int],
        process: Process | None,
    ) -> None:
        self._network = network
        self._loop = loop
        self.factory = factory
        self.address = address
        self.process = process

    @property
    def sockets(self) -> tuple[_Socket, ...]:
        return (_Socket(self.address),)

    def get_loop(self) -> SimulatedLoop:
        return self._loop

    def is_serving(self) -> bool:
        return True

    def close(self) -> None:
        self._network.forget_server(self)

    async def wait_closed(self) -> None:
        """Closed at once."""


class _Socket:
    """The name of a listening port."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address

    def getsockname(self) -> tuple[str, int]:
        return self._address


class SimulatedTransport(asyncio.Transport):
    """One end of a connection."""

    def __init__(
        self,
        network: Network,
        loop: SimulatedLoop,
        own: tuple[str, int],
        peer: tuple[str, int],
        process: Process | None,
    ) -> None:
        super().__init__({"sockname": own, "peername": peer})
        self.host, self.peer_host = own[0], peer[0]
        self.process = process
        self.peer: SimulatedTransport | None = None
        self._network = network
        self._loop = loop
        self._protocol: asyncio.Protocol | None = None
        # The process of this end, for callbacks that the other end causes.
        with running_as(process):
            self._context = contextvars.copy_context()
        self._unsent: collections.deque[bytes] = collections.deque()
        self._unsent_size = 0
        self._in_flight = 0
        self._last_arrival = 0.0
        self._flight: collections.deque[tuple[float, bytes | None]] = collections.deque()
        """Sent, with the time of arrival, and not handed over yet."""
        self._is_delivery_due = False
        self._unread: collections.deque[bytes | None] = collections.deque()
        """Bytes that arrived while reading was paused; None is the end of the stream."""
        self._is_reading_paused = False
        self._is_writing_paused = False
        self._high, self._low = 65536, 16384
        self._is_closing = False
        self._is_lost = False
        self._is_told = False
        self._end_is_due = False
        """The end of the stream follows the last byte."""
        self._give_up: asyncio.TimerHandle | None = None

    def start(self, protocol: asyncio.Protocol) -> None:
        if self._is_lost:
            return
        self._protocol = protocol
        self._network.add(self)
        protocol.connection_made(self)

    # For its protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = cast("asyncio.Protocol", protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self._protocol is not None
        return self._protocol

    def is_closing(self) -> bool:
        return self._is_closing

    def is_reading(self) -> bool:
        return not self._is_reading_paused

    def pause_reading(self) -> None:
        self._is_reading_paused = True

    def resume_reading(self) -> None:
        if self._is_reading_paused:
            self._is_reading_paused = False
            self._loop.call_soon(self._read, context=self._context)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = 65536 if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_size(self) -> int:
        return self._unsent_size

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._is_closing or not data:
            return
        self._unsent.append(bytes(data))
        self._unsent_size += len(data)
        self.pump()
        if self._unsent_size > self._high and not self._is_writing_paused:
            self._is_writing_paused = True
            assert self._protocol is not None
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        return False

    def close(self) -> None:
        if self._is_closing:
            return
        self._is_closing = self._end_is_due = True
        self.pump()
        if self._unsent_size <= WINDOW and not self._network.is_open(self.host, self.peer_host):
            # The system has taken the bytes, and sends them when it can. The process does not wait for that.
            self._tell(None)

    def abort(self) -> None:
        self._is_closing = True
        self.reset_peer()
        self._lose(None)

    # The network

    def pump(self) -> None:
        """Send what the window and the link let through."""
        network, peer = self._network, self.peer
        if self._is_lost:
            return
        if peer is None or not network.is_open(self.host, self.peer_host):
            self._expect_progress()
            return
        if peer._is_lost:
            # Its machine is there and knows no such connection.
            if self._unsent or self._in_flight:
                self._later(self.break_with, ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))
            elif self._end_is_due:
                self._later(self._lose, None)
            return
        self._deliver_later(peer)
        while self._unsent and self._in_flight < WINDOW:
            self._send_segment(peer)
        if self._is_writing_paused and self._unsent_size <= self._low:
            self._is_writing_paused = False
            assert self._protocol is not None
            self._loop.call_soon(self._protocol.resume_writing, context=self._context)
        if self._end_is_due and not self._unsent:
            self._end_is_due = False
            self._arrive_at(peer, None)
            self._later(self._lose, None)
        self._expect_progress()

    def _send_segment(self, peer: SimulatedTransport) -> None:
        data = self._unsent.popleft()
        size = self._network.segment(len(data))
        if size < len(data):
            self._unsent.appendleft(data[size:])
        self._unsent_size -= size
        self._in_flight += size
        self._arrive_at(peer, data[:size])

    def _arrive_at(self, peer: SimulatedTransport, data: bytes | None) -> None:
        arrival = max(self._last_arrival, self._loop.time() + self._network.delay())
        self._last_arrival = arrival
        self._flight.append((arrival, data))
        self._deliver_later(peer)

    def _deliver_later(self, peer: SimulatedTransport) -> None:
        if self._flight and not self._is_delivery_due:
            self._is_delivery_due = True
            when = max(self._flight[0][0], self._loop.time())
            self._loop.call_at(when, self._deliver, peer, context=peer._context)

    def _deliver(self, peer: SimulatedTransport) -> None:
        """Hand over what has arrived; runs as the peer. What is in flight when a link is cut waits for it."""
        self._is_delivery_due = False
        flight = self._flight
        while flight and self._network.is_open(self.host, self.peer_host):
            arrival, data = flight[0]
            if arrival > self._loop.time():
                self._deliver_later(peer)
                return
            flight.popleft()
            if not peer._is_lost:
                peer._receive(data)

    def _receive(self, data: bytes | None) -> None:
        self._unread.append(data)
        if not self._is_reading_paused:
            self._read()

    def _read(self) -> None:
        while self._unread and not self._is_reading_paused and not self._is_lost:
            data = self._unread.popleft()
            protocol = self._protocol
            assert protocol is not None
            if data is None:
                if not self._is_closing and not protocol.eof_received():
                    self.close()
                return
            self._network.bytes_delivered += len(data)
            peer = self.peer
            if peer is not None:
                peer._in_flight -= len(data)
                if peer._unsent:
                    self._loop.call_soon(peer.pump, context=peer._context)
            if not self._is_closing:
                protocol.data_received(data)

    def _expect_progress(self) -> None:
        """Break the connection if what was sent does not arrive in time."""
        if (self._unsent or self._end_is_due) and self._give_up is None:
            self._give_up = self._later_by(GIVE_UP_SECONDS, self._check_progress, self._unsent_size)

    def _check_progress(self, unsent: int) -> None:
        self._give_up = None
        if self._unsent_size >= unsent and not self._network.is_open(self.host, self.peer_host):
            self.break_with(TimeoutError(errno.ETIMEDOUT, "Connection timed out"))
        else:
            self._expect_progress()

    def break_with(self, error: OSError) -> None:
        """The connection is broken, for this end."""
        self._is_closing = True
        self._later(self._lose, error)

    def reset_peer(self) -> None:
        """Send a reset, unless the link is cut."""
        peer = self.peer
        if peer is not None and not peer._is_lost and self._network.is_open(self.host, self.peer_host):
            error = ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")
            when = self._loop.time() + self._network.delay()
            self._loop.call_at(when, peer.break_with, error, context=peer._context)

    def vanish(self) -> None:
        """This end is gone with its process; its protocol learns nothing."""
        self._is_lost = self._is_closing = True
        self._network.remove(self)

    def _lose(self, error: OSError | None) -> None:
        if self._is_lost:
            return
        self.vanish()
        if self._give_up is not None:
            self._give_up.cancel()
        self._tell(error)

    def _tell(self, error: OSError | None) -> None:
        """Tell the process that the connection is closed, once."""
        protocol = self._protocol
        if protocol is not None and not self._is_told:
            self._is_told, self._is_writing_paused = True, False
            self._loop.call_soon(protocol.connection_lost, error, context=self._context)

    def _later(self, work: Callable[..., None], *args: object) -> None:
        self._loop.call_soon(work, *args, context=self._context)

    def _later_by(self, seconds: float, work: Callable[..., None], *args: object) -> asyncio.TimerHandle:
        return self._loop.call_later(seconds, work, *args, context=self._context)
