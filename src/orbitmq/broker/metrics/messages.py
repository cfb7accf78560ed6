"""Message metrics: what came in and went out, by topic, type and group, from the counters of ``broker/stats``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.broker.metrics import names
from orbitmq.broker.metrics.labels import is_retry_or_dlq, message_type, text_of
from orbitmq.broker.stats.counters import DLQ_PUT_NUMS
from orbitmq.metrics.instrument import Histogram
from orbitmq.protocol.names import REVIVE_GROUP, TRANSACTION_GROUP

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator

    from orbitmq.broker.metadata.topics import TopicTable
    from orbitmq.broker.metrics.labels import LabelSource
    from orbitmq.broker.stats.counters import BrokerStats
    from orbitmq.metrics.snapshot import Sample
    from orbitmq.native import Counter

COUNTERS_AT_ONCE = 20
"""Counters that are added in the time of one sample."""

_OWN_GROUPS = {REVIVE_GROUP, TRANSACTION_GROUP}
"""Groups by which the broker reads its own topics."""


def collect_messages(stats: BrokerStats, topics: TopicTable, labels: LabelSource) -> Iterator[Sample | None]:
    """Samples of messages in and out; None where other work may run."""
    for topic, queues in stats.counters_of_puts():
        if not is_retry_or_dlq(topic):
            yield from _incoming(topic, queues.values(), stats, topics, labels)
    for (topic, group), read in stats.counters_of_gets():
        if group not in _OWN_GROUPS and not is_retry_or_dlq(topic):
            yield from _outgoing(topic, group, read.values(), stats, labels)
    for (topic, group, is_retry), popped in list(stats.pops.items()):
        pairs = labels.of(
            ("consumer_group", group),
            ("is_retry", text_of(is_retry)),
            labels.is_system(topic, group),
            ("topic", topic),
        )
        yield names.MESSAGES_OUT, pairs, popped.nums
        yield names.THROUGHPUT_OUT, pairs, popped.size
    for key, counter in stats.rare_counters(DLQ_PUT_NUMS):
        topic, _, group = key.partition("@")
        pairs = labels.of(("consumer_group", group), labels.is_system(topic, group), ("topic", topic))
        yield names.SEND_TO_DLQ, pairs, counter.nums


def _incoming(
    topic: str, queues: Iterable[Counter], stats: BrokerStats, topics: TopicTable, labels: LabelSource
) -> Iterator[Sample | None]:
    nums, size, larger = yield from _sums(queues)
    own, delayed = stats.by_broker.get(topic), stats.delayed.get(topic)
    for part in (own, delayed):
        if part is not None:
            nums, size = nums - part.nums, size - part.size
            larger = [count - less for count, less in zip(larger, _larger(part), strict=True)]
    if nums > 0:
        yield from _received(topic, message_type(topic, topics.configs.get(topic)), nums, size, larger, labels)
    if delayed is not None:
        yield from _received(topic, "delay", delayed.nums, delayed.size, _larger(delayed), labels)


def _received(
    topic: str, kind: str, nums: int, size: int, larger: list[int], labels: LabelSource
) -> Iterator[Sample]:
    pairs = labels.of(labels.is_system(topic), ("message_type", kind), ("topic", topic))
    yield names.MESSAGES_IN, pairs, nums
    yield names.THROUGHPUT_IN, pairs, size
    sizes = Histogram(names.SIZE_BOUNDS)
    # Each bucket has those above its lower bound without those above its upper one.
    sizes.counts = [above - below for above, below in zip([nums, *larger], [*larger, 0], strict=True)]
    sizes.total = size
    yield names.MESSAGE_SIZE, pairs, sizes


def _outgoing(
    topic: str, group: str, queues: Iterable[Counter], stats: BrokerStats, labels: LabelSource
) -> Iterator[Sample | None]:
    nums, size, _ = yield from _sums(queues)
    popped = stats.pops.get((topic, group, False))
    if popped is not None:
        nums, size = nums - popped.nums, size - popped.size
    if nums > 0:
        pairs = labels.of(("consumer_group", group), labels.is_system(topic, group), ("topic", topic))
        yield names.MESSAGES_OUT, pairs, nums
        yield names.THROUGHPUT_OUT, pairs, size


def _sums(counters: Iterable[Counter]) -> Generator[None, None, tuple[int, int, list[int]]]:
    """Messages, bytes, and messages larger than each bound."""
    nums = size = 0
    larger = [0] * len(names.SIZE_BOUNDS)
    for number, counter in enumerate(list(counters), 1):
        if number % COUNTERS_AT_ONCE == 0:
            yield None
        nums += counter.nums
        size += counter.size
        if counter.over_1k:
            larger = [count + more for count, more in zip(larger, _larger(counter), strict=True)]
    return nums, size, larger


def _larger(counter: Counter) -> list[int]:
    return [
        counter.over_1k,
        counter.over_4k,
        counter.over_512k,
        counter.over_1m,
        counter.over_2m,
        counter.over_4m,
    ]
