"""Base of the fast path's adapters: serve a batch natively, open missing routes, go on behind them."""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from orbitmq.broker.fast_path.epoch import RouteEpoch
    from orbitmq.remoting import Connection

NOT_NOW = -1
"""Result of ``_serve`` while nothing may be served natively: the Python path answers."""


class RouteCache(Protocol):
    """Common interface of the native batch types."""

    @property
    def missing_route(self) -> tuple[Any, ...] | None:
        """The route for whose lack the last call ended, as arguments of ``_open_route``."""
        ...

    def clear_routes(self) -> None: ...


NativeType = TypeVar("NativeType", bound=RouteCache)


class FastPathAdapter(abc.ABC, Generic[NativeType]):
    """Serves requests of one kind from the front of received bytes, and keeps the routes it does that by.

    Routes are cached until the epoch changes.
    """

    def __init__(self, epoch: RouteEpoch) -> None:
        self._epoch = epoch
        self.served = 0
        """Requests served since the start."""
        self.rebuild()

    def rebuild(self) -> None:
        """Make the native object again, after a change of settings."""
        self._seen_epoch = self._epoch.value
        self._native = self._create()

    @abc.abstractmethod
    def _create(self) -> NativeType:
        """The native object for the current settings, without routes."""

    @abc.abstractmethod
    def _serve(self, connection: Connection, data: bytes) -> int:
        """Call the native code once and record its results; the bytes of the frames served, or ``NOT_NOW``."""

    @abc.abstractmethod
    def _open_route(self, connection: Connection, *missing: Any) -> bool:
        """Open the route that the native code missed; False if such requests are for the Python path."""

    def _clear_routes(self) -> None:
        self._seen_epoch = self._epoch.value
        self._native.clear_routes()

    def take(self, connection: Connection, data: bytes) -> int:
        """Serve the requests that ``data`` begins with; the number of bytes of their frames."""
        if self._epoch.value != self._seen_epoch:
            self._clear_routes()
        total = 0
        while True:
            served = self._serve(connection, data)
            if served < 0:
                return total
            total += served
            if served == len(data):
                return total
            missing = self._native.missing_route
            if missing is None or not self._open_route(connection, *missing):
                return total
            data = data[served:]
