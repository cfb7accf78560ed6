"""Deferred messages: how many wait for their time, and which transactions wait for their end."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from orbitmq.admin.errors import NotFoundError, UnsupportedError
from orbitmq.admin.session import decode
from orbitmq.protocol.bodies import TimerMetricsSerializeWrapper
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.names import TRANSACTION_GROUP, TRANSACTION_HALF_TOPIC

if TYPE_CHECKING:
    from orbitmq.admin.cluster.brokers import Brokers
    from orbitmq.admin.group.lag import Lag
    from orbitmq.admin.session import AdminSession
    from orbitmq.admin.topic.topics import Topics


@dataclasses.dataclass(frozen=True, slots=True)
class DeferredCounts:
    """The messages of one broker that wait for their time."""

    broker_name: str
    timed: int
    """In the timer wheel."""
    timed_by_topic: dict[str, int]
    """Where the broker counts them by topic."""
    by_delay_level: dict[int, int]
    """By delay level."""


@dataclasses.dataclass(frozen=True, slots=True)
class OpenTransactions:
    """The half messages of one broker that its transaction service has not settled.

    An upper bound: it counts half messages from the first that is still open.
    """

    broker_name: str
    half_messages: int
    unsettled: int


class Deferred:
    """Delayed, timed and transactional messages that wait."""

    def __init__(self, session: AdminSession, brokers: Brokers, topics: Topics, lag: Lag) -> None:
        self._session = session
        self._brokers = brokers
        self._topics = topics
        self._lag = lag

    async def counts(self, *, cluster: str = "", broker: str = "") -> list[DeferredCounts]:
        """Messages that wait for their time: two requests per broker."""
        found = []
        for one in await self._brokers.targets(cluster, broker, for_change=False):
            runtime = await self._brokers.runtime(one.address)
            levels = {level: end - at for level, (at, end) in runtime.delay_levels.items()}
            by_topic = await self._by_topic(one.address)
            found.append(DeferredCounts(one.broker_name, runtime.timer_messages, by_topic, levels))
        return found

    async def _by_topic(self, address: str) -> dict[str, int]:
        try:
            answer = await self._session.call(address, RequestCode.GET_TIMER_METRICS)
        except UnsupportedError:
            return {}
        metrics = decode(TimerMetricsSerializeWrapper, answer, address)
        return {topic: metric.count for topic, metric in sorted(metrics.timing_count.items()) if metric.count}

    async def transactions(self) -> list[OpenTransactions]:
        """Transactions that wait for their end, by broker."""
        try:
            stats = await self._topics.stats(TRANSACTION_HALF_TOPIC)
        except NotFoundError:
            return []
        progress = await self._lag.of_group(TRANSACTION_GROUP, topic=TRANSACTION_HALF_TOPIC, may_be_empty=True)
        open_by_broker: dict[str, int] = {}
        for queue in progress.queues:
            open_by_broker[queue.broker_name] = open_by_broker.get(queue.broker_name, 0) + queue.lag
        halves: dict[str, int] = {}
        for key, ends in stats.offset_table.items():
            halves[key.broker_name] = halves.get(key.broker_name, 0) + ends.max_offset - ends.min_offset
        return [
            OpenTransactions(name, count, open_by_broker.get(name, count)) for name, count in sorted(halves.items())
        ]
