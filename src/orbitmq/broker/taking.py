"""What the compiled kernel takes off the bytes that connections receive: sends, acknowledgements and pulls."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from orbitmq.remoting.taking import HEADER_AT

if TYPE_CHECKING:
    from orbitmq.broker.ack_runs import AckRuns
    from orbitmq.broker.pull_runs import PullRuns
    from orbitmq.broker.send_runs import SendRuns
    from orbitmq.remoting import Connection

_SENDS: tuple[bytes, ...] = (b'{"code":310,', b"\x01\x36", b'{"code":320,', b"\x01\x40")
_ACKS: tuple[bytes, ...] = (b'{"code":200051,',)
_PULLS: tuple[bytes, ...] = (b'{"code":11,', b"\x00\x0b", b'{"code":361,', b"\x01\x69")
"""How the headers of such requests begin, in JSON as all clients write it and in binary, where a code like that of
an acknowledgement does not fit. What begins otherwise is left to the general path, at no cost to other requests."""


class Takers:
    """Shows the kernel what it may want. Each taker takes what it wants, and answers it."""

    def __init__(self, sends: SendRuns | None, acks: AckRuns | None, pulls: PullRuns) -> None:
        self._sends = sends
        self._acks = acks
        self._pulls: PullRuns | None = pulls
        self._note_starts()

    def _note_starts(self) -> None:
        self.together: tuple[bytes, ...] = () if self._sends is None else _SENDS
        acks = () if self._acks is None else _ACKS
        self._starts = self.together + acks + (() if self._pulls is None else _PULLS)

    def without_pulls(self) -> Takers:
        """The same for where nothing is pulled."""
        others = copy.copy(self)
        others._pulls = None
        others._note_starts()
        return others

    def renew(self) -> None:
        """Go by the settings as they are now."""
        for taker in (self._sends, self._acks, self._pulls):
            if taker is not None:
                taker.renew()

    def take_together(self, received: list[tuple[Connection, bytes]]) -> list[int]:
        """Take the sends that were received over several connections; how many bytes of each that was.

        With one request in flight on each of many connections most of what a send costs would otherwise be what is
        done once for a run. Of a pull that is done little, and an answer can leave the sooner.
        """
        assert self._sends is not None
        return self._sends.take_together(received)

    def take(self, connection: Connection, data: bytes) -> tuple[int, int]:
        """Take the requests that ``data`` begins with.

        Returns how many bytes they have, and how many follow until there may be something to take again.
        """
        if self._sends is not None and data.startswith(_SENDS, HEADER_AT):
            starts, taken = _SENDS, self._sends.take(connection, data)
        elif self._pulls is not None and data.startswith(_PULLS, HEADER_AT):
            taken = self._pulls.take(connection, data)
            if taken == len(data):
                return taken, 0
            if data.startswith(_PULLS, taken + HEADER_AT):
                # It finds nothing, which says nothing of those behind it.
                return taken, self._until_next(data, taken)
            starts = _PULLS
        elif self._acks is not None and data.startswith(_ACKS, HEADER_AT):
            starts, taken = _ACKS, self._acks.take(connection, data)
        else:
            return 0, self._until_next(data, 0)
        if data.startswith(starts, taken + HEADER_AT):
            # One that is special is mostly among others of its kind, and looking at each would be for nothing.
            return taken, len(data) - taken
        return taken, 0 if data.startswith(self._starts, taken + HEADER_AT) else self._until_next(data, taken)

    def _until_next(self, data: bytes, start: int) -> int:
        """How many bytes there are from one frame to the next that looks like one to take, or to the end."""
        at, size = start, len(data)
        while size - at > HEADER_AT:
            length = int.from_bytes(data[at : at + 4], "big")
            at += 4 + length
            if length < 4 or at >= size:
                break
            if data.startswith(self._starts, at + HEADER_AT):
                return at - start
        return size - start
