"""A connection: parses frames, dispatches requests to handlers, writes responses, and sends own requests (calls).

Everything here runs in callbacks of one event loop. A request costs no task, no timer and no write of its own: the
responses of a loop iteration are written at its end, in one write per connection, or earlier if they are many.
"""

from __future__ import annotations

import asyncio
import logging
import math
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from orbitmq.platform.limit_counts import Limit, count_refusal
from orbitmq.platform.memory_budget import RECEIVED, UNSENT
from orbitmq.protocol.command.fast_decode import decode_header
from orbitmq.protocol.command.frame import FrameError, FrameParser
from orbitmq.protocol.command.header import CODE, FLAG
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.fastjson import reading_request
from orbitmq.protocol.message.flags import ONEWAY, RESPONSE
from orbitmq.remoting.addresses import address_of
from orbitmq.remoting.error_responses import failed, not_supported
from orbitmq.remoting.errors import (
    ConnectionLostError,
    IdleError,
    SlowFrameError,
    SlowReaderError,
    TooManyCallsError,
    one_sentence,
)
from orbitmq.remoting.gather_write import Buffer, parts_writer
from orbitmq.remoting.interceptor import HEADER_AT, MAX_BATCHED_BYTES
from orbitmq.remoting.limits.liveness import Liveness
from orbitmq.remoting.pending_calls import CallTable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from orbitmq.protocol.command.command import Command
    from orbitmq.protocol.command.frame import Frame
    from orbitmq.protocol.command.header import Header
    from orbitmq.remoting.endpoint import Endpoint
    from orbitmq.remoting.interceptor import FrameInterceptor

log = logging.getLogger("orbitmq.remoting")

Answer: TypeAlias = bytes | list[Buffer] | None
"""Result of a handler: the whole response frame, or its parts, so that those in a mapped log file are not copied.

``None``: the response is deferred, see ``Connection.answer``. ``b""``: there is no response.
"""

Handler: TypeAlias = "Callable[[Connection, Header, bytes, int], Answer]"
"""Called with the connection, the header, the body and the serialize type of a request."""

MANY_FRAMES = 128
"""This many requests or responses to one peer are flushed at once and not at the end of the loop iteration, so that
both sides work at the same time. It raises an asynchronous producer from 23 to 34 thousand messages a second."""

FULL_READ = 256 * 1024
"""Size of one read of both event loops. More reads in the same iteration follow one that is full; they are left to
the next iteration, so that a peer with a deep pipeline does not starve the other connections."""

SMALL_RECEIVED = 65536
"""Up to this size an incomplete frame is not charged to the memory budget at each read."""

UNWRITABLE = 1
DEFERRED = 2
BACKLOG = 4
MEMORY = 8
"""Reasons to pause reading: the peer does not read its responses, too many responses are deferred, there is a
backlog of received requests, or the memory budget of the process is tight.

Only a server pauses for ``UNWRITABLE``. If both sides did, two peers that send much at once would deadlock.
"""


class Connection(asyncio.Protocol):
    """Either end of a connection between two peers.

    ``state`` is for the owner of the server or client. ``remote_address`` is the peer, or the client that a
    trusted proxy names; ``attributes`` are the other values of its PROXY header. ``has_batched_input`` is set while
    received bytes wait to be intercepted together with those of other connections.
    """

    __slots__ = (
        "_aborted",
        "_active",
        "_backlog",
        "_backlog_bytes",
        "_backlog_is_scheduled",
        "_calls",
        "_charged_received",
        "_charged_unsent",
        "_closing",
        "_deferred",
        "_deferred_bytes",
        "_draining",
        "_endpoint",
        "_feed",
        "_handlers",
        "_has_parts",
        "_interceptor",
        "_is_dispatching",
        "_is_server",
        "_liveness",
        "_max_deferred",
        "_out",
        "_out_bytes",
        "_parser",
        "_pause_reasons",
        "_peer_finished",
        "_reason",
        "_reasons_that_pause",
        "_request_bytes",
        "_stream_error",
        "_transport",
        "_unparsed",
        "_writable",
        "_write",
        "_write_parts",
        "attributes",
        "has_batched_input",
        "remote_address",
        "state",
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
        interceptor: FrameInterceptor | None = None,
    ) -> None:
        self.state: Any = None
        self.remote_address = remote_address
        self.attributes: Mapping[str, str] = attributes or {}
        self._endpoint = endpoint
        self._is_server = is_server
        self._handlers = handlers
        self._parser = FrameParser(endpoint.limits.frame_bytes, endpoint.limits.header_bytes)
        self._feed = self._parser.feed
        self._interceptor = interceptor
        self._calls = CallTable()
        self._out: list[Buffer] = []
        self._request_bytes = 0
        """Bytes in ``_out`` that belong to own requests (not to responses)."""
        self._has_parts = False
        """``_out`` holds parts of frames, which may be large."""
        self._out_bytes = 0
        self._backlog: list[Frame] = []
        """Parsed frames that are not dispatched yet: the iteration was over, or the peer has to read first."""
        self._backlog_bytes = 0
        self._unparsed = b""
        """Received bytes behind the backlog that are not parsed yet."""
        self._stream_error: FrameError | None = None
        """Frame error in the stream behind the backlog."""
        self._peer_finished = False
        """The peer has stopped sending; the connection closes when the backlog is processed."""
        self._backlog_is_scheduled = False
        """Processing of the backlog is scheduled for the next iteration."""
        self._charged_received = 0
        self._charged_unsent = 0
        self._deferred = 0
        self._deferred_bytes = 0
        """Body bytes of the requests with deferred responses; an estimate once some of them are complete."""
        self._max_deferred = endpoint.limits.deferred_responses
        self._pause_reasons = 0
        self._reasons_that_pause = BACKLOG | MEMORY | DEFERRED | (UNWRITABLE if is_server else 0)
        self._writable: asyncio.Future[None] | None = None
        self._is_dispatching = False
        self.has_batched_input = False
        self._draining = False
        self._closing = False
        self._aborted = False
        self._reason: Exception | None = None
        self._active = True
        """Something was read or written since the last review; cheaper than storing the time."""
        self._liveness = Liveness()

    # For owners of the connection

    @property
    def is_closing(self) -> bool:
        """The connection is closed or closing: nothing sent from now on arrives."""
        return self._closing

    @property
    def deferred_responses(self) -> int:
        """Number of requests of the peer whose responses are deferred."""
        return self._deferred

    @property
    def pending_calls(self) -> int:
        """Number of own requests without a response so far."""
        return len(self._calls)

    @property
    def local_address(self) -> str:
        return address_of(self._transport.get_extra_info("sockname"))

    def answer(self, header: Header, data: bytes | list[Buffer]) -> None:
        """Complete, once, a request whose handler returned None; ``b""`` or oneway: without a response."""
        if not header[FLAG] & ONEWAY:
            self.complete_responses(1, data)

    def defer_responses(self, count: int) -> None:
        """Count requests that an interceptor accepted and will answer by ``complete_responses``."""
        self._deferred += count
        if self._deferred >= self._max_deferred:
            self._pause(DEFERRED)

    def complete_responses(self, count: int, data: bytes | list[Buffer]) -> None:
        """Send the deferred responses of ``count`` requests: whole frames, or ``b""`` for none."""
        if self._deferred_bytes:
            self._deferred_bytes -= self._deferred_bytes * count // self._deferred
        self._deferred -= count
        if data:
            self.send(data, count)
        if self._pause_reasons & DEFERRED and self._deferred <= self._max_deferred // 2:
            self._resume(DEFERRED)
        if self._draining and self._deferred <= 0 and not self._is_dispatching:
            self.close()

    def send(self, data: bytes | list[Buffer], count: int = 1) -> None:
        """Send ``count`` whole frames at the end of this loop iteration, or at once if many; not if closed."""
        if self._closing:
            return
        out = self._out
        if not out and not self._is_dispatching:
            self._endpoint.flush_soon(self)
        if isinstance(data, list):
            out += data
            self._has_parts = True
            self._out_bytes += sum(map(len, data))
        else:
            out.append(data)
            self._out_bytes += len(data)
        if (len(out) >= MANY_FRAMES or count >= MANY_FRAMES) and not self._is_dispatching:
            # The peer can process these while the rest is being made.
            self.flush()

    def send_now(self, data: bytes) -> None:
        """Write whole frames now, behind those collected; for the end of a loop iteration; not if closed."""
        if self._closing:
            return
        if self._out or self._pause_reasons:
            self._out.append(data)
            self.flush()
        else:
            self._write(data)

    def call(self, command: Command, timeout: float) -> asyncio.Future[Command]:
        """Send a request, with an opaque assigned here, and return the future of its response.

        Raises TooManyCallsError or ConnectionLostError if it was not sent; callers without a limit of their own
        should await ``writable`` first. The future fails with CallTimeoutError or ConnectionLostError.
        """
        self._check_open()
        command.opaque = opaque = self.next_opaque()
        return self.exchange(opaque, command.encode(), timeout)

    def call_oneway(self, command: Command) -> None:
        """Send a oneway request. Its opaque and oneway flag are set here."""
        self._check_open()
        command.opaque = self.next_opaque()
        command.flag |= ONEWAY
        request = command.encode()
        self._check_room(len(request))
        self.send(request)

    def next_opaque(self) -> int:
        """An unused opaque, for callers that encode their requests themselves."""
        opaque = self._endpoint.opaques.next()
        while opaque in self._calls:
            opaque = self._endpoint.opaques.next()
        return opaque

    def exchange(self, opaque: int, request: bytes, timeout: float) -> asyncio.Future[Command]:
        """``call`` for an encoded request, with an opaque from ``next_opaque``."""
        self._check_open()
        endpoint = self._endpoint
        if len(self._calls) >= endpoint.limits.calls:
            raise TooManyCallsError(
                f"limit of {endpoint.limits.calls} calls in flight to {self.remote_address} reached"
            )
        self._check_room(len(request))
        answer: asyncio.Future[Command] = endpoint.loop.create_future()
        if not self._calls:
            endpoint.calling.add(self)
        self._calls.add(opaque, answer, endpoint.loop.time() + timeout)
        self.send(request)
        return answer

    @property
    def is_writable(self) -> bool:
        """The write buffer is below its limit: the peer keeps reading."""
        return not self._pause_reasons & UNWRITABLE

    async def writable(self) -> None:
        """Wait until ``is_writable``. Raises ConnectionLostError."""
        while self._pause_reasons & UNWRITABLE and not self._closing:
            if self._writable is None:
                self._writable = self._endpoint.loop.create_future()
            await asyncio.shield(self._writable)
        self._check_open()

    def _check_open(self) -> None:
        if self._closing:
            raise ConnectionLostError(f"the connection to {self.remote_address} is closed")

    def _check_room(self, size: int) -> None:
        limits = self._endpoint.limits
        self._request_bytes = waiting = self._request_bytes + size
        if (self._pause_reasons or waiting > limits.write_high_bytes) and (
            waiting + self._transport.get_write_buffer_size() > limits.write_max_bytes
        ):
            self._request_bytes -= size
            raise TooManyCallsError(f"too many unsent bytes to {self.remote_address}: {waiting} more")

    def close(self, reason: Exception | None = None) -> None:
        """Flush the responses made so far, then close. ``reason`` is for the owner's ``on_close``."""
        if self.has_batched_input:
            self._endpoint.intercept_received()
        if self._closing:
            return
        self._closing = True
        self._liveness.begin_close(self._endpoint.loop.time())
        self._reason = reason
        if not self._is_dispatching:
            self._finish()

    def drain(self) -> None:
        """Accept no further requests, and close when the deferred responses are sent."""
        if self.has_batched_input:
            self._endpoint.intercept_received()
        self._draining = True
        self._handlers = {}
        self._interceptor = None
        self._drop_backlog()
        if self._deferred <= 0 and not self._is_dispatching:
            self.close()

    def abort(self, reason: Exception | None = None) -> None:
        """Close at once and drop unsent bytes."""
        self._closing = self._aborted = True
        self._reason = self._reason or reason
        self._out.clear()
        self._drop_backlog()
        self._transport.abort()

    # Protocol of the transport

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
        interceptor = self._interceptor
        if interceptor is not None:
            if self.has_batched_input:
                self._endpoint.intercept_received()
            elif (
                data.startswith(interceptor.together, HEADER_AT)
                and len(data) <= MAX_BATCHED_BYTES
                and not self._parser.pending_bytes
                and not self._pause_reasons & BACKLOG
            ):
                self.has_batched_input = True
                self._endpoint.intercept_at_end(self, interceptor, data)
                return
        if self._pause_reasons & BACKLOG:
            self._unparsed += data
        else:
            self._process(data)
            if len(data) >= FULL_READ and not self._closing:
                self._schedule_backlog()
        if self._charged_received or self._parser.pending_bytes > SMALL_RECEIVED or self._unparsed:
            self.update_charge()

    def _process(self, data: bytes) -> None:
        """Process received bytes, or leave them to the next iteration if the time of this one is used up."""
        scheduler = self._endpoint.scheduler
        if scheduler.until == math.inf:
            self._endpoint.begin_iteration()
        elif scheduler.clock() >= scheduler.until:
            self._unparsed = data
            self._schedule_backlog()
            return
        if self._interceptor is None:
            self._parse_frames(data)
        else:
            self.intercept(data, self._interceptor)

    def intercept(self, data: bytes, interceptor: FrameInterceptor) -> None:
        """Pass frames to the interceptor; dispatch the frames it declines to the handlers."""
        while not self._closing and (data := self._parser.joined(data)):
            taken, others = interceptor.take(self, data)
            stop = taken + others
            if others:
                self._parse_frames(data[taken:stop] if taken or stop < len(data) else data)
            if stop >= len(data):
                return
            data = data[stop:]
            if self._backlog or self._must_pause():
                self._unparsed = data
                self._schedule_backlog()
                return

    def _parse_frames(self, data: bytes) -> None:
        try:
            frames = self._feed(data)
        except FrameError as error:
            self._dispatch_frames(error.frames)
            if self._backlog:
                self._stream_error = error
            else:
                self._close_malformed(error)
        else:
            if frames:
                self._dispatch_frames(frames)

    # The backlog: received requests that are left to later iterations

    def _must_pause(self) -> bool:
        """The next request has to wait: for the next iteration, for the peer to read, or for deferred responses."""
        if self._out_bytes >= self._endpoint.limits.write_high_bytes:
            self.flush()
        scheduler = self._endpoint.begin_iteration()
        return (
            bool(self._pause_reasons & self._reasons_that_pause & (UNWRITABLE | DEFERRED))
            or scheduler.clock() >= scheduler.until
        )

    def _schedule_backlog(self) -> None:
        """Pause reading until the backlog is processed, and schedule that for the next iteration."""
        self._pause(BACKLOG)
        if not self._backlog_is_scheduled:
            self._backlog_is_scheduled = True
            self._endpoint.scheduler.queue(self)

    def process_backlog(self) -> None:
        """Process the next slice of the backlog, unless the peer has to read first or responses are deferred."""
        self._backlog_is_scheduled = False
        if self._closing or self._pause_reasons & self._reasons_that_pause & (UNWRITABLE | DEFERRED):
            return
        self._endpoint.begin_iteration()
        frames, self._backlog, self._backlog_bytes = self._backlog, [], 0
        if frames:
            self._dispatch_frames(frames)
        if not self._backlog and self._stream_error is not None and not self.is_closing:
            self._close_malformed(self._stream_error)
        if self._unparsed and not self._backlog and not self.is_closing:
            data, self._unparsed = self._unparsed, b""
            self._process(data)
        if self.is_closing:
            return
        if self._backlog or self._unparsed:
            self._schedule_backlog()
        else:
            self._resume(BACKLOG)
            if self._peer_finished:
                self.close()
        self.update_charge()

    def _drop_backlog(self) -> None:
        self._backlog, self._backlog_bytes, self._unparsed, self._stream_error = [], 0, b"", None

    def eof_received(self) -> bool:
        # A peer that stops sending is gone, as for RocketMQ's own servers; responses already made are still sent.
        if self._pause_reasons & BACKLOG and not self._closing:
            self._peer_finished = True
            return True
        self.close()
        return False

    def pause_writing(self) -> None:
        self._liveness.begin_stall(self._endpoint.loop.time(), self._transport.get_write_buffer_size())
        self._pause(UNWRITABLE)
        self.update_charge()

    def resume_writing(self) -> None:
        self._resume(UNWRITABLE)
        self._wake_writers()
        self.update_charge()

    def connection_lost(self, error: Exception | None) -> None:
        self._reasons_that_pause = 0  # the transport is gone and must not be paused or resumed
        if self.has_batched_input:
            self._endpoint.intercept_received()
        self._closing = True
        self._out.clear()
        self._drop_backlog()
        reason = self._reason or error
        text = f"the connection to {self.remote_address} was closed before the response came"
        self._wake_writers()
        self._calls.fail_all(text if reason is None else f"{text}: {one_sentence(reason)}")
        self._endpoint.remove(self, reason)

    # Requests and responses

    def _dispatch_frames(self, frames: list[Frame]) -> None:
        """Dispatch requests to their handlers and responses to their calls."""
        handlers = self._handlers
        out = self._out
        endpoint = self._endpoint
        scheduler = endpoint.begin_iteration()
        clock, until, high = scheduler.clock, scheduler.until, endpoint.limits.write_high_bytes
        stops = self._reasons_that_pause & (UNWRITABLE | DEFERRED)
        # Tells decoders, here and in tasks of handlers, that they block the event loop of a server.
        before = reading_request.set(self._is_server)
        self._is_dispatching = True
        for number, frame in enumerate(frames, 1):
            try:
                header = decode_header(frame)
            except ProtocolError as error:
                self._close_malformed(error)
                break
            flag = header[FLAG]
            if flag & RESPONSE:
                self._calls.complete(frame, header)
                continue
            handler = handlers.get(header[CODE])
            if handler is None:
                answer: Answer = b"" if self._draining else not_supported(header, frame[0])
            else:
                try:
                    answer = handler(self, header, frame[2], frame[0])
                except Exception as error:
                    answer = failed(error, header, frame[0], self.remote_address)
            if not flag & ONEWAY:
                if answer is None:
                    self._deferred += 1
                    if frame[2]:
                        self._deferred_bytes += len(frame[2])
                    if self._deferred >= self._max_deferred:
                        self._pause(DEFERRED)
                elif isinstance(answer, list):
                    out += answer
                    self._has_parts = True
                    self._out_bytes += sum(map(len, answer))
                elif answer:
                    out.append(answer)
                    self._out_bytes += len(answer)
            if self._closing:
                break
            if self._out_bytes >= high:
                self.flush()
            if (clock() >= until or self._pause_reasons & stops) and number < len(frames):
                self._backlog = frames[number:]
                self._backlog_bytes = sum(len(rest[1]) + len(rest[2]) for rest in self._backlog)
                break
        self._is_dispatching = False
        reading_request.reset(before)
        if self._closing:
            self._finish()
        elif out:
            # Written at the end of the iteration, with those of all other connections: each write may wake its
            # reader, and a reader that already runs costs nothing. 64 clients with one request in flight each get
            # 1.5 times the throughput this way. A peer with many requests in flight is flushed now, to keep its
            # pipeline full.
            if len(out) < MANY_FRAMES:
                self._endpoint.flush_soon(self)
            else:
                self.flush()
        if self._backlog and not self._closing:
            self._schedule_backlog()
        if self._draining and self._deferred <= 0:
            self.close()

    def _close_malformed(self, error: ProtocolError) -> None:
        """Close a connection whose stream cannot be parsed any further."""
        if not self._closing:
            log.warning("remoting: closing %s: malformed frame: %s", self.remote_address, error)
            count_refusal(Limit.FRAME)
        self.close(error)

    # Writing and closing

    def flush(self) -> None:
        """Write the collected frames."""
        out = self._out
        if not out:
            return
        self._active = True
        if len(out) == 1:
            self._write(out[0])
        elif not self._has_parts:
            self._write(b"".join(out))
        else:
            self._write_parts(out)
            self._has_parts = False
            # Early event loops of Python 3.12 do not report that a gathering write has filled the write buffer.
            self._check_unsent()
        out.clear()
        self._request_bytes = self._out_bytes = 0
        if self._pause_reasons & UNWRITABLE:
            self._check_unsent()
        if self._charged_unsent or self._transport.get_write_buffer_size():
            self.update_charge()

    def _check_unsent(self) -> None:
        unsent = self._transport.get_write_buffer_size()
        if unsent > self._endpoint.limits.write_max_bytes:
            self._abort_slow_reader(f"{unsent} unsent bytes, the peer does not read")

    def _abort_slow_reader(self, text: str) -> None:
        log.warning("remoting: closing %s: %s", self.remote_address, text)
        self.abort(SlowReaderError(f"{self.remote_address}: {text}"))
        count_refusal(Limit.UNREAD_ANSWERS)

    def _finish(self) -> None:
        self.flush()
        self._transport.close()

    def _pause(self, why: int) -> None:
        paused = self._pause_reasons & self._reasons_that_pause
        self._pause_reasons |= why
        if not paused and self._pause_reasons & self._reasons_that_pause:
            self._transport.pause_reading()

    def _resume(self, why: int) -> None:
        paused = self._pause_reasons & self._reasons_that_pause
        self._pause_reasons &= ~why
        if paused and not self._pause_reasons & self._reasons_that_pause:
            self._transport.resume_reading()
        elif why & (UNWRITABLE | DEFERRED) and self._pause_reasons & BACKLOG:
            self._schedule_backlog()

    # The memory budget

    def update_charge(self) -> int:
        """Charge the bytes that this connection holds now to the memory budget, and return their number."""
        guard = self._endpoint.guard
        if guard is None:
            return 0
        received = unsent = 0
        if not self._aborted:
            received = self._parser.pending_bytes + len(self._unparsed) + self._backlog_bytes + self._deferred_bytes
            unsent = self._transport.get_write_buffer_size()
        budget = guard.budget
        if received != self._charged_received:
            budget.charge(RECEIVED, received - self._charged_received)
            self._charged_received = received
        if unsent != self._charged_unsent:
            budget.charge(UNSENT, unsent - self._charged_unsent)
            self._charged_unsent = unsent
        if budget.used > budget.tight_from:
            self._endpoint.schedule_iteration_end()
        return received + unsent

    def release_charge(self) -> None:
        """Release the whole charge of a closed connection."""
        guard = self._endpoint.guard
        if guard is not None:
            guard.budget.release(RECEIVED, self._charged_received)
            guard.budget.release(UNSENT, self._charged_unsent)
            self._charged_received = self._charged_unsent = 0
            guard.forget(self)

    def pause_reading(self) -> bool:
        """Pause reading until ``resume_reading``: the memory budget is tight. False if it is paused already."""
        if self._pause_reasons & MEMORY or self._closing:
            return False
        self._pause(MEMORY)
        return True

    def resume_reading(self) -> None:
        self._resume(MEMORY)

    def _wake_writers(self) -> None:
        writable, self._writable = self._writable, None
        if writable is not None and not writable.done():
            writable.set_result(None)

    # Periodic review

    def expire_calls(self, now: float) -> bool:
        """Fail calls past their deadline; True if others are left."""
        self._calls.expire(now)
        return len(self._calls) > 0

    def review(self, now: float) -> None:
        """Close the connection if it is idle or stalled, or takes too long to close."""
        limits, liveness, parser = self._endpoint.limits, self._liveness, self._parser
        if self._charged_received or self._charged_unsent:
            self.update_charge()
        if self._closing:
            if liveness.is_close_overdue(now, limits):
                self.abort()
        elif self._pause_reasons & UNWRITABLE:
            if liveness.is_stalled(now, self._transport.get_write_buffer_size(), limits):
                self._abort_slow_reader(f"the peer has not read anything for {limits.stalled_seconds:g} s")
        elif parser.pending_bytes and (
            seconds := liveness.late_frame_seconds(
                now, parser, limits, is_paused=bool(self._pause_reasons & (BACKLOG | DEFERRED))
            )
        ):
            self._abort_slow_frame(seconds)
        elif self._active:
            self._active = False
            liveness.used(now)
        elif liveness.is_idle(now, limits):
            self.close(IdleError(f"nothing was sent or received for {limits.idle_seconds:g} s"))

    def _abort_slow_frame(self, seconds: float) -> None:
        text = (
            f"remoting: closing {self.remote_address}: slow frame: {self._parser.pending_bytes} of "
            f"{self._parser.needed_bytes} bytes in {seconds:.0f} s"
        )
        log.warning("%s", text)
        self.abort(SlowFrameError(text))
        count_refusal(Limit.FRAME_TIME)
