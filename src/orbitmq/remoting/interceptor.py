"""Interceptor interface: raw received bytes before frame parsing, per connection or batched across connections."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from orbitmq.remoting.connection import Connection

MAX_BATCHED_BYTES = 4096
"""Limit of the bytes of a connection that are batched with those of others. More bytes are many requests: batching
them with others saves little and delays the peer."""

HEADER_AT = 8
"""Offset of the header in a frame."""


class FrameInterceptor(Protocol):
    """Accepts whole frames at the front of received bytes, and sends the responses."""

    @property
    def together(self) -> tuple[bytes, ...]:
        """First bytes of the headers of requests that should be batched with those of other connections."""
        ...

    def take(self, connection: Connection, data: bytes, /) -> tuple[int, int]:
        """Accept frames at the front of ``data``, which begins with a frame.

        Returns the bytes accepted, and the bytes behind them that are for the handlers before the next call.
        """
        ...

    def take_together(self, received: list[tuple[Connection, bytes]], /) -> list[int]:
        """Accept frames that several connections received in one loop iteration, beginning with such requests.

        Returns the bytes accepted per connection; the rest is for ``take`` and the handlers.
        """
        ...
