"""Appending messages of several sizes, with dispatch to queue and index."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from bench.figures import figure
from bench.machine import GIB
from bench.messages import Producer, body, open_store
from bench.rounds import take_turns

if TYPE_CHECKING:
    from bench.figures import Figure, Settings

SIZES = (10, 128, 1024, 4096)


def space(settings: Settings) -> int:
    return settings.choose(GIB // 2, 2 * GIB)


def run(settings: Settings) -> list[Figure]:
    """One store takes all sizes in turn, through eight queues."""
    count = settings.choose(500, 10_000)
    with open_store(settings.directory) as store:
        producer = Producer(store)
        cases = {f"{size} B": functools.partial(producer.append, body(size), count) for size in SIZES}
        timings = take_turns(cases, settings.choose(3, 11))
    lines: list[Figure] = []
    for name, timing in timings.items():
        lines += timing.per_item(name, "record")
        lines.append(figure(name, "CPU per record, user mode only", "µs", [each * 1e6 for each in timing.user]))
    return lines
