"""Subscriptions of a push consumer: topics, filters and handlers."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from typing import TYPE_CHECKING, Any

from orbitmq.client.errors import InvalidMessageError
from orbitmq.client.namespace import unwrap, wrap
from orbitmq.client.push.handler_routes import accepts, combined_filter, route_order
from orbitmq.client.serialization.serializer import AUTO
from orbitmq.client.serialization.typed_handler import typed_handler
from orbitmq.client.validation import check_topic
from orbitmq.filter import SQL92, TAG, FilterError, subscription_data
from orbitmq.filter.tags import ALL
from orbitmq.platform.clock import SYSTEM_CLOCK
from orbitmq.protocol.message.properties import find
from orbitmq.protocol.names import RETRY_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from orbitmq.client.consumer.received_message import PulledMessage
    from orbitmq.client.serialization.serializer import Serializer
    from orbitmq.platform.clock import Clock
    from orbitmq.protocol.bodies import SubscriptionData

RETRY_TOPIC = b"RETRY_TOPIC"
TAGS = b"TAGS"


@dataclasses.dataclass(slots=True, eq=False)
class TopicCounts:
    """Counters of a topic since the start. Times are seconds."""

    pulls: int = 0
    pulled: int = 0
    pull_time: float = 0.0
    calls: int = 0
    consume_time: float = 0.0
    done: int = 0
    failed: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class HandlerTraits:
    """The way in which a handler is called."""

    is_async: bool = False
    inline: bool = False
    takes_list: bool = False

    @property
    def runs_on_loop(self) -> bool:
        return self.is_async or self.inline


@dataclasses.dataclass(slots=True, eq=False)
class Subscription:
    """A topic, a filter and a handler."""

    topic: str
    """With the namespace, as on brokers."""
    name: str
    """As the application passed it."""
    data: SubscriptionData
    handler: Callable[[Any], Any]
    is_async: bool
    inline: bool
    takes_list: bool
    since: int
    """Version of the expression. That of ``data`` also grows when the queues change; pulls need not wait until
    brokers have that one."""
    tags: frozenset[bytes]
    """Tags to check after the broker's filter, which compares hashes only. Empty: no check."""
    counts: TopicCounts = dataclasses.field(default_factory=TopicCounts)
    routes: tuple[tuple[Callable[[bytes], bool], Subscription], ...] = ()
    """With several handlers: the filter and the subscription of each, by precedence."""

    @property
    def runs_on_loop(self) -> bool:
        return self.is_async or self.inline

    def matching(self, messages: list[PulledMessage]) -> list[PulledMessage]:
        """The messages whose tags really match, after the broker's filter by hash."""
        tags = self.tags
        if not tags:
            return messages
        return [message for message in messages if find(message.stored_properties, TAGS) in tags]

    def route(self, message: PulledMessage) -> Subscription:
        """The subscription of the handler for a message; this one if no handler's filter matches it."""
        if not self.routes:
            return self
        properties = message.stored_properties
        for matches, subscription in self.routes:
            if matches(properties):
                return subscription
        return self

    def routed(self, messages: list[PulledMessage]) -> Iterable[tuple[Subscription, list[PulledMessage]]]:
        """The messages by handler, each in their order."""
        if not self.routes:
            return ((self, messages),)
        found: dict[int, tuple[Subscription, list[PulledMessage]]] = {}
        for message in messages:
            subscription = self.route(message)
            found.setdefault(id(subscription), (subscription, []))[1].append(message)
        return found.values()


class Subscriptions:
    """All subscriptions of a consumer, by topic with namespace."""

    def __init__(
        self,
        group: str,
        namespace: str,
        *,
        with_retries: bool,
        clock: Clock = SYSTEM_CLOCK,
        serializer: Serializer = AUTO,
        wrap_handler: Callable[[Callable[[Any], Any], HandlerTraits], Callable[[Any], Any]] | None = None,
    ) -> None:
        """``wrap_handler`` puts middleware around each handler."""
        self._clock = clock
        self._serializer = serializer
        self._wrap_handler = wrap_handler
        self._namespace = namespace
        self._by_topic: dict[str, Subscription] = {}
        self.retry_topic = RETRY_PREFIX + group if with_retries else None
        if self.retry_topic is not None:
            self._retries = self._made(self.retry_topic, TAG, ALL, _no_handler, HandlerTraits())

    def add(
        self,
        topic: str,
        handler: Callable[[Any], Any],
        *,
        tags: str | None = None,
        sql: str | None = None,
        inline: bool = False,
        takes_list: bool = False,
        replace: bool = True,
        serializer: Serializer | None = None,
    ) -> Subscription:
        """Subscribe to a topic, and replace its filters and handlers or add another one.

        Raises InvalidMessageError.
        """
        check_topic(topic)
        if tags is not None and sql is not None:
            raise InvalidMessageError("give tags or sql, not both: a topic has one filter")
        if not callable(handler):
            raise InvalidMessageError(f"a handler must be a function, not {handler!r}")
        traits = HandlerTraits(is_async=_is_async(handler), inline=inline, takes_list=takes_list)
        try:
            type_, expression = (TAG, ALL if tags is None else tags) if sql is None else (SQL92, sql)
            made = self._made(topic, type_, expression, self._called(handler, traits, serializer), traits)
            before = self._by_topic.get(made.topic)
            if before is not None and not replace:
                made = self._combined(before, made)
        except FilterError as error:
            raise InvalidMessageError(f"invalid filter of {topic!r}: {error}") from error
        if before is not None:
            made.counts = before.counts
            # Brokers keep the newest version, and two changes may happen in one millisecond.
            made.since = made.data.sub_version = max(made.since, before.data.sub_version + 1)
        self._by_topic[made.topic] = made
        return made

    def remove(self, topic: str) -> None:
        self._by_topic.pop(wrap(self._namespace, topic), None)

    def _called(
        self, handler: Callable[..., Any], traits: HandlerTraits, serializer: Serializer | None
    ) -> Callable[[Any], Any]:
        """The handler as it is called: with decoded bodies if it is typed, and inside the middleware."""
        called = typed_handler(
            handler,
            self._serializer if serializer is None else serializer,
            takes_list=traits.takes_list,
            is_async=traits.is_async,
        )
        return called if self._wrap_handler is None else self._wrap_handler(called, traits)

    def _combined(self, before: Subscription, added: Subscription) -> Subscription:
        """One subscription for the handlers of ``before`` and another one. Raises InvalidMessageError."""
        parts = [*(part for _, part in before.routes), added] if before.routes else [before, added]
        type_, expression = combined_filter([part.data for part in parts])
        made = self._made(added.name, type_, expression, _no_route, HandlerTraits())
        parts.sort(key=lambda part: route_order(part.data))
        made.routes = tuple((accepts(part.data), part) for part in parts)
        added.counts = before.counts
        return made

    def _made(
        self,
        topic: str,
        type_: str,
        expression: str,
        handler: Callable[[Any], Any],
        traits: HandlerTraits,
    ) -> Subscription:
        wrapped = wrap(self._namespace, topic)
        data = subscription_data(wrapped, type_, expression, self._clock.now_ms())
        return Subscription(
            topic=wrapped,
            name=topic,
            data=data,
            handler=handler,
            is_async=traits.is_async,
            inline=traits.inline,
            takes_list=traits.takes_list,
            since=data.sub_version,
            tags=frozenset(tag.encode("utf-8", "replace") for tag in data.tags_set),
        )

    def __len__(self) -> int:
        return len(self._by_topic)

    def __iter__(self) -> Iterator[Subscription]:
        """All subscriptions, the retry topic last."""
        yield from self._by_topic.values()
        if self.retry_topic is not None:
            yield self._retries

    def get(self, topic: str) -> Subscription | None:
        """The subscription of a topic or of the retry topic."""
        return self._retries if topic == self.retry_topic else self._by_topic.get(topic)

    def topics(self) -> list[str]:
        return [subscription.topic for subscription in self]

    def data_set(self) -> list[SubscriptionData]:
        return [subscription.data for subscription in self]

    def renew(self, topic: str) -> None:
        """Raise the version, so that brokers prefer this consumer's subscription to older ones of its group."""
        found = self.get(topic)
        if found is not None:
            found.data.sub_version = max(self._clock.now_ms(), found.data.sub_version + 1)

    def application_topic(self, topic: str) -> str:
        return unwrap(self._namespace, topic)

    def origin(self, message: PulledMessage) -> str:
        """The topic that a retried message was sent to originally, with namespace."""
        found = find(message.stored_properties, RETRY_TOPIC)
        return message.record.topic if found is None else found.decode("utf-8", "replace")


def _is_async(handler: Callable[[Any], Any]) -> bool:
    while isinstance(handler, functools.partial):
        handler = handler.func
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
        getattr(handler, "__call__", None)  # noqa: B004 - whether it is a coroutine function, not whether it is there
    )


def _no_route(_: object) -> None:
    raise LookupError("no handler of the topic has a filter that this message matches")


def _no_handler(_: object) -> None:
    raise LookupError("no handler is subscribed to the original topic of this message")
