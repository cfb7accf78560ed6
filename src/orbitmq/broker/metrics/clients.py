"""Client metrics: connected producers and consumers, and the lag of consumer groups."""

from __future__ import annotations

import collections
import dataclasses
from typing import TYPE_CHECKING

from orbitmq.broker.metrics import names
from orbitmq.broker.metrics.labels import is_retry_or_dlq, text_of
from orbitmq.protocol.bodies import ConsumeType
from orbitmq.protocol.message.flags import PERM_READ, PERM_WRITE
from orbitmq.protocol.names import RETRY_PREFIX
from orbitmq.protocol.versions import version_name
from orbitmq.store.consumequeue.consume_queue import FILLER_SIZE, ConsumeQueue

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from orbitmq.broker.clients.consumer_group import ClientChannel, ConsumerGroup
    from orbitmq.broker.clients.registry import Clients
    from orbitmq.broker.metrics.labels import LabelSource
    from orbitmq.broker.pop.inflight import PopOffsets
    from orbitmq.broker.runtime import Metadata
    from orbitmq.metrics.snapshot import Sample
    from orbitmq.platform.clock import Clock
    from orbitmq.store import MessageStore

_MODES = {
    ConsumeType.CONSUME_ACTIVELY: "pull",
    ConsumeType.CONSUME_PASSIVELY: "push",
    ConsumeType.CONSUME_POP: "pop",
}


def collect_connections(clients: Clients, labels: LabelSource) -> Iterator[Sample]:
    """Connections of producers and consumers, by language and version."""
    producers: collections.Counter[tuple[str, str]] = collections.Counter()
    for members in list(clients.producers.values()):
        producers.update(map(_build, members.values()))
    for (language, version), count in producers.items():
        pairs = labels.of(("language", language), ("protocol_type", "remoting"), ("version", version))
        yield names.PRODUCER_CONNECTIONS, pairs, count
    for group in list(clients.consumers.values()):
        for (language, version), count in collections.Counter(map(_build, group.members.values())).items():
            pairs = labels.of(
                ("consume_mode", _MODES.get(group.consume_type or ConsumeType.CONSUME_PASSIVELY, "push")),
                ("consumer_group", group.name),
                labels.is_system("", group.name),
                ("language", language),
                ("protocol_type", "remoting"),
                ("version", version),
            )
            yield names.CONSUMER_CONNECTIONS, pairs, count


def _build(client: ClientChannel) -> tuple[str, str]:
    return client.language.name.lower(), version_name(client.version).lower()


@dataclasses.dataclass(slots=True)
class GroupLag:
    """Lag of a group in a topic, over all its queues."""

    lag: int = 0
    in_flight: int = 0
    ready: int = 0
    end: int = 0
    """Sum of the maximum offsets of queues with a confirmed offset."""
    oldest_unconfirmed: int = 0
    """Store time, 0 if everything is confirmed."""
    oldest_unread: int = 0

    def __add__(self, other: GroupLag) -> GroupLag:
        return GroupLag(
            self.lag + other.lag,
            self.in_flight + other.in_flight,
            self.ready + other.ready,
            self.end + other.end,
            _older(self.oldest_unconfirmed, other.oldest_unconfirmed),
            _older(self.oldest_unread, other.oldest_unread),
        )


KEPT_SECONDS = 0.0002
"""Lag is kept for so long for each queue that it was computed of. A queue takes a few microseconds, so the lag of
50,000 queues takes two per cent of the event loop however often it is read, and that of a few is always new."""

QUEUES_AT_ONCE = 8
"""Queues between two points at which other work may run."""


class _Oldest:
    """The oldest of some messages: by their place in the log, which is read once at the end."""

    __slots__ = ("physical", "time_ms")

    def __init__(self) -> None:
        self.physical = -1
        self.time_ms = 0

    def see(self, place: tuple[int, int]) -> None:
        """``place`` is a physical offset, or -1 and a store time, 0 if that is unknown."""
        physical, time_ms = place
        if physical < 0:
            self.time_ms = _older(self.time_ms, time_ms)
        elif physical < self.physical or self.physical < 0:
            self.physical = physical


class LagCollector:
    """Computes lag from offsets and queue bounds. Yields None after some queues, so that it can be sliced."""

    def __init__(
        self, store: MessageStore, metadata: Metadata, clients: Clients, pop_offsets: PopOffsets, clock: Clock
    ) -> None:
        self._store = store
        self._topics = metadata.topics
        self._offsets = metadata.offsets
        self._clients = clients
        self._pop_offsets = pop_offsets
        self._clock = clock
        self._kept: dict[tuple[str, str, bool], GroupLag] = {}
        self._kept_queues = 0
        self._kept_from = clock.monotonic()

    def begin(self) -> None:
        """A collection begins: forget the lag of the one before, if that is old enough."""
        now = self._clock.monotonic()
        if now - self._kept_from >= self._kept_queues * KEPT_SECONDS:
            self._kept = {}
            self._kept_queues = 0
            self._kept_from = now

    def samples(self, labels: LabelSource) -> Iterator[Sample | None]:
        """Samples of all groups with members; None between them, where other work may run."""
        for group in list(self._clients.consumers.values()):
            is_pop = group.consume_type is ConsumeType.CONSUME_POP
            for topic in list(group.subscriptions):
                config = self._topics.configs.get(topic)
                if config is None or is_retry_or_dlq(topic) or not config.perm & (PERM_READ | PERM_WRITE):
                    continue
                lag = yield from self._lag(group.name, topic, config.write_queue_nums, is_pop=is_pop)
                yield from self._described(lag, topic, group.name, labels, is_retry=False)
                if is_pop:
                    lag = yield from self._retry_lag(group, topic)
                    yield from self._described(lag, topic, group.name, labels, is_retry=True)

    def of(self, group: str, topic: str, queues: int) -> Generator[None, None, GroupLag]:
        """The lag of a group in a topic, connected or not."""
        return self._lag(group, topic, queues, is_pop=False)

    def _retry_lag(self, group: ConsumerGroup, topic: str) -> Generator[None, None, GroupLag]:
        total = GroupLag()
        for retry in (f"{RETRY_PREFIX}{group.name}_{topic}", f"{RETRY_PREFIX}{group.name}+{topic}"):
            config = self._topics.configs.get(retry)
            if config is not None:
                total += yield from self._lag(group.name, retry, config.write_queue_nums, is_pop=True)
        return total

    def _lag(self, group: str, topic: str, queues: int, *, is_pop: bool) -> Generator[None, None, GroupLag]:
        kept = self._kept.get((group, topic, is_pop))
        if kept is not None:
            return kept
        total = yield from self._computed(group, topic, queues, is_pop=is_pop)
        self._kept[group, topic, is_pop] = total
        self._kept_queues += queues
        return total

    def _computed(self, group: str, topic: str, queues: int, *, is_pop: bool) -> Generator[None, None, GroupLag]:
        total, unconfirmed, unread = GroupLag(), _Oldest(), _Oldest()
        for queue_id in range(queues):
            if not queue_id % QUEUES_AT_ONCE:
                yield None
            end = self._store.max_offset(topic, queue_id)
            committed = self._offsets.query(group, topic, queue_id)
            if end <= 0 or committed < 0:
                continue
            if is_pop:
                in_flight = self._pop_offsets.in_flight(topic, group, queue_id)
                pulled = committed
                committed = max(committed - in_flight, 0)
            else:
                pulled = max(self._offsets.pull_offset(group, topic, queue_id), committed)
                in_flight = pulled - committed
            total.end += end
            total.lag += max(end - committed, 0)
            total.in_flight += in_flight
            total.ready += max(end - pulled, 0)
            if committed < end:
                place = self._place(topic, queue_id, committed)
                unconfirmed.see(place)
                if pulled < end:
                    unread.see(place if pulled == committed else self._place(topic, queue_id, pulled))
        total.oldest_unconfirmed, total.oldest_unread = self._time(unconfirmed), self._time(unread)
        return total

    def _place(self, topic: str, queue_id: int, offset: int) -> tuple[int, int]:
        """The physical offset of the message at a queue offset, or -1 and its store time, 0 if unknown."""
        queue = self._store.queues.find(topic, queue_id)
        if queue is None:
            return -1, 0
        offset = max(offset, queue.min_offset)
        if offset >= queue.max_offset:
            return -1, 0
        if isinstance(queue, ConsumeQueue):
            unit = queue.unit(offset)
            return (-1, 0) if unit is None or unit[1] == FILLER_SIZE else (unit[0], 0)
        batch = queue.unit(offset)
        return -1, 0 if batch is None else batch.store_timestamp

    def _time(self, oldest: _Oldest) -> int:
        """The store time of the oldest message, 0 if unknown."""
        if oldest.physical < 0:
            return oldest.time_ms
        return _older(oldest.time_ms, self._store.reader.store_timestamp(oldest.physical) or 0)

    def _described(
        self, lag: GroupLag, topic: str, group: str, labels: LabelSource, *, is_retry: bool
    ) -> Iterator[Sample]:
        now = self._clock.now_ms()
        pairs = labels.of(
            ("consumer_group", group),
            ("is_retry", text_of(is_retry)),
            labels.is_system(topic, group),
            ("topic", topic),
        )
        yield names.LAG_MESSAGES, pairs, lag.lag
        yield names.LAG_LATENCY, pairs, _age(now, lag.oldest_unconfirmed)
        yield names.INFLIGHT_MESSAGES, pairs, lag.in_flight
        yield names.QUEUEING_LATENCY, pairs, _age(now, lag.oldest_unread)
        yield names.READY_MESSAGES, pairs, lag.ready


def _older(one: int, other: int) -> int:
    """The earlier of two times, of which 0 is none."""
    return min(one, other) if one and other else one or other


def _age(now: int, then: int) -> int:
    return max(now - then, 0) if then else 0
