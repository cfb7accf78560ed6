"""How many half messages wait for their end, by topic: ``config/transactionMetrics``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.broker.waiting_counts import WaitingCounts
from orbitmq.protocol.bodies import TransactionMetricsSerializeWrapper
from orbitmq.store.config_json import TRANSACTION_METRICS

if TYPE_CHECKING:
    from orbitmq.broker.config_writer import ConfigWriter
    from orbitmq.store import Clock


class HalfCounts(WaitingCounts[TransactionMetricsSerializeWrapper]):
    """The counts, which are for people to look at: after a crash they are a little off."""

    def __init__(self, writer: ConfigWriter, clock: Clock) -> None:
        super().__init__(
            writer,
            clock,
            TRANSACTION_METRICS,
            TransactionMetricsSerializeWrapper,
            lambda table: table.transaction_count,
        )
