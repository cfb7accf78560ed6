"""A client's end of a connection that is fed with frames and shows the frames that come back."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from orbitmq.proxy.http2 import frames
from orbitmq.proxy.http2.connection import Http2Connection
from orbitmq.proxy.http2.frames import HEAD, HEAD_BYTES, MESSAGE_HEAD, PREFACE, frame
from orbitmq.proxy.http2.hpack import HeaderDecoder, encode
from orbitmq.proxy.http2.server import Http2Config, Http2Server, Method

if TYPE_CHECKING:
    from orbitmq.proxy.http2.stream import Stream

ECHO, SLOW, MANY, CHAT = "/test.Echo/Echo", "/test.Echo/Slow", "/test.Echo/Many", "/test.Echo/Chat"


class Frame(NamedTuple):
    kind: int
    flags: int
    stream: int
    payload: bytes


class Pipe(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = close


async def echo(message: bytes, _: Stream) -> bytes:
    return message


async def many(message: bytes, stream: Stream) -> None:
    """As many messages of the size as the request says: two numbers."""
    count, size = (int(text) for text in message.split())
    for _ in range(count):
        await stream.write(bytes(size))


async def chat(_: bytes, stream: Stream) -> None:
    async for message in stream.messages():
        await stream.write(message)


class Peer:
    """A client without a socket. Make it inside an event loop."""

    def __init__(self, *, max_streams: int = 100, max_calls: int = 1000, max_message: int = 1 << 20) -> None:
        self.cancelled = 0
        methods = {
            ECHO: Method(echo),
            SLOW: Method(self._slow),
            MANY: Method(many, is_unary=False),
            CHAT: Method(chat, is_unary=False, reads_stream=True),
        }
        self.server = Http2Server(methods, Http2Config(max_message, max_streams, max_calls, 60.0))
        self.transport = Pipe()
        self.connection = Http2Connection(self.server, "127.0.0.1:1")
        self.connection.connection_made(self.transport)
        self._decoder = HeaderDecoder()
        self._number = -1

    async def _slow(self, message: bytes, _: Stream) -> bytes:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return message

    async def greet(self, *settings: tuple[int, int]) -> None:
        body = b"".join(frames.SETTING.pack(*one) for one in settings)
        await self.feed(PREFACE + frame(frames.SETTINGS, 0, 0, body))
        await self.answers()

    async def feed(self, data: bytes) -> None:
        self.connection.data_received(data)
        await settled()

    async def answers(self) -> list[Frame]:
        """The frames since the last time."""
        await settled()
        data, found, at = bytes(self.transport.written), [], 0
        self.transport.written.clear()
        while at < len(data):
            high, low, kind, flags, number = HEAD.unpack_from(data, at)
            at += HEAD_BYTES
            end = at + (high << 16 | low)
            found.append(Frame(kind, flags, number, data[at:end]))
            at = end
        return found

    def call(self, path: str, *fields: tuple[str, str], number: int | None = None, end: bool = False) -> bytes:
        """The frame that begins a call."""
        if number is None:
            self._number += 2
            number = self._number
        flags = frames.END_HEADERS | (frames.END_STREAM if end else 0)
        return frame(frames.HEADERS, flags, number, encode(*request(path), *fields))

    @property
    def number(self) -> int:
        """Of the last call."""
        return self._number

    def fields(self, found: Frame) -> dict[str, str]:
        return dict(self._decoder.decode(found.payload, 1 << 20)[0])


def request(path: str) -> list[tuple[str, str]]:
    return [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
    ]


def message(body: bytes) -> bytes:
    return MESSAGE_HEAD.pack(0, len(body)) + body


def data(number: int, body: bytes, *, end: bool = True) -> bytes:
    """A DATA frame with one message."""
    return frame(frames.DATA, frames.END_STREAM if end else 0, number, message(body))


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)
