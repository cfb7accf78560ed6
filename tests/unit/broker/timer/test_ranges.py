"""Runtime info: the number of deferred messages due within the next seconds, minutes and hours."""

from __future__ import annotations

import pytest

from orbitmq.protocol.bodies import KVTable
from orbitmq.protocol.codes import RequestCode
from orbitmq.store.timer.timer_wheel import SLOTS, Slot, TimerWheel
from orbitmq.testing import ManualClock, MemoryDisk
from support.broker.client_registry_harness import T0
from support.broker.requests import talk

DAY = 86_400_000


async def test_runtime_info_shows_the_number_of_messages_by_delay() -> None:
    clock = ManualClock(T0)
    async with talk(clock=clock) as (broker, client):

        async def figures() -> dict[str, str]:
            answer = await client.asks(RequestCode.GET_BROKER_RUNTIME_INFO)
            assert answer.body is not None
            return KVTable.decode(answer.body).table

        assert broker.timer is not None
        # Without timer messages the figure is missing, as in Apache's broker.
        assert "timerMessageSnapshot" not in await figures()
        for number, seconds in enumerate((3, 30, 31, 200, 800, 3000, 10_000, 20_000, 80_000, 80_001, 100_000)):
            properties = {"UNIQ_KEY": f"K{number}", "TIMER_DELAY_SEC": str(seconds)}
            await client.stores(properties=properties)
        broker.timer.run_slice()
        shown = await figures()
        assert shown["timerCongestNum"] == "11"
        assert shown["timerMessageSnapshot"] == (
            "[5]:1 [60]:2 [300]:1 [900]:1 [3600]:1 [14400]:1 [28800]:1 [86400]:2"
        )
        clock.advance(35_000)
        broker.timer.run_slice()
        broker.timer.run_slice()
        assert (await figures())["timerMessageSnapshot"].startswith("[5]:0 [60]:0 [300]:1 ")


@pytest.mark.parametrize("start", [SLOTS * 1000, (2 * SLOTS - 30) * 1000], ids=["begin", "end"])
def test_ranges_are_counted_across_the_end_of_the_wheel(start: int) -> None:
    wheel = TimerWheel(MemoryDisk(), "/timerwheel", 1000)
    assert wheel.waiting_until(start, [start + 10_000, start + DAY]) == [0, 0]
    for second in range(100):
        wheel.put(start + second * 1000, Slot(0, 52, 2))
    wheel.put(start - 1000, Slot(0, 52, 50))
    assert wheel.waiting_until(start, [start + 10_000, start + 60_000, start + DAY]) == [20, 100, 80]
    # A count from the previous turn of the wheel must not be included.
    later = start + SLOTS * 1000
    assert wheel.waiting_until(later, [later + DAY]) == [0]
