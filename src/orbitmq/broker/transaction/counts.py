"""Half-message counts: pending half messages by topic, persisted in ``config/transactionMetrics``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.broker.deferred.counts import DeferredCounts
from orbitmq.protocol.bodies import TransactionMetricsSerializeWrapper
from orbitmq.store.config_tables import TRANSACTION_METRICS

if TYPE_CHECKING:
    from orbitmq.broker.config.persistence import ConfigWriter
    from orbitmq.store import Clock


class HalfCounts(DeferredCounts[TransactionMetricsSerializeWrapper]):
    """Informational counts: after a crash they may be slightly off."""

    def __init__(self, writer: ConfigWriter, clock: Clock) -> None:
        super().__init__(
            writer,
            clock,
            TRANSACTION_METRICS,
            TransactionMetricsSerializeWrapper,
            lambda table: table.transaction_count,
        )
