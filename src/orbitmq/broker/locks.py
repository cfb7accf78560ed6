"""Locks on queues: an orderly consumer reads a queue only while the broker says that nobody else does."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orbitmq.protocol.bodies import MessageQueue
    from orbitmq.store.clock import Clock

LIVE_MS = 60_000
"""A lock that is not renewed for so long is over. Clients renew every 20 s and stop reading after 30 s without,
so a lock is over well after its owner has stopped."""

MOST_LOCKS = 200_000
"""Of all groups; about 300 bytes each. Over it no further queue is locked, and its consumer waits."""


class QueueLocks:
    """By group and queue, which client holds a queue and since when.

    A lock stays when its owner's connection is gone, as in RocketMQ: the client may be consuming what it has
    pulled, and it may come back over another connection and go on. Only its own word or time ends it.
    ``expire`` is to be called from time to time, so that what is over takes no room.
    """

    def __init__(self, clock: Clock, most: int = MOST_LOCKS) -> None:
        self._clock = clock
        self._most = most
        self._held: dict[str, dict[MessageQueue, tuple[str, int]]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def lock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        """Lock what is free or this client's already; the queues that it holds now."""
        wanted = list(dict.fromkeys(queues))
        if self._count + len(wanted) > self._most:
            self.expire()
        now = self._clock.now_ms()
        held = self._held.get(group, {})
        locked = []
        for queue in wanted:
            lock = held.get(queue)
            if lock is None:
                if self._count >= self._most:
                    continue
                self._count += 1
            elif lock[0] != client_id and _is_live(lock, now):
                continue
            held[queue] = client_id, now
            locked.append(queue)
        if held:
            self._held[group] = held
        return locked

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Let go what this client holds."""
        held = self._held.get(group)
        if held is None:
            return
        for queue in queues:
            lock = held.get(queue)
            if lock is not None and lock[0] == client_id:
                del held[queue]
                self._count -= 1
        if not held:
            del self._held[group]

    def is_locked(self, group: str, topic: str, queue_id: int) -> bool:
        """Whether any client of a group holds a queue of this broker."""
        now = self._clock.now_ms()
        return any(
            queue.queue_id == queue_id and queue.topic == topic and _is_live(lock, now)
            for queue, lock in self._held.get(group, {}).items()
        )

    def group_holds_lock(self, group: str) -> bool:
        """Whether any client of a group holds any queue."""
        now = self._clock.now_ms()
        return any(_is_live(lock, now) for lock in self._held.get(group, {}).values())

    def expire(self) -> None:
        """Forget locks that are over."""
        now = self._clock.now_ms()
        for group, held in tuple(self._held.items()):
            for queue in [queue for queue, lock in held.items() if not _is_live(lock, now)]:
                del held[queue]
                self._count -= 1
            if not held:
                del self._held[group]


def _is_live(lock: tuple[str, int], now: int) -> bool:
    return now - lock[1] <= LIVE_MS
