"""Trace of a consumer: the hook and the dispatcher with its own producer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.client.namespace import unwrap

if TYPE_CHECKING:
    from orbitmq.client.config import ClientConfig
    from orbitmq.client.trace.hooks import ConsumeTracing


def consume_tracing(config: ClientConfig, group: str) -> ConsumeTracing | None:
    """The tracing hook of a consumer if ``enable_trace`` is on. The caller starts its dispatcher."""
    if not config.enable_trace:
        return None
    # Lazy: a consumer without tracing needs no producer.
    from orbitmq.client.producer.producer import Producer  # noqa: PLC0415
    from orbitmq.client.trace.dispatcher import CONSUME, TraceDispatcher  # noqa: PLC0415
    from orbitmq.client.trace.hooks import ConsumeTracing  # noqa: PLC0415

    return ConsumeTracing(TraceDispatcher(config, unwrap(config.namespace, group), CONSUME, Producer), config)
