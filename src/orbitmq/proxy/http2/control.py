"""Control frames of a connection: settings, pings, windows, resets; and the limit of frames without use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.proxy.http2 import frames
from orbitmq.proxy.http2.frames import ErrorCode, Http2Error, frame

if TYPE_CHECKING:
    from orbitmq.proxy.http2.connection import Http2Connection

MAX_RESETS = 1000
"""Streams that a client may reset before their response, beyond those that were answered: more make the server work
for nothing (CVE-2023-44487)."""

MAX_CONTROL = 10_000
"""Frames that need a response, or do nothing, since the last request."""

_SETTINGS_ACK = frame(frames.SETTINGS, frames.ACK, 0)


class Control:
    """The control frames of one connection."""

    __slots__ = ("_connection", "_count", "_resets", "answered")

    def __init__(self, connection: Http2Connection) -> None:
        self._connection = connection
        self._count = self._resets = 0
        self.answered = 0
        """Calls that were answered."""

    def requested(self) -> None:
        """A call began: the frames before it had a use."""
        self._count = 0

    def count(self) -> None:
        """Count a frame that asks for nothing. Raises Http2Error if there are too many."""
        self._count += 1
        if self._count > MAX_CONTROL:
            raise Http2Error(ErrorCode.ENHANCE_YOUR_CALM, "too many frames that ask for nothing")

    def frame(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        """Handle a frame that is no part of a request. Raises Http2Error."""
        if kind == frames.WINDOW_UPDATE:
            self._window_update(number, payload)
        elif kind == frames.RST_STREAM:
            self._reset_by_client(number, payload)
        elif kind == frames.SETTINGS:
            self._settings(flags, number, payload)
        elif kind == frames.PING:
            if number or len(payload) != 8:
                raise Http2Error(
                    ErrorCode.PROTOCOL_ERROR if number else ErrorCode.FRAME_SIZE_ERROR, "a ping is malformed"
                )
            if not flags & frames.ACK:
                self.count()
                self._connection.send(frame(frames.PING, frames.ACK, 0, payload))
        elif kind == frames.GOAWAY:
            if number:
                raise Http2Error(ErrorCode.PROTOCOL_ERROR, "a GOAWAY frame belongs to a stream")
        elif kind == frames.PUSH_PROMISE:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "a client cannot push")
        elif kind == frames.PRIORITY:
            if not number or len(payload) != 5:
                raise Http2Error(
                    ErrorCode.FRAME_SIZE_ERROR if number else ErrorCode.PROTOCOL_ERROR, "a priority is malformed"
                )
            self.count()
        else:
            self.count()

    def _window_update(self, number: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise Http2Error(ErrorCode.FRAME_SIZE_ERROR, "a window update has not 4 bytes")
        more = frames.NUMBER.unpack(payload)[0] & frames.MAX_WINDOW
        if number > self._connection.last_number:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "a window update belongs to a stream that was never opened")
        stream = self._connection.streams.get(number)
        if number and stream is None:
            return
        if not more or not self._connection.outgoing.add_room(stream, more):
            code = ErrorCode.FLOW_CONTROL_ERROR if more else ErrorCode.PROTOCOL_ERROR
            if stream is None:
                raise Http2Error(code, "a window update is 0, or makes the window too large")
            self._connection.reset(stream, code)

    def _reset_by_client(self, number: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise Http2Error(ErrorCode.FRAME_SIZE_ERROR, "a reset has not 4 bytes")
        if not number or number > self._connection.last_number:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "a reset belongs to a stream that was never opened")
        stream = self._connection.streams.get(number)
        if stream is None:
            self.count()
            return
        self._resets += 1
        if self._resets > MAX_RESETS + self.answered:
            raise Http2Error(ErrorCode.ENHANCE_YOUR_CALM, "too many calls are cancelled")
        self._connection.close_stream(stream)

    def _settings(self, flags: int, number: int, payload: bytes) -> None:
        if number:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "settings belong to a stream")
        if len(payload) % 6 or (flags & frames.ACK and payload):
            raise Http2Error(ErrorCode.FRAME_SIZE_ERROR, "settings are malformed")
        if flags & frames.ACK:
            return
        self.count()
        for key, value in frames.SETTING.iter_unpack(payload):
            self._connection.outgoing.setting(key, value, self._connection.streams.values())
        self._connection.send(_SETTINGS_ACK)
