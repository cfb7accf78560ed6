"""One connection: frames in, requests to their handlers, answers out; and calls in the other direction.

Everything here runs in callbacks of one loop. A request costs no task, no timer and no write of its own: whatever
is answered in a turn of the loop leaves at its end, in one write for each connection, unless it is very much.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.flags import ONEWAY, RESPONSE
from orbitmq.protocol.frame import FrameError, FrameParser
from orbitmq.protocol.hot import decode_header
from orbitmq.remoting.addresses import address_of
from orbitmq.remoting.calls import CallTable
from orbitmq.remoting.errors import (
    ConnectionLostError,
    IdleError,
    SlowReaderError,
    TooManyCallsError,
    one_sentence,
)
from orbitmq.remoting.refusals import failed, not_supported
from orbitmq.remoting.taking import HEADER_AT, MOST_TOGETHER
from orbitmq.remoting.writing import Buffer, parts_writer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from orbitmq.protocol.command import Command
    from orbitmq.protocol.frame import Frame
    from orbitmq.protocol.header import Header
    from orbitmq.remoting.endpoint import Endpoint
    from orbitmq.remoting.taking import Taker

log = logging.getLogger("orbitmq.remoting")

Answer: TypeAlias = bytes | list[Buffer] | None
"""What a handler returns: the whole frame, or its parts, of which those that lie in the log are not copied.

``None``: the answer comes later, by ``Connection.answer``. ``b""``: there will be none.
"""

Handler: TypeAlias = "Callable[[Connection, Header, bytes, int], Answer]"
"""Called with the connection, the header, the body and the serialize type of a request."""

MANY_FRAMES = 128
"""So many requests or answers to one peer leave at once, and not at the end of the turn: both sides can work at the
same time. An asynchronous producer gets from 23 to 34 thousand messages a second by it."""

UNWRITABLE = 1
OWING = 2
"""What may put reading on hold: the peer does not read what it is sent, or we owe it too many answers.

Being unwritable does so on the server's side only. If both sides did, two that send each other much at the same
time would wait for each other for ever.
"""


class Connection(asyncio.Protocol):
    """Either end of a connection between two peers.

    ``state`` belongs to whoever owns the server or client. ``remote_address`` is the peer, or whoever is behind
    the proxy that it says it is; ``attributes`` is what else that proxy said. ``waits``: something that was
    received is to be taken with that of other connections.
    """

    __slots__ = (
        "_active",
        "_called_bytes",
        "_calls",
        "_closing",
        "_closing_since",
        "_draining",
        "_endpoint",
        "_feed",
        "_handlers",
        "_held",
        "_in_parts",
        "_most_owed",
        "_out",
        "_owed",
        "_parser",
        "_pausing",
        "_quiet_since",
        "_reason",
        "_stalled_since",
        "_taker",
        "_taking",
        "_transport",
        "_unsent",
        "_writable",
        "_write",
        "_write_parts",
        "attributes",
        "remote_address",
        "state",
        "waits",
    )

    _transport: asyncio.Transport
    _write: Callable[[Buffer], None]
    _write_parts: Callable[[list[Buffer]], None]

    def __init__(
        self,
        endpoint: Endpoint,
        handlers: dict[int, Handler],
        *,
        is_server: bool,
        remote_address: str = "",
        attributes: Mapping[str, str] | None = None,
        taker: Taker | None = None,
    ) -> None:
        self.state: Any = None
        self.remote_address = remote_address
        self.attributes: Mapping[str, str] = attributes or {}
        self._endpoint = endpoint
        self._handlers = handlers
        self._parser = FrameParser(endpoint.limits.frame_bytes)
        self._feed = self._parser.feed
        self._taker = taker
        self._calls = CallTable()
        self._out: list[Buffer] = []
        self._called_bytes = 0
        """Of calls in ``_out``."""
        self._in_parts = False
        """Whether ``_out`` holds parts of frames, which may be large."""
        self._owed = 0
        self._most_owed = endpoint.limits.owed_answers
        self._held = 0
        self._pausing = UNWRITABLE | OWING if is_server else OWING
        self._writable: asyncio.Future[None] | None = None
        self._taking = False
        self.waits = False
        self._draining = False
        self._closing = False
        self._closing_since = 0.0
        self._reason: Exception | None = None
        self._active = True
        """Whether anything was read or written since the last review; cheaper than the time of it."""
        self._quiet_since = 0.0
        self._stalled_since = 0.0
        self._unsent = 0

    # What owners use

    @property
    def is_closing(self) -> bool:
        """Whether the connection is closed or about to be: nothing that is sent will arrive."""
        return self._closing

    @property
    def owed_answers(self) -> int:
        """How many requests of the peer wait for their answer."""
        return self._owed

    @property
    def waiting_calls(self) -> int:
        """How many own requests wait for their answer."""
        return len(self._calls)

    @property
    def local_address(self) -> str:
        return address_of(self._transport.get_extra_info("sockname"))

    def answer(self, header: Header, data: bytes | list[Buffer]) -> None:
        """Answer a request for which the handler returned None; ``b""`` if there is no answer after all.

        Has to be called once for each such request. A oneway request gets no answer whatever is given.
        """
        if not header[2] & ONEWAY:
            self.pay(1, data)

    def owe(self, count: int) -> None:
        """So many requests that a taker has taken are answered later, by ``pay``."""
        self._owed += count
        if self._owed >= self._most_owed:
            self._hold(OWING)

    def pay(self, count: int, data: bytes | list[Buffer]) -> None:
        """Answer so many requests that wait for it, with whole frames or ``b""``."""
        self._owed -= count
        if data:
            self.send(data, count)
        if self._held & OWING and self._owed <= self._most_owed // 2:
            self._release(OWING)
        if self._draining and self._owed <= 0 and not self._taking:
            self.close()

    def send(self, data: bytes | list[Buffer], count: int = 1) -> None:
        """Send so many whole frames. Unless they are many they leave with everything else of this turn of the loop;
        after a close, never.
        """
        if self._closing:
            return
        out = self._out
        if not out and not self._taking:
            self._endpoint.flush_soon(self)
        if isinstance(data, list):
            out += data
            self._in_parts = True
        else:
            out.append(data)
        if (len(out) >= MANY_FRAMES or count >= MANY_FRAMES) and not self._taking:
            # The peer can work on these while the rest is being made.
            self.flush()

    def send_now(self, data: bytes) -> None:
        """Send whole frames with what was collected before them, at the end of a turn of the loop; after a close,
        never.
        """
        if self._closing:
            return
        if self._out or self._held:
            self._out.append(data)
            self.flush()
        else:
            self._write(data)

    def call(self, command: Command, timeout: float) -> asyncio.Future[Command]:
        """Send a request, which is given its opaque here, and return what its answer will be.

        Raises TooManyCallsError or ConnectionLostError if it was not sent; whoever calls as fast as it can should
        wait for ``writable`` first. The future ends with CallTimeoutError or ConnectionLostError if none comes.
        """
        self._check_open()
        command.opaque = opaque = self.next_opaque()
        return self.exchange(opaque, command.encode(), timeout)

    def call_oneway(self, command: Command) -> None:
        """Send a request that has no answer. It is given its opaque here and marked as oneway."""
        self._check_open()
        command.opaque = self.next_opaque()
        command.flag |= ONEWAY
        request = command.encode()
        self._check_room(len(request))
        self.send(request)

    def next_opaque(self) -> int:
        """A number for an own request, for those who encode it themselves."""
        opaque = self._endpoint.opaques.next()
        while opaque in self._calls:
            opaque = self._endpoint.opaques.next()
        return opaque

    def exchange(self, opaque: int, request: bytes, timeout: float) -> asyncio.Future[Command]:
        """``call`` for a request that is encoded already, with an opaque from ``next_opaque``."""
        self._check_open()
        endpoint = self._endpoint
        if len(self._calls) >= endpoint.limits.calls:
            raise TooManyCallsError(f"{len(self._calls)} calls to {self.remote_address} wait for their answers")
        self._check_room(len(request))
        answer: asyncio.Future[Command] = endpoint.loop.create_future()
        if not self._calls:
            endpoint.calling.add(self)
        self._calls.add(opaque, answer, endpoint.loop.time() + timeout)
        self.send(request)
        return answer

    @property
    def is_writable(self) -> bool:
        """Whether what is sent now leaves soon: the peer has read nearly all that it was sent before."""
        return not self._held & UNWRITABLE

    async def writable(self) -> None:
        """Wait until ``is_writable``. Raises ConnectionLostError."""
        while self._held & UNWRITABLE and not self._closing:
            if self._writable is None:
                self._writable = self._endpoint.loop.create_future()
            await asyncio.shield(self._writable)
        self._check_open()

    def _check_open(self) -> None:
        if self._closing:
            raise ConnectionLostError(f"the connection to {self.remote_address} is closed")

    def _check_room(self, size: int) -> None:
        limits = self._endpoint.limits
        self._called_bytes = waiting = self._called_bytes + size
        if (self._held or waiting > limits.write_high_bytes) and (
            waiting + self._transport.get_write_buffer_size() > limits.write_most_bytes
        ):
            self._called_bytes -= size
            raise TooManyCallsError(f"{waiting} more bytes do not fit what {self.remote_address} has not read yet")

    def close(self, reason: Exception | None = None) -> None:
        """Send what was answered so far, then close. ``reason`` is for the owner's ``on_close``."""
        if self.waits:
            self._endpoint.take_received()
        if self._closing:
            return
        self._closing = True
        self._closing_since = self._endpoint.loop.time()
        self._reason = reason
        if not self._taking:
            self._finish()

    def drain(self) -> None:
        """Take no further requests, and close when those taken are answered."""
        if self.waits:
            self._endpoint.take_received()
        self._draining = True
        self._handlers = {}
        self._taker = None
        if self._owed <= 0 and not self._taking:
            self.close()

    def abort(self, reason: Exception | None = None) -> None:
        """Close at once and throw away what was not sent."""
        self._closing = True
        self._reason = self._reason or reason
        self._out.clear()
        self._transport.abort()

    # What the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast("asyncio.Transport", transport)
        self._write = transport.write
        self._write_parts = parts_writer(transport)
        transport.set_write_buffer_limits(high=self._endpoint.limits.write_high_bytes)
        if not self.remote_address:
            self.remote_address = address_of(transport.get_extra_info("peername"))
        self._endpoint.add(self)

    def data_received(self, data: bytes) -> None:
        if self._closing:
            return
        self._active = True
        taker = self._taker
        if taker is None:
            self._cut(data)
            return
        if self.waits:
            self._endpoint.take_received()
        elif (
            data.startswith(taker.together, HEADER_AT)
            and len(data) <= MOST_TOGETHER
            and not self._parser.pending_bytes
        ):
            self.waits = True
            self._endpoint.take_soon(self, taker, data)
            return
        self.offer(data, taker)

    def offer(self, data: bytes, taker: Taker) -> None:
        """Let the taker have what it wants; the handlers get the rest."""
        while not self._closing and (data := self._parser.joined(data)):
            taken, others = taker.take(self, data)
            stop = taken + others
            if taken < stop:
                self._cut(data[taken:stop] if taken or stop < len(data) else data)
            if stop >= len(data):
                return
            data = data[stop:]

    def _cut(self, data: bytes) -> None:
        try:
            frames = self._feed(data)
        except FrameError as error:
            self._take(error.frames)
            self._refuse(error)
        else:
            if frames:
                self._take(frames)

    def eof_received(self) -> None:
        # A peer that stops sending is gone, as for RocketMQ's own servers; what it was answered still leaves.
        self.close()

    def pause_writing(self) -> None:
        self._stalled_since = self._endpoint.loop.time()
        self._unsent = self._transport.get_write_buffer_size()
        self._hold(UNWRITABLE)

    def resume_writing(self) -> None:
        self._release(UNWRITABLE)
        self._wake_writers()

    def connection_lost(self, error: Exception | None) -> None:
        self._pausing = 0  # there is nothing left to be paused, whatever is still taken
        if self.waits:
            self._endpoint.take_received()
        self._closing = True
        self._out.clear()
        reason = self._reason or error
        said = f"the connection to {self.remote_address} was closed before the answer came"
        self._wake_writers()
        self._calls.lose(said if reason is None else f"{said}: {one_sentence(reason)}")
        self._endpoint.remove(self, reason)

    # Requests and answers

    def _take(self, frames: list[Frame]) -> None:
        """Hand requests to their handlers and answers to their calls."""
        handlers = self._handlers
        out = self._out
        self._taking = True
        for frame in frames:
            try:
                header = decode_header(frame)
            except ProtocolError as error:
                self._refuse(error)
                break
            flag = header[2]
            if flag & RESPONSE:
                self._calls.settle(frame, header)
                continue
            handler = handlers.get(header[0])
            if handler is None:
                answer: Answer = b"" if self._draining else not_supported(header, frame[0])
            else:
                try:
                    answer = handler(self, header, frame[2], frame[0])
                except Exception as error:
                    answer = failed(error, header, frame[0], self.remote_address)
            if not flag & ONEWAY:
                if answer is None:
                    self._owed += 1
                elif isinstance(answer, list):
                    out += answer
                    self._in_parts = True
                elif answer:
                    out.append(answer)
            if self._closing:
                break
        self._taking = False
        if self._closing:
            self._finish()
        elif out:
            # With those of all other connections, after everything that came in this turn was taken: each write
            # may wake its reader, and one that runs already costs nothing. 64 clients that wait for each answer
            # get half as many again this way. But one that has many on their way should go on meanwhile.
            if len(out) < MANY_FRAMES:
                self._endpoint.flush_soon(self)
            else:
                self.flush()
        if self._owed >= self._most_owed:
            self._hold(OWING)
        if self._draining and self._owed <= 0:
            self.close()

    def _refuse(self, error: ProtocolError) -> None:
        """The stream cannot be understood any further."""
        if not self._closing:
            log.warning("%s is closed, for it sent what is no frame: %s", self.remote_address, error)
        self.close(error)

    # Writing and closing

    def flush(self) -> None:
        """Write out what was collected."""
        out = self._out
        if not out:
            return
        self._active = True
        if len(out) == 1:
            self._write(out[0])
        elif not self._in_parts:
            self._write(b"".join(out))
        else:
            self._write_parts(out)
            self._in_parts = False
            # The first loops of Python 3.12 do not say that a gathering write has made them unwritable.
            self._check_unsent()
        out.clear()
        self._called_bytes = 0
        if self._held & UNWRITABLE:
            self._check_unsent()

    def _check_unsent(self) -> None:
        unsent = self._transport.get_write_buffer_size()
        if unsent > self._endpoint.limits.write_most_bytes:
            self._give_up(f"{unsent} bytes wait to be read by {self.remote_address}")

    def _give_up(self, text: str) -> None:
        log.warning("%s: it is closed", text)
        self.abort(SlowReaderError(text))

    def _finish(self) -> None:
        self.flush()
        self._transport.close()

    def _hold(self, why: int) -> None:
        paused = self._held & self._pausing
        self._held |= why
        if not paused and self._held & self._pausing:
            self._transport.pause_reading()

    def _release(self, why: int) -> None:
        paused = self._held & self._pausing
        self._held &= ~why
        if paused and not self._held & self._pausing:
            self._transport.resume_reading()

    def _wake_writers(self) -> None:
        writable, self._writable = self._writable, None
        if writable is not None and not writable.done():
            writable.set_result(None)

    # What the sweep calls

    def expire_calls(self, now: float) -> bool:
        """End calls whose time is over; say whether any are left."""
        self._calls.expire(now)
        return len(self._calls) > 0

    def review(self, now: float) -> None:
        """Close what is idle, stalled, or takes too long to close."""
        limits = self._endpoint.limits
        if self._closing:
            if now - self._closing_since >= limits.closing_seconds:
                self.abort()
        elif self._held & UNWRITABLE:
            unsent = self._transport.get_write_buffer_size()
            if unsent < self._unsent:
                self._stalled_since = now
            elif now - self._stalled_since >= limits.stalled_seconds:
                self._give_up(f"{self.remote_address} has not read anything for {limits.stalled_seconds:g} s")
            self._unsent = unsent
        elif self._active:
            self._active = False
            self._quiet_since = now
        elif now - self._quiet_since >= limits.idle_seconds:
            self.close(IdleError(f"nothing was sent or received for {limits.idle_seconds:g} s"))
