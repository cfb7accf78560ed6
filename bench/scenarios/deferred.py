"""Cost of deferred messages that are due all at once: processor time into the timer, and out again."""

from __future__ import annotations

import functools
import random
from typing import TYPE_CHECKING, TypeVar, cast

from bench.figures import figure
from bench.machine import GIB
from bench.messages import BORN_HOST, QUEUES, TOPIC, body, many_properties, store_root
from bench.rounds import Stopwatch
from orbitmq.broker.config.broker_config import BrokerConfig
from orbitmq.broker.config.persistence import ConfigWriter
from orbitmq.broker.ha.role import ReplicaRole
from orbitmq.broker.runtime import BrokerRuntime
from orbitmq.broker.schedule.service import ScheduleService
from orbitmq.broker.stats.counters import BrokerStats
from orbitmq.broker.timer.counts import TimerCounts
from orbitmq.broker.timer.service import TimerService
from orbitmq.store import MessageStore, StoreConfig, StoredMessage, SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.figures import Figure, Settings
    from orbitmq.broker.send.flush_waiters import FlushWaiters

T = TypeVar("T")

_SECOND_MS = 1000
_LEVEL = 1
_LEVEL_MS = 1000


class _Clock(SystemClock):
    """The system's clock, which can be moved ahead."""

    ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


def space(settings: Settings) -> int:
    return settings.choose(GIB, 2 * GIB)


def run(settings: Settings) -> list[Figure]:
    """Messages of 128 bytes: for a second ahead through the timer, and through the first delay level."""
    count = settings.choose(5_000, 100_000)
    rounds: dict[tuple[str, str], list[float]] = {}
    clock = _Clock()
    config = StoreConfig(store_path_root_dir=store_root(settings.directory))
    with MessageStore.open(config, clock=clock) as store:

        async def run_here(work: Callable[[], T]) -> T:
            return work()

        async def flushed(_: int) -> None:
            store.flush()

        def measure(subject: str, measured: str, work: Callable[[], None]) -> None:
            with Stopwatch() as watch:
                work()
            rounds.setdefault((subject, measured), []).append(watch.cpu / count * 1e6)

        writer = ConfigWriter(store.disk, config.path("config"), run_here)
        stats = BrokerStats(clock, "bench")
        broker_config = BrokerConfig()
        runtime = BrokerRuntime(
            broker_config,
            store,
            writer,
            flushed,
            cast("FlushWaiters", None),
            clock,
            random.Random(0),
            stats,
            ReplicaRole(broker_config, store.config),
        )
        timer = TimerService(runtime, run_here, TimerCounts(writer, clock))
        timer.load()
        schedule = ScheduleService(runtime)
        schedule.load()

        def enter() -> None:
            while timer.behind_messages:
                timer.run_slice()

        def fire() -> None:
            while timer.waiting:
                timer.run_slice()

        def deliver() -> None:
            end = stored(store) + count
            while stored(store) < end:
                schedule.deliver_due()

        for _ in range(settings.choose(2, 5)):
            due = clock.now_ms() + 10 * _SECOND_MS
            measure("timers", "CPU to park and append one", functools.partial(_send, store, timer, count, due))
            measure("timers", "CPU to enter one", enter)
            clock.ahead_ms += 20 * _SECOND_MS
            measure("timers", "CPU to bring one out", fire)
            measure("a delay level", "CPU to park and append one", functools.partial(_send, store, schedule, count))
            clock.ahead_ms += 2 * _LEVEL_MS
            measure("a delay level", "CPU to bring one out", deliver)
        timer.files.close()
    return [figure(subject, measured, "µs", values) for (subject, measured), values in rounds.items()]


def stored(store: MessageStore) -> int:
    """The number of delivered messages."""
    return sum(store.max_offset(TOPIC, queue_id) for queue_id in range(QUEUES))


def _send(store: MessageStore, service: TimerService | ScheduleService, count: int, due: int = 0) -> None:
    content, properties = body(128), many_properties()
    deferral = b"TIMER_DELIVER_MS\x01%d\x02" % due if due else b"DELAY\x01%d\x02" % _LEVEL
    for number in range(count):
        deferred = service.defer(properties[number % len(properties)] + deferral, TOPIC, number % QUEUES)
        assert deferred is not None
        topic, queue_id, own = deferred
        store.append(StoredMessage(topic, queue_id, content, own, born_host=BORN_HOST))
