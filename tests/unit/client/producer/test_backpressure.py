"""How much may be on its way, and who gets room when."""

from __future__ import annotations

import asyncio
import functools

import pytest

from orbitmq.client.errors import TooManySendsError
from orbitmq.client.producer.backpressure import InFlight
from support.remoting_harness import eventually


def test_one_more_than_allowed_is_refused() -> None:
    in_flight = InFlight(2, 100)
    in_flight.enter(1)
    in_flight.enter(1)
    with pytest.raises(TooManySendsError, match="2 messages of 2 bytes"):
        in_flight.enter(1)
    in_flight.leave(1)
    in_flight.enter(1)


def test_bytes_count_as_well() -> None:
    in_flight = InFlight(10, 100)
    in_flight.enter(60)
    assert in_flight.fits(40)
    assert not in_flight.fits(41)
    with pytest.raises(TooManySendsError):
        in_flight.enter(41)


def test_what_is_larger_than_all_room_goes_alone() -> None:
    in_flight = InFlight(10, 100)
    in_flight.enter(1000)
    assert not in_flight.fits(0)
    in_flight.leave(1000)
    assert in_flight.fits(0)


async def test_room_is_given_in_the_order_in_which_it_was_asked_for() -> None:
    in_flight = InFlight(1, 100)
    in_flight.enter(1)
    came: list[int] = []

    def has_come(count: int) -> bool:
        return len(came) == count

    async def enter(number: int) -> None:
        await in_flight.enter_later(1, 10)
        came.append(number)

    tasks = [asyncio.create_task(enter(number)) for number in range(3)]
    await asyncio.sleep(0)
    for so_far in range(3):
        assert came == list(range(so_far))
        in_flight.leave(1)
        await eventually(functools.partial(has_come, so_far + 1))
    await asyncio.gather(*tasks)
    assert in_flight.count == 1


async def test_nobody_overtakes_a_large_one_that_waits() -> None:
    in_flight = InFlight(10, 100)
    in_flight.enter(60)
    large = asyncio.create_task(in_flight.enter_later(80, 10))
    await asyncio.sleep(0)
    assert not in_flight.fits(1)
    in_flight.leave(60)
    await large
    assert in_flight.fits(1)
    assert in_flight.bytes == 80


async def test_waiting_for_room_has_an_end() -> None:
    in_flight = InFlight(1, 100)
    in_flight.enter(1)
    with pytest.raises(TooManySendsError, match="no capacity for another message within"):
        await in_flight.enter_later(1, 0.01)
    in_flight.leave(1)
    assert in_flight.fits(1)
    assert (in_flight.count, in_flight.bytes) == (0, 0)


async def test_one_that_stops_waiting_leaves_its_place_to_the_next() -> None:
    in_flight = InFlight(10, 100)
    in_flight.enter(60)
    large = asyncio.create_task(in_flight.enter_later(80, 10))
    await asyncio.sleep(0)
    small = asyncio.create_task(in_flight.enter_later(10, 10))
    await asyncio.sleep(0)
    assert not small.done()
    large.cancel()
    await small
    assert in_flight.bytes == 70


async def test_room_that_is_given_to_one_who_has_just_left_is_not_lost() -> None:
    in_flight = InFlight(1, 100)
    in_flight.enter(1)
    waiting = asyncio.create_task(in_flight.enter_later(1, 10))
    await asyncio.sleep(0)
    in_flight.leave(1)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert (in_flight.count, in_flight.bytes) == (0, 0)


async def test_waiting_for_room_takes_none() -> None:
    in_flight = InFlight(1, 100)
    await in_flight.room()
    in_flight.enter(1)
    waiting = asyncio.create_task(in_flight.room())
    await asyncio.sleep(0)
    assert not waiting.done()
    in_flight.leave(1)
    await waiting
    assert in_flight.count == 0


async def test_drained_waits_for_the_last_one() -> None:
    in_flight = InFlight(2, 100)
    await in_flight.drained()
    in_flight.enter(1)
    in_flight.enter(1)
    drained = [asyncio.create_task(in_flight.drained()) for _ in range(2)]
    await asyncio.sleep(0)
    in_flight.leave(1)
    await asyncio.sleep(0)
    assert not any(task.done() for task in drained)
    in_flight.leave(1)
    await asyncio.gather(*drained)
