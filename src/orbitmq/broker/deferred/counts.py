"""Deferred counts: messages that wait, by topic, persisted in a file of ``config/``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from orbitmq.broker.metadata.data_version import first_version
from orbitmq.protocol.bodies import (
    DataVersion,
    Metric,
    TimerMetricsSerializeWrapper,
    TransactionMetricsSerializeWrapper,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.broker.config.persistence import ConfigWriter
    from orbitmq.platform.json_files import ConfigFile
    from orbitmq.store import Clock


T = TypeVar("T", TimerMetricsSerializeWrapper, TransactionMetricsSerializeWrapper)


class DeferredCounts(Generic[T]):
    """The counts of one file. ``made`` builds its content, ``counts_in`` returns the counts in it."""

    def __init__(
        self,
        writer: ConfigWriter,
        clock: Clock,
        file: ConfigFile[T],
        made: Callable[[dict[str, Metric], DataVersion], T],
        counts_in: Callable[[T], dict[str, Metric]],
    ) -> None:
        self._writer = writer
        self._clock = clock
        self._file: ConfigFile[T] = file
        self._made: Callable[[dict[str, Metric], DataVersion], T] = made
        self._counts_in: Callable[[T], dict[str, Metric]] = counts_in
        self._counts: dict[str, Metric] = {}
        self.entered: dict[str, int] = {}
        """Messages that were counted since the start, by topic."""
        self.left: dict[str, int] = {}
        """Messages that were uncounted since the start, by topic."""
        self._version = first_version(clock)
        self._changes = self._changed_ms = 0
        """Changes since that version: a new version for each message would cost more than all other counting."""
        self._changed = False

    def load(self) -> None:
        """Load the file. Raises StoreError."""
        table = self._writer.load(self._file)
        self._counts = dict(self._counts_in(table))
        if self._counts:
            self._version = table.data_version

    def add(self, topic: str, count: int, changes: int = 1) -> None:
        """Change the count of a topic; ``changes`` is the number of messages that this sums up."""
        metric = self._counts.get(topic)
        if metric is None:
            metric = self._counts[topic] = Metric()
        metric.count += count
        passed = self.entered if count > 0 else self.left
        passed[topic] = passed.get(topic, 0) + abs(count)
        metric.time_stamp = self._changed_ms = self._clock.now_ms()
        self._changes += changes
        self._changed = True

    def of(self, topic: str) -> int:
        metric = self._counts.get(topic)
        return 0 if metric is None else metric.count

    def waiting(self) -> dict[str, int]:
        """The counts of all topics."""
        return {topic: metric.count for topic, metric in self._counts.items()}

    def follow(self, table: T) -> None:
        """Take over the counts of the master."""
        if table.data_version != self._version or self._changes:
            self._counts = dict(self._counts_in(table))
            self._version, self._changes, self._changed = table.data_version, 0, True

    def persist(self) -> None:
        """Write the file if the counts have changed since the last call."""
        if self._changed:
            self._changed = False
            self._writer.mark(self._file, self.table)

    def table(self) -> T:
        if self._changes:
            self._version = DataVersion(self._version.counter + self._changes, 0, self._changed_ms)
            self._changes = 0
        return self._made(self._counts, self._version)
