"""Consumers of a broker: one for each group, with the handlers of all its subscribers.

Members of a group must have the same subscriptions, so the subscribers of one group share a consumer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from faststream.exceptions import SetupError

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.client.push.consumer import Consumer
    from orbitmq.faststream.subscriber import OrbitMQSubscriber


class BrokerConsumers:
    """The consumers of one broker."""

    def __init__(self, make: Callable[..., Consumer]) -> None:
        """``make`` creates a consumer of a group with options."""
        self._make = make
        self._by_group: dict[str, Consumer] = {}
        self._options: dict[str, dict[str, Any]] = {}
        self._members: dict[str, list[OrbitMQSubscriber]] = {}
        self._is_running = False

    async def add(self, subscriber: OrbitMQSubscriber) -> None:
        """Add the handler of a subscriber, also while the consumers run. Raises SetupError."""
        group, wanted = subscriber.group, subscriber.subscription
        consumer = self._by_group.get(group)
        if consumer is None:
            consumer = self._by_group[group] = self._make(group=group, **wanted.options)
            self._options[group] = wanted.options
        elif self._options[group] != wanted.options:
            raise SetupError(
                f"the subscribers of the group {group!r} share a consumer: give them equal options, or other groups"
            )
        topics = {one.topic for one in self._members.setdefault(group, [])}
        is_started = self._is_running and bool(self._members[group])
        if is_started and subscriber.topic in topics:
            raise SetupError(f"the topic {subscriber.topic!r} of the group {group!r} is being consumed already")
        self._members[group].append(subscriber)
        if is_started:
            await consumer.subscribe(subscriber.topic, subscriber.handle, tags=wanted.tags, sql=wanted.sql)
            return
        consumer.on(subscriber.topic, tags=wanted.tags, sql=wanted.sql)(subscriber.handle)
        if self._is_running:
            await consumer.start()

    async def remove(self, subscriber: OrbitMQSubscriber) -> None:
        """Remove a subscriber. The consumer of a group ends with its last one."""
        group = subscriber.group
        members = self._members.get(group, [])
        if subscriber not in members:
            return
        members.remove(subscriber)
        consumer = self._by_group[group]
        if not members:
            del self._by_group[group], self._options[group], self._members[group]
            await consumer.close()
        elif subscriber.topic not in {one.topic for one in members}:
            await consumer.unsubscribe(subscriber.topic)

    async def start(self) -> None:
        """Start consuming: all subscribers of a group at once."""
        self._is_running = True
        for consumer in tuple(self._by_group.values()):
            await consumer.start()

    async def close(self) -> None:
        """Wait for running handlers, and leave all groups."""
        self._is_running = False
        consumers = tuple(self._by_group.values())
        for every in (self._by_group, self._options, self._members):
            every.clear()
        for consumer in consumers:
            await consumer.close()

    @property
    def all(self) -> list[Consumer]:
        return list(self._by_group.values())
