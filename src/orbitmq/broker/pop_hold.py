"""Pops and notifications that wait for a message (long polling): the oldest is served first, and one after another.

A record that arrives marks its topic; those who wait for it are served in the next turn of the loop, for as long as
there is something for them. Messages that come again under a retry topic count for the topic they are from. Times
are kept by one sweep and a heap, not by a timer each.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import enum
import heapq
import itertools
from typing import TYPE_CHECKING, Generic, TypeVar

from orbitmq.broker import hold
from orbitmq.broker.arrivals import listen, unlisten
from orbitmq.protocol.pop import pop_retry_topic
from orbitmq.remoting.refusals import failed

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.broker.config import BrokerConfig
    from orbitmq.protocol.header import Header
    from orbitmq.remoting import Connection
    from orbitmq.store import MessageStore
    from orbitmq.store.queue_table import Queue

EARLY_MS = 50
"""So much before the client's time is over it is answered, as in RocketMQ: the answer takes its time too."""

MOST_SERVED = 1000
"""Deadlines of requests that were answered long before are dropped if there are more of them than this."""

ANY_QUEUE = -1


class Held(enum.Enum):
    """What became of a request that wants to wait."""

    WAITS = enum.auto()
    FULL = enum.auto()
    TOO_LATE = enum.auto()


@dataclasses.dataclass(slots=True, eq=False, kw_only=True)
class Waiting:
    """A request that may wait."""

    connection: Connection
    header: Header
    serialize_type: int
    group: str
    topic: str
    queue_id: int
    deadline_ms: int
    waits: bool = False


WaitingT = TypeVar("WaitingT", bound=Waiting)


class PopHold(Generic[WaitingT]):
    """All requests of one kind that wait, by topic, group and queue."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        now_ms: Callable[[], int],
        serve: Callable[[WaitingT, bool], bool],
        on_sweep: Callable[[int], None] | None = None,
    ) -> None:
        """``serve`` answers a request if there is something for it, or if told that its time is over.

        It says whether it did. ``on_sweep`` is called with the time while somebody waits.
        """
        self._config = config
        self._store = store
        self._now_ms = now_ms
        self._serve = serve
        self._on_sweep = on_sweep
        self._waiting: dict[tuple[str, str], dict[int, collections.deque[WaitingT]]] = {}
        self._groups: dict[str, dict[str, None]] = {}
        """By topic, and by the retry topics whose messages are served with it."""
        self._topic_of: dict[str, str] = {}
        """By retry topic."""
        self._deadlines: list[tuple[int, int, WaitingT]] = []
        self._numbers = itertools.count()
        self._count = 0
        self._arrived: dict[tuple[str, int], None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._is_over = False

    def __len__(self) -> int:
        return self._count

    def hold(self, waiting: WaitingT) -> Held:
        """Keep a request until there is something for it, or its time is over."""
        if self._is_over or waiting.deadline_ms <= self._now_ms():
            return Held.TOO_LATE
        key = waiting.topic, waiting.group
        queues = self._waiting.get(key, {})
        line = queues.get(waiting.queue_id, ())
        if self._count >= self._config.max_pop_polling_size or len(line) > self._config.pop_polling_size:
            return Held.FULL
        if key not in self._waiting:
            self._watch(*key)
            self._waiting[key] = queues
        queues.setdefault(waiting.queue_id, collections.deque()).append(waiting)
        waiting.waits = True
        self._count += 1
        heapq.heappush(self._deadlines, (waiting.deadline_ms, next(self._numbers), waiting))
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(hold.SWEEP_SECONDS, self._sweep)
        return Held.WAITS

    def waiting_for(self, topic: str, group: str, queue_id: int) -> int:
        """How many requests wait for a queue, or for any."""
        return len(self._waiting.get((topic, group), {}).get(queue_id, ()))

    def wake(self, topic: str, group: str, queue_id: int) -> None:
        """There may be something for a group, in a queue or in any: serve those who wait, soon."""
        if self._waiting.get((topic, group)):
            self._arrive(topic, queue_id)

    def release(self) -> None:
        """Answer all with what there is and hold no more, because the broker stops."""
        self._is_over = True
        for key in tuple(self._waiting):
            for line in tuple(self._waiting.get(key, {}).values()):
                while line:
                    self._end(line[0], is_over=True)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # Waking

    def _watch(self, topic: str, group: str) -> None:
        if not self._waiting:
            listen(self._store.dispatcher, self._note_arrival)
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
        if not self._waiting:
            unlisten(self._store.dispatcher, self._note_arrival)

    def _note_arrival(self, queue: Queue, _code: int, _store_timestamp: int) -> None:
        if queue.topic in self._groups:
            self._arrive(queue.topic, queue.queue_id)

    def _arrive(self, topic: str, queue_id: int) -> None:
        if not self._arrived:
            asyncio.get_running_loop().call_soon(self._wake)
        self._arrived[topic, queue_id] = None

    def _wake(self) -> None:
        arrived, self._arrived = self._arrived, {}
        for topic, queue_id in arrived:
            for group in tuple(self._groups.get(topic, ())):
                if topic in self._topic_of:
                    # Whichever queue they wait for, what comes again is for them.
                    self._serve_queues(self._topic_of[topic], group, None)
                else:
                    self._serve_queues(topic, group, queue_id)

    def _serve_queues(self, topic: str, group: str, queue_id: int | None) -> None:
        queues = self._waiting.get((topic, group), {})
        wanted = tuple(queues) if queue_id is None or queue_id == ANY_QUEUE else (ANY_QUEUE, queue_id)
        for one in wanted:
            line = queues.get(one)
            # Each of those who wait gets its turn as long as the one before got something.
            while line and self._end(line[0], is_over=False):
                pass

    def _end(self, waiting: WaitingT, *, is_over: bool) -> bool:
        """Serve one; it is out of the line if it was answered."""
        self._take(waiting)
        connection, header = waiting.connection, waiting.header
        try:
            if connection.is_closing:
                # Nobody reads the answer, but it is owed.
                connection.answer(header, b"")
                return True
            if self._serve(waiting, is_over):
                return True
        except Exception as error:
            connection.answer(header, failed(error, header, waiting.serialize_type, connection.remote_address))
            return True
        self._put_back(waiting)
        return False

    def _take(self, waiting: WaitingT) -> None:
        key = waiting.topic, waiting.group
        queues = self._waiting[key]
        line = queues[waiting.queue_id]
        if line[0] is waiting:
            line.popleft()
        else:
            line.remove(waiting)
        waiting.waits = False
        self._count -= 1
        if not line:
            del queues[waiting.queue_id]
            if not queues:
                del self._waiting[key]
                self._unwatch(*key)

    def _put_back(self, waiting: WaitingT) -> None:
        """In front of those that came while it was served."""
        key = waiting.topic, waiting.group
        if key not in self._waiting:
            self._watch(*key)
        line = self._waiting.setdefault(key, {}).setdefault(waiting.queue_id, collections.deque())
        line.appendleft(waiting)
        waiting.waits = True
        self._count += 1

    # Time

    def _sweep(self) -> None:
        self._timer = None
        now = self._now_ms()
        try:
            if self._on_sweep is not None:
                self._on_sweep(now)
            while self._deadlines and (self._deadlines[0][0] <= now or not self._deadlines[0][2].waits):
                _, _, waiting = heapq.heappop(self._deadlines)
                if waiting.waits:
                    self._end(waiting, is_over=True)
        finally:
            # Whatever happened: without the next sweep nobody would hear that his time is over.
            if len(self._deadlines) > 2 * self._count + MOST_SERVED:
                self._deadlines = [one for one in self._deadlines if one[2].waits]
                heapq.heapify(self._deadlines)
            if self._count:
                self._timer = asyncio.get_running_loop().call_later(hold.SWEEP_SECONDS, self._sweep)
            else:
                self._deadlines.clear()
