"""A BrokerRuntime for tests that build one part of a broker without the rest."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, cast

from orbitmq.broker.config.broker_config import BrokerConfig
from orbitmq.broker.ha.role import ReplicaRole
from orbitmq.broker.runtime import BrokerRuntime

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from orbitmq.broker.config.persistence import ConfigWriter
    from orbitmq.broker.send.flush_waiters import FlushWaiters
    from orbitmq.broker.stats.counters import BrokerStats
    from orbitmq.store import MessageStore


def runtime_of(
    store: MessageStore,
    writer: ConfigWriter,
    stats: BrokerStats,
    *,
    config: BrokerConfig | None = None,
    flushed: Callable[[int], Awaitable[None]] | None = None,
    flush_waiters: object = None,
    seed: int = 0,
) -> BrokerRuntime:
    """The runtime of a broker with this store. ``flushed`` defaults to a flush on the event loop."""

    async def flush(end: int) -> None:
        if store.log.flushed < end:
            store.flush()

    config = config or BrokerConfig()
    return BrokerRuntime(
        config=config,
        store=store,
        writer=writer,
        flushed=flushed or flush,
        flush_waiters=cast("FlushWaiters", flush_waiters),
        clock=store.clock,
        random=random.Random(seed),
        stats=stats,
        role=ReplicaRole(config, store.config),
    )
