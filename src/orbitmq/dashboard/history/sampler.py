"""Sampler: reads the figures of all clusters at intervals and writes them to the history."""

from __future__ import annotations

import asyncio
import collections
import logging
import time
from typing import TYPE_CHECKING

from orbitmq.admin.errors import AdminError
from orbitmq.dashboard.history.series import (
    broker_series,
    cluster_series,
    group_series,
    queue_series,
    topic_series,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from orbitmq.admin.group.model import GroupLag
    from orbitmq.dashboard.clusters import ClusterSet, ManagedCluster
    from orbitmq.dashboard.history.store import HistoryStore

log = logging.getLogger("orbitmq.dashboard")

LAG_SECONDS = 30.0
"""Between two reads of the lag of all groups: one request per broker, which counts over all its groups."""
MAX_WATCHED_GROUPS = 50
"""Groups whose queues are kept one by one: the last that were looked at."""
MAX_QUEUES = 64
"""Queues of such a group."""


class Sampler:
    """Samples of all clusters. A cluster that does not respond leaves a gap."""

    def __init__(self, clusters: ClusterSet, history: HistoryStore, seconds: float) -> None:
        self._clusters = clusters
        self._history = history
        self._seconds = seconds
        self._tasks: list[asyncio.Task[None]] = []
        self._watched: collections.OrderedDict[tuple[str, str], None] = collections.OrderedDict()
        self._offsets: dict[tuple[str, str], tuple[float, int]] = {}
        self._failing: set[tuple[str, str]] = set()

    def start(self) -> None:
        for cluster in self._clusters.all():
            self._tasks.append(asyncio.create_task(self._repeat(cluster, self._sample_brokers, self._seconds)))
            lag_seconds = max(self._seconds, LAG_SECONDS)
            self._tasks.append(asyncio.create_task(self._repeat(cluster, self._sample_groups, lag_seconds)))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def watch(self, cluster: str, group: str) -> None:
        """Keep the lag of a group queue by queue from now on."""
        self._watched[cluster, group] = None
        self._watched.move_to_end((cluster, group))
        if len(self._watched) > MAX_WATCHED_GROUPS:
            self._watched.popitem(last=False)

    async def _repeat(
        self, cluster: ManagedCluster, sample: Callable[[ManagedCluster], Awaitable[None]], seconds: float
    ) -> None:
        key = (cluster.name, repr(sample))
        while True:
            try:
                await sample(cluster)
                self._failing.discard(key)
            except AdminError as error:
                if key not in self._failing:
                    log.warning("history: cluster %s not sampled, will retry: %s", cluster.name, error)
                self._failing.add(key)
            except Exception:
                # A fault in one sample must not end the plots.
                log.exception("history: sample of cluster %s failed", cluster.name)
            await asyncio.sleep(seconds)

    async def _sample_brokers(self, cluster: ManagedCluster) -> None:
        samples: dict[str, float] = {}
        puts = gets = 0.0
        for status in await cluster.brokers():
            runtime, broker = status.runtime, status.broker
            if runtime is None:
                continue
            figures = {"put_tps": runtime.put_tps, "get_tps": runtime.get_tps}
            if runtime.disk_ratio >= 0:
                figures["disk"] = runtime.disk_ratio
            if broker.is_master:
                figures |= {
                    "dispatch_behind": float(runtime.dispatch_behind_bytes),
                    "timed": float(runtime.timer_messages),
                }
                puts += runtime.put_tps
            gets += runtime.get_tps
            for name, value in figures.items():
                samples[broker_series(cluster.name, broker.address, name)] = value
        samples[cluster_series(cluster.name, "put_tps")] = puts
        samples[cluster_series(cluster.name, "get_tps")] = gets
        self._history.write(int(time.time()), samples)

    async def _sample_groups(self, cluster: ManagedCluster) -> None:
        table = await cluster.new_lags()
        lags = table.totals
        samples: dict[str, float] = {cluster_series(cluster.name, "lag"): sum(one.lag for one in lags.values())}
        for group, lag in lags.items():
            samples[group_series(cluster.name, group, "lag")] = lag.lag
            samples[group_series(cluster.name, group, "inflight")] = lag.inflight
            samples[group_series(cluster.name, group, "consume_tps")] = lag.consume_tps
            if (cluster.name, group) in self._watched:
                samples |= _queues(cluster.name, table.progress[group].lag(group))
        samples |= self._topic_rates(cluster.name, table.ends, table.read_at)
        self._history.write(int(time.time()), samples)

    def _topic_rates(self, cluster: str, ends: Mapping[str, int], now: float) -> dict[str, float]:
        """Messages stored per second between the last sample and this one, by topic. ``now``: when it was read."""
        rates = {}
        for topic, end in ends.items():
            then, before = self._offsets.get((cluster, topic), (now, end))
            if now > then:
                rates[topic_series(cluster, topic, "put_tps")] = max(end - before, 0) / (now - then)
            self._offsets[cluster, topic] = (now, end)
        for key in [key for key in self._offsets if key[0] == cluster and key[1] not in ends]:
            del self._offsets[key]
        return rates


def _queues(cluster: str, lag: GroupLag) -> dict[str, float]:
    return {
        queue_series(cluster, lag.group, (one.topic, one.broker_name, one.queue_id)): float(one.lag)
        for one in lag.queues[:MAX_QUEUES]
    }
