"""Wait times of a broker: lag of its event loop, and responses that wait for a flush or for replicas."""

from __future__ import annotations

from orbitmq.metrics.instrument import Histogram

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""Seconds."""


class WaitTimes:
    """Histograms that are always kept: one observation per flush, acknowledged transfer or timer tick."""

    def __init__(self) -> None:
        self.event_loop = Histogram(BOUNDS)
        """Lateness of a timer of a tenth of a second."""
        self.flush = Histogram(BOUNDS)
        """From the first response of a group commit to its flush."""
        self.replication = Histogram(BOUNDS)
        """From an append to the acknowledgement of the replicas that it waits for."""
