"""How many messages wait for their time, by topic: ``config/timermetrics``."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING

import numpy as np

from orbitmq.broker.table_versions import first_version, next_version
from orbitmq.protocol.bodies import Metric, TimerMetricsSerializeWrapper
from orbitmq.store.config_json import TIMER_METRICS
from orbitmq.store.timer_log import DELETE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from orbitmq.broker.config_writer import ConfigWriter
    from orbitmq.store import Clock
    from orbitmq.store.timer_log import TimerLog


class TimerCounts:
    """The counts. What a message adds when it is entered it takes away when it comes out."""

    def __init__(self, writer: ConfigWriter, clock: Clock) -> None:
        self._writer = writer
        self._clock = clock
        self._counts: dict[str, Metric] = {}
        self._version = first_version(clock)
        self._changed = False

    def load(self) -> None:
        """Read the file. Raises StoreError."""
        table = self._writer.load(TIMER_METRICS)
        self._counts = dict(table.timing_count)
        if table.timing_count:
            self._version = table.data_version

    def add(self, topic: str, count: int) -> None:
        """So many more messages wait, or fewer."""
        metric = self._counts.get(topic)
        if metric is None:
            metric = self._counts[topic] = Metric()
        metric.count += count
        metric.time_stamp = self._clock.now_ms()
        self._version = next_version(self._version, self._clock)
        self._changed = True

    def of(self, topic: str) -> int:
        metric = self._counts.get(topic)
        return 0 if metric is None else metric.count

    def forget(self, topic: str) -> None:
        """The topic was deleted."""
        self._changed |= self._counts.pop(topic, None) is not None

    def revise(self, waiting: Mapping[str, int]) -> None:
        """Set the counts right after an unclean exit."""
        for topic in self._counts.keys() | waiting.keys():
            missing = waiting.get(topic, 0) - self.of(topic)
            if missing:
                self.add(topic, missing)

    def persist(self) -> None:
        """Have the table written if it has changed since the last time."""
        if self._changed:
            self._changed = False
            self._writer.mark(TIMER_METRICS, self.table)

    def table(self) -> TimerMetricsSerializeWrapper:
        return TimerMetricsSerializeWrapper(self._counts, self._version)


def waiting_by_topic(
    log: TimerLog,
    precision_ms: int,
    read_time_ms: int,
    in_part: Mapping[int, int],
    topic_of: Callable[[int], str | None],
) -> dict[str, int]:
    """How many messages wait, counted in the timer log.

    ``in_part`` has the times of slots that were delivered in part, with the positions up to which they were. In the
    log topics are hashes; ``topic_of`` finds the name in the record at a place in the commit log.
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
