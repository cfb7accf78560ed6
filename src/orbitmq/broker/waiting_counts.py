"""How many messages wait for something, by topic, kept in a file of ``config/``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from orbitmq.broker.table_versions import first_version
from orbitmq.protocol.bodies import (
    DataVersion,
    Metric,
    TimerMetricsSerializeWrapper,
    TransactionMetricsSerializeWrapper,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.broker.config_writer import ConfigWriter
    from orbitmq.store import Clock
    from orbitmq.store.config_json import ConfigFile


T = TypeVar("T", TimerMetricsSerializeWrapper, TransactionMetricsSerializeWrapper)


class WaitingCounts(Generic[T]):
    """The counts of one file. ``made`` makes what it holds, ``counts_in`` finds the counts in that."""

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
        self._version = first_version(clock)
        self._changes = self._changed_ms = 0
        """Since that version was made: one for each message would cost more than all else that is counted here."""
        self._changed = False

    def load(self) -> None:
        """Read the file. Raises StoreError."""
        table = self._writer.load(self._file)
        self._counts = dict(self._counts_in(table))
        if self._counts:
            self._version = table.data_version

    def add(self, topic: str, count: int, changes: int = 1) -> None:
        """So many more messages wait, or fewer; it came about in so many changes."""
        metric = self._counts.get(topic)
        if metric is None:
            metric = self._counts[topic] = Metric()
        metric.count += count
        metric.time_stamp = self._changed_ms = self._clock.now_ms()
        self._changes += changes
        self._changed = True

    def of(self, topic: str) -> int:
        metric = self._counts.get(topic)
        return 0 if metric is None else metric.count

    def persist(self) -> None:
        """Have the table written if it has changed since the last time."""
        if self._changed:
            self._changed = False
            self._writer.mark(self._file, self.table)

    def table(self) -> T:
        if self._changes:
            self._version = DataVersion(self._version.counter + self._changes, 0, self._changed_ms)
            self._changes = 0
        return self._made(self._counts, self._version)
