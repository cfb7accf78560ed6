"""What the compiled kernel takes off the bytes that connections receive: runs of sends, and of acknowledgements."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orbitmq.broker.ack_runs import AckRuns
    from orbitmq.broker.send_runs import SendRuns
    from orbitmq.remoting import Connection

_HEADER_AT = 8
_SENDS: tuple[bytes, ...] = (b'{"code":310,', b"\x01\x36", b'{"code":320,', b"\x01\x40")
_ACKS: tuple[bytes, ...] = (b'{"code":200051,',)
_STARTS = _SENDS + _ACKS
"""How the headers of such requests begin, in JSON as all clients write it and in binary, where a code like that of
an acknowledgement does not fit. What begins otherwise is left to the general path, at no cost to other requests."""


class Takers:
    """Shows the kernel what it may want. Each taker stores and answers what it takes."""

    def __init__(self, sends: SendRuns, acks: AckRuns | None) -> None:
        self._sends = sends
        self._acks = acks

    def renew(self) -> None:
        """Go by the settings as they are now."""
        self._sends.renew()
        if self._acks is not None:
            self._acks.renew()

    def take(self, connection: Connection, data: bytes) -> tuple[int, int]:
        """Take the requests that ``data`` begins with.

        Returns how many bytes they have, and how many follow until there may be something to take again.
        """
        if data.startswith(_SENDS, _HEADER_AT):
            starts, taken = _SENDS, self._sends.take(connection, data)
        elif self._acks is not None and data.startswith(_ACKS, _HEADER_AT):
            starts, taken = _ACKS, self._acks.take(connection, data)
        else:
            return 0, _until_next(data, 0)
        if data.startswith(starts, taken + _HEADER_AT):
            # One that is special is mostly among others of its kind, and looking at each would be for nothing.
            return taken, len(data) - taken
        return taken, 0 if data.startswith(_STARTS, taken + _HEADER_AT) else _until_next(data, taken)


def _until_next(data: bytes, start: int) -> int:
    """How many bytes there are from one frame to the next that looks like one to take, or to the end."""
    at, size = start, len(data)
    while size - at > _HEADER_AT:
        length = int.from_bytes(data[at : at + 4], "big")
        at += 4 + length
        if length < 4 or at >= size:
            break
        if data.startswith(_STARTS, at + _HEADER_AT):
            return at - start
    return size - start
