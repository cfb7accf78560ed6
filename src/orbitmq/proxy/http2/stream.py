"""One call: what its client sent, and what is sent to the client."""

from __future__ import annotations

import asyncio
import zlib
from typing import TYPE_CHECKING

from orbitmq.proxy.http2.frames import MESSAGE_HEAD
from orbitmq.proxy.http2.grpc_status import GrpcCode, GrpcError, parse_timeout

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from orbitmq.proxy.http2.connection import Http2Connection
    from orbitmq.proxy.http2.hpack import Field
    from orbitmq.proxy.http2.server import Method

HEAD_BYTES = MESSAGE_HEAD.size

MAX_STREAM_MESSAGE = 4 << 20
"""Bytes of a message of a stream that the client keeps open."""

MAX_WAITING = 16
"""Received messages that wait for the handler of a stream; the client gets room again when it has read them."""


class Stream:
    """One call of a client. Handlers read messages, write messages, and return or raise GrpcError."""

    __slots__ = (
        "_deadline",
        "_is_open",
        "_waiter",
        "_waiting",
        "body",
        "connection",
        "is_ended",
        "is_headed",
        "metadata",
        "method",
        "number",
        "path",
        "pending",
        "receive_window",
        "send_window",
        "task",
        "trailers",
        "wakes",
    )

    def __init__(self, connection: Http2Connection, number: int, fields: list[Field], send_window: int) -> None:
        self.connection = connection
        self.number = number
        self.metadata: Mapping[str, str] = dict(fields)
        self.path = self.metadata.get(":path", "")
        timeout = self.metadata.get("grpc-timeout")
        seconds = None if timeout is None else parse_timeout(timeout)
        self._deadline = None if seconds is None else connection.loop.time() + seconds
        self.send_window = send_window
        self.receive_window = 0
        """Bytes that were received and for which the client has no new room yet."""
        self.body = bytearray()
        """Received bytes that are no whole message yet."""
        self._waiting: list[bytes] = []
        self._is_open = True
        self._waiter: asyncio.Future[None] | None = None
        self.method: Method | None = None
        self.task: asyncio.Task[None] | None = None
        self.pending = bytearray()
        """Bytes that wait for the client's window."""
        self.trailers: bytes | None = None
        """The frame to send behind them."""
        self.wakes: list[asyncio.Future[None]] = []
        """Writers that wait until nothing is pending."""
        self.is_headed = False
        """The header frame of the response was sent."""
        self.is_ended = False
        """The end of the response was sent, or is pending."""

    # The caller

    @property
    def peer(self) -> str:
        """The client's ``host:port``."""
        return self.connection.peer

    @property
    def seconds_left(self) -> float | None:
        """Time until the client's deadline; None without one."""
        return None if self._deadline is None else self._deadline - self.connection.loop.time()

    # Received messages

    def received(self, data: bytes) -> None:
        """More bytes of the request. Raises GrpcError."""
        body = self.body
        limit = self.connection.server.max_message_bytes
        if self.method is not None and self.method.reads_stream:
            limit = min(limit, MAX_STREAM_MESSAGE)
        if not body and len(data) >= HEAD_BYTES:
            flag, size = MESSAGE_HEAD.unpack_from(data)
            if size == len(data) - HEAD_BYTES and not flag:
                if size > limit:
                    raise _too_large(size, limit)
                self._add(data[HEAD_BYTES:])
                return
        before = len(body)
        body += data
        try:
            self._split(body, limit)
        finally:
            self.connection.server.hold(len(body) - before)

    def _split(self, body: bytearray, limit: int) -> None:
        while len(body) >= HEAD_BYTES:
            flag, size = MESSAGE_HEAD.unpack_from(body)
            if size > limit:
                raise _too_large(size, limit)
            end = HEAD_BYTES + size
            if len(body) < end:
                return
            message = bytes(body[HEAD_BYTES:end])
            del body[:end]
            self._add(self._decompressed(message, limit) if flag else message)

    def _add(self, message: bytes) -> None:
        self._waiting.append(message)
        self._wake()

    def _decompressed(self, message: bytes, limit: int) -> bytes:
        encoding = self.metadata.get("grpc-encoding", "identity")
        if encoding not in {"gzip", "deflate"}:
            raise GrpcError(GrpcCode.UNIMPLEMENTED, f"the compression {encoding[:40]} is not supported")
        window = zlib.MAX_WBITS | 16 if encoding == "gzip" else zlib.MAX_WBITS
        unpacker = zlib.decompressobj(window)
        try:
            text = unpacker.decompress(message, limit + 1)
        except zlib.error as error:
            raise GrpcError(GrpcCode.INTERNAL, f"a compressed message is malformed: {error}") from None
        if len(text) > limit:
            raise _too_large(len(text), limit)
        if not unpacker.eof:
            raise GrpcError(GrpcCode.INTERNAL, "a compressed message is cut off")
        return text

    def half_closed(self) -> None:
        """The client sends nothing more."""
        self._is_open = False
        self._wake()

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    @property
    def is_half_closed(self) -> bool:
        return not self._is_open

    @property
    def is_crowded(self) -> bool:
        """More messages wait than the handler should be sent."""
        return len(self._waiting) >= MAX_WAITING

    def only_message(self) -> bytes | None:
        """The message of a call that has one; None if there is none, or another one."""
        return self._waiting.pop() if len(self._waiting) == 1 and not self.body else None

    def forget(self) -> None:
        """Drop what was received: the call has ended."""
        self.connection.server.hold(-len(self.body))
        self.body.clear()
        self._waiting.clear()

    async def message(self) -> bytes | None:
        """The next message; None if the client sends nothing more."""
        while not self._waiting:
            if not self._is_open:
                return None
            self._waiter = self.connection.loop.create_future()
            await self._waiter
        message = self._waiting.pop(0)
        if self.receive_window:
            self.connection.open_window(self)
        return message

    async def messages(self) -> AsyncIterator[bytes]:
        """The messages, until the client sends nothing more."""
        while (message := await self.message()) is not None:
            yield message

    # The response

    async def write(self, *messages: bytes) -> None:
        """Send messages, and wait until the client has room for them. Raises GrpcError at the deadline."""
        self.connection.send_messages(self, messages)
        while self.pending or self.connection.is_paused:
            wake: asyncio.Future[None] = self.connection.loop.create_future()
            self.wakes.append(wake)
            self.connection.waiting_for_room(self)
            try:
                async with asyncio.timeout(self.seconds_left):
                    await wake
            except TimeoutError:
                raise GrpcError(GrpcCode.DEADLINE_EXCEEDED, "the client did not read in time") from None

    def wake_writers(self) -> None:
        wakes, self.wakes = self.wakes, []
        for wake in wakes:
            if not wake.done():
                wake.set_result(None)


def _too_large(size: int, limit: int) -> GrpcError:
    return GrpcError(GrpcCode.RESOURCE_EXHAUSTED, f"a message has {size} bytes, at most {limit} are allowed")
