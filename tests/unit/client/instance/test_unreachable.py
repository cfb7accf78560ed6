"""Addresses that readers avoid after a failed attempt to connect."""

from __future__ import annotations

from orbitmq.client.instance.unreachable import FIRST_SECONDS, MAX_ADDRESSES, MAX_SECONDS, UnreachableBrokers

ADDRESS = "127.0.0.1:10911"


class Seconds:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_an_address_is_avoided_for_longer_with_every_failure() -> None:
    clock = Seconds()
    unreachable = UnreachableBrokers(clock)
    assert ADDRESS not in unreachable
    expected = FIRST_SECONDS
    for _ in range(10):
        unreachable.failed(ADDRESS)
        clock.now += expected - 0.1
        assert ADDRESS in unreachable
        clock.now += 0.1
        assert ADDRESS not in unreachable
        expected = min(expected * 2, MAX_SECONDS)


def test_a_connection_ends_it_at_once() -> None:
    unreachable = UnreachableBrokers(Seconds())
    unreachable.failed(ADDRESS)
    unreachable.connected(ADDRESS)
    assert ADDRESS not in unreachable
    assert None not in unreachable


def test_the_table_is_limited() -> None:
    unreachable = UnreachableBrokers(Seconds())
    for number in range(MAX_ADDRESSES + 1):
        unreachable.failed(f"host:{number}")
    assert f"host:{MAX_ADDRESSES}" in unreachable
    assert "host:0" not in unreachable
