"""Many queues: what fifty thousand of them cost beside eight."""

from __future__ import annotations

import functools
import itertools
import os
from typing import TYPE_CHECKING

from bench.apart import apart
from bench.figures import figure
from bench.machine import GIB, own_memory, own_open_files
from bench.messages import BORN_HOST, QUEUES, body, many_properties, open_store
from bench.opening import open_once
from bench.rounds import Stopwatch, take_turns
from orbitmq.store import StoredMessage
from orbitmq.store.consumequeue.consume_queue import UNIT_SIZE
from orbitmq.store.consumequeue.unit_file import KEPT_BYTES, TAIL_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.figures import Figure, Settings
    from orbitmq.store import MessageStore

MANY = 50_000

UNITS_PER_WRITE = (TAIL_BYTES - KEPT_BYTES) // UNIT_SIZE
"""A busy queue writes its units to its file by so many at a time."""


def space(settings: Settings) -> int:
    return settings.choose(GIB // 2, 3 * GIB)


def run(settings: Settings) -> list[Figure]:
    """Messages of 128 bytes go round eight queues of one store and round many queues of another, in turn."""
    many = settings.choose(400, MANY)
    count = settings.choose(800, MANY)
    rounds = settings.choose(2, 9)
    wide_directory = os.path.join(settings.directory, "wide")
    few_name, many_name = f"{QUEUES} queues", f"{many} queues"
    with open_store(os.path.join(settings.directory, "narrow")) as narrow:
        few = RoundRobin(narrow, QUEUES)
        few.append(count)
        wide = open_store(wide_directory)
        before = own_memory()
        wider = RoundRobin(wide, many)
        with Stopwatch() as first:
            wider.append(many)
        after = own_memory()
        timings = take_turns(
            {few_name: functools.partial(few.append, count), many_name: functools.partial(wider.append, count)},
            rounds,
        )
        files = own_open_files()
        new_files = _write_out(wide)
        wider.append(many)
        old_files = _write_out(wide)
        with Stopwatch() as closing:
            wide.close()
    reopened = [apart(open_once, wide_directory, crash=False) for _ in range(settings.choose(1, 3))]
    touched = apart(touch_all, wide_directory, many)
    few_cpu, many_cpu = timings[few_name].cpu, timings[many_name].cpu
    # The few write their units out within the rounds; the many would only after two hundred rounds.
    steady = [seconds + old_files.cpu / many / UNITS_PER_WRITE for seconds in many_cpu]
    return [
        *timings[few_name].per_item(few_name, "record"),
        *timings[many_name].per_item(many_name, "record"),
        figure(f"{many_name} to {few_name}", "ratio of CPU per record", "×", _ratios(many_cpu, few_cpu)),
        figure(f"{many_name} to {few_name}", "the same, writing units included", "×", _ratios(steady, few_cpu)),
        figure(many_name, "CPU of a queue's first record", "µs", first.cpu / many * 1e6),
        figure(many_name, "CPU to write a queue's units, new file", "µs", new_files.cpu / many * 1e6),
        figure(many_name, "CPU to write a queue's units, old file", "µs", old_files.cpu / many * 1e6),
        figure(many_name, "time to write all queues' units", "s", old_files.wall),
        figure(many_name, "anonymous memory of all queues", "MiB", after.anonymous - before.anonymous),
        figure(many_name, "open files", "files", files),
        figure(many_name, "time to close", "s", closing.wall),
        figure(many_name, "time to open again", "s", [opening.wall for opening in reopened]),
        figure(many_name, "CPU of a queue's first touch", "µs", touched / many * 1e6),
    ]


class RoundRobin:
    """Appends to queues in turn, eight queues to a topic."""

    def __init__(self, store: MessageStore, queues: int) -> None:
        self._append = store.append
        self._content = body(128)
        self._born = store.clock.now_ms()
        self._places: Iterator[tuple[str, int]] = itertools.cycle(list(places(queues)))
        self._properties: Iterator[bytes] = itertools.cycle(many_properties())

    def append(self, count: int) -> int:
        append, content, born = self._append, self._content, self._born
        for (topic, queue_id), held in itertools.islice(zip(self._places, self._properties, strict=False), count):
            append(StoredMessage(topic, queue_id, content, held, born_timestamp=born, born_host=BORN_HOST))
        return count


def places(queues: int) -> Iterator[tuple[str, int]]:
    """Topic and queue id of so many queues."""
    for number in range(queues):
        yield f"Topic{number // QUEUES:05d}", number % QUEUES


def touch_all(directory: str, queues: int) -> float:
    """Ask every queue of a store for its end; returns the seconds of CPU that took."""
    with open_store(directory) as store:
        # Recovery after a crash would have touched them before.
        assert store.recovery.clean
        with Stopwatch() as watch:
            ends = [store.max_offset(topic, queue_id) for topic, queue_id in places(queues)]
        assert all(ends), "a queue is empty that was written to"
    return watch.cpu


def _write_out(store: MessageStore) -> Stopwatch:
    with Stopwatch() as watch:
        store.dispatcher.write_queues(store.dispatcher.unwritten)
    assert store.dispatcher.fault is None
    return watch


def _ratios(numerators: list[float], denominators: list[float]) -> list[float]:
    """Round by round, because the two of a round met the machine in the same state."""
    return [above / below for above, below in zip(numerators, denominators, strict=True)]
