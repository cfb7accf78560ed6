"""Responses of one connection: as frames within the client's windows, in the order of their calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.proxy.http2 import frames
from orbitmq.proxy.http2.frames import HEAD, MESSAGE_HEAD, ErrorCode, Http2Error, frame
from orbitmq.proxy.http2.hpack import encode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orbitmq.proxy.http2.connection import Http2Connection
    from orbitmq.proxy.http2.stream import Stream

_HEADERS = encode((":status", "200"), ("content-type", "application/grpc"))
_TRAILERS = encode(("grpc-status", "0"))
_END = frames.END_HEADERS | frames.END_STREAM


class Outgoing:
    """The windows of a client, and the streams that wait for room in them."""

    __slots__ = ("_blocked", "_connection", "_frame_bytes", "_window", "stream_window")

    def __init__(self, connection: Http2Connection) -> None:
        self._connection = connection
        self._window = frames.DEFAULT_WINDOW
        self.stream_window = frames.DEFAULT_WINDOW
        """Of a new stream."""
        self._frame_bytes = frames.DEFAULT_FRAME
        self._blocked: dict[Stream, None] = {}
        """Streams with pending bytes or waiting writers, in the order in which they began to wait."""

    def respond(self, stream: Stream, response: bytes | None) -> None:
        """End a call, with its only message or after those that were written."""
        if stream.is_ended:
            return
        number = stream.number
        if response is None or stream.is_headed or not self._fits(stream, len(response) + MESSAGE_HEAD.size):
            if response is not None:
                self.messages(stream, (response,))
            self.end(stream, self._head(stream) + frame(frames.HEADERS, _END, number, _TRAILERS))
            return
        size = len(response)
        length = size + MESSAGE_HEAD.size
        self._window -= length
        self._connection.send(
            HEAD.pack(0, len(_HEADERS), frames.HEADERS, frames.END_HEADERS, number),
            _HEADERS,
            HEAD.pack(length >> 16, length & 0xFFFF, frames.DATA, 0, number),
            MESSAGE_HEAD.pack(0, size),
            response,
            HEAD.pack(0, len(_TRAILERS), frames.HEADERS, _END, number),
            _TRAILERS,
        )
        stream.is_ended = True
        self._connection.ended(stream)

    def _fits(self, stream: Stream, length: int) -> bool:
        return length <= self._window and length <= stream.send_window and length <= self._frame_bytes

    def _head(self, stream: Stream) -> bytes:
        """The header frame of the response, once."""
        if stream.is_headed:
            return b""
        stream.is_headed = True
        return frame(frames.HEADERS, frames.END_HEADERS, stream.number, _HEADERS)

    def messages(self, stream: Stream, messages: Iterable[bytes]) -> None:
        """Send messages as far as the windows allow; the rest is pending."""
        if stream.is_ended:
            return
        if not stream.is_headed:
            self._connection.send(self._head(stream))
        for message in messages:
            stream.pending += MESSAGE_HEAD.pack(0, len(message))
            stream.pending += message
        self._pump(stream)

    def end(self, stream: Stream, last: bytes) -> None:
        """Send the last frames of a call, behind what is pending."""
        stream.is_ended = True
        if stream.pending:
            stream.trailers = last
            return
        self._connection.send(last)
        self._connection.ended(stream)

    def _pump(self, stream: Stream) -> None:
        pending = stream.pending
        while pending:
            size = min(len(pending), self._window, stream.send_window, self._frame_bytes)
            if size <= 0:
                self._blocked[stream] = None
                return
            self._window -= size
            stream.send_window -= size
            self._connection.send(frame(frames.DATA, 0, stream.number, bytes(pending[:size])))
            del pending[:size]
        self._blocked.pop(stream, None)
        stream.wake_writers()
        if stream.trailers is not None:
            self._connection.send(stream.trailers)
            self._connection.ended(stream)

    def waiting_for_room(self, stream: Stream) -> None:
        self._blocked[stream] = None

    def room_again(self) -> None:
        """Go on with the streams that wait, after the client has given room or the transport has."""
        for stream in tuple(self._blocked):
            if self._connection.is_paused or self._window <= 0:
                return
            self._pump(stream)

    def forget(self, stream: Stream) -> None:
        self._blocked.pop(stream, None)
        stream.pending.clear()
        stream.trailers = None
        stream.wake_writers()

    def add_room(self, stream: Stream | None, more: int) -> bool:
        """Enlarge the window of a stream, or of the connection; False if it becomes too large."""
        if stream is None:
            self._window += more
            if self._window > frames.MAX_WINDOW:
                return False
            if self._blocked:
                self.room_again()
            return True
        stream.send_window += more
        if stream.send_window > frames.MAX_WINDOW:
            return False
        if stream.pending:
            self._pump(stream)
        return True

    def setting(self, key: int, value: int, streams: Iterable[Stream]) -> None:
        """One setting of the client. Raises Http2Error."""
        if key == frames.INITIAL_WINDOW_SIZE:
            if value > frames.MAX_WINDOW:
                raise Http2Error(ErrorCode.FLOW_CONTROL_ERROR, "the initial window is too large")
            change, self.stream_window = value - self.stream_window, value
            for stream in tuple(streams):
                if not self.add_room(stream, change):
                    raise Http2Error(ErrorCode.FLOW_CONTROL_ERROR, "the initial window makes a window too large")
        elif key == frames.MAX_FRAME_SIZE:
            if not frames.DEFAULT_FRAME <= value < 1 << 24:
                raise Http2Error(ErrorCode.PROTOCOL_ERROR, "the maximum frame size is not allowed")
            self._frame_bytes = value
        elif key == frames.ENABLE_PUSH and value > 1:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "ENABLE_PUSH is neither 0 nor 1")
