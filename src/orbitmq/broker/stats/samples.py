"""Samples of counters, and the figures computed from them: sums, rates, averages, percentiles.

Time is passed in, and sampling is triggered by the owner of a counter.
"""

from __future__ import annotations

import array
import bisect
import collections
import dataclasses
from typing import TYPE_CHECKING

from orbitmq import native
from orbitmq.protocol.bodies import BrokerStatsItem
from orbitmq.protocol.fastjson import java_double

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclasses.dataclass(frozen=True, slots=True)
class Span:
    """A period that figures are given for: its sampling interval and the number of samples."""

    name: str
    interval_ms: int
    points: int


MINUTE = Span("minute", 10_000, 7)
HOUR = Span("hour", 600_000, 7)
DAY = Span("day", 3_600_000, 25)
SPANS = (MINUTE, HOUR, DAY)

NUMS = 2
SIZE = 3
_TIMES = 1
SMALL_MESSAGE = 1024
"""Records up to this size are in the first bucket of the size histogram, and not counted for it."""
_WIDTH = 4
"""A sample is four numbers: time, times, nums, size."""


class Counter(native.Counter):
    """A counter on the path of every message, with its samples."""

    __slots__ = ("changed_at", "day", "hour", "minute")

    def __init__(self) -> None:
        self.times = 0
        self.nums = 0
        self.size = 0
        self.over_1k = self.over_4k = self.over_512k = self.over_1m = self.over_2m = self.over_4m = 0
        self.changed_at = 0
        """Time of the last sample that found it changed."""
        # Plain arrays: a counter costs little over a kilobyte, and there may be a hundred thousand.
        self.minute: array.array[int] | None = None
        self.hour: array.array[int] | None = None
        self.day: array.array[int] | None = None

    def count_large(self, size: int, count: int) -> None:
        """Count messages larger than ``SMALL_MESSAGE``, of this mean size."""
        self.over_1k += count
        if size > 4 << 10:
            self.over_4k += count
        if size > 512 << 10:
            self.over_512k += count
        if size > 1 << 20:
            self.over_1m += count
        if size > 2 << 20:
            self.over_2m += count
        if size > 4 << 20:
            self.over_4m += count

    def sample(self, span: Span, now_ms: int) -> None:
        """Take a sample. The first one is preceded by a zero, one interval earlier."""
        ring: array.array[int] | None = getattr(self, span.name)
        if ring is None:
            ring = array.array("q", (now_ms - span.interval_ms, 0, 0, 0))
            setattr(self, span.name, ring)
        ring.extend((now_ms, self.times, self.nums, self.size))
        if len(ring) > _WIDTH * span.points:
            del ring[:_WIDTH]

    def sample_all(self, spans: list[Span], now_ms: int) -> None:
        ring = self.minute
        if ring is None or ring[NUMS - _WIDTH] != self.nums:
            self.changed_at = now_ms
        for span in spans:
            self.sample(span, now_ms)

    def add_up(self, parts: Iterable[Counter]) -> None:
        """Set this counter to the sum of others."""
        times = nums = size = 0
        for part in parts:
            times += part.times
            nums += part.nums
            size += part.size
        self.times, self.nums, self.size = times, nums, size

    def over(self, span: Span, what: int) -> BrokerStatsItem:
        """Sum, rate per second and average per call of ``what`` (NUMS or SIZE) over a span."""
        ring: array.array[int] | None = getattr(self, span.name)
        if ring is None:
            return BrokerStatsItem()
        total = ring[what - _WIDTH] - ring[what]
        passed = ring[-_WIDTH] - ring[0]
        times = ring[_TIMES - _WIDTH] - ring[_TIMES]
        return BrokerStatsItem(
            sum=total,
            # A clock that was set back makes the period zero or negative.
            tps=total * 1000.0 / passed if passed > 0 else 0.0,
            avgpt=total / times if times > 0 else 0.0,
        )


RATE_SPANS = (10, 60, 600)
"""Periods in seconds for which a broker reports rates."""


class Rate:
    """A growing number, sampled every second, and its recent rates."""

    __slots__ = ("_points",)

    def __init__(self) -> None:
        self._points: collections.deque[tuple[int, int]] = collections.deque(maxlen=RATE_SPANS[-1] + 1)

    def sample(self, now_ms: int, value: int) -> None:
        self._points.append((now_ms, value))

    def per_second(self, seconds: int) -> float | None:
        """The rate over so many seconds; None until there are enough samples."""
        points = self._points
        if len(points) <= seconds:
            return None
        begin, before = points[-1 - seconds]
        end, after = points[-1]
        return (after - before) / (end - begin) * 1000 if end > begin else 0.0

    def text(self) -> str:
        """The three rates as text. An unknown one is empty."""
        rates = [self.per_second(seconds) for seconds in RATE_SPANS]
        return " ".join("" if rate is None else java_double(rate) for rate in rates)


def total_text(one: Rate, other: Rate) -> str:
    """The three rates of two numbers together. Unknown rates count as zero."""
    return " ".join(
        java_double((one.per_second(seconds) or 0.0) + (other.per_second(seconds) or 0.0)) for seconds in RATE_SPANS
    )


_SHARES = (
    (0, "<=0ms"), (10, "0~10ms"), (50, "10~50ms"), (100, "50~100ms"), (200, "100~200ms"), (500, "200~500ms"),
    (1000, "500ms~1s"), (2000, "1~2s"), (3000, "2~3s"), (4000, "3~4s"), (5000, "4~5s"), (10_000, "5~10s"),
)  # fmt: skip
_SHARE_ENDS = [end for end, _ in _SHARES]
_SHARE_NAMES = [name for _, name in _SHARES] + ["10s~"]
_STEPS = [
    *range(1, 21), *range(22, 51, 2), *range(55, 101, 5), *range(110, 201, 10), *range(250, 501, 50),
    *range(600, 1001, 100), *range(2000, 10_001, 1000),
]  # fmt: skip
"""Upper bounds in ms to which reported times are rounded up."""


class PutTimes:
    """Store times of messages, minute by minute. Only times of a millisecond or more are reported."""

    def __init__(self) -> None:
        self.longest_ms = 0
        self._slow: collections.Counter[int] = collections.Counter()
        self._last: list[tuple[int, int]] | None = None
        """Of the last complete minute: milliseconds and the number of messages that took them, ordered."""

    def add(self, ms: int) -> None:
        self.longest_ms = max(self.longest_ms, ms)
        if ms > 0:
            self._slow[min(ms, _STEPS[-1] + 1)] += 1

    def end_minute(self, count: int) -> None:
        """Close a minute with ``count`` messages. Those not reported took less than a millisecond."""
        quick = count - self._slow.total()
        self._last = [(0, max(quick, 0)), *sorted(self._slow.items())]
        self._slow.clear()

    def distribution(self) -> str:
        """Distribution of the store times of the last minute."""
        if self._last is None:
            return "null"
        shares = [0] * len(_SHARE_NAMES)
        for ms, count in self._last:
            shares[bisect.bisect_left(_SHARE_ENDS, ms)] += count
        return "".join(f"[{name}]:{count} " for name, count in zip(_SHARE_NAMES, shares, strict=True))

    def percentile(self, share: float) -> float:
        """The time within which this share of the last minute's messages was stored."""
        last = self._last or []
        index = int(sum(count for _, count in last) * share)
        passed = 0
        for ms, count in last:
            passed += count
            if index <= passed:
                at = bisect.bisect_left(_STEPS, ms)
                return float(_STEPS[min(at, len(_STEPS) - 1)])
        return float(_STEPS[0])
