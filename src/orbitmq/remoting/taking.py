"""What is shown to somebody before it is cut into frames: a connection's bytes, alone or with those of others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from orbitmq.remoting.connection import Connection

MOST_TOGETHER = 4096
"""Bytes of a connection that wait for those of others. More of them are many requests, for which waiting is not
worth while: its peer could go on meanwhile."""


HEADER_AT = 8
"""Where the header of a frame begins."""


class Taker(Protocol):
    """Takes whole frames off the front of what connections receive, and sends the answers."""

    @property
    def together(self) -> tuple[bytes, ...]:
        """How the headers of requests begin that are better taken together with those of other connections."""
        ...

    def take(self, connection: Connection, data: bytes, /) -> tuple[int, int]:
        """Take what is wanted of bytes that a frame begins.

        Returns how many bytes these frames have, and how many more the handlers should get before it is asked
        again.
        """
        ...

    def take_together(self, received: list[tuple[Connection, bytes]], /) -> list[int]:
        """Take what several connections received in one turn of the loop, each of which begins with such a request.

        Returns how many bytes were taken of each; the rest is for ``take`` and the handlers.
        """
        ...
