"""OTLP: what a collector receives by HTTP and by gRPC, decoded with OpenTelemetry's own messages."""

from __future__ import annotations

import concurrent.futures
import http.server
import threading
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)

from orbitmq.metrics.instrument import Histogram, Instrument, Kind
from orbitmq.metrics.otlp import OtlpExporter, otlp_exporter
from orbitmq.metrics.snapshot import Snapshot

grpc: Any = pytest.importorskip("grpc")

if TYPE_CHECKING:
    from collections.abc import Iterator

GAUGE = Instrument("a_gauge", Kind.GAUGE, "A gauge.", "bytes")
COUNTER = Instrument("a_counter_total", Kind.COUNTER, "A counter.")
LATENCY = Instrument("latency", Kind.HISTOGRAM, "A histogram.", "milliseconds", (1.0, 5.0))
LABELS = (("otel_scope_name", "broker-meter"), ("topic", "T"))


def snapshot() -> Snapshot:
    latency = Histogram(LATENCY.bounds)
    latency.observe(0.5)
    latency.observe(9, 2)
    gauges = [(GAUGE, (("n", str(number)),), number) for number in range(5)]
    return Snapshot().add_all([*gauges, (COUNTER, LABELS, 7), (LATENCY, LABELS, latency)])


def received(requests: list[bytes]) -> dict[str, list[Any]]:
    """Metrics by name, as the collector decodes them."""
    found: dict[str, list[Any]] = {}
    for data in requests:
        for resource in ExportMetricsServiceRequest.FromString(data).resource_metrics:
            for scope in resource.scope_metrics:
                assert scope.scope.name == "broker-meter"
                for metric in scope.metrics:
                    found.setdefault(metric.name, []).append(metric)
    return found


def check(requests: list[bytes]) -> None:
    found = received(requests)
    points = [point for metric in found["a_gauge"] for point in metric.gauge.data_points]
    assert sorted(point.as_int for point in points) == [0, 1, 2, 3, 4]
    (counter,) = found["a_counter_total"]
    assert counter.sum.is_monotonic
    (point,) = counter.sum.data_points
    assert point.as_int == 7
    assert [(one.key, one.value.string_value) for one in point.attributes] == [("topic", "T")]
    (latency,) = found["latency"]
    assert latency.unit == "ms"
    (point,) = latency.histogram.data_points
    assert (list(point.bucket_counts), list(point.explicit_bounds)) == ([1, 0, 2], [1.0, 5.0])
    assert (point.count, point.sum) == (3, 18.5)
    assert not point.HasField("min")


def exporter(kind: str, target: str) -> OtlpExporter:
    return otlp_exporter(kind, target, (("Token", "secret"),), timeout=20, max_points=3)


@pytest.fixture
def http_collector() -> Iterator[tuple[str, list[bytes], list[str]]]:
    requests: list[bytes] = []
    seen: list[str] = []

    class Collector(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            requests.append(body)
            seen.append(f"{self.path} {self.headers['Token']}")
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield f"127.0.0.1:{server.server_port}", requests, seen
    server.shutdown()
    thread.join()
    server.server_close()


def test_http(http_collector: tuple[str, list[bytes], list[str]]) -> None:
    target, requests, seen = http_collector
    sender = exporter("OTLP_HTTP", target)
    sender.export(snapshot())
    sender.close()
    assert set(seen) == {"/v1/metrics secret"}
    assert len(requests) == 3, "seven points in batches of three"
    check(requests)


def test_grpc() -> None:
    requests: list[bytes] = []
    tokens: set[object] = set()

    def export(request: bytes, context: Any) -> bytes:
        requests.append(request)
        tokens.update(value for name, value in context.invocation_metadata() if name == "token")
        return bytes(ExportMetricsServiceResponse().SerializeToString())

    handler = grpc.method_handlers_generic_handler(
        "opentelemetry.proto.collector.metrics.v1.MetricsService",
        {"Export": grpc.unary_unary_rpc_method_handler(export)},
    )
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(1), handlers=[handler])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        sender = exporter("OTLP_GRPC", f"http://127.0.0.1:{port}")
        sender.export(snapshot())
        sender.close()
    finally:
        server.stop(None).wait()
    assert tokens == {"secret"}
    check(requests)


def test_a_collector_that_is_away_is_one_clear_error() -> None:
    sender = otlp_exporter("OTLP_GRPC", "127.0.0.1:1", (), timeout=0.5, max_points=10)
    with pytest.raises(OSError, match="the collector at 127"):
        sender.export(snapshot())
    sender.close()
