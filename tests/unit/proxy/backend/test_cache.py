"""Metadata is read once for all callers, refreshed in use, and survives a name server that is away."""

from __future__ import annotations

import asyncio

import pytest

from orbitmq.proxy.backend.cache import Cache
from orbitmq.proxy.errors import TopicNotFoundError
from orbitmq.remoting import ConnectError
from orbitmq.testing import ManualClock


class Source:
    """What is read: a counter, or the error that is set."""

    def __init__(self) -> None:
        self.reads = 0
        self.error: Exception | None = None

    async def load(self, _: str) -> int:
        self.reads += 1
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        return self.reads


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
def cache(source: Source, clock: ManualClock) -> Cache[int]:
    return Cache(source.load, clock, fresh=10, expires=60, limit=2)


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_callers_at_the_same_time_share_one_read(cache: Cache[int], source: Source) -> None:
    assert await asyncio.gather(*(cache.get("a") for _ in range(5))) == [1] * 5
    assert source.reads == 1


async def test_an_old_value_is_returned_while_it_is_read_again(cache: Cache[int], clock: ManualClock) -> None:
    assert await cache.get("a") == 1
    clock.advance(11_000)
    assert await cache.get("a") == 1
    await settled()
    assert await cache.get("a") == 2


async def test_a_value_stays_while_its_source_is_away_and_then_expires(
    cache: Cache[int], source: Source, clock: ManualClock
) -> None:
    await cache.get("a")
    source.error = ConnectError("away")
    clock.advance(30_000)
    assert await cache.get("a") == 1
    await settled()
    assert await cache.get("a") == 1
    await settled()
    clock.advance(31_000)
    with pytest.raises(ConnectError):
        await cache.get("a")


async def test_a_value_that_no_longer_exists_is_removed(
    cache: Cache[int], source: Source, clock: ManualClock
) -> None:
    await cache.get("a")
    source.error = TopicNotFoundError("a")
    clock.advance(11_000)
    await cache.get("a")
    await settled()
    with pytest.raises(TopicNotFoundError):
        await cache.get("a")


async def test_a_newer_value_is_read_if_the_known_one_is_too_old(cache: Cache[int], clock: ManualClock) -> None:
    await cache.get("a")
    clock.advance(2_000)
    assert await cache.newer("a", 5) == 1
    assert await cache.newer("a", 1) == 2


async def test_the_value_that_was_read_longest_ago_makes_room(cache: Cache[int]) -> None:
    for name in ("a", "b", "c"):
        await cache.get(name)
    assert len(cache) == 2
    assert await cache.get("a") == 4


async def test_a_cancelled_caller_does_not_cancel_the_read(cache: Cache[int]) -> None:
    first = asyncio.create_task(cache.get("a"))
    second = asyncio.create_task(cache.get("a"))
    await asyncio.sleep(0)
    first.cancel()
    assert await second == 1
