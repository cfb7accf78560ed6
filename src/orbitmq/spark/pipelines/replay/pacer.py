"""Pacing of a replay: the due time of each message, and its lateness."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    Numbers = npt.NDArray[np.int64]
    Seconds = npt.NDArray[np.float64]

_STEP = math.log(1.05)
BUCKETS = 400
"""Of lateness: each is a twentieth longer than the one before it, from a millisecond to days."""


@dataclasses.dataclass(frozen=True, slots=True)
class Pacing:
    """The pacing of one sender. Without rate and pace everything is due at once."""

    rate: float | None
    """Messages of this sender in a second."""
    pace: float | None
    first_us: int
    """The time of the first message of all senders."""

    @property
    def is_timed(self) -> bool:
        return self.rate is not None or self.pace is not None

    def due(self, number: int, times_us: Numbers) -> Seconds:
        """Seconds after the start, for messages of these times of which the first is this sender's ``number``-th.

        Never less than those of messages before them, if times are not.
        """
        if self.rate is not None:
            return np.arange(number, number + len(times_us), dtype=np.float64) / self.rate
        if self.pace is not None:
            return (times_us - self.first_us) / (1e6 * self.pace)
        return np.zeros(len(times_us))


class Lateness:
    """A histogram of lateness."""

    def __init__(self, counts: Sequence[int] | None = None) -> None:
        self.counts: Numbers = np.zeros(BUCKETS, np.int64) if counts is None else np.array(counts, np.int64)

    def add(self, seconds: Seconds) -> None:
        buckets = np.log(np.maximum(seconds * 1000, 1.0)) / _STEP
        self.counts += np.bincount(np.minimum(buckets.astype(np.int64), BUCKETS - 1), minlength=BUCKETS)

    def merge(self, other: Lateness) -> None:
        self.counts += other.counts

    def percentile_ms(self, part: float) -> float | None:
        """The percentile of lateness; None without messages."""
        total = int(self.counts.sum())
        if not total:
            return None
        bucket = int(np.searchsorted(np.cumsum(self.counts), part * total))
        return math.exp((bucket + 1) * _STEP)
