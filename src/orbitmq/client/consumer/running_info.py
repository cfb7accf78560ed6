"""ConsumerRunningInfo: run-time state of a consumer, as RocketMQ's tools show it (``consumerStatus``)."""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import sys
import threading
import traceback
from typing import TYPE_CHECKING

from orbitmq.platform.clock import SYSTEM_CLOCK
from orbitmq.protocol.bodies import (
    PROP_CLIENT_VERSION,
    PROP_CONSUME_ORDERLY,
    PROP_CONSUME_TYPE,
    PROP_CONSUMER_START_TIMESTAMP,
    PROP_NAMESERVER_ADDR,
    PROP_THREADPOOL_CORE_SIZE,
    ConsumerRunningInfo,
    ConsumeStatus,
    ConsumeType,
)
from orbitmq.protocol.versions import CURRENT_VERSION, version_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orbitmq.client.consumer.process_queue import ProcessQueue
    from orbitmq.client.consumer.subscription import Subscriptions, TopicCounts
    from orbitmq.platform.clock import Clock

SAMPLE_SECONDS = 10.0
SAMPLES = 7
"""Rates are those of the last minute."""


class Rates:
    """Rates of the last minute, from samples of the counters."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._samples: collections.deque[tuple[float, dict[str, TopicCounts]]] = collections.deque(maxlen=SAMPLES)

    def now(self) -> float:
        return self._clock.monotonic()

    async def sample_for_ever(self, subscriptions: Subscriptions) -> None:
        while True:
            self.sample(subscriptions, self._clock.monotonic())
            await asyncio.sleep(SAMPLE_SECONDS)

    def sample(self, subscriptions: Subscriptions, now: float) -> None:
        counts = {one.topic: dataclasses.replace(one.counts) for one in subscriptions}
        self._samples.append((now, counts))

    def of(self, topic: str, counts: TopicCounts, now: float) -> ConsumeStatus:
        """The rates of a topic since the oldest sample, at most a minute ago. Times are in milliseconds."""
        since, before = next(
            ((at, sample[topic]) for at, sample in self._samples if topic in sample), (now, counts)
        )
        seconds = max(now - since, 0.001)
        pulls, calls = counts.pulls - before.pulls, counts.calls - before.calls
        return ConsumeStatus(
            pull_rt=1000 * (counts.pull_time - before.pull_time) / pulls if pulls else 0.0,
            pull_tps=(counts.pulled - before.pulled) / seconds,
            consume_rt=1000 * (counts.consume_time - before.consume_time) / calls if calls else 0.0,
            consume_ok_tps=(counts.done - before.done) / seconds,
            consume_failed_tps=(counts.failed - before.failed) / seconds,
            consume_failed_msgs=counts.failed - before.failed,
        )


def running_info(
    subscriptions: Subscriptions,
    queues: Iterable[ProcessQueue],
    rates: Rates,
    *,
    name_servers: Iterable[str],
    thread_count: int,
    orderly: bool,
    started_ms: int,
    with_stacks: bool,
) -> ConsumerRunningInfo:
    """The running info of a push consumer."""
    now = rates.now()
    return ConsumerRunningInfo(
        properties={
            PROP_NAMESERVER_ADDR: ";".join(name_servers) + ";",
            PROP_CONSUME_TYPE: ConsumeType.CONSUME_PASSIVELY.value,
            PROP_CONSUME_ORDERLY: str(orderly).lower(),
            PROP_THREADPOOL_CORE_SIZE: str(thread_count),
            PROP_CONSUMER_START_TIMESTAMP: str(started_ms),
            PROP_CLIENT_VERSION: version_name(CURRENT_VERSION),
        },
        subscription_set=subscriptions.data_set(),
        mq_table={queue.queue: queue.info() for queue in queues},
        status_table={one.topic: rates.of(one.topic, one.counts, now) for one in subscriptions},
        jstack=_stacks() if with_stacks else None,
    )


def _stacks() -> str:
    """Stacks of all threads and of all tasks of this loop."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = [
        f"{names.get(ident, ident)}\n{''.join(traceback.format_stack(frame))}"
        for ident, frame in sys._current_frames().items()
    ]
    for task in asyncio.all_tasks():
        frames = "".join(line for frame in task.get_stack(limit=8) for line in traceback.format_stack(frame, 1))
        parts.append(f"{task.get_name()}\n{frames}")
    return "\n".join(parts)
