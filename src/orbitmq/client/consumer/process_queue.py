"""Process queue: the pulled messages of one queue that are not consumed yet, a window between two offsets.

The lowest unfinished offset is the one to commit: all messages before it are consumed. It never decreases, because
messages arrive in order and a failed one stays until a broker has accepted it again.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING

from orbitmq.platform.clock import SYSTEM_CLOCK
from orbitmq.protocol.bodies import ProcessQueueInfo

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from orbitmq.client.consumer.received_message import PulledMessage
    from orbitmq.platform.clock import Clock
    from orbitmq.protocol.bodies import MessageQueue

LOCK_LIFE = 30.0
"""Seconds for which a confirmed lock counts; the broker keeps it for 60."""

MIB = 1 << 20


class ProcessQueue:
    """Pulled messages of one queue. It belongs to one assignment and is not reused."""

    __slots__ = (
        "_clock",
        "_room",
        "arrived",
        "has_begun",
        "is_dropped",
        "last_consume_ms",
        "last_lock_ms",
        "last_offset",
        "last_pull_ms",
        "locked_at",
        "max_bytes",
        "max_messages",
        "max_span",
        "messages",
        "next_offset",
        "queue",
        "size",
    )

    def __init__(
        self,
        queue: MessageQueue,
        next_offset: int,
        *,
        max_messages: int,
        max_bytes: int,
        max_span: int | None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Without ``max_span`` the window has no maximum width, as in an orderly queue."""
        self._clock = clock
        self.queue = queue
        self.next_offset = next_offset
        """Offset of the next pull: everything before it is here or consumed."""
        self.has_begun = False
        """Whether a pull has succeeded."""
        self.messages: dict[int, PulledMessage] = {}
        """By offset, lowest first."""
        self.size = 0
        self.last_offset = 0
        self.max_messages = max_messages
        self.max_bytes = max_bytes
        self.max_span = max_span
        self.is_dropped = False
        """The queue was unassigned: results of handlers still running are discarded."""
        self.arrived = asyncio.Event()
        """Set while there are messages."""
        self.locked_at: float | None = None
        # From when it was assigned, as in RocketMQ: tools report queues that have not moved for long.
        self.last_lock_ms = self.last_pull_ms = self.last_consume_ms = clock.now_ms()
        self._room: asyncio.Future[None] | None = None

    # The window

    def put(self, messages: Sequence[PulledMessage]) -> None:
        """Add pulled messages, in the order of their offsets."""
        messages_here = self.messages
        size = 0
        for message in messages:
            messages_here[message.offset] = message
            size += message.stored_size
        self.size += size
        self.last_offset = messages[-1].offset
        self.arrived.set()

    def finish(self, messages: Iterable[PulledMessage]) -> None:
        """Remove messages that were consumed or accepted again by a broker."""
        messages_here = self.messages
        for message in messages:
            if messages_here.pop(message.offset, None) is not None:
                self.size -= message.stored_size
        if not messages_here:
            self.arrived.clear()
        if self._room is not None:
            self._wake_if_not_full()

    def first(self, count: int) -> list[PulledMessage]:
        """The lowest unfinished messages."""
        return list(itertools.islice(self.messages.values(), count))

    def holds(self, message: PulledMessage) -> bool:
        return message.offset in self.messages

    @property
    def consumed_to(self) -> int:
        """The offset to commit: the lowest unfinished one, or else the next offset to pull."""
        return next(iter(self.messages)) if self.messages else self.next_offset

    @property
    def span(self) -> int:
        return self.last_offset - next(iter(self.messages)) if self.messages else 0

    # Flow control

    @property
    def is_full(self) -> bool:
        """True if a limit is exceeded, so that pulls must wait."""
        return (
            len(self.messages) > self.max_messages
            or self.size > self.max_bytes
            or (self.max_span is not None and self.span > self.max_span)
        )

    async def room(self) -> None:
        """Wait until no limit is exceeded."""
        while self.is_full:
            self._room = asyncio.get_running_loop().create_future()
            try:
                await self._room
            finally:
                self._room = None

    def _wake_if_not_full(self) -> None:
        if self._room is not None and not self._room.done() and not self.is_full:
            self._room.set_result(None)

    # The lock of an orderly consumer

    @property
    def is_locked(self) -> bool:
        """True if the lock is certainly held."""
        return self.locked_at is not None and self._clock.monotonic() - self.locked_at < LOCK_LIFE

    def lock(self, *, requested_at: float) -> None:
        """Record a confirmed lock. Its lifetime counts from the time of the request."""
        self.locked_at = requested_at
        self.last_lock_ms = self._clock.now_ms()

    def unlock(self) -> None:
        self.locked_at = None

    # For tools

    def info(self) -> ProcessQueueInfo:
        messages_here = self.messages
        return ProcessQueueInfo(
            commit_offset=self.consumed_to,
            cached_msg_min_offset=next(iter(messages_here), 0),
            cached_msg_max_offset=self.last_offset if messages_here else 0,
            cached_msg_count=len(messages_here),
            cached_msg_size_in_mib=self.size // MIB,
            locked=self.is_locked,
            last_lock_timestamp=self.last_lock_ms,
            droped=self.is_dropped,
            last_pull_timestamp=self.last_pull_ms,
            last_consume_timestamp=self.last_consume_ms,
        )
