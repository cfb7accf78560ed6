"""One connection: frames to streams, and the responses of streams to frames, within windows and limits."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, cast

from orbitmq.proxy.http2 import frames
from orbitmq.proxy.http2.control import Control
from orbitmq.proxy.http2.flow import Outgoing
from orbitmq.proxy.http2.frames import HEAD, HEAD_BYTES, PREFACE, ErrorCode, Http2Error, frame, unpadded
from orbitmq.proxy.http2.grpc_status import GrpcCode, GrpcError, percent_encoded
from orbitmq.proxy.http2.hpack import HeaderDecoder, HpackError, encode
from orbitmq.proxy.http2.request_head import is_grpc, is_malformed
from orbitmq.proxy.http2.stream import Stream

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orbitmq.proxy.http2.server import Http2Server, Method

log = logging.getLogger("orbitmq.proxy")

MAX_HEADER_BLOCK = 65_536
"""Bytes of the header block of a request, before decoding."""

MAX_HEADER_LIST = 16_384
"""Bytes of the fields of a request, as HPACK counts them; grpcio's default."""

STREAM_WINDOW = 1 << 20
CONNECTION_WINDOW = 4 << 20

_OPENING = frame(
    frames.SETTINGS,
    0,
    0,
    b"".join(
        frames.SETTING.pack(*setting)
        for setting in (
            (frames.INITIAL_WINDOW_SIZE, STREAM_WINDOW),
            (frames.MAX_HEADER_LIST_SIZE, MAX_HEADER_LIST),
        )
    ),
)
_MORE_ROOM = frame(frames.WINDOW_UPDATE, 0, 0, frames.NUMBER.pack(CONNECTION_WINDOW - frames.DEFAULT_WINDOW))

_PING = frame(frames.PING, 0, 0, b"orbitmq.")

PING_SECONDS = 60.0
"""A connection with calls on which nothing was received for this long is sent pings."""

SILENT_SECONDS = 20.0
"""Time for the response, after which the client is gone."""

_LAST = frames.END_HEADERS | frames.END_STREAM
_NO_GRPC = encode((":status", "415"))
_TRAILERS_ONLY = encode((":status", "200"), ("content-type", "application/grpc"))


class Http2Connection(asyncio.Protocol):
    """A client's connection. ``peer`` is its ``host:port``."""

    def __init__(self, server: Http2Server, peer: str) -> None:
        self.server = server
        self.loop = server.loop
        self.peer = peer
        self.streams: dict[int, Stream] = {}
        self.last_active = self.loop.time()
        """When something was received, or a response was sent."""
        self._transport: asyncio.Transport | None = None
        self._decoder = HeaderDecoder()
        self._rest = b""
        self._has_preface = False
        self.last_number = 0
        self._block: bytearray | None = None
        self._block_stream = 0
        self._block_flags = 0
        self._received = 0
        """Bytes of DATA frames since the connection's window was opened."""
        self._out: list[bytes] = []
        self._is_flushing = False
        self.is_paused = False
        self.is_draining = False
        self.outgoing = Outgoing(self)
        self.control = Control(self)

    # Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self.server.connections.add(self)
        limit = frames.SETTING.pack(frames.MAX_CONCURRENT_STREAMS, self.server.max_streams)
        self.send(frame(frames.SETTINGS, 0, 0, _OPENING[HEAD_BYTES:] + limit), _MORE_ROOM)

    def connection_lost(self, _: Exception | None) -> None:
        self._transport = None
        self.server.connections.discard(self)
        for stream in tuple(self.streams.values()):
            self.close_stream(stream)
        self.server.check_empty()

    def pause_writing(self) -> None:
        self.is_paused = True

    def resume_writing(self) -> None:
        self.is_paused = False
        self.outgoing.room_again()

    def eof_received(self) -> None:
        """The transport closes the connection."""

    def send(self, *parts: bytes) -> None:
        """Send frames at the end of this loop iteration, together with all others."""
        self._out += parts
        if not self._is_flushing:
            self._is_flushing = True
            self.loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flushing = False
        out, self._out = self._out, []
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(b"".join(out))

    def close(self, code: ErrorCode = ErrorCode.NO_ERROR, reason: str = "") -> None:
        """Close after sending what waits, with the reason for the client."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        text = frames.GOAWAY_HEAD.pack(self.last_number, code) + reason.encode()[:200]
        self._out.append(frame(frames.GOAWAY, 0, 0, text))
        self._flush()
        transport.close()

    def drain(self) -> None:
        """Take no new streams; close when the open ones have ended."""
        if not self.is_draining:
            self.is_draining = True
            self.send(frame(frames.GOAWAY, 0, 0, frames.GOAWAY_HEAD.pack(self.last_number, ErrorCode.NO_ERROR)))
        if not self.streams:
            self.loop.call_soon(self.close)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def review(self, now: float) -> None:
        """Close a connection that is idle, and abort one whose client is gone."""
        silent = now - self.last_active
        if not self.streams:
            if silent >= self.server.limits.idle_seconds or (
                not self._has_preface and silent >= self.server.limits.handshake_seconds
            ):
                self.close(reason="idle")
        elif silent >= PING_SECONDS + SILENT_SECONDS:
            log.info("grpc: %s does not answer, its %d calls end", self.peer, len(self.streams))
            self.abort()
        elif silent >= PING_SECONDS:
            self.send(_PING)

    # Frames

    def data_received(self, data: bytes) -> None:
        self.last_active = self.loop.time()
        if self._rest:
            data = self._rest + data
        try:
            self._rest = self._read(data)
        except Http2Error as error:
            log.info("grpc: closing %s: %s", self.peer, error)
            self._rest = b""
            self.close(error.code, str(error))
        except HpackError as error:
            log.info("grpc: closing %s: %s", self.peer, error)
            self._rest = b""
            self.close(ErrorCode.COMPRESSION_ERROR, str(error))

    def _read(self, data: bytes) -> bytes:
        position = 0
        if not self._has_preface:
            if not data.startswith(PREFACE):
                if PREFACE.startswith(data):
                    return data
                raise Http2Error(ErrorCode.PROTOCOL_ERROR, "the connection does not begin as one of HTTP/2")
            self._has_preface = True
            position = len(PREFACE)
        end = len(data)
        unpack = HEAD.unpack_from
        while end - position >= HEAD_BYTES:
            high, low, kind, flags, number = unpack(data, position)
            start = position + HEAD_BYTES
            following = start + (high << 16 | low)
            if following - start > frames.DEFAULT_FRAME:
                raise Http2Error(ErrorCode.FRAME_SIZE_ERROR, "a frame is longer than 16,384 bytes")
            if following > end:
                break
            position = following
            self._frame(kind, flags, number & frames.MAX_WINDOW, data[start:following])
        return data[position:] if position else data

    def _frame(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        if self._block is not None and (kind != frames.CONTINUATION or number != self._block_stream):
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "a header block is interrupted")
        if kind == frames.DATA:
            self._data(number, flags, payload)
        elif kind == frames.HEADERS:
            self._headers(number, flags, payload)
        elif kind == frames.CONTINUATION:
            self._continuation(flags, payload)
        else:
            self.control.frame(kind, flags, number, payload)

    def _data(self, number: int, flags: int, payload: bytes) -> None:
        stream = self.streams.get(number)
        size = len(payload)
        self._received += size
        if self._received >= CONNECTION_WINDOW // 2:
            self.send(frame(frames.WINDOW_UPDATE, 0, 0, frames.NUMBER.pack(self._received)))
            self._received = 0
        if stream is None or stream.is_half_closed:
            self._of_no_stream(number, stream)
            return
        if not size and not flags & frames.END_STREAM:
            self.control.count()
        stream.receive_window += size
        if stream.receive_window > STREAM_WINDOW:
            raise Http2Error(ErrorCode.FLOW_CONTROL_ERROR, "a stream has more data than its window")
        try:
            stream.received(unpadded(payload, flags & frames.PADDED) if flags & frames.PADDED else payload)
        except GrpcError as error:
            self.fail(stream, error)
            return
        if flags & frames.END_STREAM:
            self._half_closed(stream)
        else:
            self.open_window(stream)

    def open_window(self, stream: Stream) -> None:
        """Give the client the room again that its messages have left, unless too many wait for their handler."""
        if stream.receive_window >= STREAM_WINDOW // 2 and not stream.is_crowded and not stream.is_half_closed:
            update = frames.NUMBER.pack(stream.receive_window)
            self.send(frame(frames.WINDOW_UPDATE, 0, stream.number, update))
            stream.receive_window = 0

    def _of_no_stream(self, number: int, stream: Stream | None) -> None:
        if number > self.last_number or not number:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "a frame belongs to a stream that was never opened")
        if stream is not None:
            self.reset(stream, ErrorCode.STREAM_CLOSED)
        self.control.count()

    # Header blocks

    def _headers(self, number: int, flags: int, payload: bytes) -> None:
        if flags & (frames.PADDED | frames.HAS_PRIORITY):
            payload = unpadded(payload, flags)
        if flags & frames.END_HEADERS:
            self._request(number, flags, payload)
        else:
            self._block, self._block_stream, self._block_flags = bytearray(payload), number, flags

    def _continuation(self, flags: int, payload: bytes) -> None:
        block = self._block
        if block is None:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "a continuation without a header block")
        block += payload
        self.control.count()
        if len(block) > MAX_HEADER_BLOCK:
            raise Http2Error(ErrorCode.ENHANCE_YOUR_CALM, "a header block is too long")
        if flags & frames.END_HEADERS:
            self._block = None
            self._request(self._block_stream, self._block_flags, bytes(block))

    def _request(self, number: int, flags: int, block: bytes) -> None:
        fields, is_complete = self._decoder.decode(block, MAX_HEADER_LIST)
        if number <= self.last_number or not number & 1:
            self._trailers_of_request(number, flags)
            return
        self.last_number = number
        if self.is_draining or len(self.streams) >= self.server.max_streams:
            self.send(frame(frames.RST_STREAM, 0, number, frames.NUMBER.pack(ErrorCode.REFUSED_STREAM)))
            self.control.count()
            return
        if is_complete and is_malformed(fields):
            self.send(frame(frames.RST_STREAM, 0, number, frames.NUMBER.pack(ErrorCode.PROTOCOL_ERROR)))
            self.control.count()
            return
        self.control.requested()
        stream = self.streams[number] = Stream(self, number, fields, self.outgoing.stream_window)
        if flags & frames.END_STREAM:
            stream.half_closed()
        try:
            if not is_complete:
                raise GrpcError(GrpcCode.RESOURCE_EXHAUSTED, "the metadata of a call is too long")
            self._open(stream)
        except GrpcError as error:
            self.fail(stream, error)
            return
        if flags & frames.END_STREAM:
            self._half_closed(stream)

    def _open(self, stream: Stream) -> None:
        if not is_grpc(stream.metadata):
            stream.is_ended = True
            self.outgoing.end(stream, frame(frames.HEADERS, _LAST, stream.number, _NO_GRPC))
            return
        method = self.server.methods.get(stream.path)
        if method is None:
            raise GrpcError(GrpcCode.UNIMPLEMENTED, f"method not found: {stream.path[:200]}")
        self.server.begin_call()
        stream.method = method
        if method.reads_stream:
            stream.task = self.loop.create_task(self._run(stream, method, b""))

    def _trailers_of_request(self, number: int, flags: int) -> None:
        stream = self.streams.get(number)
        if not number & 1:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "a client's stream has an even number")
        if stream is None or stream.is_half_closed:
            raise Http2Error(ErrorCode.STREAM_CLOSED, "header fields for a stream that has ended")
        if not flags & frames.END_STREAM:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "header fields within a stream")
        self._half_closed(stream)

    # Calls

    def _half_closed(self, stream: Stream) -> None:
        stream.half_closed()
        method = stream.method
        if stream.is_ended or method is None or method.reads_stream:
            return
        message = stream.only_message()
        if message is None:
            self.fail(stream, GrpcError(GrpcCode.INTERNAL, "the call has no message, or more than one"))
            return
        stream.task = self.loop.create_task(self._run(stream, method, message))

    async def _run(self, stream: Stream, method: Method, message: bytes) -> None:
        try:
            response = await method.call(message, stream)
        except GrpcError as error:
            self.fail(stream, error)
        except Exception:
            log.exception("grpc: %s failed", stream.path)
            self.fail(stream, GrpcError(GrpcCode.INTERNAL, "the server failed"))
        else:
            self.outgoing.respond(stream, response)
        finally:
            stream.task = None

    def fail(self, stream: Stream, error: GrpcError) -> None:
        """End a call with an error."""
        if stream.is_ended or stream.number not in self.streams:
            return
        status = (("grpc-status", str(int(error.code))), ("grpc-message", percent_encoded(str(error))))
        block = encode(*status) if stream.is_headed else _TRAILERS_ONLY + encode(*status)
        self.outgoing.end(
            stream, frame(frames.HEADERS, frames.END_HEADERS | frames.END_STREAM, stream.number, block)
        )

    def waiting_for_room(self, stream: Stream) -> None:
        self.outgoing.waiting_for_room(stream)

    def send_messages(self, stream: Stream, messages: Iterable[bytes]) -> None:
        self.outgoing.messages(stream, messages)

    def ended(self, stream: Stream) -> None:
        """The end of a response was sent."""
        self.control.answered += 1
        if not stream.is_half_closed:
            # The client need not send the rest.
            self.send(frame(frames.RST_STREAM, 0, stream.number, frames.NUMBER.pack(ErrorCode.NO_ERROR)))
        self.close_stream(stream)
        if self.is_draining and not self.streams:
            self.loop.call_soon(self.close)

    def reset(self, stream: Stream, code: ErrorCode) -> None:
        self.send(frame(frames.RST_STREAM, 0, stream.number, frames.NUMBER.pack(code)))
        self.close_stream(stream)

    def close_stream(self, stream: Stream) -> None:
        if self.streams.pop(stream.number, None) is None:
            return
        stream.is_ended = True
        stream.half_closed()
        stream.forget()
        self.outgoing.forget(stream)
        if stream.method is not None:
            self.server.end_call()
        task = stream.task
        if task is not None and task is not asyncio.current_task(self.loop):
            task.cancel()
