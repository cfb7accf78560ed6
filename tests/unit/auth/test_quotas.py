"""Quotas of users and topics."""

from __future__ import annotations

import dataclasses

from orbitmq.auth.quotas.quota import MAX_NAMES, Quota


@dataclasses.dataclass
class WallClock:
    """A clock that may be set back."""

    now: int = 1_000_000

    def advance(self, ms: int) -> None:
        self.now += ms


def quota(per_second: int) -> tuple[Quota, WallClock]:
    clock = WallClock()
    return Quota(lambda: per_second, lambda: clock.now), clock


def admitted(one: Quota, name: str, count: int) -> int:
    return sum(one.admits(name) for _ in range(count))


def test_a_second_has_so_many_requests_of_each_name() -> None:
    one, clock = quota(10)
    assert admitted(one, "alice", 100) == 10
    assert admitted(one, "bob", 100) == 10
    clock.advance(300)
    assert admitted(one, "alice", 100) == 3
    clock.advance(3_600_000)
    assert admitted(one, "alice", 100) == 10


def test_without_a_quota_nothing_is_counted() -> None:
    one, _ = quota(0)
    assert admitted(one, "alice", 1000) == 1000
    assert not len(one)


def test_a_clock_that_is_set_back_stops_nobody() -> None:
    one, clock = quota(2)
    assert admitted(one, "alice", 5) == 2
    clock.advance(-3_600_000)
    assert admitted(one, "alice", 5) == 0
    clock.advance(500)
    assert admitted(one, "alice", 5) == 1


def test_the_table_is_bounded() -> None:
    one, clock = quota(1)
    for number in range(MAX_NAMES):
        one.admits(f"n{number}")
    clock.advance(2000)
    one.admits("last")
    assert len(one) == 1
