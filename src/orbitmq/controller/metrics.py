"""Metrics of a controller, under the names and labels of Apache's, for Prometheus.

Apache's ``dledger_`` metrics are about the storage of the groups; here that is the event log or etcd.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Final

from orbitmq.controller.storage.event_log import EventLog
from orbitmq.metrics.http_endpoint import PrometheusEndpoint
from orbitmq.metrics.instrument import Histogram, Instrument, Kind
from orbitmq.metrics.snapshot import Snapshot
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.errors import ProtocolError
from orbitmq.remoting.processor import RequestRefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from orbitmq.controller.config import ControllerConfig
    from orbitmq.controller.liveness import Liveness
    from orbitmq.controller.machine.operations import Decision
    from orbitmq.controller.storage.interface import GroupStorage
    from orbitmq.metrics.instrument import Labels
    from orbitmq.metrics.snapshot import Sample
    from orbitmq.protocol.command.command import Command
    from orbitmq.remoting import Connection
    from orbitmq.remoting.processor import Processor

LOOPBACK = "127.0.0.1"
SUCCESS, FAILED = "success", "failed"
UNKNOWN, FOLLOWER, LEADER = 0, 2, 3
"""Values of ``role``; Apache's candidate, 1, does not exist here."""

_BOUNDS: Final = (*(first * 10.0**power for power in range(7) for first in (1, 3, 5)), 1e7)
"""Microseconds; the buckets of Apache."""

ROLE: Final = Instrument("role", Kind.GAUGE, "role of current node")
DISK_USAGE: Final = Instrument("dledger_disk_usage", Kind.GAUGE, "disk usage of dledger", "bytes")
ACTIVE_BROKERS: Final = Instrument("active_broker_num", Kind.GAUGE, "now active brokers num")
REQUESTS: Final = Instrument("request_total", Kind.COUNTER, "total request num")
COMMITS: Final = Instrument("dledger_op_total", Kind.COUNTER, "total dledger operation num")
ELECTIONS: Final = Instrument("election_total", Kind.COUNTER, "total elect num")
REQUEST_LATENCY: Final = Instrument(
    "request_latency", Kind.HISTOGRAM, "request latency", "microseconds", bounds=_BOUNDS
)
COMMIT_LATENCY: Final = Instrument(
    "dledger_op_latency", Kind.HISTOGRAM, "dledger operation latency", "microseconds", bounds=_BOUNDS
)
GROUPS: Final = Instrument("orbitmq_controller_groups", Kind.GAUGE, "Broker groups; on the leading controller.")
WITHOUT_MASTER: Final = Instrument(
    "orbitmq_controller_groups_without_master", Kind.GAUGE, "Broker groups without a living master."
)


class ControllerMetrics:
    """Counters of one controller, and the endpoint that shows them."""

    def __init__(
        self,
        config: ControllerConfig,
        storage: GroupStorage,
        liveness: Liveness,
        without_master: Callable[[], int],
        clock: Callable[[], float],
    ) -> None:
        """``clock`` is monotonic, in seconds."""
        self._config = config
        self._storage = storage
        self._liveness = liveness
        self._without_master = without_master
        self._clock = clock
        self._requests: dict[tuple[str, str], int] = {}
        self._latencies: dict[str, Histogram] = {}
        self._commits: dict[str, int] = {}
        self._commit_latency = Histogram(_BOUNDS)
        self._elections: dict[str, int] = {}
        self._endpoint: PrometheusEndpoint | None = None

    @property
    def host(self) -> str:
        return self._config.metrics_prom_exporter_host or LOOPBACK

    @property
    def port(self) -> int | None:
        """The port of the Prometheus endpoint, if there is one."""
        return None if self._endpoint is None else self._endpoint.port

    async def start(self) -> None:
        """Listen, if the settings want it. Raises MetricsEndpointError."""
        config = self._config
        if config.exports_metrics:
            endpoint = PrometheusEndpoint(self.collect, self.host, config.metrics_prom_exporter_port)
            await endpoint.start()
            self._endpoint = endpoint

    async def stop(self) -> None:
        endpoint, self._endpoint = self._endpoint, None
        if endpoint is not None:
            await endpoint.stop()

    # Counting

    def measured(self, code: RequestCode, processor: Processor) -> Processor:
        """A processor with a measurement around it."""
        # As in Apache: the name of the request, with this prefix.
        kind = f"CONTROLLER_{code.name.removeprefix('CONTROLLER_')}"

        def process(request: Command, connection: Connection) -> Command | Coroutine[None, None, Command]:
            began = self._clock()
            try:
                answer = processor(request, connection)
            except Exception as error:
                self._finished(kind, began, error)
                raise
            if inspect.iscoroutine(answer):
                return self._awaited(kind, began, answer)
            self._finished(kind, began)
            return answer

        return process

    async def _awaited(self, kind: str, began: float, answer: Coroutine[None, None, Command]) -> Command:
        try:
            found = await answer
        except Exception as error:
            self._finished(kind, began, error)
            raise
        self._finished(kind, began)
        return found

    def _finished(self, kind: str, began: float, error: Exception | None = None) -> None:
        # A refusal is an answer like any other.
        is_answered = error is None or isinstance(error, RequestRefusedError | ProtocolError)
        key = kind, SUCCESS if is_answered else FAILED
        self._requests[key] = self._requests.get(key, 0) + 1
        if is_answered:
            histogram = self._latencies.setdefault(kind, Histogram(_BOUNDS))
            histogram.observe((self._clock() - began) * 1e6)

    def committed(self, seconds: float, *, failed: bool) -> None:
        """Count an event that was written to the storage, or could not be."""
        status = FAILED if failed else SUCCESS
        self._commits[status] = self._commits.get(status, 0) + 1
        self._commit_latency.observe(seconds * 1e6)

    def elected(self, decision: Decision, *, has_master: bool) -> None:
        """Count an election by its result."""
        result = "no_master_elected"
        if decision.event is not None and has_master:
            result = "new_master_elected"
        elif decision.code in {ResponseCode.SUCCESS, ResponseCode.CONTROLLER_MASTER_STILL_EXIST}:
            result = "keep_current_master"
        self._elections[result] = self._elections.get(result, 0) + 1

    # Showing

    async def collect(self) -> Snapshot:
        """All metrics now."""
        return Snapshot().add_all(self._samples())

    def _samples(self) -> Iterator[Sample]:
        config, storage = self._config, self._storage
        own = config.own_peer
        labels: Labels = (
            ("address", storage.address),
            ("group", config.group),
            ("peer_id", "n0" if own is None else own.id),
        )
        leadership = storage.leadership()
        yield ROLE, labels, LEADER if leadership.is_leader else FOLLOWER if leadership.leader_id else UNKNOWN
        if isinstance(storage, EventLog):
            yield DISK_USAGE, labels, storage.size
        for (cluster, name), count in self._liveness.counts().items():
            yield ACTIVE_BROKERS, (*labels, ("cluster", cluster), ("broker_set", name)), count
        for (kind, status), count in self._requests.items():
            yield REQUESTS, (*labels, ("request_type", kind), ("request_handle_status", status)), count
        for kind, histogram in self._latencies.items():
            yield REQUEST_LATENCY, (*labels, ("request_type", kind)), histogram.copy()
        operation = ("dledger_operation", "append")
        for status, count in self._commits.items():
            yield COMMITS, (*labels, operation, ("dLedger_operation_status", status)), count
        if self._commit_latency.count:
            yield COMMIT_LATENCY, (*labels, operation), self._commit_latency.copy()
        for result, count in self._elections.items():
            yield ELECTIONS, (*labels, ("election_result", result)), count
        if leadership.is_leader:
            yield GROUPS, labels, len(storage.groups)
            yield WITHOUT_MASTER, labels, self._without_master()
