"""Instruments: the name, kind and unit of a metric, and the state of a histogram."""

from __future__ import annotations

import bisect
import dataclasses
import enum
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

Labels: TypeAlias = tuple[tuple[str, str], ...]
"""Pairs of a label's name and value."""


class Kind(enum.StrEnum):
    """Type of a metric, as the Prometheus text format names it."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


_UNIT_NAMES = {"milliseconds": "ms", "microseconds": "us", "bytes": "By", "seconds": "s"}


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Instrument:
    """A metric without its values. Instruments are constants of the collectors, compared by identity."""

    name: str
    """The name in OpenTelemetry, without the unit."""
    kind: Kind
    description: str
    unit: str = ""
    """``milliseconds``, ``microseconds``, ``bytes``, ``seconds``, or empty for a number."""
    bounds: tuple[float, ...] = ()
    """Upper bounds of a histogram's buckets, without infinity."""

    @property
    def prometheus_name(self) -> str:
        """The name with its unit, as OpenTelemetry's Prometheus exporter makes it since 1.29."""
        name = self.name
        if self.unit and not name.removesuffix("_total").endswith(f"_{self.unit}"):
            name = f"{name.removesuffix('_total')}_{self.unit}"
        if self.kind is Kind.COUNTER and not name.endswith("_total"):
            name += "_total"
        return name

    @property
    def otel_unit(self) -> str:
        """The unit in UCUM, which OTLP uses."""
        return _UNIT_NAMES.get(self.unit, self.unit)


class Histogram:
    """Counts of observed values by bucket."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        """Observations per bucket, the last one without an upper bound. Not cumulative."""
        self.total: float = 0
        """Sum of all observed values."""

    @property
    def count(self) -> int:
        return sum(self.counts)

    def observe(self, value: float, times: int = 1) -> None:
        """Count a value, or the same value several times."""
        self.counts[bisect.bisect_left(self.bounds, value)] += times
        self.total += value * times

    def copy(self) -> Histogram:
        """The state now, for a snapshot that another thread renders."""
        other = Histogram(self.bounds)
        other.counts = list(self.counts)
        other.total = self.total
        return other
