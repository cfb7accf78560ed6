"""How many half messages wait for their end, by topic: ``config/transactionMetrics``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.broker.table_versions import first_version, next_version
from orbitmq.protocol.bodies import Metric, TransactionMetricsSerializeWrapper
from orbitmq.store.config_json import TRANSACTION_METRICS

if TYPE_CHECKING:
    from orbitmq.broker.config_writer import ConfigWriter
    from orbitmq.store import Clock


class HalfCounts:
    """The counts, which are for people to look at: after a crash they are a little off."""

    def __init__(self, writer: ConfigWriter, clock: Clock) -> None:
        self._writer = writer
        self._clock = clock
        self._counts: dict[str, Metric] = {}
        self._version = first_version(clock)
        self._changed = False

    def load(self) -> None:
        """Read the file. Raises StoreError."""
        table = self._writer.load(TRANSACTION_METRICS)
        self._counts = dict(table.transaction_count)
        if table.transaction_count:
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

    def persist(self) -> None:
        """Have the table written if it has changed since the last time."""
        if self._changed:
            self._changed = False
            self._writer.mark(TRANSACTION_METRICS, self._table)

    def _table(self) -> TransactionMetricsSerializeWrapper:
        return TransactionMetricsSerializeWrapper(self._counts, self._version)
