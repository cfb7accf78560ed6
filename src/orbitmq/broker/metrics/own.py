"""OrbitMQ's own metrics: what RocketMQ does not measure, under the prefix ``orbitmq_``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from orbitmq.broker.metrics.requests import request_name, response_name
from orbitmq.broker.stats.waits import BOUNDS
from orbitmq.metrics.instrument import Instrument, Kind
from orbitmq.platform.limit_counts import refusals

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from orbitmq.broker.metrics.requests import RequestMetrics
    from orbitmq.broker.stats.counters import BrokerStats
    from orbitmq.metrics.instrument import Labels
    from orbitmq.metrics.snapshot import Sample
    from orbitmq.platform.memory_budget import MemoryBudget

LOOP_LAG: Final = Instrument(
    "orbitmq_event_loop_lag", Kind.HISTOGRAM, "Lateness of a timer of the event loop.", "seconds", BOUNDS
)
FLUSH_WAIT: Final = Instrument(
    "orbitmq_flush_wait", Kind.HISTOGRAM, "How long responses waited for a flush of the log.", "seconds", BOUNDS
)
REPLICATION_WAIT: Final = Instrument(
    "orbitmq_replication_wait", Kind.HISTOGRAM, "How long responses waited for replicas.", "seconds", BOUNDS
)
REQUESTS: Final = Instrument(
    "orbitmq_requests_total", Kind.COUNTER, "Requests served, by the native extension or by Python."
)
REFUSED: Final = Instrument("orbitmq_requests_refused_total", Kind.COUNTER, "Requests that were not successful.")
CONNECTIONS: Final = Instrument("orbitmq_connections", Kind.GAUGE, "Open connections.")
HELD: Final = Instrument("orbitmq_held_requests", Kind.GAUGE, "Requests in long polling.")
MEMORY_LIMIT: Final = Instrument("orbitmq_memory_budget_limit", Kind.GAUGE, "The memory budget.", "bytes")
MEMORY_USED: Final = Instrument(
    "orbitmq_memory_budget_used", Kind.GAUGE, "Bytes charged to the memory budget, by category.", "bytes"
)
SLAVE_LAG: Final = Instrument("orbitmq_slave_lag", Kind.GAUGE, "Bytes of the log that a slave lacks.", "bytes")
SLAVE_LAG_TIME: Final = Instrument("orbitmq_slave_lag", Kind.GAUGE, "How far behind a slave is.", "seconds")
FAILED_PUTS: Final = Instrument("orbitmq_failed_puts_total", Kind.COUNTER, "Messages that the store refused.")
EVENTS: Final = Instrument("orbitmq_events_total", Kind.COUNTER, "Events of the broker's history, by kind.")
LIMITS: Final = Instrument(
    "orbitmq_limit_refusals_total", Kind.COUNTER, "What limits of this process refused or cut short, by limit."
)
SERIES_DROPPED: Final = Instrument(
    "orbitmq_metrics_series_dropped", Kind.GAUGE, "Series left out of this page: see metricsOtelCardinalityLimit."
)
COLLECT_SECONDS: Final = Instrument(
    "orbitmq_metrics_collect", Kind.GAUGE, "Duration of the collection before this one.", "seconds"
)


def collect_requests(requests: RequestMetrics, labels: Labels) -> Iterator[Sample]:
    """Requests by the path that served them, and those that failed."""
    yield REQUESTS, (*labels, ("path", "native")), requests.native_requests
    yield REQUESTS, (*labels, ("path", "python")), requests.python_requests
    refused: dict[tuple[int, int], int] = {}
    for code, response, count in requests.refused():
        refused[code, response] = refused.get((code, response), 0) + count
    for (code, response), count in refused.items():
        pairs = (*labels, ("request_code", request_name(code)), ("response_code", response_name(response)))
        yield REFUSED, pairs, count


def collect_waits(stats: BrokerStats, labels: Labels) -> Iterator[Sample]:
    """Lag of the event loop, and waiting for flushes and replicas."""
    waits = stats.waits
    yield LOOP_LAG, labels, waits.event_loop.copy()
    yield FLUSH_WAIT, labels, waits.flush.copy()
    yield REPLICATION_WAIT, labels, waits.replication.copy()
    yield FAILED_PUTS, labels, stats.failed_puts


def collect_slaves(lags: Mapping[str, tuple[int, float]], labels: Labels) -> Iterator[Sample]:
    """Lag of each connected slave, by its address."""
    for address, (size, seconds) in lags.items():
        yield SLAVE_LAG, (*labels, ("slave", address)), size
        yield SLAVE_LAG_TIME, (*labels, ("slave", address)), seconds


def collect_memory(budget: MemoryBudget, labels: Labels) -> Iterator[Sample]:
    yield MEMORY_LIMIT, labels, budget.limit
    for category, size in list(budget.categories.items()):
        yield MEMORY_USED, (*labels, ("category", category)), size


def collect_limits(labels: Labels) -> Iterator[Sample]:
    """Every limit, also those that have refused nothing: an alert needs the series before the first refusal."""
    for limit, count in refusals().items():
        yield LIMITS, (*labels, ("limit", limit.value)), count


def collect_held(held: Mapping[str, int], connections: int, labels: Labels) -> Iterator[Sample]:
    """Connections, and the requests that they wait for."""
    yield CONNECTIONS, labels, connections
    for kind, count in held.items():
        yield HELD, (*labels, ("kind", kind)), count
