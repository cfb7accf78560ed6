"""Pulls from topics whose queues are levels: a lower one waits while its group has not got all of a higher one.

RocketMQ serves the levels in their order to those that pop, and leaves those that pull to themselves: they read all
queues side by side. Here a pull of a lower level is answered as if the queue were empty while a higher level has
messages that the group has not asked for yet. Consumers know how to wait for messages, and need know nothing else.

What a group has not asked for is what lies behind the offset of its last pull. A level that nobody of the group has
asked for lately is not waited for: otherwise one that nobody reads would stop all below it.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from orbitmq.broker.attributes import MESSAGE_TYPE, PRIORITY_FACTOR

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.broker.clients import Clients
    from orbitmq.broker.config import BrokerConfig
    from orbitmq.broker.groups import GroupTable
    from orbitmq.broker.hold import HeldPull
    from orbitmq.protocol.bodies import TopicConfig
    from orbitmq.store import MessageStore

PRIORITY = "PRIORITY"

LOOK_SECONDS = 0.02
"""How often it is looked whether a level may be read now, while somebody waits for that."""

FORGOTTEN_MS = 30_000
"""A level that was not asked for so long is read by nobody."""

FIRST_MS = 10_000
"""So long after its first pull of a topic a group may take to come to all levels. A client of 4.9 whose first pull
of a queue came before its heartbeat tries that queue again after three seconds."""

MOST_WAITING = 100_000
"""Pulls; a further one is answered at once."""

MOST_KNOWN = 100_000
"""Groups and topics of which it is known how far they are."""


class _Asked:
    """How far a group has asked for the levels of a topic, and when."""

    __slots__ = ("levels", "since_ms")

    def __init__(self, now: int) -> None:
        self.since_ms = now
        self.levels: dict[int, tuple[int, int]] = {}


class PullPriority:
    """Decides which pulls wait for higher levels, and keeps them meanwhile."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        groups: GroupTable,
        clients: Clients,
        now_ms: Callable[[], int],
        answer: Callable[[HeldPull], None],
    ) -> None:
        self._config = config
        self._store = store
        self._groups = groups
        self._clients = clients
        self._now_ms = now_ms
        self._answer = answer
        self._asked: dict[tuple[str, str], _Asked] = {}
        self._waiting: list[tuple[HeldPull, str, TopicConfig]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._is_over = False

    def __len__(self) -> int:
        return len(self._waiting)

    def withholds(self, group: str, topic: TopicConfig, queue_id: int, offset: int) -> bool:
        """Note a pull, and say whether it has to wait for a higher level."""
        if topic.attributes.get(MESSAGE_TYPE) != PRIORITY:
            return False
        now = self._now_ms()
        asked = self._asked.get((group, topic.topic_name))
        if asked is None:
            asked = self._asked[group, topic.topic_name] = _Asked(now)
            if len(self._asked) > MOST_KNOWN:
                self._forget(now)
        asked.levels[queue_id] = offset, now
        return self._goes_by_priority(group) and self._is_below(group, topic, queue_id, now)

    def hold(self, pull: HeldPull, group: str, topic: TopicConfig) -> bool:
        """Keep a pull until it is its level's turn; False if there is no room, or the broker stops."""
        if len(self._waiting) >= MOST_WAITING or self._is_over:
            return False
        self._waiting.append((pull, group, topic))
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look)
        return True

    def release(self) -> None:
        """Answer all that wait and hold no more, because the broker stops."""
        self._is_over = True
        waiting, self._waiting = self._waiting, []
        for pull, _, _ in waiting:
            self._answer(pull)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # Whose turn it is

    def _goes_by_priority(self, group: str) -> bool:
        members = self._clients.consumers.get(group)
        if members is not None and members.is_broadcasting:
            # Its members are at different places, of which the broker knows nothing.
            return False
        config = self._groups.configs.get(group)
        text = "" if config is None else (config.attributes or {}).get(PRIORITY_FACTOR, "")
        factor = int(text) if text.isdigit() and len(text) < 10 else 100
        return factor >= 100 or random.randrange(100) < factor

    def _is_below(self, group: str, topic: TopicConfig, queue_id: int, now: int) -> bool:
        """Whether a level above a queue has something for a group that it has not asked for."""
        asked = self._asked[group, topic.topic_name]
        above = (
            range(topic.read_queue_nums - 1, queue_id, -1) if self._config.priority_order_asc else range(queue_id)
        )
        name, max_offset, min_offset = topic.topic_name, self._store.max_offset, self._store.min_offset
        is_new = now - asked.since_ms < FIRST_MS
        for level in above:
            known = asked.levels.get(level)
            if known is None:
                if is_new and max_offset(name, level) > min_offset(name, level):
                    return True
            elif now - known[1] < FORGOTTEN_MS and max_offset(name, level) > known[0]:
                return True
        return False

    def _look(self) -> None:
        self._timer = None
        now = self._now_ms()
        waiting, self._waiting = self._waiting, []
        try:
            for entry in waiting:
                pull, group, topic = entry
                is_over = now >= pull.deadline_ms or pull.connection.is_closing
                if is_over or not self._is_below(group, topic, pull.queue_id, now):
                    self._answer(pull)
                else:
                    self._waiting.append(entry)
        finally:
            if self._waiting and not self._is_over:
                self._timer = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look)

    def _forget(self, now: int) -> None:
        for key, asked in tuple(self._asked.items()):
            if all(now - at >= FORGOTTEN_MS for _, at in asked.levels.values()):
                del self._asked[key]
