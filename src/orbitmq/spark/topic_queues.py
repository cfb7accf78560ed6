"""The queues that a query subscribes, as they are now, and where they begin and end."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from orbitmq.client.errors import BrokerError, NoRouteError
from orbitmq.protocol.codes import ResponseCode
from orbitmq.spark.cluster import Cluster
from orbitmq.spark.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.client.queue_bounds import Bounds
    from orbitmq.protocol.bodies import MessageQueue
    from orbitmq.spark.options import SourceOptions

log = logging.getLogger("orbitmq.spark")

LIST_SECONDS = 2.0
"""For how long a list of all topics is good: a cluster may have many thousands, and a stream asks all the time."""


class TopicQueues:
    """What is subscribed. Its topics and queues may come and go."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._subscribed = options.subscribed
        self._listed: list[str] = []
        self._listed_at: float | None = None

    @property
    def cluster(self) -> Cluster:
        return Cluster.of(self._options.nameserver, retry_seconds=self._options.retry_seconds)

    def bounds(self, wanted: Callable[[str], bool] | None = None) -> dict[MessageQueue, Bounds]:
        """Of all queues that there are, of wanted topics only. Raises OrbitMQError."""
        found = self._found([topic for topic in self._topics() if wanted is None or wanted(topic)])
        return {
            queue: ends
            for of in found.values()
            for queue, ends in sorted(of.items())
            if self._subscribed.wants(queue)
        }

    def _found(self, topics: list[str]) -> dict[str, dict[MessageQueue, Bounds]]:
        """Of those topics that are there. One may be away: it has no route while its only broker restarts."""
        if not topics:
            return {}
        try:
            return self.cluster.bounds(topics)
        except (NoRouteError, BrokerError) as error:
            # A topic that is being deleted may still have a route to a broker that has it no more.
            if isinstance(error, BrokerError) and error.code != ResponseCode.TOPIC_NOT_EXIST:
                raise
            if len(topics) == 1:
                return {}
            half = len(topics) // 2
            return self._found(topics[:half]) | self._found(topics[half:])

    def existing_bounds(self, wanted: Callable[[str], bool] | None = None) -> dict[MessageQueue, Bounds]:
        """The same where all that is subscribed by name has to be there. Raises OptionError and OrbitMQError."""
        found = self.bounds(wanted)
        topics = {queue.topic for queue in found}
        for topic in self._subscribed.topics:
            if topic not in topics and (wanted is None or wanted(topic)):
                if self._subscribed.assigned is None or not self.cluster_has(topic):
                    raise OptionError(f"the topic {topic!r} does not exist: no broker that runs has it")
                raise OptionError(f"the topic {topic!r} has none of the queues that assign names")
        self._check_assigned(found, topics)
        if not found and self._subscribed.pattern is not None:
            log.warning("no topic is called like subscribePattern=%s", self._subscribed.pattern)
        return found

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
