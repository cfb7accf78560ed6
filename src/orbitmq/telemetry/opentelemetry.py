"""OpenTelemetry: a span for every send and every handler call, and metrics of both.

The context of the send travels in the message, as the properties ``traceparent`` and ``tracestate`` of W3C Trace
Context, so that producers and consumers in any language share a trace. Names and attributes follow the semantic
conventions for messaging.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from orbitmq.client.middleware import Middleware
from orbitmq.protocol.message import property_names as names

try:
    from opentelemetry import metrics, propagate, trace
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, SpanKind, Status, StatusCode, get_current_span
except ImportError as error:
    raise ImportError("OpenTelemetry is not installed: pip install 'orbitmq[otel]'", name=error.name) from error

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from opentelemetry.metrics import MeterProvider
    from opentelemetry.propagators.textmap import TextMapPropagator
    from opentelemetry.trace import Span, TracerProvider

    from orbitmq.client.message import Message, ReceivedMessage
    from orbitmq.client.middleware import HandleCall, SendCall

SCOPE = "orbitmq"
SYSTEM = "rocketmq"

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
"""Bounds of the histograms, in seconds."""


class OpenTelemetryMiddleware(Middleware):
    """Spans and metrics of sends and handler calls::

        telemetry = OpenTelemetryMiddleware()
        producer = Producer("127.0.0.1:9876", middleware=[telemetry])

    Without arguments it uses the global providers and the global propagator of the application.
    """

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        propagator: TextMapPropagator | None = None,
    ) -> None:
        self._tracer = trace.get_tracer(SCOPE, tracer_provider=tracer_provider)
        self._propagator = propagate.get_global_textmap() if propagator is None else propagator
        meter = metrics.get_meter(SCOPE, meter_provider=meter_provider)
        self._sent = meter.create_counter("messaging.client.sent.messages", unit="{message}")
        self._consumed = meter.create_counter("messaging.client.consumed.messages", unit="{message}")
        self._send_seconds = meter.create_histogram(
            "messaging.client.operation.duration", unit="s", explicit_bucket_boundaries_advisory=BUCKETS
        )
        self._handle_seconds = meter.create_histogram(
            "messaging.process.duration", unit="s", explicit_bucket_boundaries_advisory=BUCKETS
        )

    @contextlib.contextmanager
    def on_send(self, call: SendCall) -> Iterator[None]:
        topic = call.message.topic
        attributes = {**_common("send", topic, call.messages), "messaging.rocketmq.client_group": call.group}
        with self._tracer.start_as_current_span(
            f"send {topic}",
            kind=SpanKind.PRODUCER,
            attributes=attributes,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            for message in call.messages:
                self._propagator.inject(message.properties)
            try:
                yield
            finally:
                if span.is_recording():
                    _record_receipt(span, call)
                _record_error(span, call.error)
                labels = _labels("send", topic, call.error)
                self._sent.add(len(call.messages), labels)
                self._send_seconds.record(call.duration, labels)

    @contextlib.contextmanager
    def on_handle(self, call: HandleCall) -> Iterator[None]:
        topic = call.message.topic
        attributes = {**_common("process", topic, call.messages), "messaging.consumer.group.name": call.group}
        if len(call.messages) == 1:
            attributes |= _position(call.message)
        senders = [self._propagator.extract(message.properties, Context()) for message in call.messages]
        # One message continues the trace of its producer. A batch has many producers, to which it is linked.
        parent = senders[0] if len(senders) == 1 else None
        links = [] if parent is not None else [Link(get_current_span(one).get_span_context()) for one in senders]
        with self._tracer.start_as_current_span(
            f"process {topic}",
            parent,
            kind=SpanKind.CONSUMER,
            attributes=attributes,
            links=[link for link in links if link.context.is_valid],
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield
            finally:
                _record_error(span, call.error)
                labels = {**_labels("process", topic, call.error), "messaging.consumer.group.name": call.group}
                self._consumed.add(len(call.messages), labels)
                self._handle_seconds.record(call.duration, labels)


def _common(operation: str, topic: str, messages: Sequence[Message | ReceivedMessage]) -> dict[str, Any]:
    attributes: dict[str, Any] = {
        "messaging.system": SYSTEM,
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": topic,
    }
    if len(messages) > 1:
        return {**attributes, "messaging.batch.message_count": len(messages)}
    message = messages[0]
    attributes["messaging.message.body.size"] = len(message.body)
    if message.tags:
        attributes["messaging.rocketmq.message.tag"] = message.tags
    if message.keys:
        attributes["messaging.rocketmq.message.keys"] = message.keys
    group = message.properties.get(names.SHARDING_KEY)
    return attributes if group is None else {**attributes, "messaging.rocketmq.message.group": group}


def _position(message: ReceivedMessage) -> dict[str, Any]:
    return {
        "messaging.message.id": message.message_id,
        "messaging.destination.partition.id": f"{message.broker_name}:{message.queue_id}",
        "messaging.rocketmq.message.offset": message.queue_offset,
        "messaging.rocketmq.message.reconsume_times": message.reconsume_times,
    }


def _record_receipt(span: Span, call: SendCall) -> None:
    receipt = call.receipt
    if receipt is not None and len(call.messages) == 1:
        span.set_attribute("messaging.message.id", receipt.message_id)
        span.set_attribute(
            "messaging.destination.partition.id", f"{receipt.queue.broker_name}:{receipt.queue.queue_id}"
        )


def _record_error(span: Span, error: BaseException | None) -> None:
    if error is not None and span.is_recording():
        span.record_exception(error)
        span.set_attribute("error.type", type(error).__qualname__)
        span.set_status(Status(StatusCode.ERROR, str(error)))


def _labels(operation: str, topic: str, error: BaseException | None) -> Mapping[str, str]:
    labels = {
        "messaging.system": SYSTEM,
        "messaging.operation.name": operation,
        "messaging.destination.name": topic,
    }
    return labels if error is None else {**labels, "error.type": type(error).__qualname__}
