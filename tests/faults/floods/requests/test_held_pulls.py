"""Held pulls, and pulls whose filter matches nothing: shares for clients, bounded work per loop iteration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.broker.long_polling import table
from orbitmq.platform.limit_counts import Limit
from orbitmq.protocol.codes import ResponseCode
from orbitmq.store import StoredMessage
from orbitmq.store import reader as reading
from support.broker.requests import HOLD_MS, TOPIC, bodies, pull_request, talk, talking_to
from support.limit_counts import counts
from support.remoting_harness import eventually

if TYPE_CHECKING:
    import pytest

    from orbitmq.broker import Broker

NOTHING = {"tags": "a = 'never'", "expressionType": "SQL92"}
LOOKED_AT = 800
"""Units that one read scans, by the default of maxFilterMessageSize."""


@counts(Limit.HELD_PULLS)
async def test_one_address_may_hold_half_of_the_remaining_pulls_and_gets_responses_at_once_beyond_it() -> None:
    async with talk(maxHeldPulls=40) as (broker, first), talking_to(broker) as second, talking_to(broker) as third:
        await first.stores()
        for client in (first, second):
            for _ in range(10):
                client.posts(pull_request(1, hold_ms=HOLD_MS))
        await eventually(lambda: len(broker.pulls.held) == 20)
        assert (await third.pulls(1, hold_ms=HOLD_MS)).code == ResponseCode.PULL_NOT_FOUND
        await first.stores(b"wakes all")
        await eventually(lambda: len(broker.pulls.held) == 0)
        opaque = third.posts(pull_request(2, hold_ms=HOLD_MS))
        await eventually(lambda: len(broker.pulls.held) == 1)
        await first.stores(b"later")
        assert bodies(await third.answer_to(opaque)) == [b"later"]


async def test_very_many_held_pulls_are_woken_over_several_loop_iterations(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(table, "SLICE_REQUESTS", 10)
    async with talk() as (broker, client), talking_to(broker) as other:
        await client.stores()
        opaques = [other.posts(pull_request(1, hold_ms=HOLD_MS)) for _ in range(100)]
        await eventually(lambda: len(broker.pulls.held) == 100)
        before = broker.pulls.held.slices
        await client.stores(b"for all")
        assert [bodies(await other.answer_to(opaque)) for opaque in opaques] == [[b"for all"]] * 100
        assert broker.pulls.held.slices - before >= 10


async def filled(broker: Broker, count: int) -> None:
    for number in range(count):
        broker.store.append(
            StoredMessage(TOPIC, 0, b"x", f"n\x01{number}\x02".encode(), born_timestamp=0, born_host=bytes(8))
        )


async def test_a_pull_scans_a_bounded_number_of_records_whatever_its_count() -> None:
    async with talk(enablePropertyFilter=True) as (broker, client):
        await client.stores()
        await filled(broker, 3000)
        answer = await client.pulls(0, most=2**31 - 1, **NOTHING)
        assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
        assert 0 < int(answer.ext_fields["nextBeginOffset"]) <= reading.MAX_IN_BULK
        answer = await client.pulls(0, most=2**31 - 1, tags="never")
        assert 0 < int(answer.ext_fields["nextBeginOffset"]) <= reading.MAX_IN_BULK


@counts(Limit.FILTER_TIME)
async def test_a_pull_with_a_slow_filter_gets_its_next_offset(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reading, "FILTER_SECONDS", 0)
    async with talk(enablePropertyFilter=True) as (broker, client):
        await client.stores()
        await filled(broker, 3 * reading.MIN_FILTERED)
        offset, answers = 0, 0
        while (answer := await client.pulls(offset, **NOTHING)).code == ResponseCode.PULL_RETRY_IMMEDIATELY:
            moved = int(answer.ext_fields["nextBeginOffset"])
            assert 0 < moved - offset <= reading.MIN_FILTERED
            offset, answers = moved, answers + 1
        assert answer.code == ResponseCode.PULL_NOT_FOUND
        assert (offset, answers) == (3 * reading.MIN_FILTERED + 1, 4)


async def test_a_held_pull_with_a_filter_scans_a_bounded_number_of_records_per_iteration() -> None:
    async with talk(enablePropertyFilter=True) as (broker, client), talking_to(broker) as other:
        await client.stores()
        opaque = other.posts(pull_request(1, hold_ms=HOLD_MS, tags="n = '4999'", expressionType="SQL92"))
        await eventually(lambda: len(broker.pulls.held) == 1)
        before = broker.pulls.held.slices
        await filled(broker, 5000)
        assert (await other.answer_to(opaque)).code in {ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY}
        assert broker.pulls.held.slices - before >= 5000 // LOOKED_AT
