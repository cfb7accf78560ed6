"""Back-pressure: limits on the number and bytes of messages in flight."""

from __future__ import annotations

import asyncio
import collections

from orbitmq.client.errors import TooManySendsError


class InFlight:
    """Counters of messages in flight. Waiters are served first in, first out."""

    __slots__ = ("_drained", "_max_bytes", "_most", "_waiting", "bytes", "count")

    def __init__(self, most: int, max_bytes: int) -> None:
        self._most = most
        self._max_bytes = max_bytes
        self.count = 0
        self.bytes = 0
        self._waiting: collections.deque[tuple[asyncio.Future[None], int]] = collections.deque()
        self._drained: asyncio.Future[None] | None = None

    def fits(self, size: int) -> bool:
        """True if ``size`` more bytes may be sent now. A message over the whole limit is sent alone."""
        return not self.count or (
            self.count < self._most and self.bytes + size <= self._max_bytes and not self._waiting
        )

    def enter(self, size: int) -> None:
        """Reserve capacity. Raises TooManySendsError if there is none."""
        if not self.fits(size):
            raise TooManySendsError(
                f"{self.count} messages of {self.bytes} bytes are in flight: wait for some of them, "
                "or raise the limits (back_pressure_for_async_send_num, back_pressure_for_async_send_size)"
            )
        self.count += 1
        self.bytes += size

    def enter_anyway(self, size: int) -> None:
        """Count a message that was sent already, whatever the limit."""
        self.count += 1
        self.bytes += size

    async def enter_later(self, size: int, seconds: float | None) -> None:
        """Wait for capacity, at most ``seconds``. Raises TooManySendsError."""
        if self.fits(size):
            self.count += 1
            self.bytes += size
            return
        room: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((room, size))
        try:
            async with asyncio.timeout(seconds):
                await room
        except BaseException as error:
            self._give_back(room, size)
            if isinstance(error, TimeoutError):
                raise TooManySendsError(
                    f"no capacity for another message within {seconds:.1f} s: {self.count} messages of "
                    f"{self.bytes} bytes are in flight"
                ) from None
            raise

    def _give_back(self, room: asyncio.Future[None], size: int) -> None:
        """Undo the reservation of a cancelled waiter."""
        if not room.cancelled():
            # Granted in the same loop iteration.
            self.leave(size)
        elif (room, size) in self._waiting:
            self._waiting.remove((room, size))
            self._grant()

    def leave(self, size: int) -> None:
        """Release capacity."""
        self.count -= 1
        self.bytes -= size
        if self._waiting:
            self._grant()
        if self._drained is not None and not self.count:
            self._drained.set_result(None)
            self._drained = None

    def _grant(self) -> None:
        waiting = self._waiting
        while waiting:
            room, size = waiting[0]
            if self.count and (self.count >= self._most or self.bytes + size > self._max_bytes):
                return
            waiting.popleft()
            if not room.done():
                self.count += 1
                self.bytes += size
                room.set_result(None)

    async def room(self, size: int = 0) -> None:
        """Wait until ``size`` more bytes may be sent."""
        while not self.fits(size):
            await self.enter_later(size, None)
            self.leave(size)

    async def drained(self) -> None:
        """Wait until nothing is in flight."""
        while self.count:
            if self._drained is None:
                self._drained = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._drained)
