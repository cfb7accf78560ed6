"""Frames of the HA connection (RocketMQ: DefaultHAConnection, DefaultHAClient). There is no handshake.

The slave reports the end of its log with 8 bytes. The master sends a frame of 12 bytes (offset in the log, size)
followed by that many bytes of the log; a frame of size 0 is a heartbeat. A frame may cut a record anywhere but does
not cross the end of a log file.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from orbitmq.platform.settings import INT64_MAX
from orbitmq.store.errors import StoreError
from orbitmq.store.replication.settings import MAX_FRAME_BODY

if TYPE_CHECKING:
    from collections.abc import Iterator

REPORT = struct.Struct(">q")
HEAD = struct.Struct(">qi")


class FrameError(StoreError):
    """The peer sent something that is not a frame of the HA connection."""


class LogStream:
    """Parser of the frames of a master. Holds at most the head of one frame: bodies are passed on as they come."""

    __slots__ = ("_head", "_left", "_offset")

    def __init__(self) -> None:
        self._head = b""
        self._offset = 0
        self._left = 0

    def feed(self, data: bytes | memoryview) -> Iterator[tuple[int, memoryview]]:
        """The parts of the log in the next received bytes, each with its offset; a heartbeat is an empty part.

        Raises FrameError. The parts are slices of ``data``.
        """
        view, at = memoryview(data), 0
        while at < len(view):
            if not self._left:
                part = view[at : at + HEAD.size - len(self._head)]
                self._head += part
                at += len(part)
                if len(self._head) < HEAD.size:
                    return
                self._begin()
                if not self._left:
                    yield self._offset, view[:0]
                continue
            body = view[at : at + self._left]
            at += len(body)
            offset = self._offset
            self._offset += len(body)
            self._left -= len(body)
            yield offset, body

    def _begin(self) -> None:
        offset, size = HEAD.unpack(self._head)
        if offset < 0 or not 0 <= size <= MAX_FRAME_BODY or offset > INT64_MAX - size:
            raise FrameError(
                f"a frame of {size} bytes for offset {offset}: offsets are not negative and frames have at most "
                f"{MAX_FRAME_BODY} bytes; the peer is not the HA port of a RocketMQ master"
            )
        self._head = b""
        self._offset, self._left = offset, size


class ReportStream:
    """Parser of the reports of a slave. Only the last one counts."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes | memoryview) -> int | None:
        """The last complete report in what was received; None if there is none. Raises FrameError."""
        received = self._rest + bytes(data)
        whole = len(received) - len(received) % REPORT.size
        self._rest = received[whole:]
        if not whole:
            return None
        (offset,) = REPORT.unpack_from(received, whole - REPORT.size)
        if offset < 0:
            raise FrameError(f"a report of offset {offset}: the peer is not a RocketMQ slave")
        return int(offset)
