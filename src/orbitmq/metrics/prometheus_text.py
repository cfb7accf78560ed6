"""Prometheus text format 0.0.4: a snapshot as text.

Not ``prometheus_client``: its collectors are called by a thread of its own web server, in one go, while the tables
that they read belong to the event loop; and it takes 30 µs per series, all of it under the interpreter lock. Tests
parse this text with its parser.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.metrics.instrument import Histogram

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orbitmq.metrics.instrument import Instrument, Labels
    from orbitmq.metrics.snapshot import Snapshot, Value

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_ESCAPED_LABEL = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})
_ESCAPED_HELP = str.maketrans({"\\": "\\\\", "\n": "\\n"})


def render(snapshot: Snapshot) -> bytes:
    """The text of a snapshot."""
    return "".join(line for part in _families(snapshot) for line in part).encode("utf-8", "replace")


def _families(snapshot: Snapshot) -> Iterator[Iterator[str]]:
    for instrument, series in snapshot.families():
        yield _family(instrument, series)


def _family(instrument: Instrument, series: dict[Labels, Value]) -> Iterator[str]:
    name = instrument.prometheus_name
    yield f"# HELP {name} {instrument.description.translate(_ESCAPED_HELP)}\n"
    yield f"# TYPE {name} {instrument.kind}\n"
    for labels, value in series.items():
        text = ",".join([f'{key}="{one.translate(_ESCAPED_LABEL)}"' for key, one in labels])
        if isinstance(value, Histogram):
            yield from _histogram(name, text, value)
        else:
            yield f"{name}{{{text}}} {number(value)}\n" if text else f"{name} {number(value)}\n"


def _histogram(name: str, labels: str, value: Histogram) -> Iterator[str]:
    before = f"{labels}," if labels else ""
    passed = 0
    for bound, count in zip((*map(number, value.bounds), "+Inf"), value.counts, strict=True):
        passed += count
        yield f'{name}_bucket{{{before}le="{bound}"}} {passed}\n'
    yield f"{name}_sum{{{labels}}} {number(value.total)}\n"
    yield f"{name}_count{{{labels}}} {passed}\n"


def number(value: float) -> str:
    """A value as Go and Java read it."""
    if isinstance(value, int):
        return str(value)
    if value != value:  # noqa: PLR0124 - true for NaN only
        return "NaN"
    if value in {float("inf"), float("-inf")}:
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)
