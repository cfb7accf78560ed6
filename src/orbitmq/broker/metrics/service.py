"""Metrics service: collects the metrics of a broker in slices on its event loop, and runs the exporter."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING

from orbitmq.broker.config.metrics_settings import MetricsExporterType, pairs_of
from orbitmq.broker.metrics import own
from orbitmq.broker.metrics.clients import LagCollector, collect_connections
from orbitmq.broker.metrics.exporter import ExporterCollector, collect_runtime
from orbitmq.broker.metrics.labels import LabelSource
from orbitmq.broker.metrics.messages import collect_messages
from orbitmq.broker.metrics.requests import RequestMetrics
from orbitmq.broker.metrics.state import (
    collect_broker,
    collect_pop,
    collect_store,
    collect_timer,
    collect_transactions,
)
from orbitmq.metrics.http_endpoint import PrometheusEndpoint
from orbitmq.metrics.periodic import LogExporter, PeriodicExporter
from orbitmq.metrics.snapshot import Snapshot
from orbitmq.platform.loop_slices import in_slices
from orbitmq.protocol.versions import CURRENT_VERSION
from orbitmq.remoting.tls.context import ServerCertificates, reloading_context

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from orbitmq.broker.clients.registry import Clients
    from orbitmq.broker.config.broker_config import BrokerConfig
    from orbitmq.broker.pop.service import PopService
    from orbitmq.broker.runtime import BrokerRuntime, DeferredServices, Metadata
    from orbitmq.broker.stats.runtime_info import RuntimeInfo
    from orbitmq.metrics.snapshot import Sample
    from orbitmq.platform.memory_budget import MemoryBudget

LOOPBACK = "127.0.0.1"


@dataclasses.dataclass(frozen=True, slots=True)
class MetricsSources:
    """The parts of a broker that metrics are read from."""

    runtime: BrokerRuntime
    metadata: Metadata
    clients: Clients
    services: DeferredServices
    pop: PopService
    runtime_info: RuntimeInfo
    memory: MemoryBudget
    connections: Callable[[], int]
    held: Callable[[], Mapping[str, int]]
    """Requests in long polling by kind."""
    events: Callable[[], Mapping[str, int]]
    """Events of the broker's history by kind."""
    slave_lags: Callable[[], Mapping[str, tuple[int, float]]]
    """Lag of each connected slave in bytes and seconds."""


class MetricsService:
    """Collects and exports between ``start`` and ``stop``."""

    def __init__(self, config: BrokerConfig, sources: MetricsSources) -> None:
        self._config = config
        self._sources = sources
        extra = pairs_of("metricsLabel", config.metrics_label)
        self._labels = LabelSource(
            config.broker_cluster_name, config.broker_name, extra, sources.metadata.topics.is_system_topic
        )
        self._own_labels = (("cluster", config.broker_cluster_name), ("broker", config.broker_name), *extra)
        self.requests = RequestMetrics(self._labels)
        runtime, metadata, clients = sources.runtime, sources.metadata, sources.clients
        self._lags = LagCollector(runtime.store, metadata, clients, sources.pop.pop_offsets, runtime.clock)
        self._exporter_names = ExporterCollector(config, runtime.store, metadata, clients, runtime.stats)
        self._endpoint: PrometheusEndpoint | None = None
        self._periodic: PeriodicExporter | None = None
        self._last_seconds = 0.0
        self._last_dropped = 0

    @property
    def port(self) -> int | None:
        """The port of the Prometheus endpoint, if there is one."""
        return None if self._endpoint is None else self._endpoint.port

    async def start(self) -> None:
        """Start the exporter. Raises MetricsEndpointError, ConfigError if a library is missing."""
        config, kind = self._config, self._config.metrics_exporter
        if kind is MetricsExporterType.PROM:
            host = config.metrics_prom_exporter_host or LOOPBACK
            tls = None
            if config.metrics_prom_exporter_tls:
                tls = reloading_context(ServerCertificates(config.server_tls))
            self._endpoint = PrometheusEndpoint(self.collect, host, config.metrics_prom_exporter_port, tls)
            await self._endpoint.start()
        elif kind is MetricsExporterType.LOG:
            self._periodic = PeriodicExporter(
                self.collect, LogExporter(), config.metric_logging_exporter_interval_in_mills / 1000
            )
        elif kind is not MetricsExporterType.DISABLE:
            from orbitmq.metrics.otlp import otlp_exporter  # noqa: PLC0415 - an extra

            exporter = otlp_exporter(
                kind,
                config.metrics_grpc_exporter_target,
                pairs_of("metricsGrpcExporterHeader", config.metrics_grpc_exporter_header),
                timeout=config.metric_grpc_exporter_time_out_in_mills / 1000,
                max_points=config.metrics_export_batch_max_data_points,
            )
            interval = config.metric_grpc_exporter_interval_in_mills / 1000
            self._periodic = PeriodicExporter(self.collect, exporter, interval)
        if self._periodic is not None:
            self._periodic.start()

    async def stop(self) -> None:
        if self._endpoint is not None:
            await self._endpoint.stop()
        if self._periodic is not None:
            await self._periodic.stop()

    async def collect(self) -> Snapshot:
        """All metrics now, collected in slices of a few milliseconds."""
        started = time.perf_counter()
        snapshot = Snapshot(self._config.metrics_otel_cardinality_limit)
        async for sample in in_slices(self._samples()):
            if sample is not None:
                snapshot.add(*sample)
        self._last_seconds = time.perf_counter() - started
        self._last_dropped = snapshot.dropped
        return snapshot

    def _samples(self) -> Iterator[Sample | None]:
        config, sources, labels = self._config, self._sources, self._labels
        runtime, services = sources.runtime, sources.services
        stats, store, clock = runtime.stats, runtime.store, runtime.clock
        self._lags.begin()
        if config.enable_stats_metrics:
            yield from collect_broker(config, sources.metadata, labels)
        if config.enable_request_metrics:
            yield from collect_messages(stats, sources.metadata.topics, labels)
        if config.enable_connection_metrics:
            yield from collect_connections(sources.clients, labels)
        if config.enable_lag_and_dlq_metrics:
            yield from self._lags.samples(labels)
        if config.enable_transaction_metrics:
            yield from collect_transactions(services.transactions, labels)
        if config.enable_remoting_metrics:
            yield from self.requests.samples()
        if config.enable_message_store_metrics:
            yield from collect_store(store, clock, labels)
            if services.timer is not None:
                yield from collect_timer(services.timer, store, clock, labels)
        if config.enable_pop_metrics:
            yield from collect_pop(stats, store, sources.pop.revive, clock, labels)
        yield from collect_runtime(sources.runtime_info.table(), config, store, CURRENT_VERSION)
        yield from self._exporter_names.samples(self._lags, clock)
        yield from self._own()

    def _own(self) -> Iterator[Sample]:
        sources, labels = self._sources, self._own_labels
        yield from own.collect_requests(self.requests, labels)
        yield from own.collect_waits(sources.runtime.stats, labels)
        yield from own.collect_memory(sources.memory, labels)
        yield from own.collect_held(sources.held(), sources.connections(), labels)
        yield from own.collect_slaves(sources.slave_lags(), labels)
        for kind, count in sources.events().items():
            yield own.EVENTS, (*labels, ("kind", kind)), count
        yield from own.collect_limits(labels)
        yield own.SERIES_DROPPED, labels, self._last_dropped
        yield own.COLLECT_SECONDS, labels, self._last_seconds
