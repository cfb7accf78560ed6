"""Telemetry of applications: middleware that makes spans and metrics of sends and handler calls.

Nothing is measured until a producer or consumer gets one of these as ``middleware=[…]``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orbitmq.telemetry.opentelemetry import OpenTelemetryMiddleware
    from orbitmq.telemetry.prometheus import PrometheusMiddleware

__all__ = ["OpenTelemetryMiddleware", "PrometheusMiddleware"]

_MODULES = {"OpenTelemetryMiddleware": "opentelemetry", "PrometheusMiddleware": "prometheus"}


def __getattr__(name: str) -> Any:
    # Lazy: each needs a library of its own.
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415

    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
