"""The text format: every snapshot is read back by Prometheus' own parser as what it was."""

from __future__ import annotations

import math
import string

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from orbitmq.metrics.instrument import Histogram, Instrument, Kind
from orbitmq.metrics.prometheus_text import number, render
from orbitmq.metrics.snapshot import Snapshot
from support.metrics.endpoint_text import series_of

GAUGE = Instrument("a_gauge", Kind.GAUGE, "A gauge\nof two lines with a \\.")
COUNTER = Instrument("requests_total", Kind.COUNTER, "A counter.")
LATENCY = Instrument("latency", Kind.HISTOGRAM, "A histogram.", "milliseconds", (1.0, 5.0))


def test_names_have_units_and_counters_end_in_total() -> None:
    assert LATENCY.prometheus_name == "latency_milliseconds"
    assert COUNTER.prometheus_name == "requests_total"
    assert Instrument("x_bytes", Kind.GAUGE, "", "bytes").prometheus_name == "x_bytes"
    assert Instrument("x", Kind.COUNTER, "", "bytes").prometheus_name == "x_bytes_total"


def test_a_histogram_is_cumulative() -> None:
    latency = Histogram(LATENCY.bounds)
    for value in (0.5, 1, 3, 7):
        latency.observe(value)
    latency.observe(2, 10)
    text = render(Snapshot().add_all([(LATENCY, (("code", "a"),), latency)])).decode()
    assert 'latency_milliseconds_bucket{code="a",le="1.0"} 2\n' in text
    assert 'latency_milliseconds_bucket{code="a",le="5.0"} 13\n' in text
    assert 'latency_milliseconds_bucket{code="a",le="+Inf"} 14\n' in text
    assert 'latency_milliseconds_count{code="a"} 14\n' in text
    assert 'latency_milliseconds_sum{code="a"} 31.5\n' in text


def test_a_copy_does_not_follow_the_original() -> None:
    latency = Histogram((1.0,))
    latency.observe(0.1)
    copy = latency.copy()
    latency.observe(5)
    assert (copy.count, copy.total) == (1, 0.1)


def test_special_numbers() -> None:
    assert [number(value) for value in (math.nan, math.inf, -math.inf, 3, 2.5)] == [
        "NaN",
        "+Inf",
        "-Inf",
        "3",
        "2.5",
    ]


def test_a_series_beyond_the_limit_is_counted() -> None:
    snapshot = Snapshot(max_series=2)
    for number_ in range(5):
        snapshot.add(GAUGE, (("n", str(number_)),), number_)
    snapshot.add(GAUGE, (("n", "1"),), 10)
    assert (len(snapshot), snapshot.dropped) == (2, 3)


LABEL_VALUES = st.text(st.characters(codec="utf-8"), max_size=20)


@given(
    st.dictionaries(
        st.tuples(st.sampled_from(string.ascii_lowercase), LABEL_VALUES),
        st.one_of(st.integers(-(1 << 50), 1 << 50), st.floats(allow_nan=False)),
        max_size=5,
    )
)
def test_every_snapshot_is_read_back(values: dict[tuple[str, str], float]) -> None:
    snapshot = Snapshot().add_all((GAUGE, (pair,), value) for pair, value in values.items())
    series = series_of(render(snapshot).decode())
    assert series == {("a_gauge", frozenset([pair])): float(value) for pair, value in values.items()}


def test_a_lone_surrogate_in_a_name_is_replaced() -> None:
    text = render(Snapshot().add_all([(GAUGE, (("topic", "\ud800"),), 1)])).decode()
    (family,) = text_string_to_metric_families(text)
    assert family.samples[0].labels == {"topic": "?"}
