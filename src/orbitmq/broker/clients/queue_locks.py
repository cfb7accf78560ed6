"""Queue locks: an orderly consumer reads a queue only while it holds its lock."""

from __future__ import annotations

import collections
import dataclasses
from typing import TYPE_CHECKING

from orbitmq.broker.clients.shares import ClientShares
from orbitmq.platform.limit_counts import Limit
from orbitmq.remoting.processor import RequestRefusedError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orbitmq.broker.config.broker_config import BrokerConfig
    from orbitmq.platform.clock import Clock
    from orbitmq.protocol.bodies import MessageQueue

LIVE_MS = 60_000
"""Lock expiry. Clients renew every 20 s and stop reading after 30 s without a renewal, so a lock expires well after
its owner has stopped."""

EXPIRED_AT_ONCE = 2000
"""Locks that one call of ``expire`` removes, in a few milliseconds."""


@dataclasses.dataclass(slots=True)
class Lock:
    """Owner of a queue lock and the time of its last renewal. ``address``: the remote address that locked it."""

    client_id: str
    locked_ms: int
    address: str


class QueueLocks:
    """Queue locks by group and queue.

    A lock survives the connection of its owner, as in RocketMQ: the client may still be consuming pulled messages
    and may reconnect. Only its unlock request or expiry ends it. Call ``expire`` periodically to free the memory of
    expired locks.
    """

    def __init__(self, clock: Clock, config: BrokerConfig) -> None:
        self._clock = clock
        self._held: dict[str, dict[MessageQueue, Lock]] = {}
        self._by_age: collections.OrderedDict[tuple[str, MessageQueue], None] = collections.OrderedDict()
        """All locks, ordered by renewal, oldest first."""
        self._shares = ClientShares(
            "queue locks",
            config,
            lambda: config.max_queue_locks,
            self.__len__,
            "maxQueueLocks",
            counted=Limit.QUEUE_LOCKS,
        )

    def __len__(self) -> int:
        return len(self._by_age)

    def lock(
        self, group: str, client_id: str, queues: Iterable[MessageQueue], address: str = ""
    ) -> list[MessageQueue]:
        """Lock queues that are free or already held by this client; returns the queues that it holds now.

        Raises RequestRefusedError if it holds none of them because its locks exceed a limit.
        """
        wanted = list(dict.fromkeys(queues))
        if self._shares.problem(address, len(wanted)) is not None:
            self.expire()
        locked = []
        problem: str | None = None
        for queue in wanted:
            refused = self._lock(group, client_id, queue, address)
            if refused is None:
                locked.append(queue)
            problem = problem or refused
        if problem and not locked:
            raise RequestRefusedError(problem)
        return locked

    def _lock(self, group: str, client_id: str, queue: MessageQueue, address: str) -> str | None:
        """Lock a queue; None on success, else the problem: empty if another client holds it."""
        now = self._clock.now_ms()
        held = self._held.get(group)
        lock = None if held is None else held.get(queue)
        if lock is not None and lock.client_id != client_id and _is_live(lock, now):
            return ""
        if lock is None:
            problem = self._shares.refusal(address)
            if problem is not None:
                return problem
        else:
            self._shares.remove(lock.address)
        self._shares.add(address)
        self._held.setdefault(group, {})[queue] = Lock(client_id, now, address)
        self._by_age[group, queue] = None
        self._by_age.move_to_end((group, queue))
        return None

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Unlock the queues that this client holds."""
        for queue in queues:
            lock = self._held.get(group, {}).get(queue)
            if lock is not None and lock.client_id == client_id:
                self._free(group, queue)

    def _free(self, group: str, queue: MessageQueue) -> None:
        held = self._held[group]
        self._shares.remove(held.pop(queue).address)
        if not held:
            del self._held[group]
        del self._by_age[group, queue]

    def is_locked(self, group: str, topic: str, queue_id: int) -> bool:
        """True if any client of a group holds a queue of this broker."""
        now = self._clock.now_ms()
        return any(
            queue.queue_id == queue_id and queue.topic == topic and _is_live(lock, now)
            for queue, lock in self._held.get(group, {}).items()
        )

    def group_holds_lock(self, group: str) -> bool:
        """True if any client of a group holds any queue."""
        now = self._clock.now_ms()
        return any(_is_live(lock, now) for lock in self._held.get(group, {}).values())

    def expire(self, most: int = EXPIRED_AT_ONCE) -> bool:
        """Remove expired locks, oldest first; True if there may be more of them."""
        now = self._clock.now_ms()
        for _ in range(most):
            if not self._by_age:
                return False
            group, queue = next(iter(self._by_age))
            if _is_live(self._held[group][queue], now):
                return False
            self._free(group, queue)
        return True


def _is_live(lock: Lock, now: int) -> bool:
    return now - lock.locked_ms <= LIVE_MS
