"""Reading: queue units in bulk, and records through the store, just written or found after a restart."""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING

from bench.machine import GIB
from bench.messages import Producer, body, open_store
from bench.rounds import take_turns
from orbitmq.store.consumequeue.consume_queue import UNIT_SIZE, ConsumeQueue

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.figures import Figure, Settings
    from orbitmq.store import MessageStore

SIZES = (128, 1024)
ALONE = "Alone"
"""A topic of one queue that is written without others in between: its records follow each other in the log."""
MIXED = "Mixed"
"""A topic of eight queues that are written in turn: every record of a queue is a slice of its own."""
UNITS = 800
"""What one pull looks at, by the default of maxFilterMessageSize."""
PULL = 32


def space(settings: Settings) -> int:
    return settings.choose(GIB // 2, 2 * GIB)


def run(settings: Settings) -> list[Figure]:
    """The same queues are read in the process that wrote them ("hot") and after reopening ("cold").

    Cold records are checked against their CRC; the page cache is warm in both.
    """
    count = settings.choose(1000, 40_000)
    rounds = settings.choose(2, 9)
    directories = {size: os.path.join(settings.directory, str(size)) for size in SIZES}
    lines: list[Figure] = []
    for size, directory in directories.items():
        with open_store(directory) as store:
            _fill(store, size, count)
            lines += _measure(store, f"hot, {size} B", rounds)
        with open_store(directory) as store:
            lines += _measure(store, f"cold, {size} B", rounds)
            if size == SIZES[0]:
                lines += _measure_units(store, rounds)
    return lines


def _fill(store: MessageStore, size: int, count: int) -> None:
    content = body(size)
    Producer(store).append(content, count, MIXED)
    Producer(store, queues=1).append(content, count, ALONE)


def _measure(store: MessageStore, subject: str, rounds: int) -> list[Figure]:
    cases: dict[str, Callable[[], int]] = {
        "contiguous": functools.partial(_read_records, store, ALONE, 1),
        "interleaved": functools.partial(_read_records, store, MIXED, 8),
    }
    timings = take_turns(cases, rounds)
    return [line for name, timing in timings.items() for line in timing.per_item(f"{subject}, {name}", "record")]


def _read_records(store: MessageStore, topic: str, queues: int) -> int:
    """Read every record of a topic as pulls of 32 do."""
    total = 0
    for queue_id in range(queues):
        at, end = 0, store.max_offset(topic, queue_id)
        while at < end:
            result = store.get(topic, queue_id, at, PULL)
            assert result.count, f"nothing at offset {at} of {topic}: {result.status}"
            total += result.count
            at = result.next_begin_offset
    return total


def _measure_units(store: MessageStore, rounds: int) -> list[Figure]:
    queue = store.queues.get(ALONE, 0)
    assert isinstance(queue, ConsumeQueue)
    timings = take_turns({"units": functools.partial(_read_units, queue)}, rounds)
    return timings["units"].per_item(f"queue, {UNITS} at a time", "unit")


def _read_units(queue: ConsumeQueue) -> int:
    total = 0
    # Several times over: one pass takes less than the clock of CPU time can tell.
    for _ in range(50):
        at = queue.first
        while units := queue.read(at, UNITS):
            at += len(units) // UNIT_SIZE
        total += at - queue.first
    return total
