"""OTLP export: snapshots as OpenTelemetry metrics data, sent to a collector by gRPC or HTTP.

The data is made directly from a snapshot. OpenTelemetry's own instruments would count everything a second time.
"""

from __future__ import annotations

import importlib
import time
from typing import TYPE_CHECKING, Any

from orbitmq.lazy_import import lazy_module
from orbitmq.metrics.instrument import Histogram, Kind
from orbitmq.platform.settings import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import opentelemetry.sdk.metrics.export as otel
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    from orbitmq.metrics.instrument import Instrument, Labels
    from orbitmq.metrics.snapshot import Snapshot, Value
else:
    otel = lazy_module("opentelemetry.sdk.metrics.export")

SCOPE = "broker-meter"
"""Name of the meter of RocketMQ's broker."""

_EXPORT = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"
_SCOPE_LABEL = "otel_scope_name"


def otlp_exporter(
    kind: str, target: str, headers: Sequence[tuple[str, str]], *, timeout: float, max_points: int
) -> OtlpExporter:
    """The exporter for OTLP_GRPC or OTLP_HTTP. Raises ConfigError if its libraries are not installed."""
    try:
        import opentelemetry.exporter.otlp.proto.http  # noqa: PLC0415 - an extra
        import opentelemetry.sdk.metrics  # noqa: F401, PLC0415 - an extra
    except ImportError as error:
        raise ConfigError(
            f"metricsExporterType={kind}: OpenTelemetry is not installed; install orbitmq[otel], or give PROM"
        ) from error
    if kind == "OTLP_HTTP":
        return OtlpExporter(_Http(target, headers, timeout), max_points)
    try:
        return OtlpExporter(_Grpc(target, headers, timeout), max_points)
    except ImportError as error:
        raise ConfigError(
            f"metricsExporterType={kind}: grpcio is not installed; install orbitmq[grpc], or give OTLP_HTTP"
        ) from error


class OtlpExporter:
    """Sends snapshots in batches of at most ``max_points`` data points."""

    def __init__(self, transport: _Http | _Grpc, max_points: int) -> None:
        self._transport = transport
        self._max_points = max_points
        self._started_ns = time.time_ns()

    def export(self, snapshot: Snapshot) -> None:
        """Raises OSError if the collector does not take them."""
        for data in metrics_data(snapshot, self._started_ns, time.time_ns(), self._max_points):
            self._transport.send(data)

    def close(self) -> None:
        self._transport.close()


class _Http:
    """OTLP over HTTP with protobuf."""

    def __init__(self, target: str, headers: Sequence[tuple[str, str]], timeout: float) -> None:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import (  # noqa: PLC0415 - an extra
            OTLPMetricExporter,
        )

        url = target if "://" in target else f"http://{target}"
        if not url.rpartition("://")[2].partition("/")[2]:
            url = f"{url.rstrip('/')}/v1/metrics"
        self._exporter = OTLPMetricExporter(endpoint=url, headers=dict(headers), timeout=timeout)
        self._url = url
        self._timeout = timeout

    def send(self, data: otel.MetricsData) -> None:
        result = self._exporter.export(data, timeout_millis=self._timeout * 1000)
        if result is not otel.MetricExportResult.SUCCESS:
            raise OSError(f"the collector at {self._url} does not accept metrics")

    def close(self) -> None:
        self._exporter.shutdown()


class _Grpc:
    """OTLP over gRPC. The exporter package for it is not needed: the request is one unary call."""

    def __init__(self, target: str, headers: Sequence[tuple[str, str]], timeout: float) -> None:
        grpc: Any = importlib.import_module("grpc")  # an extra
        scheme, separator, address = target.rpartition("://")
        is_plain = not separator or scheme == "http"
        credentials = None if is_plain else grpc.ssl_channel_credentials()
        self._channel: Any = (
            grpc.insecure_channel(address) if credentials is None else grpc.secure_channel(address, credentials)
        )
        self._error: type[Exception] = grpc.RpcError
        self._export = self._channel.unary_unary(
            _EXPORT, request_serializer=lambda message: message.SerializeToString(), response_deserializer=bytes
        )
        self._headers = [(name.lower(), value) for name, value in headers]
        self._target = target
        self._timeout = timeout

    def send(self, data: otel.MetricsData) -> None:
        from opentelemetry.exporter.otlp.proto.common.metrics_encoder import (  # noqa: PLC0415 - an extra
            encode_metrics,
        )

        try:
            self._export(encode_metrics(data), timeout=self._timeout, metadata=self._headers)
        except self._error as error:
            code = getattr(error, "code", lambda: "unknown")()
            raise OSError(f"the collector at {self._target} does not accept metrics: {code}") from error

    def close(self) -> None:
        self._channel.close()


def metrics_data(snapshot: Snapshot, started_ns: int, now_ns: int, max_points: int) -> Iterator[otel.MetricsData]:
    """The snapshot as OpenTelemetry's values, in batches."""
    batch: list[otel.Metric] = []
    points = 0
    for instrument, series in snapshot.families():
        items = list(series.items())
        while items:
            part, items = items[: max_points - points], items[max_points - points :]
            batch.append(_metric(instrument, part, started_ns, now_ns))
            points += len(part)
            if points >= max_points:
                yield _resource(batch)
                batch, points = [], 0
    if batch:
        yield _resource(batch)


def _resource(metrics: list[otel.Metric]) -> otel.MetricsData:
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 - an extra
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope  # noqa: PLC0415 - an extra

    scope: InstrumentationScope = InstrumentationScope(SCOPE)
    resource = Resource({"service.name": "orbitmq-broker"})
    return otel.MetricsData([otel.ResourceMetrics(resource, [otel.ScopeMetrics(scope, metrics, "")], "")])


def _metric(
    instrument: Instrument, series: list[tuple[Labels, Value]], started_ns: int, now_ns: int
) -> otel.Metric:
    cumulative = otel.AggregationTemporality.CUMULATIVE
    data: Any
    if instrument.kind is Kind.HISTOGRAM:
        data = otel.Histogram(
            [_histogram_point(labels, value, started_ns, now_ns) for labels, value in series], cumulative
        )
    else:
        points = [
            otel.NumberDataPoint(_attributes(labels), started_ns, now_ns, value)
            for labels, value in series
            if not isinstance(value, Histogram)
        ]
        is_counter = instrument.kind is Kind.COUNTER
        data = otel.Sum(points, cumulative, is_monotonic=True) if is_counter else otel.Gauge(points)
    return otel.Metric(instrument.name, instrument.description, instrument.otel_unit, data)


def _histogram_point(labels: Labels, value: Value, started_ns: int, now_ns: int) -> otel.HistogramDataPoint:
    assert isinstance(value, Histogram)
    unknown: Any = None
    return otel.HistogramDataPoint(
        attributes=_attributes(labels),
        start_time_unix_nano=started_ns,
        time_unix_nano=now_ns,
        count=value.count,
        sum=float(value.total),
        bucket_counts=value.counts,
        explicit_bounds=value.bounds,
        min=unknown,
        max=unknown,
    )


def _attributes(labels: Labels) -> dict[str, str]:
    return {name: text for name, text in labels if name != _SCOPE_LABEL}
