"""In-process connections: both ends of a connection in one event loop, without a socket.

The gRPC server of a broker's process reaches the broker this way: requests take the same path, with the same
limits, as those of a socket.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orbitmq.remoting.gather_write import Buffer

LOW_FRACTION = 4
"""Writing resumes when this fraction of the high-water mark is left, as in asyncio's transports."""


class InProcessTransport(asyncio.Transport):
    """One end of a pair. What is written here is received by the protocol of the other end, an iteration later."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, protocol: asyncio.Protocol, addresses: tuple[str, str]
    ) -> None:
        super().__init__()
        self.other: InProcessTransport
        self._loop = loop
        self._protocol = protocol
        self._extra_addresses = {"sockname": _split(addresses[0]), "peername": _split(addresses[1])}
        self._written: list[Buffer | bytearray | memoryview] = []
        self._size = 0
        self._high = 65536
        self._delivery_is_scheduled = False
        self._reading = True
        self._writing_is_paused = False
        self._closing = False
        self._lost = False

    # asyncio.Transport

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._extra_addresses.get(name, default)

    def is_closing(self) -> bool:
        return self._closing

    def write(self, data: Buffer | bytearray | memoryview) -> None:
        if self._closing or not data:
            return
        self._written.append(data)
        self._size += len(data)
        self._schedule()
        if self._size > self._high and not self._writing_is_paused:
            self._writing_is_paused = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Iterable[Buffer | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def get_write_buffer_size(self) -> int:
        return self._size

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:  # noqa: ARG002
        self._high = 65536 if high is None else high

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        if self.other._size:
            self.other._schedule()

    def close(self) -> None:
        """Deliver what was written, then close both ends."""
        if not self._closing:
            self._closing = True
            self._schedule()

    def abort(self) -> None:
        """Close both ends at once."""
        self._closing = True
        self._written.clear()
        self._size = 0
        self._loop.call_soon(self._lose)

    # Delivery

    def _schedule(self) -> None:
        if not self._delivery_is_scheduled:
            self._delivery_is_scheduled = True
            self._loop.call_soon(self._deliver)

    def _deliver(self) -> None:
        self._delivery_is_scheduled = False
        other = self.other
        if self._written and not other._lost:
            if not other._reading:
                return
            written, self._written, self._size = self._written, [], 0
            one = written[0] if len(written) == 1 else b"".join(written)
            other._protocol.data_received(one if isinstance(one, bytes) else bytes(one))
            if self._writing_is_paused and self._size <= self._high // LOW_FRACTION:
                self._writing_is_paused = False
                if not self._lost:
                    self._protocol.resume_writing()
        if self._closing and not self._written:
            self._lose()

    def _lose(self) -> None:
        for end in (self, self.other):
            end._closing = True
            if not end._lost:
                end._lost = True
                end._written.clear()
                end._size = 0
                end._protocol.connection_lost(None)


def connect_in_process(
    loop: asyncio.AbstractEventLoop, server: asyncio.Protocol, client: asyncio.Protocol, addresses: tuple[str, str]
) -> None:
    """Connect two protocols. ``addresses`` are ``host:port`` of the server and of the client."""
    there = InProcessTransport(loop, server, addresses)
    here = InProcessTransport(loop, client, (addresses[1], addresses[0]))
    there.other, here.other = here, there
    server.connection_made(there)
    client.connection_made(here)


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port) if port.isdigit() else 0
