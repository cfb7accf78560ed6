"""Back-pressure: how many messages, and how many bytes of them, may be on their way at a time."""

from __future__ import annotations

import asyncio
import collections

from orbitmq.client.errors import TooManySendsError


class InFlight:
    """Counts what is on its way. Those who have to wait for room get it in the order in which they came."""

    __slots__ = ("_drained", "_most", "_most_bytes", "_waiting", "bytes", "count")

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self.count = 0
        self.bytes = 0
        self._waiting: collections.deque[tuple[asyncio.Future[None], int]] = collections.deque()
        self._drained: asyncio.Future[None] | None = None

    def fits(self, size: int) -> bool:
        """Whether so many bytes more may be sent now. What is larger than all room is sent alone."""
        return not self.count or (
            self.count < self._most and self.bytes + size <= self._most_bytes and not self._waiting
        )

    def enter(self, size: int) -> None:
        """Take room. Raises TooManySendsError if there is none."""
        if not self.fits(size):
            raise TooManySendsError(
                f"{self.count} messages of {self.bytes} bytes are on their way already: wait for some of them, "
                "or allow more (back_pressure_for_async_send_num, back_pressure_for_async_send_size)"
            )
        self.count += 1
        self.bytes += size

    async def enter_later(self, size: int, seconds: float | None) -> None:
        """Wait for room, but not longer than this. Raises TooManySendsError."""
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
                    f"there was no room for one more message within {seconds:.1f} s: {self.count} of {self.bytes} "
                    "bytes are on their way"
                ) from None
            raise

    def _give_back(self, room: asyncio.Future[None], size: int) -> None:
        """Whoever waited does not want it any more."""
        if not room.cancelled():
            # It was given in the same turn of the loop.
            self.leave(size)
        elif (room, size) in self._waiting:
            self._waiting.remove((room, size))
            self._let_in()

    def leave(self, size: int) -> None:
        """Give room back."""
        self.count -= 1
        self.bytes -= size
        if self._waiting:
            self._let_in()
        if self._drained is not None and not self.count:
            self._drained.set_result(None)
            self._drained = None

    def _let_in(self) -> None:
        waiting = self._waiting
        while waiting:
            room, size = waiting[0]
            if self.count and (self.count >= self._most or self.bytes + size > self._most_bytes):
                return
            waiting.popleft()
            if not room.done():
                self.count += 1
                self.bytes += size
                room.set_result(None)

    async def room(self, size: int = 0) -> None:
        """Wait until so many bytes more may be sent."""
        while not self.fits(size):
            await self.enter_later(size, None)
            self.leave(size)

    async def drained(self) -> None:
        """Wait until nothing is on its way."""
        while self.count:
            if self._drained is None:
                self._drained = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._drained)
