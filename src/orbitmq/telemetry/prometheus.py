"""Prometheus: counts and durations of sends and handler calls, by topic and group."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from orbitmq.client.middleware import Middleware

try:
    from prometheus_client import REGISTRY, Counter, Histogram
except ImportError as error:
    raise ImportError("prometheus_client is not installed: pip install 'orbitmq[otel]'") from error

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client import CollectorRegistry

    from orbitmq.client.middleware import HandleCall, SendCall

LABELS = ("topic", "group", "outcome")

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
"""Bounds of the histograms, in seconds."""


class PrometheusMiddleware(Middleware):
    """Metrics in a registry of ``prometheus_client``: one instance for all clients of a process::

        metrics = PrometheusMiddleware()
        producer = Producer("127.0.0.1:9876", middleware=[metrics])

    ``outcome`` is ``ok``, or the class of the exception.
    """

    def __init__(self, registry: CollectorRegistry = REGISTRY, *, prefix: str = "orbitmq_client") -> None:
        self._sent = Counter(f"{prefix}_sent_messages", "Messages sent", LABELS, registry=registry)
        self._handled = Counter(f"{prefix}_handled_messages", "Messages handled", LABELS, registry=registry)
        self._send_seconds = Histogram(
            f"{prefix}_send_seconds", "Duration of sends", LABELS, registry=registry, buckets=BUCKETS
        )
        self._handle_seconds = Histogram(
            f"{prefix}_handle_seconds", "Duration of handler calls", LABELS, registry=registry, buckets=BUCKETS
        )

    @contextlib.contextmanager
    def on_send(self, call: SendCall) -> Iterator[None]:
        yield from self._measured(call, self._sent, self._send_seconds)

    @contextlib.contextmanager
    def on_handle(self, call: HandleCall) -> Iterator[None]:
        yield from self._measured(call, self._handled, self._handle_seconds)

    def _measured(self, call: SendCall | HandleCall, count: Counter, seconds: Histogram) -> Iterator[None]:
        try:
            yield
        finally:
            outcome = "ok" if call.error is None else type(call.error).__name__
            labels = (call.message.topic, call.group, outcome)
            count.labels(*labels).inc(len(call.messages))
            seconds.labels(*labels).observe(call.duration)
