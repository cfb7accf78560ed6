"""Cache of what name servers and brokers answer: read once for all callers, refreshed while it is in use."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from orbitmq.protocol.errors import ProtocolError
from orbitmq.remoting import RemotingError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from orbitmq.platform.clock import Clock

log = logging.getLogger("orbitmq.proxy")

V = TypeVar("V")


class _Entry(NamedTuple, Generic[V]):
    value: V
    read_at: float


class Cache(Generic[V]):
    """Values by name. One that is older than ``fresh`` seconds is still returned while it is read again.

    If that fails it stays in use for ``expires`` seconds: a cluster works on without its name servers. An error of
    ``load`` that says that there is no value (any but RemotingError and ProtocolError) removes the value at once.
    """

    def __init__(
        self, load: Callable[[str], Awaitable[V]], clock: Clock, *, fresh: float, expires: float, limit: int
    ) -> None:
        self._load = load
        self._clock = clock
        self._fresh = fresh
        self._expires = expires
        self._limit = limit
        self._entries: dict[str, _Entry[V]] = {}
        self._reading: dict[str, asyncio.Task[V]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    async def get(self, name: str) -> V:
        """The value. Raises what ``load`` raises."""
        entry = self._entries.get(name)
        if entry is not None:
            age = self._clock.monotonic() - entry.read_at
            if age < self._fresh:
                return entry.value
            if age < self._expires:
                self._read(name)
                return entry.value
        # A cancelled caller must not cancel the read of the others.
        return await asyncio.shield(self._read(name))

    async def newer(self, name: str, max_age: float) -> V:
        """The value, read again if it is older than ``max_age`` seconds. Raises what ``load`` raises."""
        entry = self._entries.get(name)
        if entry is not None and self._clock.monotonic() - entry.read_at < max_age:
            return entry.value
        return await asyncio.shield(self._read(name))

    def forget(self, name: str) -> None:
        """Read the value again when it is needed next."""
        self._entries.pop(name, None)

    async def stop(self) -> None:
        for reading in tuple(self._reading.values()):
            reading.cancel()
        await asyncio.gather(*self._reading.values(), return_exceptions=True)

    def _read(self, name: str) -> asyncio.Task[V]:
        reading = self._reading.get(name)
        if reading is None:
            reading = asyncio.ensure_future(self._load(name))
            self._reading[name] = reading
            reading.add_done_callback(lambda ended: self._ended(name, ended))
        return reading

    def _ended(self, name: str, reading: asyncio.Future[V]) -> None:
        del self._reading[name]
        if reading.cancelled():
            return
        error = reading.exception()
        if error is None:
            # The newest is last; the one that was read longest ago makes room.
            self._entries.pop(name, None)
            self._entries[name] = _Entry(reading.result(), self._clock.monotonic())
            if len(self._entries) > self._limit:
                del self._entries[next(iter(self._entries))]
        elif not isinstance(error, (RemotingError, ProtocolError)):
            self._entries.pop(name, None)
        elif name in self._entries:
            log.warning("proxy: %s not read again, the former value stays in use: %s", name or "cluster", error)
