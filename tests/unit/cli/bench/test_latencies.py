"""Latencies in buckets: few of them, and none far from what was counted."""

from __future__ import annotations

import pytest

from orbitmq.cli.bench.latencies import SUB_BUCKETS, Latencies


@pytest.mark.parametrize(("part", "wanted"), [(0.0, 1), (0.5, 5001), (0.99, 9901), (0.999, 9991), (1.0, 10_000)])
def test_a_quantile_is_close_to_the_latency_at_its_rank(part: float, wanted: int) -> None:
    latencies = Latencies()
    for microseconds in range(1, 10_001):
        latencies.add(microseconds)
    assert wanted <= latencies.quantile(part) <= wanted * (1 + 1 / SUB_BUCKETS)


@pytest.mark.parametrize("value", [0, 1, 63, 64, 65, 127, 128, 1_000_003, 3_600_000_000])
def test_a_single_latency_is_every_quantile(value: int) -> None:
    latencies = Latencies()
    latencies.add(value)
    assert [latencies.quantile(part) for part in (0.0, 0.5, 1.0)] == [value] * 3


def test_no_latency_is_lost_by_its_size() -> None:
    latencies = Latencies()
    latencies.add(-5)
    latencies.add(1 << 60)
    assert (latencies.total, latencies.quantile(0.0)) == (2, 0)
    assert latencies.quantile(1.0) == latencies.longest == (1 << 42) - 1


def test_a_batch_counts_as_its_messages() -> None:
    latencies = Latencies()
    latencies.add(10, 99)
    latencies.add(1000)
    assert latencies.total == 100
    assert latencies.quantile(0.98) == 10
    assert latencies.quantile(0.99) == 1000


def test_of_nothing_every_quantile_is_zero() -> None:
    assert Latencies().quantile(0.5) == 0
