"""Lite subscriptions: the lite topics that each client has chosen, in memory. Clients repeat them regularly."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from orbitmq.protocol.message.lite_topic import parent_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from orbitmq.broker.lite.rules import LiteRules
    from orbitmq.remoting import Connection
    from orbitmq.store import Clock


@dataclasses.dataclass(slots=True, eq=False)
class LiteSubscription:
    """What a client of a group has chosen."""

    client_id: str
    group: str
    parent: str
    connection: Connection
    """The one that the last change came over; the client is notified over it."""
    updated_ms: int
    is_wildcard: bool = False
    queues: dict[str, None] = dataclasses.field(default_factory=dict)
    """Light queues. Empty if the group is one that gets all."""
    ready: dict[str, None] = dataclasses.field(default_factory=dict)
    """Light queues that may have something for the client, the oldest first. Clients of a group that gets all lite
    topics share one."""
    accessed_ms: int = -1
    consumed_ms: int = -1


class LiteSubscriptions:
    """The subscriptions of all clients, and the clients of each light queue."""

    def __init__(self, clock: Clock, rules: LiteRules) -> None:
        self._clock = clock
        self._rules = rules
        self._by_client: dict[str, LiteSubscription] = {}
        self._by_queue: dict[str, dict[LiteSubscription, None]] = {}
        self._wildcards: dict[str, dict[LiteSubscription, None]] = {}
        """By parent topic, the clients of groups that get all of its lite topics."""
        self.count = 0
        """Pairs of a client and a light queue, and clients that get all."""
        self.on_added: Callable[[LiteSubscription, str], None] = lambda _subscription, _queue: None
        """Called with a light queue that a client has chosen."""

    def __len__(self) -> int:
        return len(self._by_client)

    def find(self, client_id: str) -> LiteSubscription | None:
        return self._by_client.get(client_id)

    def of_group(self, group: str) -> list[LiteSubscription]:
        return [found for found in self._by_client.values() if found.group == group]

    def of_queue(self, queue: str, group: str | None = None) -> Iterator[LiteSubscription]:
        """The subscriptions that a light queue belongs to, of one group or of all."""
        wanted = [*self._by_queue.get(queue, ())]
        if self._wildcards:
            wanted += self._wildcards.get(parent_of(queue) or "", ())
        return (found for found in wanted if group is None or found.group == group)

    def is_wanted(self, queue: str) -> bool:
        """True if a client may want the messages of a queue."""
        return queue in self._by_queue or (bool(self._wildcards) and parent_of(queue) in self._wildcards)

    # Changes

    def opened(self, client_id: str, group: str, parent: str, connection: Connection) -> LiteSubscription:
        """The subscription of a client, which may be new. A client is a member of one group."""
        found = self._by_client.get(client_id)
        is_wildcard = self._rules.is_wildcard(group)
        if found is not None and (found.group, found.parent, found.is_wildcard) != (group, parent, is_wildcard):
            self.drop(client_id)
            found = None
        if found is None:
            found = LiteSubscription(client_id, group, parent, connection, 0, is_wildcard)
            self._by_client[client_id] = found
            if is_wildcard:
                others = self._wildcards.setdefault(parent, {})
                found.ready = next((one.ready for one in others if one.group == group), found.ready)
                others[found] = None
                self.count += 1
        found.connection, found.updated_ms = connection, self._clock.now_ms()
        return found

    def add(self, subscription: LiteSubscription, queues: Iterable[str]) -> None:
        for queue in queues:
            if queue not in subscription.queues:
                subscription.queues[queue] = None
                self._by_queue.setdefault(queue, {})[subscription] = None
                self.count += 1
                self.on_added(subscription, queue)

    def remove(self, subscription: LiteSubscription, queues: Iterable[str]) -> list[str]:
        """Remove light queues of a subscription, and return those that it had."""
        removed = []
        for queue in queues:
            if queue in subscription.queues:
                del subscription.queues[queue]
                subscription.ready.pop(queue, None)
                clients = self._by_queue[queue]
                del clients[subscription]
                if not clients:
                    del self._by_queue[queue]
                self.count -= 1
                removed.append(queue)
        return removed

    def drop(self, client_id: str) -> None:
        """Forget a client."""
        found = self._by_client.pop(client_id, None)
        if found is None:
            return
        self.remove(found, list(found.queues))
        if found.is_wildcard:
            clients = self._wildcards[found.parent]
            del clients[found]
            if not clients:
                del self._wildcards[found.parent]
            self.count -= 1

    def expire(self, oldest_ms: int) -> None:
        """Forget the clients that have sent nothing since."""
        for found in [one for one in self._by_client.values() if one.updated_ms < oldest_ms]:
            self.drop(found.client_id)
