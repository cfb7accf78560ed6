"""Broker statistics: counters of messages put and got, by topic, group and queue, with RocketMQ's names.

A message costs two lookups and five additions. Sums over the queues of a topic are computed when a sample is taken:
every ten seconds, for minute, hour and day of each counter; the total rates are sampled every second.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, TypeVar

from orbitmq.broker.fast_path.epoch import RouteEpoch
from orbitmq.broker.quarantine import Quarantine
from orbitmq.broker.stats.samples import (
    DAY,
    HOUR,
    MINUTE,
    NUMS,
    SIZE,
    SMALL_MESSAGE,
    SPANS,
    Counter,
    PutTimes,
    Rate,
    Span,
)
from orbitmq.broker.stats.waits import WaitTimes
from orbitmq.protocol.bodies import BrokerStatsData
from orbitmq.protocol.names import SCHEDULE_CONSUMER_GROUP, SCHEDULE_TOPIC, is_system_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from orbitmq.platform.clock import Clock

log = logging.getLogger("orbitmq.broker")

TOPIC_PUT_NUMS = "TOPIC_PUT_NUMS"
TOPIC_PUT_SIZE = "TOPIC_PUT_SIZE"
QUEUE_PUT_NUMS = "QUEUE_PUT_NUMS"
QUEUE_PUT_SIZE = "QUEUE_PUT_SIZE"
GROUP_GET_NUMS = "GROUP_GET_NUMS"
GROUP_GET_SIZE = "GROUP_GET_SIZE"
QUEUE_GET_NUMS = "QUEUE_GET_NUMS"
QUEUE_GET_SIZE = "QUEUE_GET_SIZE"
SEND_BACK_NUMS = "SNDBCK_PUT_NUMS"
DLQ_PUT_NUMS = "DLQ_PUT_NUMS"
BROKER_PUT_NUMS = "BROKER_PUT_NUMS"
BROKER_GET_NUMS = "BROKER_GET_NUMS"
BROKER_PUT_NUMS_OF_USERS = "BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC"
BROKER_GET_NUMS_OF_USERS = "BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC"

MAX_COUNTERS = 100_000
"""Above this limit further keys are counted in the totals only."""
MAX_BEHIND = 100_000
"""Maximum number of queues of groups whose lag is recorded."""
SLICE = 500
"""Counters sampled in one loop iteration; each takes about two microseconds."""

ADDED_UP_LIKE_ONE = 20
"""Summing so many counters takes as long as sampling one."""

_DONE = object()
KeyT = TypeVar("KeyT")


class BrokerStats:
    """The counters. ``put``, ``got``, ``missed_get`` are called for every message or pull."""

    def __init__(
        self,
        clock: Clock,
        cluster: str,
        *,
        detailed: bool = True,
        max_idle_minutes: int = -1,
        max_counters: int = MAX_COUNTERS,
        is_system_topic: Callable[[str], bool] = is_system_topic,
        route_epoch: RouteEpoch | None = None,
    ) -> None:
        """``is_system_topic``: true for topics whose messages are not users'; some are named after the broker."""
        self._clock = clock
        self._cluster = cluster
        self._detailed = detailed
        self._max_idle_ms = DAY.interval_ms * DAY.points if max_idle_minutes < 0 else max_idle_minutes * 60_000
        self._max_counters = max_counters
        self._is_system_topic = is_system_topic
        self._count = 0
        self._puts: dict[str, dict[int, Counter]] = {}
        self._gets: dict[tuple[str, str], dict[int, Counter]] = {}
        self._topics: dict[str, Counter] = {}
        self._groups: dict[tuple[str, str], Counter] = {}
        self._rare: dict[tuple[str, str], Counter] = {}
        self.by_broker: dict[str, Counter] = {}
        """Parts of the topics' counters that the broker itself appended."""
        self.delayed: dict[str, Counter] = {}
        """Parts of the topics' counters that were delivered after a delay level."""
        self.pops: dict[tuple[str, str, bool], Counter] = {}
        """Popped messages by topic, group, and whether they came from a retry topic."""
        self._other_puts = Counter()
        self._other_gets = Counter()
        self._totals: dict[str, Counter] = {}
        self.puts, self.gets = Counter(), Counter()
        """All puts since the start; all reads that found something."""
        self._system_puts: set[str] = set()
        self._system_gets: set[tuple[str, str]] = set()
        """Keys of counters that count the broker's own messages."""
        self._gone_system_puts = self._gone_system_gets = 0
        self._route_epoch = route_epoch or RouteEpoch()
        """Advanced when counters of puts are dropped, because cached routes refer to them."""
        self.behind: dict[tuple[int, str, str], tuple[int, int]] = {}
        """GROUP_GET_FALL_SIZE and _TIME by queue id, topic and group: lag in bytes and ms at the last read."""
        self.waits = WaitTimes()
        self.on_refused: Callable[[int, int, str, str], None] = _ignore_refusal
        """Gets request code, response code, client and remark of refused sends."""
        self.quarantine = Quarantine()
        """Records that background services have skipped."""
        self.failed_puts = 0
        self.missed_gets = 0
        self.longest_get_ms = 0
        self.put_times = PutTimes()
        self.put_rate, self.found_rate, self.miss_rate, self.transfer_rate = Rate(), Rate(), Rate(), Rate()
        self._last_sampled: dict[Span, int] = {}
        self._day = clock.stamp()[:8]
        self.put_mornings = 0, 0
        """Messages put by users until yesterday's and until today's midnight."""
        self.get_mornings = 0, 0
        self._seconds = 0
        self._puts_before_minute = 0
        self._sampling: Iterator[None] | None = None

    # Counting

    def put(self, topic: str, queue_id: int, count: int, size: int, times: int = 1) -> None:
        """Count messages put to a queue: their number, bytes in the log, and number of puts."""
        counter = self.put_counter(topic, queue_id)
        counter.times += times
        counter.nums += count
        counter.size += size
        if size > SMALL_MESSAGE and size > SMALL_MESSAGE * count:
            counter.count_large(size // count, count)
        self.counted(count, size)

    def put_by_broker(self, topic: str, queue_id: int, count: int, size: int, times: int = 1) -> None:
        """``put`` for messages that the broker itself appends, which the metrics do not count as incoming."""
        self.put(topic, queue_id, count, size, times)
        _add_to(self.by_broker, topic, count, size, times)

    def put_delayed(self, topic: str, queue_id: int, count: int, size: int) -> None:
        """``put`` for messages that were delivered after a delay level; the metrics have them as a type of their
        own."""
        self.put(topic, queue_id, count, size, count)
        _add_to(self.delayed, topic, count, size, count)

    def popped(self, topic: str, group: str, count: int, size: int, *, is_retry: bool) -> None:
        """Record that messages counted by ``got`` were popped: of a retry topic, under its real topic."""
        _add_to(self.pops, (topic, group, is_retry), count, size, 1)

    def put_counter(self, topic: str, queue_id: int) -> Counter:
        """The counter of a queue, for callers that count there themselves and report the sum to ``counted``.

        Invalid after ``forgets`` has changed.
        """
        try:
            return self._puts[topic][queue_id]
        except KeyError:
            return self._new_put(topic, queue_id)

    def counted(self, count: int, size: int) -> None:
        """Add messages to the totals that were counted for their queues already."""
        whole = self.puts
        whole.nums += count
        whole.size += size

    def got(self, group: str, topic: str, queue_id: int, count: int, size: int, times: int = 1) -> None:
        """Count messages read by a group: their number, bytes in the log, and number of reads."""
        try:
            counter = self._gets[topic, group][queue_id]
        except KeyError:
            counter = self._new_get(topic, group, queue_id)
        counter.times += times
        counter.nums += count
        counter.size += size
        whole = self.gets
        whole.times += times
        whole.nums += count

    def delivered(self, queue_id: int, count: int, size: int) -> None:
        """Count messages that the broker delivered from a delay queue, one by one, without a client request."""
        self.got(SCHEDULE_CONSUMER_GROUP, SCHEDULE_TOPIC, queue_id, count, size, count)
        self.gets.times -= count
        self.gets.nums -= count

    def missed_get(self) -> None:
        """Count a pull that found nothing."""
        self.missed_gets += 1

    def put_failed(self) -> None:
        """Count a message that the store refused."""
        self.failed_puts += 1

    def put_took(self, ms: int) -> None:
        """Record a store time of a millisecond or more; shorter ones are not reported."""
        self.put_times.add(ms)

    def get_took(self, ms: int) -> None:
        """Record a read time of a millisecond or more."""
        self.longest_get_ms = max(self.longest_get_ms, ms)

    def sent_back(self, group: str, topic: str) -> None:
        """Count a message that a consumer sent back."""
        self.add(SEND_BACK_NUMS, f"{topic}@{group}")

    def dead_letter(self, group: str, topic: str) -> None:
        """Count a message that moved to the dead letter queue of a group."""
        self.add(DLQ_PUT_NUMS, f"{topic}@{group}")

    def add(self, name: str, key: str, value: int = 1, times: int = 1) -> None:
        """Count a rare event, or several at once with these sums."""
        counter = self._rare.get((name, key))
        if counter is None:
            if self._count >= self._max_counters:
                return
            self._count += 1
            counter = self._rare[name, key] = Counter()
        counter.times += times
        counter.nums += value

    def fell_behind(self, group: str, topic: str, queue_id: int, size: int, ms: int) -> None:
        """Record the lag of a group that reads from disk, in bytes and milliseconds behind the end of the log."""
        if len(self.behind) < MAX_BEHIND or (queue_id, topic, group) in self.behind:
            self.behind[queue_id, topic, group] = size, ms

    def _new_put(self, topic: str, queue_id: int) -> Counter:
        if self._count >= self._max_counters:
            return self._other_puts
        self._count += 1
        if topic not in self._topics:
            self._topics[topic] = Counter()
            if self._is_system_topic(topic):
                self._system_puts.add(topic)
        counter = self._puts.setdefault(topic, {})[queue_id] = Counter()
        return counter

    def _new_get(self, topic: str, group: str, queue_id: int) -> Counter:
        if self._count >= self._max_counters:
            return self._other_gets
        self._count += 1
        if (topic, group) not in self._groups:
            self._groups[topic, group] = Counter()
            if self._is_system_topic(topic) and group != SCHEDULE_CONSUMER_GROUP:
                self._system_gets.add((topic, group))
        counter = self._gets.setdefault((topic, group), {})[queue_id] = Counter()
        return counter

    # Figures

    def view(self, name: str, key: str) -> BrokerStatsData | None:
        """A counter over the last minute, hour and day; None if it does not exist."""
        counter = self._find(name, key)
        if counter is None:
            return None
        what = SIZE if name.endswith("_SIZE") else NUMS
        return BrokerStatsData(*[counter.over(span, what) for span in SPANS])

    def minute_tps(self, name: str, key: str) -> float:
        """The rate of a counter over the last minute; 0 if it does not exist."""
        counter = self._find(name, key)
        what = SIZE if name.endswith("_SIZE") else NUMS
        return 0.0 if counter is None else counter.over(MINUTE, what).tps

    def _find(self, name: str, key: str) -> Counter | None:
        if name in {TOPIC_PUT_NUMS, TOPIC_PUT_SIZE}:
            return self._topics.get(key)
        if name in self._totals:
            return self._totals[name] if key == self._cluster else None
        parts = key.split("@")
        if name in {GROUP_GET_NUMS, GROUP_GET_SIZE}:
            return self._groups.get((parts[0], parts[1])) if len(parts) == 2 else None
        if name in {QUEUE_PUT_NUMS, QUEUE_PUT_SIZE, QUEUE_GET_NUMS, QUEUE_GET_SIZE}:
            if not self._detailed or len(parts) < 2 or not parts[1].isdecimal():
                return None
            if name in {QUEUE_PUT_NUMS, QUEUE_PUT_SIZE}:
                return self._puts.get(parts[0], {}).get(int(parts[1])) if len(parts) == 2 else None
            return self._gets.get((parts[0], parts[2]), {}).get(int(parts[1])) if len(parts) == 3 else None
        return self._rare.get((name, key))

    @property
    def user_puts(self) -> int:
        """Messages put since the start, without the broker's own."""
        system = [counter.nums for topic in self._system_puts for counter in self._puts[topic].values()]
        return self.puts.nums - self._gone_system_puts - sum(system)

    @property
    def user_gets(self) -> int:
        """Messages read since the start, without the broker's own."""
        system = [counter.nums for key in self._system_gets for counter in self._gets[key].values()]
        return self.gets.nums - self._gone_system_gets - sum(system)

    # For the metrics

    def counters_of_puts(self) -> list[tuple[str, dict[int, Counter]]]:
        """The counters of all queues, by topic."""
        return list(self._puts.items())

    def counters_of_gets(self) -> list[tuple[tuple[str, str], dict[int, Counter]]]:
        """The counters of reads by queue, by topic and group."""
        return list(self._gets.items())

    def rare_counters(self, name: str) -> list[tuple[str, Counter]]:
        """The keys and counters of a rare event."""
        return [(key, counter) for (of_name, key), counter in self._rare.items() if of_name == name]

    # Sampling

    def sample(self) -> None:
        """Take a sample; called every second on the event loop, where long work is done in slices."""
        self.sample_rates()
        if self._seconds % 10 == 1 and self._sampling is None:
            self._sampling = self._sample_in_slices()
            self._go_on_sampling(asyncio.get_running_loop())

    def _go_on_sampling(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            is_done = self._sampling is None or next(self._sampling, _DONE) is _DONE
        except Exception:
            # A generator that raised is finished: keeping it would block every later sample.
            log.exception("stats: sampling the counters failed, will start again with the next sample")
            is_done = True
        if is_done:
            self._sampling = None
        else:
            loop.call_soon(self._go_on_sampling, loop)

    def sample_rates(self) -> None:
        """The sample of every second."""
        now = self._clock.now_ms()
        self.put_rate.sample(now, self.puts.nums)
        self.found_rate.sample(now, self.gets.times)
        self.miss_rate.sample(now, self.missed_gets)
        self.transfer_rate.sample(now, self.gets.nums)
        self._seconds += 1
        if self._seconds % 60 == 0:
            self.put_times.end_minute(self.puts.nums - self._puts_before_minute)
            self._puts_before_minute = self.puts.nums

    def sample_counters(self) -> None:
        """The sample of every ten seconds; periodically also for the hour and the day."""
        for _ in self._sample_in_slices():
            pass

    def _sample_in_slices(self) -> Iterator[None]:
        now = self._clock.now_ms()
        spans = [MINUTE, *(span for span in (HOUR, DAY) if self._is_time_for(span, now))]
        self._begin_day()
        for name, nums in (
            (BROKER_PUT_NUMS, self.puts.nums),
            (BROKER_GET_NUMS, self.gets.nums),
            (BROKER_PUT_NUMS_OF_USERS, self.user_puts),
            (BROKER_GET_NUMS_OF_USERS, self.user_gets),
        ):
            if nums:
                counter = self._totals.setdefault(name, Counter())
                counter.nums = nums  # without times: RocketMQ has no averages for the totals
                counter.sample_all(spans, now)
        idle_since = now - self._max_idle_ms if HOUR in spans else 0
        done = 0
        for topic, queues in list(self._puts.items()):
            whole = self._topics.get(topic)
            if whole is None:
                # Dropped since the round began.
                continue
            done = yield from self._sample_queues(whole, queues, spans, now, done)
            if whole.changed_at < idle_since and self._topics.get(topic) is whole:
                self._forget_puts(topic)
        for key, queues in list(self._gets.items()):
            whole = self._groups.get(key)
            if whole is None:
                continue
            done = yield from self._sample_queues(whole, queues, spans, now, done)
            if whole.changed_at < idle_since and self._groups.get(key) is whole:
                self._forget_gets(key)
        for rare, counter in list(self._rare.items()):
            counter.sample_all(spans, now)
            if counter.changed_at < idle_since:
                self._forget_rare(rare)
            done += 1
            if done >= SLICE:
                done = 0
                yield

    def _sample_queues(
        self, whole: Counter, queues: dict[int, Counter], spans: list[Span], now: int, done: int
    ) -> Generator[None, None, int]:
        """Sample a topic, or the reads of a group from it. ``done``: counters sampled in this loop iteration."""
        whole.add_up(queues.values())
        whole.sample_all(spans, now)
        done += len(queues) // ADDED_UP_LIKE_ONE
        if self._detailed:
            for counter in list(queues.values()):
                counter.sample_all(spans, now)
                done += 1
                if done >= SLICE:
                    done = 0
                    yield
        return done

    def _is_time_for(self, span: Span, now: int) -> bool:
        last = self._last_sampled.get(span)
        # Half an interval early is in time: rounds are roughly ten seconds apart. A clock may be set back.
        if last is not None and 0 <= now - last < span.interval_ms - MINUTE.interval_ms // 2:
            return False
        self._last_sampled[span] = now
        return True

    def _begin_day(self) -> None:
        day = self._clock.stamp()[:8]
        if day != self._day:
            self._day = day
            self.put_mornings = self.put_mornings[1], self.user_puts
            self.get_mornings = self.get_mornings[1], self.user_gets

    # Removal

    def forget_topic(self, topic: str) -> None:
        """Drop the counters of a deleted topic. Totals keep their values."""
        self._forget_puts(topic)
        self._forget_where(lambda of_topic, _: of_topic == topic)

    def forget_group(self, group: str) -> None:
        """Drop the counters of a deleted group. Totals keep their values."""
        self._forget_where(lambda _, of_group: of_group == group)

    def _forget_puts(self, topic: str) -> None:
        queues = self._puts.pop(topic, None)
        if queues is not None:
            self._route_epoch.advance()
            del self._topics[topic]
            self.by_broker.pop(topic, None)
            self.delayed.pop(topic, None)
            if topic in self._system_puts:
                self._system_puts.discard(topic)
                self._gone_system_puts += sum([counter.nums for counter in queues.values()])
            self._count -= len(queues)

    def _forget_where(self, is_gone: Callable[[str, str], bool]) -> None:
        for key in [key for key in self._gets if is_gone(*key)]:
            self._forget_gets(key)
        for lagging in [lagging for lagging in self.behind if is_gone(lagging[1], lagging[2])]:
            del self.behind[lagging]
        for rare in [rare for rare in self._rare if is_gone(*_topic_and_group(rare[1]))]:
            self._forget_rare(rare)

    def _forget_gets(self, key: tuple[str, str]) -> None:
        queues = self._gets.pop(key, None)
        if queues is not None:
            del self._groups[key]
            for is_retry in (False, True):
                self.pops.pop((*key, is_retry), None)
            if key in self._system_gets:
                self._system_gets.discard(key)
                self._gone_system_gets += sum([counter.nums for counter in queues.values()])
            self._count -= len(queues)

    def _forget_rare(self, rare: tuple[str, str]) -> None:
        if self._rare.pop(rare, None) is not None:
            self._count -= 1


def _add_to(counters: dict[KeyT, Counter], key: KeyT, count: int, size: int, times: int) -> None:
    counter = counters.get(key)
    if counter is None:
        if len(counters) >= MAX_COUNTERS:
            return
        counter = counters[key] = Counter()
    counter.times += times
    counter.nums += count
    counter.size += size
    if size > SMALL_MESSAGE * count:
        counter.count_large(size // count, count)


def _ignore_refusal(_request: int, _response: int, _client: str, _remark: str) -> None:
    """For statistics without a journal."""


def _topic_and_group(key: str) -> tuple[str, str]:
    topic, _, group = key.partition("@")
    return topic, group
