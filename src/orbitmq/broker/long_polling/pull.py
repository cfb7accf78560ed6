"""Held pulls (RocketMQ: PullRequestHoldService): pulls that wait for a message of their queue.

A record that arrives marks its queue; the pulls held for the marked queues are checked once, in the next iteration
of the event loop, however many records arrived in this one. A pull whose filter matches none of them stays held,
and remembers up to where its filter has read.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from typing import TYPE_CHECKING

from orbitmq.broker.clients.shares import ClientShares
from orbitmq.broker.long_polling import table
from orbitmq.broker.long_polling.arrival import listen, unlisten
from orbitmq.platform.limit_counts import Limit

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.broker.config.broker_config import BrokerConfig
    from orbitmq.broker.pull.request import PullRequest
    from orbitmq.filter import CompiledFilter
    from orbitmq.protocol.bodies import TopicConfig
    from orbitmq.store import MessageStore
    from orbitmq.store.consumequeue.table import Queue

MAX_HOLD_MS = 120_000
"""A connection that is idle for longer than this is closed anyway."""

RECHECK_MS = 5_000
"""A pull whose queue got only messages that its filter does not match is answered after this, so that its client
moves on."""


@dataclasses.dataclass(slots=True, eq=False, kw_only=True)
class HeldPull(table.HeldRequest):
    """A pull that waits: for a message, for its turn by priority, or for cold data."""

    request: PullRequest
    topic_config: TopicConfig
    wanted: CompiledFilter | None
    read_to: int
    """Queue offset before which the filter matches nothing."""


class PullHold(table.HoldTable[HeldPull]):
    """Held pulls by the queue that they wait for."""

    def __init__(
        self,
        store: MessageStore,
        now_ms: Callable[[], int],
        answer: Callable[[HeldPull], None],
        has_match: Callable[[HeldPull], bool | None],
        config: BrokerConfig,
    ) -> None:
        """``answer`` answers a pull with what there is now.

        ``has_match`` reads on for a pull with a filter: True if there is a match, None if there is more to read.
        """
        super().__init__(now_ms)
        self._shares = ClientShares(
            "held pulls",
            config,
            lambda: config.max_held_pulls,
            lambda: self._count,
            "maxHeldPulls",
            counted=Limit.HELD_PULLS,
        )
        self._store = store
        self._answer = answer
        self._has_match = has_match
        self._held: dict[tuple[str, int], dict[HeldPull, None]] = {}
        self._arrived: dict[tuple[str, int], None] = {}
        """Queues with new messages, in the order of arrival."""
        self.slices = 0
        """Iterations of the event loop in which pulls were woken."""

    def hold(self, pull: HeldPull) -> bool:
        """Hold a pull until there is a message for it; False if the limit is reached, or the broker stops."""
        client = pull.connection.remote_address
        if self._is_stopped or self._shares.refusal(client) is not None:
            return False
        if not self._held:
            listen(self._store.dispatcher, self._on_arrival)
        self._held.setdefault((pull.request.topic, pull.request.queue_id), {})[pull] = None
        self._shares.add(client)
        self._hold(pull, min(pull.deadline_ms, self._now_ms() + RECHECK_MS))
        return True

    def waiting_for(self, topic: str, queue_id: int) -> int:
        """The number of pulls that wait for a queue."""
        return len(self._held.get((topic, queue_id), ()))

    def end(self, pull: HeldPull) -> None:
        """Answer a pull that is not in the table (any more) with what there is."""
        self.respond(pull, self._answer)

    def end_of_group(self, group: str, topic: str, queue_id: int) -> None:
        """Answer the pulls of a group that wait for a queue: its offset was reset."""
        for pull in tuple(self._held.get((topic, queue_id), ())):
            if pull.request.group == group and pull.is_held:
                self._expire(pull)

    def _remove(self, pull: HeldPull) -> None:
        key = (pull.request.topic, pull.request.queue_id)
        pulls = self._held[key]
        del pulls[pull]
        if not pulls:
            del self._held[key]
        self._unmark_held(pull)
        self._shares.remove(pull.connection.remote_address)
        if not self._held:
            unlisten(self._store.dispatcher, self._on_arrival)

    def _expire(self, request: HeldPull) -> None:
        self._remove(request)
        self.end(request)

    def _check(self, request: HeldPull, now: int) -> int | None:
        pull = request.request
        has_more = self._store.max_offset(pull.topic, pull.queue_id) != pull.offset
        if has_more or now >= request.deadline_ms:
            self._expire(request)
            return None
        return min(request.deadline_ms, now + RECHECK_MS)

    # Waking

    def _on_arrival(self, queue: Queue, _code: int, _store_timestamp: int) -> None:
        key = (queue.topic, queue.queue_id)
        if key in self._held:
            self._wake_soon(key)

    def _wake_soon(self, key: tuple[str, int]) -> None:
        if not self._arrived:
            asyncio.get_running_loop().call_soon(self._wake)
        self._arrived[key] = None

    def _wake(self) -> None:
        """Check the pulls of queues with new messages, for one slice."""
        arrived, self._arrived = self._arrived, {}
        self.slices += 1
        end, left = time.monotonic() + table.SLICE_SECONDS, table.SLICE_REQUESTS
        for key in arrived:
            for pull in tuple(self._held.get(key, ())):
                if left <= 0 or time.monotonic() >= end:
                    self._wake_soon(key)
                    break
                left -= 1
                if pull.is_held and not self._ends_now(pull, key):
                    # Behind those that were not checked yet: they come first in the next slice.
                    pulls = self._held[key]
                    del pulls[pull]
                    pulls[pull] = None

    def _ends_now(self, pull: HeldPull, key: tuple[str, int]) -> bool:
        """Answer a pull if there is a message for it, or if its connection closes."""
        if pull.wanted is None or pull.connection.is_closing:
            self._expire(pull)
            return True
        try:
            found = self._has_match(pull)
        except Exception as error:
            self._remove(pull)
            self.fail(pull, error)
            return True
        if found:
            self._expire(pull)
            return True
        if found is None:
            self._wake_soon(key)
        return False
