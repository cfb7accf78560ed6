"""Assigned queues of a push consumer: assignment, pulling, and orderly release."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Protocol

from orbitmq.client.consumer.process_queue import ProcessQueue
from orbitmq.client.consumer.start_offset import start_offset

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from orbitmq.client.consumer.offset_store import OffsetStore
    from orbitmq.client.consumer.received_message import PulledMessage
    from orbitmq.client.consumer.thread_pool import ConsumeThreads
    from orbitmq.client.instance.instance import ClientInstance
    from orbitmq.client.push.config import ConsumerConfig
    from orbitmq.client.push.orderly import QueueLocks
    from orbitmq.client.push.pull_loop import PullLoop
    from orbitmq.protocol.bodies import MessageQueue

log = logging.getLogger("orbitmq.client")


class Consumption(Protocol):
    """Calls the handlers, concurrently or in order."""

    threads: ConsumeThreads

    def begin(self, queue: ProcessQueue) -> None: ...

    async def end(self, queue: ProcessQueue) -> None: ...

    def deliver(self, queue: ProcessQueue, messages: list[PulledMessage]) -> None: ...

    def resize(self, count: int) -> None: ...

    @property
    def thread_count(self) -> int: ...

    async def close(self, patience: float) -> None: ...


class PushQueues:
    """The process queues of one consumer, with their pull tasks."""

    def __init__(
        self,
        instance: ClientInstance,
        config: ConsumerConfig,
        offsets: OffsetStore,
        consumption: Consumption,
        pulling: PullLoop,
        locks: QueueLocks | None,
        released: Callable[[], None],
        handed_over: Callable[[str, Sequence[MessageQueue]], Awaitable[None]],
    ) -> None:
        """``released`` is called when a reset queue was released and may be assigned again at once.

        ``handed_over`` waits until other members have given up queues that were assigned here.
        """
        self._handed_over = handed_over
        self._instance = instance
        self._config = config
        self._offsets = offsets
        self._consumption = consumption
        self._pulling = pulling
        self._locks = locks
        self._released = released
        self._queues: dict[MessageQueue, ProcessQueue] = {}
        self._pulls: dict[ProcessQueue, asyncio.Task[None]] = {}
        self._leaving: dict[MessageQueue, asyncio.Task[None]] = {}
        """Released queues, until their offsets are persisted and their handlers have ended."""

    def __len__(self) -> int:
        return len(self._queues)

    @property
    def process_queues(self) -> list[ProcessQueue]:
        return list(self._queues.values())

    def of_topic(self, topic: str) -> list[MessageQueue]:
        return [queue for queue in self._queues if queue.topic == topic]

    # Assignment

    async def update(self, topic: str, share: Sequence[MessageQueue]) -> tuple[bool, bool]:
        """Assign exactly these queues of a topic. Returns whether anything changed and whether it is complete."""
        mine = set(share)
        lost = [queue for queue in self.of_topic(topic) if queue not in mine]
        for queue in lost:
            self._drop(queue)
        missing = [queue for queue in share if queue not in self._queues]
        free = [queue for queue in missing if queue not in self._leaving]
        if free:
            await self._handed_over(topic, free)
        added = await self._assign(free)
        return bool(lost or added), len(added) == len(missing)

    def keep_only(self, topics: Sequence[str]) -> bool:
        """Release the queues of unsubscribed topics."""
        lost = [queue for queue in self._queues if queue.topic not in topics]
        for queue in lost:
            self._drop(queue)
        return bool(lost)

    async def _assign(self, queues: list[MessageQueue]) -> list[MessageQueue]:
        requested_at = self._instance.clock.monotonic()
        if self._locks is not None and queues:
            locked = await self._locks.lock(queues)
            queues = [queue for queue in queues if queue in locked]
        # Only after the lock: before it, the previous owner may still move the offset.
        starts = await asyncio.gather(
            *(start_offset(self._instance, self._offsets, queue, self._config) for queue in queues),
            return_exceptions=True,
        )
        added = []
        for queue, start in zip(queues, starts, strict=True):
            if isinstance(start, BaseException):
                if not isinstance(start, Exception):
                    raise start
                log.warning("rebalance: start offset of %s is unknown, will retry: %s", queue, start)
                continue
            self._begin(queue, start, requested_at)
            added.append(queue)
        return added

    def _begin(self, queue: MessageQueue, start: int, locked_at: float) -> None:
        count, size = self._config.window(len(self._queues) + 1)
        span = None if self._config.orderly else self._config.consume_concurrently_max_span
        process_queue = ProcessQueue(
            queue, start, max_messages=count, max_bytes=size, max_span=span, clock=self._instance.clock
        )
        if self._locks is not None:
            process_queue.lock(requested_at=locked_at)
        self._queues[queue] = process_queue
        self._consumption.begin(process_queue)
        self._pulls[process_queue] = asyncio.get_running_loop().create_task(
            self._pulling.pull(process_queue), name=f"pull {queue}"
        )
        log.info("rebalance: assigned %s, from offset %d", queue, start)

    def _drop(self, queue: MessageQueue, offset: int | None = None) -> None:
        """Release a queue, at its consumed offset or to continue at another one."""
        process_queue = self._queues.pop(queue)
        process_queue.is_dropped = True
        self._leaving[queue] = asyncio.get_running_loop().create_task(self._leave(process_queue, offset))

    async def _leave(self, queue: ProcessQueue, offset: int | None) -> None:
        pull = self._pulls.pop(queue)
        pull.cancel()
        try:
            await asyncio.gather(pull, return_exceptions=True)
            await self._consumption.end(queue)
            committed = queue.consumed_to if offset is None else offset
            self._offsets.update(queue.queue, committed)
            await self._offsets.persist([queue.queue], confirmed=True)
            self._offsets.remove(queue.queue)
            if self._locks is not None:
                await self._locks.unlock([queue.queue])
        finally:
            self._leaving.pop(queue.queue, None)
        log.info("rebalance: released %s, at offset %d", queue.queue, committed)
        if offset is not None:
            self._released()

    def fit_windows(self) -> None:
        """Divide the limits of whole topics among the assigned queues."""
        count, size = self._config.window(len(self._queues))
        for queue in self._queues.values():
            queue.max_messages, queue.max_bytes = count, size

    # Offsets

    def update_offsets(self) -> None:
        """Update the offset store with the consumed offsets of all queues."""
        for queue, process_queue in self._queues.items():
            self._offsets.update(queue, process_queue.consumed_to)

    async def persist(self, *, confirmed: bool = False) -> None:
        self.update_offsets()
        await self._offsets.persist(list(self._queues), confirmed=confirmed)

    def reset(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Continue assigned queues at these offsets. Pulled messages are dropped."""
        for queue, offset in offsets.items():
            if queue in self._queues:
                self._drop(queue, offset)

    def moved(self, queue: ProcessQueue, offset: int) -> None:
        """Continue a queue at the offset that its broker returned."""
        if self._queues.get(queue.queue) is queue:
            log.warning(
                "pull: %s continues at %d instead of %d, by its broker", queue.queue, offset, queue.next_offset
            )
            self._drop(queue.queue, offset)

    # Closing

    async def stop_pulling(self) -> None:
        for pull in self._pulls.values():
            pull.cancel()
        await asyncio.gather(*self._pulls.values(), return_exceptions=True)

    async def close(self) -> None:
        """Release all queues and wait for that."""
        for queue in tuple(self._queues):
            self._drop(queue)
        await asyncio.gather(*self._leaving.values(), return_exceptions=True)

    async def abandon(self) -> None:
        """Stop without persisting anything."""
        for queue in self._queues.values():
            queue.is_dropped = True
        tasks = [*self._pulls.values(), *self._leaving.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._queues.clear()
