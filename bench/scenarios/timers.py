"""Cost of timer messages: memory while they wait, and processor time in and out."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING, TypeVar, cast

from bench.figures import figure
from bench.machine import GIB, own_memory
from bench.messages import BORN_HOST, QUEUES, TOPIC, body, many_properties, open_store, store_root
from bench.rounds import Stopwatch
from orbitmq.broker.config.broker_config import BrokerConfig
from orbitmq.broker.config.persistence import ConfigWriter
from orbitmq.broker.ha.role import ReplicaRole
from orbitmq.broker.runtime import BrokerRuntime
from orbitmq.broker.stats.counters import BrokerStats
from orbitmq.broker.timer.counts import TimerCounts
from orbitmq.broker.timer.service import TimerService
from orbitmq.store import StoredMessage

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.figures import Figure, Settings
    from orbitmq.broker.send.flush_waiters import FlushWaiters
    from orbitmq.store import MessageStore

T = TypeVar("T")

_STEPS = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)
_HOUR_MS = 3_600_000
_NEAREST_HOURS, _FURTHEST_HOURS = 1, 70
_STEP_MS = 611_953
"""Times of messages that follow each other lie so far apart, over all hours."""


def space(settings: Settings) -> int:
    return settings.choose(GIB, 2 * GIB, 8 * GIB)


def run(settings: Settings) -> list[Figure]:
    """Let more and more messages of 128 bytes wait, a broker's timer over a store, and look at the process."""
    most = settings.choose(10_000, 1_000_000, 10_000_000)
    lines = [figure("no timer", "anonymous memory", "MiB", own_memory().anonymous)]
    with open_store(settings.directory) as store:
        timer = _timer(store)
        waiting = 0
        for count in (step for step in _STEPS if step <= most):
            with Stopwatch() as watch:
                _add(store, timer, waiting, count)
            subject = f"{count:,} timers wait"
            lines += [
                figure(subject, "anonymous memory", "MiB", own_memory().anonymous),
                figure(subject, "log, queue and timer files", "MiB", _disk_space(settings.directory)),
                figure(subject, "CPU to send and enter one", "µs", watch.cpu / (count - waiting) * 1e6),
            ]
            waiting = count
        timer.files.close()
    return lines


def _timer(store: MessageStore) -> TimerService:
    """The timer of a broker; whatever it would have done elsewhere is done here and now."""

    async def run_here(work: Callable[[], T]) -> T:
        return work()

    async def flushed(_: int) -> None:
        store.flush()

    writer = ConfigWriter(store.disk, store.config.path("config"), run_here)
    counts = TimerCounts(writer, store.clock)
    stats = BrokerStats(store.clock, "bench")
    broker_config = BrokerConfig()
    runtime = BrokerRuntime(
        broker_config,
        store,
        writer,
        flushed,
        cast("FlushWaiters", None),
        store.clock,
        random.Random(0),
        stats,
        ReplicaRole(broker_config, store.config),
    )
    timer = TimerService(runtime, run_here, counts)
    timer.load()
    return timer


def _add(store: MessageStore, timer: TimerService, first: int, last: int) -> None:
    """Park messages up to the last number, and enter them."""
    content, properties = body(128), many_properties()
    begin = store.clock.now_ms() + _NEAREST_HOURS * _HOUR_MS
    span = (_FURTHEST_HOURS - _NEAREST_HOURS) * _HOUR_MS
    for number in range(first, last):
        due = b"TIMER_DELIVER_MS\x01%d\x02" % (begin + number * _STEP_MS % span)
        deferred = timer.defer(properties[number % len(properties)] + due, TOPIC, number % QUEUES)
        assert deferred is not None
        topic, queue_id, own = deferred
        store.append(StoredMessage(topic, queue_id, content, own, born_timestamp=begin, born_host=BORN_HOST))
        if number % 1024 == 0:
            _enter(timer)
    _enter(timer)


def _enter(timer: TimerService) -> None:
    while timer.behind_messages:
        timer.run_slice()


def _disk_space(directory: str) -> float:
    """The disk space of the store's files in MiB, without space that is reserved but not written."""
    total = 0
    for folder, _, names in os.walk(store_root(directory)):
        total += sum(os.stat(os.path.join(folder, name)).st_blocks * 512 for name in names)
    return total / (1 << 20)
