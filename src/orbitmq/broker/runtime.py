"""BrokerRuntime, Metadata and DeferredServices: value groups that processors and background services share.

Each is built once, in ``broker.py``, and handed to constructors instead of a list of eight or more arguments. They
hold references only; a class that needs one part on a hot path keeps it in an attribute of its own.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable

    from orbitmq.broker.clients.consumer_filters import ConsumerFilters
    from orbitmq.broker.config.broker_config import BrokerConfig
    from orbitmq.broker.config.persistence import ConfigWriter
    from orbitmq.broker.escape.bridge import EscapeBridge
    from orbitmq.broker.ha.role import ReplicaRole
    from orbitmq.broker.metadata.subscription_groups import GroupTable
    from orbitmq.broker.metadata.topics import TopicTable
    from orbitmq.broker.offsets.table import OffsetTable
    from orbitmq.broker.schedule.service import ScheduleService
    from orbitmq.broker.send.flush_waiters import FlushWaiters
    from orbitmq.broker.stats.counters import BrokerStats
    from orbitmq.broker.timer.service import TimerService
    from orbitmq.broker.transaction.processor import Transactions
    from orbitmq.store import Clock, MessageStore


@dataclasses.dataclass(frozen=True, slots=True)
class BrokerRuntime:
    """Configuration and environment of a broker: store, disk writers, time, chance, statistics."""

    config: BrokerConfig
    store: MessageStore
    writer: ConfigWriter
    """Persists the tables under ``config/``."""
    flushed: Callable[[int], Awaitable[None]]
    """Completes when the commit log is flushed up to an offset."""
    flush_waiters: FlushWaiters
    """Responses that wait for the next flush."""
    clock: Clock
    random: random.Random
    """Source of every random choice, so that a simulation can repeat a run."""
    stats: BrokerStats
    role: ReplicaRole
    """Master or slave."""
    deliveries: EscapeBridge | None = None
    """On a slave that may act as master, where its deferred services deliver to; otherwise into the store."""


@dataclasses.dataclass(frozen=True, slots=True)
class Metadata:
    """The persisted tables of a broker."""

    topics: TopicTable
    groups: GroupTable
    offsets: OffsetTable
    filters: ConsumerFilters


@dataclasses.dataclass(frozen=True, slots=True)
class DeferredServices:
    """The services that store a message under a system topic until it is due or decided."""

    schedule: ScheduleService
    timer: TimerService | None
    """None if ``timerWheelEnable`` is false."""
    transactions: Transactions
