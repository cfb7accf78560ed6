"""State metrics: store, timers, transactions and POP, read from the services that own them."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from orbitmq.broker.metrics import names
from orbitmq.broker.stats.runtime_info import TIMER_BOUNDS
from orbitmq.protocol.names import TIMER_TOPIC
from orbitmq.store.consumequeue.consume_queue import ConsumeQueue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orbitmq.broker.config.broker_config import BrokerConfig
    from orbitmq.broker.metrics.labels import LabelSource
    from orbitmq.broker.pop.revive import ReviveService
    from orbitmq.broker.runtime import Metadata
    from orbitmq.broker.stats.counters import BrokerStats
    from orbitmq.broker.timer.service import TimerService
    from orbitmq.broker.transaction.processor import Transactions
    from orbitmq.metrics.snapshot import Sample
    from orbitmq.platform.clock import Clock
    from orbitmq.store import MessageStore


def collect_broker(config: BrokerConfig, metadata: Metadata, labels: LabelSource) -> Iterator[Sample]:
    """Sizes of the tables, and the waiting requests: none, because requests are processed as they arrive."""
    yield names.TARGET_INFO, (), 1
    for processor in names.PROCESSORS:
        yield names.PROCESSOR_WATERMARK, labels.of(("processor", processor)), 0
    yield names.BROKER_PERMISSION, labels.of(), config.broker_permission
    yield names.TOPIC_NUMBER, labels.of(), len(metadata.topics.configs)
    yield names.GROUP_NUMBER, labels.of(), len(metadata.groups.configs)


def collect_store(store: MessageStore, clock: Clock, labels: LabelSource) -> Iterator[Sample]:
    """Sizes and backlogs of the log."""
    log, storage = store.log, labels.storage()
    with contextlib.suppress(OSError):
        yield names.STORAGE_SIZE, storage, store.disk.space(store.config.store_path_root_dir).used
    yield names.FLUSH_BEHIND, storage, max(log.committed - log.flushed, 0)
    yield names.DISPATCH_BEHIND, storage, max(log.committed - store.dispatcher.position, 0)
    earliest = store.reader.store_timestamp(log.start)
    if earliest is not None:
        yield names.RESERVE_TIME, storage, max(clock.now_ms() - earliest, 0)


def collect_timer(timer: TimerService, store: MessageStore, clock: Clock, labels: LabelSource) -> Iterator[Sample]:
    """Progress of the timer, and the messages that wait in it."""
    storage, now = labels.storage(), clock.now_ms()
    yield names.TIMER_ENQUEUE_LAG, storage, timer.behind_messages
    yield names.TIMER_ENQUEUE_LATENCY, storage, _entry_latency(timer, store, now)
    yield names.TIMER_DEQUEUE_LAG, storage, timer.files.wheel.waiting_until(timer.read_time_ms, [now])[0]
    yield names.TIMER_DEQUEUE_LATENCY, storage, max(timer.behind_ms, 0)
    waiting = timer.files.wheel.waiting_until(now, [now + bound * 1000 for bound in TIMER_BOUNDS])
    for bound, count in zip(TIMER_BOUNDS, waiting, strict=True):
        yield names.TIMER_SNAPSHOT, labels.storage(("timer_bound_s", str(bound))), count
    for topic, delays in list(timer.counts.delays.items()):
        yield names.DELAY_LATENCY, labels.storage(("topic", topic)), delays.copy()
    for topic, count in timer.counts.waiting().items():
        yield names.TIMING_MESSAGES, labels.storage(("topic", topic)), count
    for instrument, totals in (
        (names.TIMER_ENQUEUED, timer.counts.entered),
        (names.TIMER_DEQUEUED, timer.counts.left),
    ):
        for topic, count in list(totals.items()):
            yield instrument, labels.storage(("topic", topic)), count


def _entry_latency(timer: TimerService, store: MessageStore, now: int) -> int:
    """Age of the oldest message that is not in the timer wheel."""
    queue = store.queues.find(TIMER_TOPIC, 0)
    if not isinstance(queue, ConsumeQueue) or not queue.min_offset <= timer.queue_offset < queue.max_offset:
        return 0
    unit = queue.unit(timer.queue_offset)
    stored = None if unit is None else store.reader.store_timestamp(unit[0])
    return 0 if stored is None else max(now - stored, 0)


def collect_transactions(transactions: Transactions, labels: LabelSource) -> Iterator[Sample]:
    """Half messages and their outcomes."""
    outcomes = transactions.outcomes
    for topic, count in transactions.counts.waiting().items():
        yield names.HALF_MESSAGES, labels.of(("topic", topic)), count
    for instrument, totals in (
        (names.COMMIT_MESSAGES, outcomes.commits),
        (names.ROLLBACK_MESSAGES, outcomes.rollbacks),
    ):
        for topic, count in list(totals.items()):
            yield instrument, labels.of(("topic", topic)), count
    for topic, ages in list(outcomes.ages.items()):
        yield names.FINISH_LATENCY, labels.of(("topic", topic)), ages.copy()


def collect_pop(
    stats: BrokerStats, store: MessageStore, revive: ReviveService | None, clock: Clock, labels: LabelSource
) -> Iterator[Sample]:
    """Check points and acknowledgements, and the progress of their readers."""
    yield names.POP_OFFSET_BUFFER, labels.of(), 0
    yield names.POP_CHECKPOINT_BUFFER, labels.of(), 0
    for name, kind in (("GROUP_CK_NUMS", "CK"), ("GROUP_ACK_NUMS", "ACK")):
        for key, counter in stats.rare_counters(name):
            topic, _, group = key.partition("@")
            pairs = labels.of(
                ("consumer_group", group), ("put_status", "PUT_OK"), ("revive_message_type", kind), ("topic", topic)
            )
            yield names.POP_REVIVE_IN, pairs, counter.nums
    if revive is None:
        return
    now = clock.now_ms()
    for queue in revive.queues:
        pairs = labels.of(("queue_id", str(queue.queue_id)))
        behind = max(store.max_offset(revive.topic, queue.queue_id) - queue.offset, 0)
        yield names.POP_REVIVE_LAG, pairs, behind
        yield (
            names.POP_REVIVE_LATENCY,
            pairs,
            max(now - queue.end_time_ms, 0) if behind and queue.end_time_ms else 0,
        )
