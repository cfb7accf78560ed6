"""Pull priority: pulls of a PRIORITY topic wait while their group has not yet pulled all of a higher level.

The queues of such a topic are its levels. RocketMQ serves the levels in order to pops only; pulls read all queues
side by side. Here a pull of a lower level is answered as if the queue were empty while a higher level has messages
that the group has not pulled yet. To the consumer this is an ordinary long poll.

Messages behind the offset of a group's last pull count as not pulled. A level that the group has not
pulled for a while is not waited for: otherwise one that no consumer reads would block all below it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from orbitmq.broker.long_polling.pull import HeldPull
from orbitmq.broker.long_polling.table import HoldTable
from orbitmq.broker.metadata.attributes import MESSAGE_TYPE, PRIORITY_FACTOR

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.broker.clients.registry import Clients
    from orbitmq.broker.metadata.subscription_groups import GroupTable
    from orbitmq.broker.runtime import BrokerRuntime
    from orbitmq.protocol.bodies import TopicConfig

log = logging.getLogger("orbitmq.broker")

PRIORITY = "PRIORITY"

POLL_SECONDS = 0.02
"""Interval at which the levels above a held pull are checked."""

IDLE_LEVEL_MS = 30_000
"""A level that a group has not pulled for so long is not waited for."""

START_MS = 10_000
"""A group has so long after its first pull of a topic to pull all levels. A client of 4.9 whose first pull of a
queue came before its heartbeat retries that queue after three seconds."""

MAX_HELD = 100_000
"""Held pulls; a further one is answered at once."""

MAX_TRACKED = 100_000
"""Pairs of group and topic whose progress is tracked; more than that drops the idle ones."""


class _Progress:
    """The last pull of each level of a topic by a group: offset and time."""

    __slots__ = ("levels", "since_ms")

    def __init__(self, now: int) -> None:
        self.since_ms = now
        self.levels: dict[int, tuple[int, int]] = {}


class PullPriority(HoldTable[HeldPull]):
    """Decides which pulls wait for higher levels, and holds them meanwhile."""

    def __init__(
        self,
        runtime: BrokerRuntime,
        groups: GroupTable,
        clients: Clients,
        answer: Callable[[HeldPull], None],
    ) -> None:
        super().__init__(runtime.clock.now_ms, lambda: POLL_SECONDS)
        self._config = runtime.config
        self._store = runtime.store
        self._random = runtime.random
        self._groups = groups
        self._clients = clients
        self._answer = answer
        self._progress: dict[tuple[str, str], _Progress] = {}

    def withholds(self, group: str, topic: TopicConfig, queue_id: int, offset: int) -> bool:
        """Record a pull; True if it has to wait for a higher level."""
        if topic.attributes.get(MESSAGE_TYPE) != PRIORITY:
            return False
        now = self._now_ms()
        progress = self._progress.get((group, topic.topic_name))
        if progress is None:
            progress = self._progress[group, topic.topic_name] = _Progress(now)
            if len(self._progress) > MAX_TRACKED:
                self._drop_idle(now)
        progress.levels[queue_id] = offset, now
        return self._goes_by_priority(group) and self._is_below(group, topic, queue_id, now)

    def hold(self, pull: HeldPull) -> bool:
        """Hold a pull until no higher level has messages; False if the limit is reached, or the broker stops."""
        if self._count >= MAX_HELD or self._is_stopped:
            return False
        # Due at every sweep.
        self._hold(pull, 0)
        return True

    def _expire(self, request: HeldPull) -> None:
        self._unmark_held(request)
        self._answer(request)

    def _check(self, request: HeldPull, now: int) -> int | None:
        if now < request.deadline_ms and self._must_wait(request, now):
            return 0
        self._expire(request)
        return None

    def _must_wait(self, held: HeldPull, now: int) -> bool:
        pull = held.request
        try:
            return self._is_below(pull.group, held.topic_config, pull.queue_id, now)
        except Exception:
            log.exception("pull: the levels above queue %d of %s failed", pull.queue_id, pull.topic)
            return False

    # Levels

    def _goes_by_priority(self, group: str) -> bool:
        members = self._clients.consumers.get(group)
        if members is not None and members.is_broadcasting:
            # Each member has its own offsets, which the broker does not know.
            return False
        config = self._groups.configs.get(group)
        text = "" if config is None else (config.attributes or {}).get(PRIORITY_FACTOR, "")
        factor = int(text) if text.isdigit() and len(text) < 10 else 100
        return factor >= 100 or self._random.randrange(100) < factor

    def _is_below(self, group: str, topic: TopicConfig, queue_id: int, now: int) -> bool:
        """True if a level above a queue has messages that the group has not pulled."""
        progress = self._progress[group, topic.topic_name]
        above = (
            range(topic.read_queue_nums - 1, queue_id, -1) if self._config.priority_order_asc else range(queue_id)
        )
        name, max_offset, min_offset = topic.topic_name, self._store.max_offset, self._store.min_offset
        is_new = now - progress.since_ms < START_MS
        for level in above:
            last = progress.levels.get(level)
            if last is None:
                if is_new and max_offset(name, level) > min_offset(name, level):
                    return True
            elif now - last[1] < IDLE_LEVEL_MS and max_offset(name, level) > last[0]:
                return True
        return False

    def _drop_idle(self, now: int) -> None:
        for key, progress in tuple(self._progress.items()):
            if all(now - at >= IDLE_LEVEL_MS for _, at in progress.levels.values()):
                del self._progress[key]
