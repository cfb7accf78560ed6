"""The clusters of a console: an operator's client each, with short caches for what pages read again and again."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from orbitmq.admin import AdminClient
from orbitmq.admin.errors import AdminError, NotFoundError
from orbitmq.admin.group.model import GroupSummary
from orbitmq.admin.topic.model import TopicKind
from orbitmq.dashboard.background import Ahead, BackgroundReader
from orbitmq.dashboard.cache import Cache
from orbitmq.dashboard.lag_table import LagTable
from orbitmq.protocol.names import TOOLS_CONSUMER_GROUP, is_system_group

if TYPE_CHECKING:
    from orbitmq.admin.cluster.clusters import ClusterDescription
    from orbitmq.admin.cluster.name_servers import NameServerStatus
    from orbitmq.admin.cluster.runtime import BrokerStatus
    from orbitmq.admin.config import AdminOptions
    from orbitmq.admin.group.model import GroupDescription
    from orbitmq.admin.message.dead_letters import DeadLetterQueue
    from orbitmq.admin.message.waiting import OpenTransaction, WaitingMessages
    from orbitmq.admin.topic.model import TopicDescription, TopicSummary
    from orbitmq.dashboard.config import ClusterTarget, DashboardConfig

LIVE_SECONDS = 2.0
"""Lifetime of figures of brokers and of one topic or group."""
LIST_SECONDS = 5.0
"""Lifetime of lists of topics and groups, which read whole tables."""

WAITING_SECONDS = 10.0
"""Lifetime of deferred messages and open transactions, for which stored messages are read."""

LAG_PATIENCE = 0.5
"""How long a list of groups waits for the first read of their lag."""
LIST_PATIENCE = 1.0
"""How long such a list takes with their lag. The first one of a large cluster comes without."""
KNOWN_PATIENCE = 0.05
"""Enough for lag that was read before."""

LAGS = "lags"

MAX_CONCURRENT_REQUESTS = 16
"""Requests at one time to each cluster, of all viewers together."""


class ManagedCluster:
    """The clusters behind one set of name servers."""

    def __init__(self, target: ClusterTarget, config: DashboardConfig) -> None:
        self.name = target.name
        self.name_servers = target.name_servers
        options: AdminOptions = {
            "access_key": config.access_key,
            "secret_key": config.secret_key,
            "max_concurrent_requests": MAX_CONCURRENT_REQUESTS,
        }
        self.admin = AdminClient(target.name_servers, **options)
        self.background = BackgroundReader(target.name, target.name_servers, options)
        self.cache = Cache(time.monotonic)
        self._ahead = Ahead()
        self._listed: tuple[list[GroupSummary], LagTable, list[GroupSummary]] | None = None
        """The last list of groups, and what it was made of."""

    async def brokers(self) -> list[BrokerStatus]:
        """All brokers with their live figures."""
        return await self.cache.get("brokers", LIVE_SECONDS, self._ahead.of(self.admin.brokers.all))

    async def clusters(self) -> list[ClusterDescription]:
        """All clusters with the figures of their brokers."""
        return await self.cache.get("clusters", LIVE_SECONDS, self.admin.clusters.describe)

    async def cluster_names(self) -> list[str]:
        return [one.summary.name for one in await self.clusters()]

    async def name_server_list(self) -> list[NameServerStatus]:
        return await self.cache.get("name servers", LIVE_SECONDS, self.admin.name_servers.all)

    async def topics(self) -> list[TopicSummary]:
        """All topics, of all kinds."""
        kinds = tuple(TopicKind)
        return await self.cache.get(
            "topics", LIST_SECONDS, self._ahead.of(lambda: self.admin.topics.all(kinds=kinds))
        )

    async def topic(self, name: str) -> TopicDescription:
        """One topic with queues and groups. Raises NotFoundError."""
        return await self.cache.get(
            ("topic", name), LIVE_SECONDS, self._ahead.of(lambda: self.admin.topics.describe(name))
        )

    async def first_times(self, topic: str) -> dict[tuple[str, int], int]:
        """The store time of the first message of each queue, by broker name and queue; empty if nobody knows."""

        async def read() -> dict[tuple[str, int], int]:
            try:
                spans = await self.admin.lag.time_spans(TOOLS_CONSUMER_GROUP, topic)
            except AdminError:
                return {}
            queues = [(span.message_queue, span.min_time_stamp) for span in spans]
            return {(queue.broker_name, queue.queue_id): time_ms for queue, time_ms in queues if queue is not None}

        return await self.cache.get(("first times", topic), LIST_SECONDS, read)

    async def _lags_within(self, seconds: float) -> LagTable | None:
        """The lag of all groups, as old as the next read takes; None while the first read of very many goes on."""
        waiting = asyncio.ensure_future(self._lags(may_be_old=True))
        try:
            done, _ = await asyncio.wait({waiting}, timeout=seconds)
        finally:
            # The read itself goes on: it belongs to the cache.
            waiting.cancel()
        return waiting.result() if done else None

    async def new_lags(self) -> LagTable:
        """The lag of all groups."""
        return await self._lags(may_be_old=False)

    async def _lags(self, *, may_be_old: bool) -> LagTable:
        return await self.cache.get(
            LAGS, LIST_SECONDS, lambda: self.background.read(self._read_lags), may_be_old=may_be_old
        )

    async def _read_lags(self, admin: AdminClient) -> LagTable:
        """Read by the background's thread, broker after broker; lists that a viewer waits for go ahead."""
        topology = await admin.brokers.topology()
        found = await admin.lag.progress([broker.address for broker in topology.readers()], pause=self._ahead.pause)
        return LagTable.of(found, time.monotonic())

    async def groups(self) -> list[GroupSummary]:
        """All groups, those of RocketMQ itself too, with their lag if it is known soon."""
        # One after the other: of very many groups the lag would take its time from the settings.
        begun = time.monotonic()
        summaries = await self.cache.get(
            "groups", LIST_SECONDS, self._ahead.of(lambda: self.admin.groups.all(with_system=True))
        )
        left = LIST_PATIENCE - (time.monotonic() - begun)
        lags = await self._lags_within(max(min(LAG_PATIENCE, left), KNOWN_PATIENCE))
        if lags is None:
            return summaries
        if self._listed is None or self._listed[0] is not summaries or self._listed[1] is not lags:
            self._listed = (summaries, lags, _with_lags(summaries, lags))
        return self._listed[2]

    def changed(self) -> None:
        """Forget what was read before a change."""
        self.cache.clear(keep=LAGS)

    async def group(self, name: str) -> GroupDescription:
        """One group with members, subscriptions and lag. Raises NotFoundError."""
        return await self.cache.get(
            ("group", name), LIVE_SECONDS, self._ahead.of(lambda: self.admin.groups.describe(name))
        )

    async def waiting(self) -> WaitingMessages:
        """Deferred messages by their delivery time."""
        return await self.cache.get("waiting", WAITING_SECONDS, self.admin.waiting.deferred)

    async def open_transactions(self) -> list[OpenTransaction]:
        """The half messages whose transactions are open."""
        return await self.cache.get("open transactions", WAITING_SECONDS, self.admin.waiting.transactions)

    async def dead_letters(self) -> list[DeadLetterQueue]:
        """The dead letter topics with their number of messages."""
        return await self.cache.get("dead letters", LIST_SECONDS, self.admin.dead_letters.all)


def _with_lags(summaries: list[GroupSummary], lags: LagTable) -> list[GroupSummary]:
    """All groups by name, also those that have only offsets."""
    known = {summary.name: summary for summary in summaries}
    for name in lags.totals.keys() - known.keys():
        known[name] = GroupSummary(name, is_system_group(name), ())
    return [known[name].with_lag(lags.totals.get(name)) for name in sorted(known)]


class ClusterSet:
    """All clusters of a console, by name."""

    def __init__(self, config: DashboardConfig) -> None:
        self._clusters = {target.name: ManagedCluster(target, config) for target in config.targets}

    def all(self) -> list[ManagedCluster]:
        return list(self._clusters.values())

    @property
    def first(self) -> ManagedCluster:
        return next(iter(self._clusters.values()))

    def get(self, name: str) -> ManagedCluster:
        """Raises NotFoundError."""
        if name not in self._clusters:
            raise NotFoundError("cluster", name, f"this console has {', '.join(self._clusters)}")
        return self._clusters[name]

    async def start(self) -> None:
        """Make ready. Nothing is sent, so that a console starts while its clusters are down."""
        for cluster in self._clusters.values():
            await cluster.admin.start()

    async def close(self) -> None:
        for cluster in self._clusters.values():
            await cluster.background.close()
            await cluster.admin.close()
