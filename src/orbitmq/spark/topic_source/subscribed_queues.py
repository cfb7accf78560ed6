"""The subscribed queues of a query, with their current bounds."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from orbitmq.client.errors import BrokerError, NoRouteError
from orbitmq.filter import TAG
from orbitmq.protocol.codes import ResponseCode
from orbitmq.spark.cluster import Cluster
from orbitmq.spark.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from orbitmq.client.query.queue_offsets import Bounds
    from orbitmq.protocol.bodies import MessageQueue
    from orbitmq.spark.topic_source.options import SourceOptions

log = logging.getLogger("orbitmq.spark")

LIST_SECONDS = 2.0
"""The lifetime of the cached topic list: a cluster may have thousands, and a stream asks constantly."""


class TopicQueues:
    """The subscription. Its topics and queues may appear and vanish."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._subscribed = options.subscribed
        self._listed: list[str] = []
        self._listed_at: float | None = None

    @property
    def cluster(self) -> Cluster:
        return Cluster.of(self._options.nameserver, retry_seconds=self._options.retry_seconds)

    def bounds(self, wanted: Callable[[str], bool] | None = None) -> dict[MessageQueue, Bounds]:
        """The bounds of all existing queues of wanted topics. Raises OrbitMQError."""
        found = self._found([topic for topic in self._topics() if wanted is None or wanted(topic)])
        return {
            queue: ends
            for of in found.values()
            for queue, ends in sorted(of.items())
            if self._subscribed.wants(queue)
        }

    def _found(self, topics: list[str]) -> dict[str, dict[MessageQueue, Bounds]]:
        """The bounds by topic. A topic has no route while its only broker restarts; it is left out."""
        if not topics:
            return {}
        try:
            return self.cluster.bounds(topics)
        except (NoRouteError, BrokerError) as error:
            # A topic that is being deleted may still have a route to a broker without it.
            if isinstance(error, BrokerError) and error.code != ResponseCode.TOPIC_NOT_EXIST:
                raise
            if len(topics) == 1:
                return {}
            half = len(topics) // 2
            return self._found(topics[:half]) | self._found(topics[half:])

    def existing_bounds(self, wanted: Callable[[str], bool] | None = None) -> dict[MessageQueue, Bounds]:
        """The bounds; topics and queues subscribed by name have to exist. Raises OptionError and OrbitMQError."""
        found = self.bounds(wanted)
        topics = {queue.topic for queue in found}
        for topic in self._subscribed.topics:
            if topic not in topics and (wanted is None or wanted(topic)):
                if self._subscribed.assigned is None or not self.cluster_has(topic):
                    raise OptionError(f"the topic {topic!r} does not exist: no running broker has it")
                raise OptionError(f"the topic {topic!r} has none of the queues that assign names")
        self._check_assigned(found, topics)
        if not found and self._subscribed.pattern is not None:
            log.warning("subscription: no topic matches subscribePattern=%s", self._subscribed.pattern)
        return found

    def check_filter(self, bounds: Iterable[MessageQueue]) -> None:
        """Raises OptionError where a broker does not take the filter ``sql92``, before any task is started."""
        options = self._options
        if options.expression_type == TAG:
            return
        topics = sorted({queue.topic for queue in bounds})
        try:
            self.cluster.check_filter(topics, options.expression, options.expression_type)
        except BrokerError as error:
            if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                return  # A proxy or an old broker: what it says of the filter is seen when messages are read.
            hint = ""
            if "does not support" in (error.remark or "") and "enablePropertyFilter" not in (error.remark or ""):
                hint = "; set enablePropertyFilter=true in the broker's configuration"
            raise OptionError(f"sql92={options.expression} cannot be used: {error}{hint}") from None

    def cluster_has(self, topic: str) -> bool:
        try:
            return bool(self.cluster.queues(topic))
        except NoRouteError:
            return False

    def _check_assigned(self, found: dict[MessageQueue, Bounds], topics: set[str]) -> None:
        for topic, numbers in (self._subscribed.assigned or {}).items():
            if topic not in topics:
                continue
            there = {(queue.broker_name, queue.queue_id) for queue in found if queue.topic == topic}
            if isinstance(numbers, frozenset):
                missing = [
                    f"queue {number}" for number in sorted(numbers) if all(number != one for _, one in there)
                ]
            else:
                missing = [
                    f"queue {number} on {broker}"
                    for broker, some in numbers.items()
                    for number in sorted(some)
                    if (broker, number) not in there
                ]
            if missing:
                raise OptionError(f"assign names {', '.join(missing)} of {topic!r}, which does not exist")

    def _topics(self) -> list[str]:
        if self._subscribed.pattern is None:
            return list(self._subscribed.topics)
        now = time.monotonic()
        if self._listed_at is None or now - self._listed_at >= LIST_SECONDS:
            self._listed = [topic for topic in self.cluster.topics() if self._subscribed.wants_topic(topic)]
            self._listed_at = now
        return self._listed
