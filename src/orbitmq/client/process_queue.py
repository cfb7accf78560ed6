"""What was pulled of one queue and is not consumed yet: the window between two offsets.

Everything before the lowest message that is not finished is consumed, so that offset is what may be committed. It
never goes down: messages come in the order of their offsets, and one that fails stays until a broker has it again.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import TYPE_CHECKING

from orbitmq.protocol.bodies import ProcessQueueInfo

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from orbitmq.client.pulled_message import PulledMessage
    from orbitmq.protocol.bodies import MessageQueue

LOCK_LIFE = 30.0
"""Seconds for which a lock counts after it was last confirmed; the broker keeps it for 60."""

MIB = 1 << 20


class ProcessQueue:
    """The messages of a queue that are here. It belongs to one assignment of the queue and is never used again."""

    __slots__ = (
        "_room",
        "arrived",
        "has_begun",
        "is_dropped",
        "last_consume_ms",
        "last_lock_ms",
        "last_offset",
        "last_pull_ms",
        "locked_at",
        "messages",
        "most_bytes",
        "most_messages",
        "most_span",
        "next_offset",
        "queue",
        "size",
    )

    def __init__(
        self, queue: MessageQueue, next_offset: int, *, most_messages: int, most_bytes: int, most_span: int | None
    ) -> None:
        """Without ``most_span`` the window may be as wide as it likes, as in an orderly queue."""
        self.queue = queue
        self.next_offset = next_offset
        """Where the next pull begins: all before it is here or was consumed."""
        self.has_begun = False
        """Whether a pull was answered."""
        self.messages: dict[int, PulledMessage] = {}
        """By offset, lowest first."""
        self.size = 0
        self.last_offset = 0
        self.most_messages = most_messages
        self.most_bytes = most_bytes
        self.most_span = most_span
        self.is_dropped = False
        """The queue is somebody else's now: what is consumed of it all the same does not count."""
        self.arrived = asyncio.Event()
        """Set while there are messages."""
        self.locked_at: float | None = None
        self.last_lock_ms = 0
        self.last_pull_ms = 0
        self.last_consume_ms = 0
        self._room: asyncio.Future[None] | None = None

    # The window

    def put(self, messages: Sequence[PulledMessage]) -> None:
        """Messages were pulled, in the order of their offsets."""
        kept = self.messages
        size = 0
        for message in messages:
            kept[message.offset] = message
            size += message.stored_size
        self.size += size
        self.last_offset = messages[-1].offset
        self.arrived.set()

    def finish(self, messages: Iterable[PulledMessage]) -> None:
        """These were consumed, or a broker has them again."""
        kept = self.messages
        for message in messages:
            if kept.pop(message.offset, None) is not None:
                self.size -= message.stored_size
        if not kept:
            self.arrived.clear()
        if self._room is not None:
            self._say_if_room()

    def first(self, count: int) -> list[PulledMessage]:
        """The lowest messages that are not finished."""
        return list(itertools.islice(self.messages.values(), count))

    def holds(self, message: PulledMessage) -> bool:
        return message.offset in self.messages

    @property
    def consumed_to(self) -> int:
        """The offset that may be committed: that of the lowest message not finished, else where pulling is."""
        return next(iter(self.messages)) if self.messages else self.next_offset

    @property
    def span(self) -> int:
        return self.last_offset - next(iter(self.messages)) if self.messages else 0

    # Flow control

    @property
    def is_full(self) -> bool:
        """Whether nothing more should be pulled for now."""
        return (
            len(self.messages) > self.most_messages
            or self.size > self.most_bytes
            or (self.most_span is not None and self.span > self.most_span)
        )

    async def room(self) -> None:
        """Wait until it is not full."""
        while self.is_full:
            self._room = asyncio.get_running_loop().create_future()
            try:
                await self._room
            finally:
                self._room = None

    def _say_if_room(self) -> None:
        if self._room is not None and not self._room.done() and not self.is_full:
            self._room.set_result(None)

    # The lock of an orderly consumer

    @property
    def is_locked(self) -> bool:
        """Whether the queue is surely this consumer's alone."""
        return self.locked_at is not None and time.monotonic() - self.locked_at < LOCK_LIFE

    def lock(self, *, asked_at: float) -> None:
        """A broker has confirmed the lock; its time counts from when it was asked."""
        self.locked_at = asked_at
        self.last_lock_ms = round(time.time() * 1000)

    def unlock(self) -> None:
        self.locked_at = None

    # For tools

    def info(self) -> ProcessQueueInfo:
        kept = self.messages
        return ProcessQueueInfo(
            commit_offset=self.consumed_to,
            cached_msg_min_offset=next(iter(kept), 0),
            cached_msg_max_offset=self.last_offset if kept else 0,
            cached_msg_count=len(kept),
            cached_msg_size_in_mib=self.size // MIB,
            locked=self.is_locked,
            last_lock_timestamp=self.last_lock_ms,
            droped=self.is_dropped,
            last_pull_timestamp=self.last_pull_ms,
            last_consume_timestamp=self.last_consume_ms,
        )
