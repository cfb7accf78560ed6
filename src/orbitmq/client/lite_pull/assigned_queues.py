"""Assigned queues of a lite pull consumer: buffered messages and positions."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import deque
from typing import TYPE_CHECKING

from orbitmq.client.errors import InvalidMessageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from orbitmq.client.consumer.received_message import PulledMessage
    from orbitmq.protocol.bodies import MessageQueue

MIB = 1 << 20


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PullLimits:
    """Limits of prefetching. A queue over a limit is not pulled until messages were polled."""

    pull_threshold_for_all: int = 10_000
    pull_threshold_for_queue: int = 1_000
    pull_threshold_size_for_queue: int = 100
    """MiB."""
    consume_max_span: int = 2_000

    def __post_init__(self) -> None:
        for name, most in (
            ("pull_threshold_for_all", 6_553_500),
            ("pull_threshold_for_queue", 65_535),
            ("pull_threshold_size_for_queue", 1_024),
            ("consume_max_span", 65_535),
        ):
            if not 1 <= getattr(self, name) <= most:
                raise InvalidMessageError(f"{name} must be from 1 to {most}, not {getattr(self, name)}")


class AssignedQueue:
    """One assigned queue, used on one event loop."""

    __slots__ = (
        "_changed",
        "broker_id",
        "cached_bytes",
        "in_hand",
        "is_paused",
        "is_ready",
        "messages",
        "pull_offset",
        "queue",
        "task",
    )

    def __init__(self, queue: MessageQueue) -> None:
        self.queue = queue
        self.messages: deque[PulledMessage] = deque()
        """Pulled and not polled yet."""
        self.cached_bytes = 0
        self.pull_offset: int | None = None
        """Offset of the next pull; None until the start offset is known."""
        self.in_hand: int | None = None
        """First offset of the last polled messages, which the application may still process."""
        self.is_paused = False
        self.is_ready = False
        """Whether it is in the list of queues with buffered messages."""
        self.broker_id = 0
        """The replica to pull from; brokers suggest another one when they are busy."""
        self.task: asyncio.Task[None] | None = None
        """The pull loop."""
        self._changed = asyncio.Event()

    @property
    def position(self) -> int | None:
        """The offset behind the polled messages."""
        return self.messages[0].offset if self.messages else self.pull_offset

    @property
    def done_offset(self) -> int | None:
        """The offset behind the processed messages: those polled before the last poll."""
        return self.position if self.in_hand is None else self.in_hand

    @property
    def span(self) -> int:
        """Distance from the first to the last buffered message."""
        return self.messages[-1].offset - self.messages[0].offset if self.messages else 0

    def wake(self) -> None:
        """Recheck whether the queue may be pulled."""
        self._changed.set()

    async def change(self) -> None:
        self._changed.clear()
        await self._changed.wait()


class AssignedQueues:
    """All assigned queues of a consumer, and the list of those with buffered messages."""

    def __init__(self, limits: PullLimits) -> None:
        self._limits = limits
        self._queues: dict[MessageQueue, AssignedQueue] = {}
        self._ready: deque[AssignedQueue] = deque()
        self._arrived = asyncio.Event()
        self._handed_out: list[AssignedQueue] = []
        """Queues with polled messages in progress."""
        self._count = 0
        """Number of buffered messages."""

    def __contains__(self, queue: MessageQueue) -> bool:
        return queue in self._queues

    def find(self, queue: MessageQueue) -> AssignedQueue | None:
        return self._queues.get(queue)

    def all(self) -> list[AssignedQueue]:
        return list(self._queues.values())

    @property
    def count(self) -> int:
        """Number of buffered messages."""
        return self._count

    # Assignment

    def add(self, queue: MessageQueue) -> AssignedQueue:
        assert queue not in self._queues
        assigned = self._queues[queue] = AssignedQueue(queue)
        return assigned

    def remove(self, queue: MessageQueue) -> AssignedQueue:
        """Unassign a queue and drop its buffered messages."""
        assigned = self._queues.pop(queue)
        self._forget_messages(assigned)
        return assigned

    def pause(self, assigned: AssignedQueue) -> None:
        """Pause polls and pulls of a queue."""
        assigned.is_paused = True

    def resume(self, assigned: AssignedQueue) -> None:
        assigned.is_paused = False
        assigned.wake()
        self._mark_ready(assigned)

    def move(self, assigned: AssignedQueue, offset: int) -> None:
        """Seek to an offset. Its pull loop has to be stopped first."""
        self._forget_messages(assigned)
        assigned.in_hand = None
        assigned.pull_offset = offset

    def rewind(self, assigned: AssignedQueue) -> None:
        """Drop buffered messages and pull them again. Its pull loop has to be stopped first."""
        assigned.pull_offset = assigned.position
        self._forget_messages(assigned)

    # Pulled messages

    def put(self, assigned: AssignedQueue, messages: Sequence[PulledMessage], next_offset: int) -> None:
        """Add the messages of a pull, and set the offset of the next one."""
        assigned.pull_offset = next_offset
        if not messages:
            return
        assigned.messages.extend(messages)
        assigned.cached_bytes += sum(message.stored_size for message in messages)
        self._count += len(messages)
        self._mark_ready(assigned)

    async def until_pullable(self, assigned: AssignedQueue) -> None:
        """Wait while a queue is paused or over a limit."""
        while assigned.is_paused or self._is_full(assigned):
            await assigned.change()

    def _is_full(self, assigned: AssignedQueue) -> bool:
        limits = self._limits
        return (
            len(assigned.messages) > limits.pull_threshold_for_queue
            or assigned.cached_bytes > limits.pull_threshold_size_for_queue * MIB
            or assigned.span > limits.consume_max_span
            or self._count > limits.pull_threshold_for_all
        )

    def _mark_ready(self, assigned: AssignedQueue) -> None:
        if assigned.messages and not assigned.is_ready and not assigned.is_paused:
            assigned.is_ready = True
            self._ready.append(assigned)
            self._arrived.set()

    def _forget_messages(self, assigned: AssignedQueue) -> None:
        self._removed(len(assigned.messages))
        assigned.messages.clear()
        assigned.cached_bytes = 0

    def _removed(self, count: int) -> None:
        most = self._limits.pull_threshold_for_all
        was_full = self._count > most
        self._count -= count
        if was_full and self._count <= most:
            for other in self._queues.values():
                other.wake()

    # Polled messages

    def take(self, most: int) -> list[PulledMessage]:
        """Poll messages of one queue, round robin. Messages polled before count as processed."""
        self.settle()
        while self._ready:
            assigned = self._ready.popleft()
            assigned.is_ready = False
            messages = assigned.messages
            # It may have been paused, moved or unassigned since.
            if not messages or assigned.is_paused or self._queues.get(assigned.queue) is not assigned:
                continue
            assigned.in_hand = assigned.position
            self._handed_out.append(assigned)
            taken = [messages.popleft() for _ in range(min(most, len(messages)))]
            assigned.cached_bytes -= sum(message.stored_size for message in taken)
            self._removed(len(taken))
            assigned.wake()
            self._mark_ready(assigned)
            return taken
        return []

    def give_back(self, unread: Sequence[PulledMessage], in_hand: int) -> None:
        """Undo a part of the last ``take``: these messages come again, as if they had not been polled.

        ``in_hand`` is the offset of the message before them, which the application may still process.
        """
        if not self._handed_out:
            return
        assigned = self._handed_out[-1]
        # It may have been unassigned or moved since.
        if self._queues.get(assigned.queue) is not assigned or assigned.in_hand is None:
            return
        assigned.in_hand = in_hand
        assigned.messages.extendleft(reversed(unread))
        assigned.cached_bytes += sum(message.stored_size for message in unread)
        self._count += len(unread)
        self._mark_ready(assigned)

    def settle(self) -> None:
        """Count all polled messages as processed."""
        for assigned in self._handed_out:
            assigned.in_hand = None
        self._handed_out.clear()

    async def arrival(self) -> None:
        """Wait for messages or ``interrupt``."""
        self._arrived.clear()
        await self._arrived.wait()

    def interrupt(self) -> None:
        """Wake waiting polls: no more messages will arrive."""
        self._arrived.set()

    def done_offsets(self, queues: Iterable[AssignedQueue]) -> dict[MessageQueue, int]:
        return {one.queue: offset for one in queues if (offset := one.done_offset) is not None}
