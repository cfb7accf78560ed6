"""Timer counts: deferred messages by topic, persisted in ``config/timermetrics``."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING

from orbitmq.broker.deferred.counts import DeferredCounts
from orbitmq.lazy_import import lazy_module
from orbitmq.metrics.instrument import Histogram
from orbitmq.protocol.bodies import TimerMetricsSerializeWrapper
from orbitmq.store.config_tables import TIMER_METRICS
from orbitmq.store.timer.timer_log import DELETE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np

    from orbitmq.broker.config.persistence import ConfigWriter
    from orbitmq.store import Clock
    from orbitmq.store.timer.timer_log import TimerLog
else:
    np = lazy_module("numpy")


DELAY_BOUNDS = (60.0, 600.0, 3600.0, 43200.0, 86400.0, 259200.0)
"""Seconds, as RocketMQ's metric has them."""

MAX_TOPICS = 10_000
"""Delays of further topics are not recorded."""


class TimerCounts(DeferredCounts[TimerMetricsSerializeWrapper]):
    """Counts messages of the timer by topic: incremented on entry, decremented on delivery."""

    def __init__(self, writer: ConfigWriter, clock: Clock) -> None:
        super().__init__(
            writer, clock, TIMER_METRICS, TimerMetricsSerializeWrapper, lambda table: table.timing_count
        )
        self.delays: dict[str, Histogram] = {}
        """For how long messages were deferred, in seconds, by topic."""

    def observe_delay(self, topic: str, delay_ms: int) -> None:
        """Record for how long a message that enters is deferred."""
        delays = self.delays.get(topic)
        if delays is None:
            if len(self.delays) >= MAX_TOPICS:
                return
            delays = self.delays[topic] = Histogram(DELAY_BOUNDS)
        delays.observe(max(delay_ms, 0) // 1000)

    def add_all(self, weights: dict[str, list[int]]) -> None:
        """Add the weights of messages that were entered one by one, by topic. Clears ``weights``."""
        for topic, each in weights.items():
            self.add(topic, sum(each), len(each))
        weights.clear()

    def forget(self, topic: str) -> None:
        """Remove the count of a deleted topic."""
        self._changed |= self._counts.pop(topic, None) is not None

    def revise(self, waiting: Mapping[str, int]) -> None:
        """Correct the counts after an unclean shutdown."""
        for topic in self._counts.keys() | waiting.keys():
            missing = waiting.get(topic, 0) - self.of(topic)
            if missing:
                self.add(topic, missing)


def waiting_by_topic(
    log: TimerLog,
    precision_ms: int,
    read_time_ms: int,
    in_part: Mapping[int, int],
    topic_of: Callable[[int], str | None],
) -> dict[str, int]:
    """Deferred messages by topic, counted from the timer log.

    ``in_part``: times of partially delivered slots, with the positions up to which they were delivered. The timer
    log has hashes of topics; ``topic_of`` finds the name in the record at an offset of the commit log.
    """
    waiting: collections.Counter[str] = collections.Counter()
    for positions, units in log.columns(log.start):
        times = (units["written"] + units["delay"]) // precision_ms * precision_ms
        still = times >= read_time_ms
        for time, position in in_part.items():
            still &= (times != time) | (positions > position)
        hashes, examples, of = np.unique(units["topic_hash"][still], return_index=True, return_inverse=True)
        sums = np.bincount(of, np.where(units["magic"][still] & DELETE, -1, 1), len(hashes))
        for offset, count in zip(units["offset"][still][examples].tolist(), sums.tolist(), strict=True):
            topic = topic_of(offset)
            if topic:
                waiting[topic] += int(count)
    return waiting
