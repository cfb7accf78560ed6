"""Housekeeping under injected errors: tables, statistics and held requests continue for all others."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import pytest

from orbitmq.broker.config.persistence import ConfigWriter
from orbitmq.broker.quarantine import LINES_PER_MINUTE, MAX_ATTEMPTS, Quarantine, is_transient
from orbitmq.broker.stats.counters import BrokerStats
from orbitmq.protocol.bodies import DelayOffsetSerializeWrapper, TopicConfigSerializeWrapper
from orbitmq.protocol.codes import ResponseCode
from orbitmq.store import StoreError
from orbitmq.store.config_tables import DELAY_OFFSETS, TIMER_METRICS, TOPICS
from orbitmq.testing import ManualClock, MemoryDisk
from support.broker.requests import TOPIC, pull_request, talk
from support.remoting_harness import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


async def run_here(work: Callable[[], Any]) -> Any:
    return work()


def fails(*_: object) -> Any:
    raise RuntimeError("injected")


async def test_a_table_that_cannot_be_encoded_does_not_keep_others_from_the_disk() -> None:
    disk = MemoryDisk()
    writer = ConfigWriter(disk, "/config", cast("Any", run_here))
    writer.mark(TIMER_METRICS, fails)
    writer.mark(DELAY_OFFSETS, lambda: DelayOffsetSerializeWrapper({1: 5}))
    await writer.saved()
    assert writer.load(DELAY_OFFSETS).offset_table == {1: 5}
    await writer.stop()


async def test_failed_sampling_restarts(monkeypatch: pytest.MonkeyPatch) -> None:
    stats = BrokerStats(ManualClock(1_700_000_000_000), "DefaultCluster")
    samples = stats._sample_in_slices

    def failing() -> Iterator[None]:
        yield
        fails()

    monkeypatch.setattr(stats, "_sample_in_slices", failing)
    stats.sample()
    await eventually(lambda: stats._sampling is None)
    monkeypatch.setattr(stats, "_sample_in_slices", samples)
    stats.put(TOPIC, 0, 1, 100)
    for _ in range(10):
        stats.sample()
    await eventually(lambda: stats._sampling is None and stats._topics[TOPIC].nums == 1)


async def test_a_queue_that_cannot_be_read_delays_no_other_held_pull(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock(1_700_000_000_000)
    async with talk(None, clock) as (broker, client):
        await client.stores(b"one", topic=TOPIC)
        await client.stores(b"one", topic="Other")
        max_offset = broker.store.max_offset

        def failing(topic: str, queue_id: int) -> int:
            return cast("int", fails()) if topic == TOPIC else max_offset(topic, queue_id)

        first = client.posts(pull_request(1, TOPIC, hold_ms=15_000))
        second = client.posts(pull_request(1, "Other", hold_ms=15_000))
        await eventually(lambda: len(broker.pulls.held) == 2)
        monkeypatch.setattr(broker.store, "max_offset", failing)
        clock.advance(60_000)
        assert (await client.answer_to(second)).code == ResponseCode.PULL_NOT_FOUND
        assert len(broker.pulls.held) == 1
        monkeypatch.undo()
        assert (await client.answer_to(first)).code == ResponseCode.PULL_NOT_FOUND
        assert len(broker.pulls.held) == 0


def test_a_record_is_skipped_after_some_attempts_and_counted_once(caplog: pytest.LogCaptureFixture) -> None:
    found = Quarantine()
    error = RuntimeError("unexpected")
    for _ in range(MAX_ATTEMPTS - 1):
        assert not found.failed("timer", 0, 7, "record 7", error)
    assert found.failed("timer", 0, 7, "record 7", error)
    found.skip("timer", "record 7", "once more")
    assert found.figures() == {"quarantined_timer": "1"}
    assert caplog.messages[-1] == "timer: skipped record 7: RuntimeError: unexpected"


def test_a_flood_of_bad_records_is_counted_and_fills_no_log(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    found = Quarantine(lambda: now)
    for number in range(10_000):
        found.skip("revive", f"record {number}", "bad")
    assert len(caplog.messages) == LINES_PER_MINUTE
    now = 61.0
    found.skip("revive", "the last one", "bad")
    assert caplog.messages[-1].startswith(f"revive: skipped the last one (and {10_000 - LINES_PER_MINUTE} records")
    assert found.counts == {"revive": 10_001}


def test_transient_failures_are_distinguished_from_bad_records() -> None:
    assert is_transient(StoreError("full"))
    assert is_transient(OSError("full"))
    assert not is_transient(ValueError("bad"))


class Unencodable(TopicConfigSerializeWrapper):
    """A table with a value that has no JSON form."""

    def encode(self, **_: Any) -> bytes:
        return cast("bytes", fails())


@pytest.mark.parametrize("is_copy", [False, True])
async def test_a_table_that_cannot_be_encoded_fails_those_that_need_it_and_no_others(*, is_copy: bool) -> None:
    disk = MemoryDisk()
    writer = ConfigWriter(disk, "/config", cast("Any", run_here))
    writer.mark(TOPICS, Unencodable, is_copy=is_copy)
    writer.mark(DELAY_OFFSETS, lambda: DelayOffsetSerializeWrapper({1: 5}))
    needed, other = writer.saved(TOPICS), writer.saved()
    await asyncio.wait_for(other, 10)
    with pytest.raises(StoreError, match=r"topics\.json cannot be encoded"):
        await asyncio.wait_for(needed, 10)
    assert writer.load(DELAY_OFFSETS).offset_table == {1: 5}
    # The next round uses the next state of the table.
    writer.mark(TOPICS, TopicConfigSerializeWrapper, is_copy=is_copy)
    await asyncio.wait_for(writer.saved(TOPICS), 10)
    await writer.stop()
