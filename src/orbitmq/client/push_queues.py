"""The queues of a push consumer: taken when they are its share, pulled while they are, given up in good order."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Protocol

from orbitmq.client.consume_from import start_offset
from orbitmq.client.process_queue import ProcessQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from orbitmq.client.consume_threads import ConsumeThreads
    from orbitmq.client.consumer_config import ConsumerConfig
    from orbitmq.client.instance import ClientInstance
    from orbitmq.client.offset_store import OffsetStore
    from orbitmq.client.orderly import QueueLocks
    from orbitmq.client.pulled_message import PulledMessage
    from orbitmq.client.pulling import Pulling
    from orbitmq.protocol.bodies import MessageQueue

log = logging.getLogger("orbitmq.client")


class Consumption(Protocol):
    """What calls the handlers, side by side or in order."""

    threads: ConsumeThreads

    def begin(self, queue: ProcessQueue) -> None: ...

    async def end(self, queue: ProcessQueue) -> None: ...

    def deliver(self, queue: ProcessQueue, messages: list[PulledMessage]) -> None: ...

    def resize(self, count: int) -> None: ...

    @property
    def thread_count(self) -> int: ...

    async def close(self, patience: float) -> None: ...


class PushQueues:
    """The process queues of one consumer, with the tasks that fill them."""

    def __init__(
        self,
        instance: ClientInstance,
        config: ConsumerConfig,
        offsets: OffsetStore,
        consumption: Consumption,
        pulling: Pulling,
        locks: QueueLocks | None,
        released: Callable[[], None],
    ) -> None:
        """``released`` is called when a queue was given up that may be taken again at once."""
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
        """Queues that were given up, until their offsets are safe and nobody works on them any more."""

    def __len__(self) -> int:
        return len(self._queues)

    @property
    def process_queues(self) -> list[ProcessQueue]:
        return list(self._queues.values())

    def of_topic(self, topic: str) -> list[MessageQueue]:
        return [queue for queue in self._queues if queue.topic == topic]

    # Taking and giving up

    async def update(self, topic: str, share: Sequence[MessageQueue]) -> tuple[bool, bool]:
        """Have these queues of a topic and no others. Says whether anything changed, and whether all are here."""
        mine = set(share)
        lost = [queue for queue in self.of_topic(topic) if queue not in mine]
        for queue in lost:
            self._drop(queue)
        wanted = [queue for queue in share if queue not in self._queues]
        free = [queue for queue in wanted if queue not in self._leaving]
        taken = await self._take(free)
        return bool(lost or taken), len(taken) == len(wanted)

    def keep_only(self, topics: Sequence[str]) -> bool:
        """Give up the queues of topics that are not subscribed any more."""
        lost = [queue for queue in self._queues if queue.topic not in topics]
        for queue in lost:
            self._drop(queue)
        return bool(lost)

    async def _take(self, queues: list[MessageQueue]) -> list[MessageQueue]:
        asked_at = time.monotonic()
        if self._locks is not None and queues:
            locked = await self._locks.lock(queues)
            queues = [queue for queue in queues if queue in locked]
        # Only after the lock: until then somebody else may move the offset.
        starts = await asyncio.gather(
            *(start_offset(self._instance, self._offsets, queue, self._config) for queue in queues),
            return_exceptions=True,
        )
        taken = []
        for queue, start in zip(queues, starts, strict=True):
            if isinstance(start, BaseException):
                if not isinstance(start, Exception):
                    raise start
                log.warning("where to begin with %s is not known yet: %s", queue, start)
                continue
            self._begin(queue, start, asked_at)
            taken.append(queue)
        return taken

    def _begin(self, queue: MessageQueue, start: int, locked_at: float) -> None:
        count, size = self._config.window(len(self._queues) + 1)
        span = None if self._config.orderly else self._config.consume_concurrently_max_span
        process_queue = ProcessQueue(queue, start, most_messages=count, most_bytes=size, most_span=span)
        if self._locks is not None:
            process_queue.lock(asked_at=locked_at)
        self._queues[queue] = process_queue
        self._consumption.begin(process_queue)
        self._pulls[process_queue] = asyncio.get_running_loop().create_task(
            self._pulling.pull(process_queue), name=f"pull {queue}"
        )
        log.info("%s is consumed here from offset %d on", queue, start)

    def _drop(self, queue: MessageQueue, offset: int | None = None) -> None:
        """Give a queue up, where it is or to go on at another offset."""
        process_queue = self._queues.pop(queue)
        process_queue.is_dropped = True
        self._leaving[queue] = asyncio.get_running_loop().create_task(self._leave(process_queue, offset))

    async def _leave(self, queue: ProcessQueue, offset: int | None) -> None:
        pull = self._pulls.pop(queue)
        pull.cancel()
        try:
            await asyncio.gather(pull, return_exceptions=True)
            await self._consumption.end(queue)
            reached = queue.consumed_to if offset is None else offset
            self._offsets.update(queue.queue, reached)
            await self._offsets.persist([queue.queue], confirmed=True)
            self._offsets.remove(queue.queue)
            if self._locks is not None:
                await self._locks.unlock([queue.queue])
        finally:
            self._leaving.pop(queue.queue, None)
        log.info("%s is not consumed here any more, it was consumed up to %d", queue.queue, reached)
        if offset is not None:
            self._released()

    def fit_windows(self) -> None:
        """Share limits for whole topics out among the queues that there are now."""
        count, size = self._config.window(len(self._queues))
        for queue in self._queues.values():
            queue.most_messages, queue.most_bytes = count, size

    # Offsets

    def note_offsets(self) -> None:
        """Tell the offset store how far all queues are."""
        for queue, process_queue in self._queues.items():
            self._offsets.update(queue, process_queue.consumed_to)

    async def persist(self) -> None:
        self.note_offsets()
        await self._offsets.persist(list(self._queues))

    def reset(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Go on at these offsets, with those of the queues that are here. What was pulled before is forgotten."""
        for queue, offset in offsets.items():
            if queue in self._queues:
                self._drop(queue, offset)

    def moved(self, queue: ProcessQueue, offset: int) -> None:
        """A broker says that a queue goes on at another offset."""
        if self._queues.get(queue.queue) is queue:
            log.warning("%s goes on at %d and not at %d, says its broker", queue.queue, offset, queue.next_offset)
            self._drop(queue.queue, offset)

    # Ending

    async def stop_pulling(self) -> None:
        for pull in self._pulls.values():
            pull.cancel()
        await asyncio.gather(*self._pulls.values(), return_exceptions=True)

    async def close(self) -> None:
        """Give all queues up and wait until that is done."""
        for queue in tuple(self._queues):
            self._drop(queue)
        await asyncio.gather(*self._leaving.values(), return_exceptions=True)

    async def abandon(self) -> None:
        """Stop everything and save nothing."""
        for queue in self._queues.values():
            queue.is_dropped = True
        tasks = [*self._pulls.values(), *self._leaving.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._queues.clear()
