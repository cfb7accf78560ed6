"""Native append: gives native batch types their position in the log, and enters what they appended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq import native

if TYPE_CHECKING:
    from orbitmq.native._native import AckBatcher, DeferredDelivery, PopServer, SendBatcher
    from orbitmq.native.buffer import Buffer
    from orbitmq.native.results import Acknowledged, Delivered, Popped, Served, Stored
    from orbitmq.platform.clock import Clock
    from orbitmq.store.append.appender import Gate
    from orbitmq.store.commitlog.commit_log import CommitLog
    from orbitmq.store.dispatch.dispatcher import Dispatcher
    from orbitmq.store.reader import Reader


class NativeAppender:
    """Lets native batch types append to the log.

    ``accepts_sends`` is False without the native extension, and for a store whose records need more than native
    code does for them. Acknowledgements and deferred messages are accepted only where records are dispatched as
    soon as they are appended (``accepts_all``). With ``dispatches_at_once`` False, records are dispatched later,
    like those of the Python path.
    """

    def __init__(
        self,
        log: CommitLog,
        dispatcher: Dispatcher,
        clock: Clock,
        gate: Gate,
        *,
        accepts_sends: bool,
        dispatches_at_once: bool,
    ) -> None:
        self.accepts_sends = accepts_sends and native.load().is_compiled
        self.accepts_all = self.accepts_sends and dispatches_at_once
        self.dispatches_at_once = dispatches_at_once
        self._log = log
        self._dispatcher = dispatcher
        self._clock = clock
        self._gate = gate

    def append(
        self, batcher: SendBatcher, received: list[tuple[bytes, bytes]]
    ) -> tuple[int, list[Served], Stored] | None:
        """Append the sends that each chunk begins with; a chunk comes with its sender's address.

        Returns the number of messages and the native results; None if nothing can be appended natively now.
        """
        if self._is_closed:
            return None
        now = self._clock.now_ms()
        parts, stored = batcher.append(received, *self._log.writable_part(), now, self._has_listeners)
        count = parts[0].message_count if len(parts) == 1 else sum([part.message_count for part in parts])
        self._enter(count, stored, now)
        return count, parts, stored

    def acknowledge(self, batcher: AckBatcher, data: bytes) -> Acknowledged | None:
        """Append the acknowledgements that ``data`` begins with; None if nothing can be appended natively now."""
        if self._is_closed:
            return None
        now = self._clock.now_ms()
        acknowledged = batcher.append(data, *self._log.writable_part(), now, self._has_listeners)
        self._enter(acknowledged.record_count, acknowledged, now)
        return acknowledged

    def pop(self, server: PopServer, data: bytes, revive_queue: int, draw: int, reader: Reader) -> Popped | None:
        """Serve the pop that ``data`` begins with, and append its check points; None if that is not possible."""
        if self._is_closed:
            return None
        now, log = self._clock.now_ms(), self._log
        popped = server.pop(
            data, revive_queue, draw, log.start, log.committed, reader.memory_window, reader.checked_from,
            log.file_size, log.files.buffer_at, *log.writable_part(), now, self._has_listeners,
        )  # fmt: skip
        if popped is not None:
            self._enter(popped.record_count, popped, now)
        return popped

    def deliver(
        self,
        delivery: DeferredDelivery,
        positions: bytes,
        timer_log: Buffer,
        timer_base: int,
        offset: int,
        first: int,
        max_bytes: int,
    ) -> Delivered | None:
        """Append due timer messages, given as positions of the timer log; None if that cannot be done now.

        The record of the first one is at ``offset``. Ends at a record before ``first``, and when ``max_bytes`` of
        records are reached.
        """
        source = self._source(offset, first)
        if source is None:
            return None
        now = self._clock.now_ms()
        writable = self._log.writable_part()
        delivered = delivery.deliver(
            positions, timer_log, timer_base, *source, max_bytes, *writable, now, self._has_listeners
        )
        self._enter(delivered.message_count, delivered, now)
        return delivered

    def deliver_units(self, delivery: DeferredDelivery, units: bytes, offset: int, first: int) -> Delivered | None:
        """Append due messages of a delay level, given as units of its queue; the first record is at ``offset``."""
        source = self._source(offset, first)
        if source is None:
            return None
        now = self._clock.now_ms()
        delivered = delivery.deliver_units(units, *source, *self._log.writable_part(), now, self._has_listeners)
        self._enter(delivered.message_count, delivered, now)
        return delivered

    def _source(self, offset: int, first: int) -> tuple[Buffer, int, int, int] | None:
        """The log file with the record at an offset, its base offset, and the offsets between which records may be
        read from it; None if nothing can be appended natively now.
        """
        log = self._log
        buffer = None if self._is_closed else log.files.buffer_at(offset)
        return None if buffer is None else (buffer, offset - offset % log.file_size, first, log.committed)

    @property
    def _is_closed(self) -> bool:
        dispatcher = self._dispatcher
        return (
            self._gate.reason is not None
            or dispatcher.fault is not None
            or (self.dispatches_at_once and dispatcher.position != self._log.end)
        )

    @property
    def _has_listeners(self) -> bool:
        return self._dispatcher.on_arrival is not None

    def _enter(self, count: int, batch: Stored | Acknowledged | Popped | Delivered, now: int) -> None:
        """Advance the log and, unless records are dispatched later, the dispatcher."""
        if not count:
            return
        log, dispatcher = self._log, self._dispatcher
        start = log.end
        log.advance(batch.position, now)
        if not self.dispatches_at_once:
            return
        dispatcher.on_entered(batch.entered, now)
        dispatcher.index_hashed(start, batch.last, now, count, batch.hashes, batch.offsets)
        dispatcher.position = log.end
