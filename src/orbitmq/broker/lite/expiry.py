"""Expiry of lite topics: the light queues of those that got no message for long are deleted, with their offsets."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from orbitmq.broker.lite.pop import QUEUE
from orbitmq.protocol.message.lite_topic import parent_of
from orbitmq.protocol.names import LITE_TOPIC_PREFIX
from orbitmq.remoting.processor import RequestRefusedError
from orbitmq.store import StoreError
from orbitmq.store.consumequeue.consume_queue import ConsumeQueue

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from orbitmq.broker.lite.rules import LiteRules
    from orbitmq.broker.runtime import BrokerRuntime

    DeleteQueues = Callable[[list[str]], Awaitable[None]]

log = logging.getLogger("orbitmq.broker")

BATCH = 100
"""Light queues that are deleted together. Messages for them wait meanwhile."""

MINUTE_MS = 60_000


class LiteExpiry:
    """Deletes light queues. They may come again, with the next message for their lite topic."""

    def __init__(self, runtime: BrokerRuntime, rules: LiteRules) -> None:
        self._config = runtime.config
        self._store = runtime.store
        self._clock = runtime.clock
        self._rules = rules
        self._started_ms = runtime.clock.now_ms()
        self._running: asyncio.Task[None] | None = None
        self._is_stopped = False
        self.delete: DeleteQueues | None = None
        """Deletes the queues of these names for good, while no message is accepted for them. Set by the owner."""

    def run(self) -> None:
        """Begin to delete what has expired, unless that is in progress, or the broker has just started."""
        if self.delete is None or self._is_stopped or not self._store.dispatcher.has_lmqs:
            return
        if self._clock.now_ms() - self._started_ms < self._config.min_lite_ttl:
            return
        if self._running is None or self._running.done():
            self._running = asyncio.get_running_loop().create_task(self._delete_expired())

    async def settled(self) -> None:
        """Wait for the run in progress."""
        if self._running is not None:
            await asyncio.wait([self._running])

    async def stop(self) -> None:
        """Wait for the deletion in progress, and begin no other one."""
        self._is_stopped = True
        await self.settled()

    def is_expired(self, queue: str) -> bool:
        """True if the lite topic of a light queue was without a message for as long as its parent says."""
        parent = parent_of(queue)
        if parent is None:
            return False
        minutes = self._rules.minutes_kept(parent)
        found = self._store.queues.find(queue, QUEUE)
        if minutes <= 0 or not isinstance(found, ConsumeQueue) or found.max_offset <= 0:
            return False
        unit = found.unit(found.max_offset - 1)
        last_ms = (None if unit is None else self._store.reader.store_timestamp(unit[0])) or 0
        return self._clock.now_ms() - last_ms > max(minutes * MINUTE_MS, self._config.min_lite_ttl)

    async def _delete_expired(self) -> None:
        assert self.delete is not None
        queues = [name for name in self._store.queues.names() if name.startswith(LITE_TOPIC_PREFIX)]
        try:
            for at in range(0, len(queues), BATCH):
                await asyncio.sleep(0)
                if self._is_stopped:
                    return
                # Chosen and closed for messages in one step.
                expired = [name for name in queues[at : at + BATCH] if self.is_expired(name)]
                if expired:
                    await self.delete(expired)
                    log.info(
                        "lite: deleted %d lite topics without messages, the first is %s", len(expired), expired[0]
                    )
        except (RequestRefusedError, StoreError, OSError) as error:
            log.warning("lite: lite topics were not deleted, will retry: %s", error)
