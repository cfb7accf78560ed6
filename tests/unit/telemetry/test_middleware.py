"""Spans and metrics of sends and handler calls."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from prometheus_client import CollectorRegistry

from orbitmq import Consumer, Message, OrbitMQError, Producer
from orbitmq.aio import Producer as AsyncProducer
from orbitmq.telemetry import OpenTelemetryMiddleware, PrometheusMiddleware

if TYPE_CHECKING:
    from orbitmq.testing import ThreadCluster

WAIT = 60.0


class Recorded:
    """The middleware with what it recorded."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.reader = InMemoryMetricReader()
        self.middleware = OpenTelemetryMiddleware(
            tracer_provider=self.provider, meter_provider=MeterProvider([self.reader])
        )

    def spans(self, name: str) -> list[Any]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]

    def metric(self, name: str) -> list[Any]:
        data = self.reader.get_metrics_data()
        assert data is not None
        found = [
            metric
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
        ]
        return list(found[0].data.data_points) if found else []


@pytest.fixture
def recorded() -> Recorded:
    return Recorded()


def consume(cluster: ThreadCluster, count: int, handler: Any, **options: Any) -> None:
    """Consume this many messages of the topic ``orders``."""
    done = threading.Semaphore(0)
    consumer = Consumer(cluster.name_server, group="billing", start_from="earliest", **options)

    @consumer.on("orders")
    def handle(message: Any) -> Any:
        try:
            return handler(message)
        finally:
            for _ in message if isinstance(message, list) else [message]:
                done.release()

    with consumer:
        for _ in range(count):
            assert done.acquire(timeout=WAIT)


def test_a_handler_continues_the_trace_of_the_send(orbitmq: ThreadCluster, recorded: Recorded) -> None:
    tracer = recorded.provider.get_tracer("application")
    with (
        Producer(orbitmq.name_server, group="shop", middleware=[recorded.middleware]) as producer,
        tracer.start_as_current_span("checkout") as checkout,
    ):
        receipt = producer.send(Message("orders", b"tea", tags="paid", keys="7"))
    seen: list[Any] = []

    def handle(message: Any) -> None:
        with tracer.start_as_current_span("book"):
            seen.append(message)

    consume(orbitmq, 1, handle, middleware=[recorded.middleware])
    (sent,), (handled,), (booked,) = map(recorded.spans, ("send orders", "process orders", "book"))
    context = sent.get_span_context()
    assert seen[0].properties["traceparent"].startswith(f"00-{context.trace_id:032x}-{context.span_id:016x}-")
    # The application's span, the send, the handler and the span inside it are one trace.
    assert sent.parent.span_id == checkout.get_span_context().span_id
    assert handled.parent.span_id == context.span_id
    assert booked.parent.span_id == handled.get_span_context().span_id
    assert len({span.get_span_context().trace_id for span in (checkout, sent, handled, booked)}) == 1
    assert (sent.kind, handled.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    common = {
        "messaging.system": "rocketmq",
        "messaging.destination.name": "orders",
        "messaging.message.id": receipt.message_id,
        "messaging.message.body.size": 3,
        "messaging.rocketmq.message.tag": "paid",
        "messaging.rocketmq.message.keys": ("7",),
        "messaging.destination.partition.id": f"broker-a:{receipt.queue.queue_id}",
    }
    assert sent.attributes.items() >= {**common, "messaging.operation.type": "send"}.items()
    assert handled.attributes.items() >= {**common, "messaging.consumer.group.name": "billing"}.items()
    assert [point.value for point in recorded.metric("messaging.client.sent.messages")] == [1]
    assert [point.count for point in recorded.metric("messaging.process.duration")] == [1]


def test_a_batch_is_linked_to_every_send(orbitmq: ThreadCluster, recorded: Recorded) -> None:
    with Producer(orbitmq.name_server, middleware=[recorded.middleware]) as producer:
        queue = producer.send(Message("orders", b"0")).queue
        for number in range(1, 4):
            producer.send(Message("orders", str(number)), queue=queue)
    options = {"consume_message_batch_max_size": 10, "middleware": [recorded.middleware]}
    consume(orbitmq, 4, lambda _: None, **options)
    sends = {span.get_span_context().span_id for span in recorded.spans("send orders")}
    handled = recorded.spans("process orders")
    linked = {link.context.span_id for span in handled for link in span.links}
    single = {span.parent.span_id for span in handled if span.parent is not None}
    assert linked | single == sends
    assert any(span.attributes.get("messaging.batch.message_count", 1) > 1 for span in handled)


def test_errors_are_on_the_spans_of_sends_and_handlers(orbitmq: ThreadCluster, recorded: Recorded) -> None:
    def fail(_: Any) -> None:
        raise ZeroDivisionError("tea is out")

    with Producer(orbitmq.name_server) as producer:
        producer.send(Message("orders", b"tea"))
    consume(orbitmq, 1, fail, middleware=[recorded.middleware])
    (handled,) = recorded.spans("process orders")
    # Sent without the middleware: a trace of its own.
    assert handled.parent is None
    assert (handled.status.status_code, handled.status.description) == (StatusCode.ERROR, "tea is out")
    assert handled.attributes["error.type"] == "ZeroDivisionError"
    assert [event.name for event in handled.events] == ["exception"]


async def test_a_failed_send_is_counted_as_one(recorded: Recorded) -> None:
    producer = AsyncProducer("127.0.0.1:1", middleware=[recorded.middleware], send_msg_timeout=0.2)
    async with producer:
        with pytest.raises(OrbitMQError):
            await producer.send(Message("orders", b"tea"))
    (sent,) = recorded.spans("send orders")
    assert sent.status.status_code is StatusCode.ERROR
    (point,) = recorded.metric("messaging.client.sent.messages")
    assert point.attributes["error.type"] == sent.attributes["error.type"]


def test_prometheus_counts_by_topic_group_and_outcome(orbitmq: ThreadCluster) -> None:
    registry = CollectorRegistry()
    metrics = PrometheusMiddleware(registry)
    with Producer(orbitmq.name_server, group="shop", middleware=[metrics]) as producer:
        for number in range(3):
            producer.send(Message("orders", str(number)))

    def handle(message: Any) -> None:
        if message.body == b"1":
            raise ZeroDivisionError

    consume(orbitmq, 3, handle, middleware=[metrics])

    def value(name: str, group: str, outcome: str = "ok") -> float | None:
        labels = {"topic": "orders", "group": group, "outcome": outcome}
        return registry.get_sample_value(f"orbitmq_client_{name}", labels)

    assert value("sent_messages_total", "shop") == 3
    assert value("handled_messages_total", "billing") == 2
    assert value("handled_messages_total", "billing", "ZeroDivisionError") == 1
    assert value("handle_seconds_count", "billing") == 2
