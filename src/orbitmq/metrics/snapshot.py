"""Snapshot: the values of all instruments at one time."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from orbitmq.metrics.instrument import Histogram, Instrument, Labels

Value: TypeAlias = "float | Histogram"
Sample: TypeAlias = "tuple[Instrument, Labels, Value]"
"""One time series: its instrument, its labels and its value."""


class Snapshot:
    """Samples by instrument, in the order of arrival. Immutable once its collector is done."""

    def __init__(self, max_series: int = 0) -> None:
        """``max_series`` limits the series of one instrument; 0: unlimited."""
        self._series: dict[Instrument, dict[Labels, Value]] = {}
        self._max_series = max_series
        self.dropped = 0
        """Series that exceeded the limit."""

    def add(self, instrument: Instrument, labels: Labels, value: Value) -> None:
        """Set the value of a series; a second value of the same series replaces the first."""
        series = self._series.setdefault(instrument, {})
        if self._max_series and len(series) >= self._max_series and labels not in series:
            self.dropped += 1
        else:
            series[labels] = value

    def add_all(self, samples: Iterable[Sample]) -> Snapshot:
        """Add all samples, and return this snapshot."""
        for sample in samples:
            self.add(*sample)
        return self

    def families(self) -> Iterator[tuple[Instrument, dict[Labels, Value]]]:
        """Each instrument with its series."""
        return iter(self._series.items())

    def __len__(self) -> int:
        return sum(len(series) for series in self._series.values())
