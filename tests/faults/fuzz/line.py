"""One connection that sends fuzzed frames and reads whatever the server answers."""

from __future__ import annotations

import itertools
import select
import socket
import struct
import time
from typing import TYPE_CHECKING

from faults.fuzz import encodings

if TYPE_CHECKING:
    from collections.abc import Callable

ANSWER_SECONDS = 20.0
"""A server that does not answer a plain request for so long hangs."""
CONNECT_SECONDS = 10.0

_BREAKING_SECONDS = 0.005
"""So long a connection whose last bytes were broken is read from before it is closed."""
_CHUNK = 1 << 18
_MAX_ANSWER = 16 << 20
_MARK = 1_900_000_000
"""The plain request after the frames has an opaque above this; fuzzed ones are below or at a boundary."""
_UNKNOWN_CODE = 7777
_PIECE = 3
"""Bytes of a write of a batch that is written in pieces."""
_IN_PIECES = 3000
"""So many bytes of it; the rest follows at once."""


class MalformedAnswerError(Exception):
    """A server sent something that is no frame."""


class HangError(Exception):
    """A server did not answer."""


class Line:
    """One connection to a server."""

    def __init__(self, address: tuple[str, int], wanted: Callable[[], bool]) -> None:
        self._socket = socket.create_connection(address, timeout=CONNECT_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setblocking(False)
        self._wanted = wanted
        self._head = b""
        self._left = 0
        """Bytes of the answer that is being read."""
        self.flights = 0
        self.answers = 0
        self.read_bytes = 0
        self.closed = False

    def exchange(self, data: bytes, mark: int, *, bytewise: bool) -> bool:
        """Send frames and a plain request after them, and read until that is answered. False: it was closed."""
        opaque = _MARK + mark
        header = encodings.json_header((_UNKNOWN_CODE, opaque, 0, 0, 0), [])
        self._pump(data + encodings.framed(0, header, b""), f'"opaque":{opaque}'.encode(), ANSWER_SECONDS, bytewise)
        return not self.closed

    def send_last(self, data: bytes, *, reset: bool, bytewise: bool) -> None:
        """Send what may break the conversation, read for a moment, and leave."""
        self._pump(data, None, ANSWER_SECONDS, bytewise)
        if reset:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def close(self) -> None:
        self._socket.close()

    def _pump(self, data: bytes, mark: bytes | None, seconds: float, bytewise: bool) -> None:
        """Write and read at the same time: a server stops reading while nobody reads its answers."""
        pieces = iter(_pieces(data, bytewise))
        rest: memoryview | None = next(pieces, None)
        deadline = time.monotonic() + seconds
        tail = b""
        while not self.closed:
            wait = _BREAKING_SECONDS if mark is None and rest is None else 1.0
            readable, writable, _ = select.select(
                [self._socket], [self._socket] if rest is not None else [], [], wait
            )
            if readable:
                got = self._read()
                if mark is not None:
                    if mark in tail + got:
                        return
                    tail = got[-len(mark) :]
            if writable and rest is not None:
                rest = self._write(rest)
                if not rest:
                    rest = next(pieces, None)
            if not readable and not writable:
                if mark is None and rest is None:
                    return
                if time.monotonic() > deadline:
                    raise HangError(f"no answer within {seconds:g} s")
                if not self._wanted():
                    return

    def _write(self, data: memoryview) -> memoryview:
        try:
            return data[self._socket.send(data) :]
        except BlockingIOError:
            return data
        except OSError:
            self.closed = True
            return data

    def _read(self) -> bytes:
        try:
            got = self._socket.recv(_CHUNK)
        except BlockingIOError:
            return b""
        except OSError:
            got = b""
        if not got:
            self.closed = True
        self.read_bytes += len(got)
        self._walk(got)
        return got

    def _walk(self, got: bytes) -> None:
        """Count the answers by their length prefixes."""
        at, size = 0, len(got)
        while at < size:
            if self._left:
                taken = min(self._left, size - at)
                self._left -= taken
                at += taken
                continue
            need = 4 - len(self._head)
            self._head += got[at : at + need]
            at += need
            if len(self._head) == 4:
                (length,) = struct.unpack(">i", self._head)
                if not 4 <= length <= _MAX_ANSWER:
                    raise MalformedAnswerError(f"an answer of {length} bytes")
                self._head, self._left = b"", length
                self.answers += 1


def _pieces(data: bytes, bytewise: bool) -> list[memoryview]:
    view = memoryview(data)
    if not bytewise:
        return [view]
    cut = min(len(data), _IN_PIECES)
    small = [view[at : at + _PIECE] for at in range(0, cut, _PIECE)]
    return [piece for piece in itertools.chain(small, [view[cut:]]) if piece]
