"""Fast-path dispatch: routes received SEND, ACK, PULL, POP and offset frames to the native extension."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from orbitmq import native
from orbitmq.remoting.interceptor import HEADER_AT

if TYPE_CHECKING:
    from orbitmq.broker.fast_path.ack import AckFastPath
    from orbitmq.broker.fast_path.offsets import OffsetFastPath
    from orbitmq.broker.fast_path.pop import PopFastPath
    from orbitmq.broker.fast_path.pull import PullFastPath
    from orbitmq.broker.fast_path.send import SendFastPath
    from orbitmq.remoting import Connection

_SENDS: tuple[bytes, ...] = (
    *(b'{"code":310,', b"\x01\x36", b'{"code":320,', b"\x01\x40"),
    *(b'{"code":10,', b"\x00\x0a"),
)
_ACKS: tuple[bytes, ...] = (b'{"code":200051,', b'{"code":200151,')
_PULLS: tuple[bytes, ...] = (b'{"code":11,', b"\x00\x0b", b'{"code":361,', b"\x01\x69")
_POPS: tuple[bytes, ...] = (b'{"code":200050,',)
_OFFSETS: tuple[bytes, ...] = (b'{"code":15,', b"\x00\x0f", b'{"code":14,', b"\x00\x0e")
"""First bytes of the headers of such requests: in JSON as nearly all clients write it, and in binary, where a code
like that of an acknowledgement does not fit."""

_JSON = b"{"
_USUAL_JSON = tuple(b'{"code":%d' % digit for digit in range(10))
_USUAL_BEGINNINGS = {
    int(prefix[len(b'{"code":') : -1]): prefix
    for prefix in (*_SENDS, *_ACKS, *_PULLS, *_POPS, *_OFFSETS)
    if prefix.startswith(_JSON)
}
"""By request code."""


def _begins(data: bytes, at: int, prefixes: tuple[bytes, ...]) -> bool:
    """True if the header at this position belongs to one of the requests that usually begin with ``prefixes``.

    A JSON header may have its members in any order, and white space between them. The code of one that does not
    begin as usual is searched for. Any other beginning takes the Python path, at no cost to other requests.
    """
    if data.startswith(prefixes, at):
        return True
    if data.startswith(_USUAL_JSON, at) or not data.startswith(_JSON, at):
        return False
    return _USUAL_BEGINNINGS.get(native.load().request_code(data, at), b"") in prefixes


class FastPath:
    """Interceptor that offers frames to the adapters by the first bytes of their headers."""

    def __init__(
        self,
        sends: SendFastPath | None,
        acks: AckFastPath | None,
        pulls: PullFastPath,
        pops: PopFastPath | None = None,
        offsets: OffsetFastPath | None = None,
    ) -> None:
        self._sends = sends
        self._acks = acks
        self._pops = pops
        self._offsets = offsets
        self._pulls: PullFastPath | None = pulls
        self._collect_prefixes()

    def _collect_prefixes(self) -> None:
        self.together: tuple[bytes, ...] = () if self._sends is None else _SENDS
        acks = () if self._acks is None else _ACKS
        pops = () if self._pops is None else _POPS
        offsets = () if self._offsets is None else _OFFSETS
        self._prefixes = self.together + acks + pops + (() if self._pulls is None else _PULLS) + offsets

    def without_pulls(self) -> FastPath:
        """A copy for a port that serves no pulls and pops."""
        other = copy.copy(self)
        other._pulls = other._pops = None
        other._collect_prefixes()
        return other

    def rebuild(self) -> None:
        """Apply changed settings."""
        for adapter in (self._sends, self._acks, self._pulls, self._pops, self._offsets):
            if adapter is not None:
                adapter.rebuild()

    def take_together(self, received: list[tuple[Connection, bytes]]) -> list[int]:
        """Serve sends that were received over several connections; the bytes served of each.

        With one request in flight on each of many connections, the cost per batch would otherwise dominate the cost
        of a send. Pulls have little cost per batch, and answering each at once lowers their latency.
        """
        assert self._sends is not None
        return self._sends.take_together(received)

    def take(self, connection: Connection, data: bytes) -> tuple[int, int]:
        """Serve the requests that ``data`` begins with.

        Returns the bytes served, and the bytes behind them that are for the request handlers before the next frame
        that may be served here.
        """
        # Pulls first: sends mostly come by ``take_together``.
        if self._pulls is not None and (data.startswith(_PULLS, HEADER_AT) or _begins(data, HEADER_AT, _PULLS)):
            taken = self._pulls.take(connection, data)
            if taken == len(data) or self._pulls.is_full:
                # Full: the rest waits until the peer has read these answers.
                return taken, 0
            if _begins(data, taken + HEADER_AT, _PULLS):
                # This pull finds nothing; those behind it may find something.
                return taken, self.until_next(data, taken)
            prefixes = _PULLS
        elif self._sends is not None and _begins(data, HEADER_AT, _SENDS):
            prefixes, taken = _SENDS, self._sends.take(connection, data)
        elif self._pops is not None and _begins(data, HEADER_AT, _POPS):
            prefixes, taken = _POPS, self._pops.take(connection, data)
            if self._pops.is_full:
                return taken, 0
        elif self._acks is not None and _begins(data, HEADER_AT, _ACKS):
            prefixes, taken = _ACKS, self._acks.take(connection, data)
        elif self._offsets is not None and _begins(data, HEADER_AT, _OFFSETS):
            prefixes, taken = _OFFSETS, self._offsets.take(connection, data)
        else:
            return 0, self.until_next(data, 0)
        if _begins(data, taken + HEADER_AT, prefixes):
            # A declined request is mostly among others like it: offering each of them would be wasted.
            return taken, len(data) - taken
        return taken, 0 if _begins(data, taken + HEADER_AT, self._prefixes) else self.until_next(data, taken)

    def is_candidate(self, data: bytes, at: int) -> bool:
        """True if the frame at this position is one of the requests that may be served here."""
        return _begins(data, at + HEADER_AT, self._prefixes)

    def until_next(self, data: bytes, start: int) -> int:
        """The bytes from one frame to the next that has one of the prefixes, or to the end."""
        at, size = start, len(data)
        while size - at > HEADER_AT:
            length = int.from_bytes(data[at : at + 4], "big")
            at += 4 + length
            if length < 4 or at >= size:
                break
            if _begins(data, at + HEADER_AT, self._prefixes):
                return at - start
        return size - start
