"""Held pops and notifications (RocketMQ: PopLongPollingService): requests that wait for a message of a topic.

A record that arrives marks its topic; the requests held for it are served in the next iteration of the event loop,
the oldest first and one after another, while there is something for them. Messages of a retry topic count for the
topic that they are retries of.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import enum
import logging
import time
from typing import TYPE_CHECKING, TypeVar

from orbitmq.broker.long_polling import table
from orbitmq.broker.long_polling.arrival import listen, unlisten
from orbitmq.protocol.message.pop_receipt import pop_retry_topic

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.broker.config.broker_config import BrokerConfig
    from orbitmq.store import MessageStore
    from orbitmq.store.consumequeue.table import Queue

log = logging.getLogger("orbitmq.broker")

EARLY_MS = 50
"""A request is answered so long before its client's time-out, as in RocketMQ: the response takes its time too."""

ANY_QUEUE = -1


class HoldResult(enum.Enum):
    """Outcome of an attempt to hold a request."""

    HELD = enum.auto()
    FULL = enum.auto()
    TOO_LATE = enum.auto()


@dataclasses.dataclass(slots=True, eq=False, kw_only=True)
class HeldPop(table.HeldRequest):
    """A pop or notification that may be held."""

    group: str
    topic: str
    queue_id: int
    """A queue, or ANY_QUEUE."""


HeldPopT = TypeVar("HeldPopT", bound=HeldPop)


class PopHold(table.HoldTable[HeldPopT]):
    """Held requests of one kind, by topic, group and queue."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        now_ms: Callable[[], int],
        serve: Callable[[HeldPopT, bool], bool],
        on_sweep: Callable[[int], None] | None = None,
        on_arrival: Callable[[str, str], None] | None = None,
    ) -> None:
        """``serve`` answers a request if there is something for it, or if its second argument says that it expires.

        It returns True if it did. ``on_sweep`` is called with the time while requests are held.
        ``on_arrival`` is called with the topic of a record and a group that waits for it, before it is served.
        """
        super().__init__(now_ms)
        self._config = config
        self._store = store
        self._serve = serve
        self._on_sweep = on_sweep
        self._on_arrival = on_arrival
        self._held: dict[tuple[str, str], dict[int, collections.deque[HeldPopT]]] = {}
        self._groups: dict[str, dict[str, None]] = {}
        """Groups that wait, by topic and by the retry topics that are served with it."""
        self._topic_of: dict[str, str] = {}
        """By retry topic."""
        self._arrived: dict[tuple[str, int], None] = {}
        self._to_serve: dict[tuple[str, str, int | None], None] = {}
        """Topics, groups and queues to serve, in order."""
        self._is_serving_soon = False
        self._serving: tuple[str, str] | None = None
        """Topic and group of the request that is removed from its line while it is served."""

    def hold(self, request: HeldPopT) -> HoldResult:
        """Hold a request until there is something for it, or its deadline."""
        if self._is_stopped or request.deadline_ms <= self._now_ms():
            return HoldResult.TOO_LATE
        key = request.topic, request.group
        queues = self._held.get(key, {})
        line = queues.get(request.queue_id, ())
        if self._count >= self._config.max_pop_polling_size or len(line) > self._config.pop_polling_size:
            return HoldResult.FULL
        if key not in self._held:
            self._watch(*key)
            self._held[key] = queues
        queues.setdefault(request.queue_id, collections.deque()).append(request)
        self._hold(request, request.deadline_ms)
        return HoldResult.HELD

    def waiting_for(self, topic: str, group: str, queue_id: int) -> int:
        """The number of requests that wait for a queue, or for any."""
        return len(self._held.get((topic, group), {}).get(queue_id, ()))

    def wake(self, topic: str, group: str, queue_id: int) -> None:
        """Serve the requests of a group soon: there may be something for it in a queue, or in any."""
        if (topic, group) == self._serving or self._held.get((topic, group)):
            self._to_serve[topic, group, queue_id] = None
            self._serve_soon()

    def _check(self, request: HeldPopT, _now: int) -> None:
        self._serve_one(request, expires=True)

    def _expire(self, request: HeldPopT) -> None:
        self._serve_one(request, expires=True)

    def _before_sweep(self, now: int) -> None:
        try:
            if self._on_sweep is not None:
                self._on_sweep(now)
        except Exception:
            # Requests must time out all the same.
            log.exception("pop: a sweep failed, will retry in %g s", table.SWEEP_SECONDS)

    # Waking

    def _watch(self, topic: str, group: str) -> None:
        if not self._held:
            listen(self._store.dispatcher, self._on_record)
        self._groups.setdefault(topic, {})[group] = None
        for v2 in (False, True):
            retry_topic = pop_retry_topic(topic, group, v2=v2)
            self._topic_of[retry_topic] = topic
            self._groups.setdefault(retry_topic, {})[group] = None

    def _unwatch(self, topic: str, group: str) -> None:
        for name in (topic, *(pop_retry_topic(topic, group, v2=v2) for v2 in (False, True))):
            self._topic_of.pop(name, None)
            groups = self._groups[name]
            del groups[group]
            if not groups:
                del self._groups[name]
        if not self._held:
            unlisten(self._store.dispatcher, self._on_record)

    def _on_record(self, queue: Queue, _code: int, _store_timestamp: int) -> None:
        if queue.topic in self._groups:
            if not self._arrived:
                asyncio.get_running_loop().call_soon(self._wake)
            self._arrived[queue.topic, queue.queue_id] = None

    def _wake(self) -> None:
        arrived, self._arrived = self._arrived, {}
        for topic, queue_id in arrived:
            # A retry is for all requests of its group, whichever queue they wait for.
            retried = self._topic_of.get(topic)
            for group in self._groups.get(topic, ()):
                if self._on_arrival is not None:
                    self._on_arrival(topic, group)
                self._to_serve[(topic, group, queue_id) if retried is None else (retried, group, None)] = None
        if not self._is_serving_soon:
            self._serve_some()

    def _serve_soon(self) -> None:
        if not self._is_serving_soon:
            self._is_serving_soon = True
            asyncio.get_running_loop().call_soon(self._serve_some)

    def _serve_some(self) -> None:
        """Serve for one slice: one record may be for 50,000 groups. The rest follows after other requests."""
        self._is_serving_soon = False
        end = time.monotonic() + table.SLICE_SECONDS
        while self._to_serve:
            key = next(iter(self._to_serve))
            del self._to_serve[key]
            if not self._serve_queues(*key, end):
                self._to_serve[key] = None
            if time.monotonic() >= end:
                break
        if self._to_serve:
            self._serve_soon()

    def _serve_queues(self, topic: str, group: str, queue_id: int | None, end: float) -> bool:
        """False if the slice ended before all requests were served."""
        queues = self._held.get((topic, group), {})
        wanted = tuple(queues) if queue_id is None or queue_id == ANY_QUEUE else (ANY_QUEUE, queue_id)
        for one in wanted:
            line = queues.get(one)
            # The next request of a line is served if the one before got something.
            while line and self._serve_one(line[0], expires=False):
                if time.monotonic() >= end:
                    return False
        return True

    def _serve_one(self, request: HeldPopT, *, expires: bool) -> bool:
        """Serve a request; False if it is held again because there is nothing for it."""
        self._remove(request)
        self._serving = request.topic, request.group
        is_answered = True

        def serve(request: HeldPopT) -> None:
            nonlocal is_answered
            is_answered = self._serve(request, expires)

        try:
            self.respond(request, serve)
        finally:
            self._serving = None
        if not is_answered:
            self._put_back(request)
        return is_answered

    def _remove(self, request: HeldPopT) -> None:
        key = request.topic, request.group
        queues = self._held[key]
        line = queues[request.queue_id]
        if line[0] is request:
            line.popleft()
        else:
            line.remove(request)
        self._unmark_held(request)
        if not line:
            del queues[request.queue_id]
            if not queues:
                del self._held[key]
                self._unwatch(*key)

    def _put_back(self, request: HeldPopT) -> None:
        """Hold a request again, before those that came while it was served. Its heap entry is still there."""
        key = request.topic, request.group
        if key not in self._held:
            self._watch(*key)
        line = self._held.setdefault(key, {}).setdefault(request.queue_id, collections.deque())
        line.appendleft(request)
        self._mark_held(request)
