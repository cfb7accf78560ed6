"""The queues that a pull consumer reads: what was pulled and not yet handed out, and how far it has come."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import deque
from typing import TYPE_CHECKING

from orbitmq.client.errors import InvalidMessageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from orbitmq.client.pulled_message import PulledMessage
    from orbitmq.protocol.bodies import MessageQueue

MIB = 1 << 20


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PullLimits:
    """How much is pulled ahead. A queue over a limit is left alone until messages were handed out."""

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
    """One queue. Everything of it happens on one loop."""

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
        """Pulled and not yet handed out."""
        self.cached_bytes = 0
        self.pull_offset: int | None = None
        """Where the next pull begins; None until somebody has looked up where to start."""
        self.in_hand: int | None = None
        """Where the messages begin that were handed out last and may still be worked on."""
        self.is_paused = False
        self.is_ready = False
        """Whether it stands in the line of queues with something to hand out."""
        self.broker_id = 0
        """Which replica to ask; brokers suggest another one when they are busy."""
        self.task: asyncio.Task[None] | None = None
        """Pulls from it."""
        self._changed = asyncio.Event()

    @property
    def position(self) -> int | None:
        """The offset after all that was handed out."""
        return self.messages[0].offset if self.messages else self.pull_offset

    @property
    def done_offset(self) -> int | None:
        """The offset after all that was handed out and is certainly done with: somebody asked for more since."""
        return self.position if self.in_hand is None else self.in_hand

    @property
    def span(self) -> int:
        """From the first message here to the last."""
        return self.messages[-1].offset - self.messages[0].offset if self.messages else 0

    def wake(self) -> None:
        """Whatever kept it from being pulled may be over."""
        self._changed.set()

    async def change(self) -> None:
        self._changed.clear()
        await self._changed.wait()


class AssignedQueues:
    """All queues of a consumer, and the line of those that have something to hand out."""

    def __init__(self, limits: PullLimits) -> None:
        self._limits = limits
        self._queues: dict[MessageQueue, AssignedQueue] = {}
        self._ready: deque[AssignedQueue] = deque()
        self._arrived = asyncio.Event()
        self._handed_out: list[AssignedQueue] = []
        """Those with something in hand."""
        self._count = 0
        """How many messages are here."""

    def __contains__(self, queue: MessageQueue) -> bool:
        return queue in self._queues

    def find(self, queue: MessageQueue) -> AssignedQueue | None:
        return self._queues.get(queue)

    def all(self) -> list[AssignedQueue]:
        return list(self._queues.values())

    @property
    def count(self) -> int:
        """How many messages wait to be handed out."""
        return self._count

    # Which queues

    def add(self, queue: MessageQueue) -> AssignedQueue:
        assert queue not in self._queues
        assigned = self._queues[queue] = AssignedQueue(queue)
        return assigned

    def remove(self, queue: MessageQueue) -> AssignedQueue:
        """Take a queue out; what was pulled from it is never handed out."""
        assigned = self._queues.pop(queue)
        self._forget_messages(assigned)
        return assigned

    def pause(self, assigned: AssignedQueue) -> None:
        """Hand nothing out of a queue, and pull nothing from it."""
        assigned.is_paused = True

    def resume(self, assigned: AssignedQueue) -> None:
        assigned.is_paused = False
        assigned.wake()
        self._line_up(assigned)

    def move(self, assigned: AssignedQueue, offset: int) -> None:
        """Go on elsewhere. Whoever is pulling from the queue has to be stopped first."""
        self._forget_messages(assigned)
        assigned.in_hand = None
        assigned.pull_offset = offset

    def rewind(self, assigned: AssignedQueue) -> None:
        """Pull again what was not handed out. Whoever is pulling from the queue has to be stopped first."""
        assigned.pull_offset = assigned.position
        self._forget_messages(assigned)

    # In

    def put(self, assigned: AssignedQueue, messages: Sequence[PulledMessage], next_offset: int) -> None:
        """What a pull brought, and where the next one begins."""
        assigned.pull_offset = next_offset
        if not messages:
            return
        assigned.messages.extend(messages)
        assigned.cached_bytes += sum(message.stored_size for message in messages)
        self._count += len(messages)
        self._line_up(assigned)

    async def until_wanted(self, assigned: AssignedQueue) -> None:
        """Wait until a queue is to be pulled from."""
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

    def _line_up(self, assigned: AssignedQueue) -> None:
        if assigned.messages and not assigned.is_ready and not assigned.is_paused:
            assigned.is_ready = True
            self._ready.append(assigned)
            self._arrived.set()

    def _forget_messages(self, assigned: AssignedQueue) -> None:
        self._taken(len(assigned.messages))
        assigned.messages.clear()
        assigned.cached_bytes = 0

    def _taken(self, count: int) -> None:
        most = self._limits.pull_threshold_for_all
        was_full = self._count > most
        self._count -= count
        if was_full and self._count <= most:
            for other in self._queues.values():
                other.wake()

    # Out

    def take(self, most: int) -> list[PulledMessage]:
        """Some messages of one queue; queues take turns. What was handed out before counts as done."""
        self.settle()
        while self._ready:
            assigned = self._ready.popleft()
            assigned.is_ready = False
            messages = assigned.messages
            # It may have been paused, moved or taken away while it stood in line.
            if not messages or assigned.is_paused or self._queues.get(assigned.queue) is not assigned:
                continue
            assigned.in_hand = assigned.position
            self._handed_out.append(assigned)
            taken = [messages.popleft() for _ in range(min(most, len(messages)))]
            assigned.cached_bytes -= sum(message.stored_size for message in taken)
            self._taken(len(taken))
            assigned.wake()
            self._line_up(assigned)
            return taken
        return []

    def settle(self) -> None:
        """What was handed out is done with."""
        for assigned in self._handed_out:
            assigned.in_hand = None
        self._handed_out.clear()

    async def arrival(self) -> None:
        """Wait until something was put, or ``interrupt``."""
        self._arrived.clear()
        await self._arrived.wait()

    def interrupt(self) -> None:
        """Wake those who wait for messages, for there will be none."""
        self._arrived.set()

    def done_offsets(self, queues: Iterable[AssignedQueue]) -> dict[MessageQueue, int]:
        return {one.queue: offset for one in queues if (offset := one.done_offset) is not None}
