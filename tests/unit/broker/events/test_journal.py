"""The event journal: bounds, filters, and a file that survives restarts and damage."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.broker.events.journal import FILE, MAX_PER_MINUTE, MAX_TEXT, EventJournal
from orbitmq.platform.clock import SystemClock
from orbitmq.platform.threads import in_thread
from orbitmq.protocol.broker_events import BrokerEvent, BrokerEvents, EventKind
from orbitmq.testing.simulation.disk import MemoryDisk

if TYPE_CHECKING:
    from collections.abc import Callable

DIRECTORY = "/store/config"


class Clock(SystemClock):
    """A clock that tests move."""

    def __init__(self) -> None:
        self.now = 1_000_000

    def now_ms(self) -> int:
        return self.now


def journal(disk: MemoryDisk | None = None, clock: Clock | None = None, max_bytes: int = 100_000) -> EventJournal:
    return EventJournal(disk or MemoryDisk(), DIRECTORY, clock or Clock(), max_bytes)


def every(events: EventJournal) -> list[BrokerEvent]:
    return events.find(0, 0, (), 1000).events


async def run_blocking(work: Callable[[], None]) -> None:
    await in_thread(work)


def test_events_are_found_by_time_kind_sequence_and_number() -> None:
    clock = Clock()
    events = journal(clock=clock)
    for number in range(10):
        clock.now = 1_000_000 + number
        events.record(EventKind.TOPIC_CREATE if number % 2 else EventKind.REBALANCE, f"subject-{number}")
    assert [event.sequence for event in every(events)] == [*range(1, 11)]
    assert len(events.find(1_000_007, 0, (), 1000).events) == 3
    assert [event.subject for event in events.find(0, 0, {"REBALANCE"}, 2).events] == ["subject-6", "subject-8"]
    found = events.find(0, 8, (), 1000)
    assert [event.sequence for event in found.events] == [9, 10]
    assert (found.oldest_sequence, found.next_sequence) == (1, 11)


def test_the_oldest_events_leave_when_the_bytes_are_used_up() -> None:
    events = journal(max_bytes=2000, clock=(clock := Clock()))
    for number in range(500):
        clock.now += 60_000
        events.record(EventKind.SLOW_FLUSH, str(number))
    kept = every(events)
    assert 5 < len(kept) < 40
    assert kept[-1].subject == "499"


def test_a_flood_of_one_kind_is_summed_up_and_leaves_the_others() -> None:
    clock = Clock()
    events = journal(clock=clock, max_bytes=1 << 20)
    for _ in range(MAX_PER_MINUTE + 50):
        events.record(EventKind.REQUEST_REFUSED, "SEND_MESSAGE_V2")
    events.record(EventKind.TOPIC_CREATE, "orders")
    clock.now += 60_000
    events.record(EventKind.TOPIC_DELETE, "orders")
    kinds = [event.kind for event in every(events)]
    assert kinds.count("REQUEST_REFUSED") == MAX_PER_MINUTE + 1
    assert kinds.count("TOPIC_CREATE") == 1
    assert every(events)[-2].detail == "50 more events of this kind in the minute before"
    assert events.counts["REQUEST_REFUSED"] == MAX_PER_MINUTE + 50


def test_a_journal_without_bytes_only_counts() -> None:
    events = journal(max_bytes=0)
    events.record(EventKind.REBALANCE, "g")
    assert (every(events), events.counts["REBALANCE"]) == ([], 1)


async def test_the_history_goes_on_after_a_restart() -> None:
    disk = MemoryDisk()
    before = journal(disk)
    before.load()
    before.record(EventKind.CONSUMER_JOIN, "billing", "c@1 (127.0.0.1:5)\n\ud800")
    before.record(EventKind.REBALANCE, "x" * 1000)
    await before.persist(run_blocking)
    after = journal(disk)
    after.load()
    after.record(EventKind.BROKER_START)
    found = every(after)
    assert [event.sequence for event in found] == [1, 2, 3]
    assert (found[0].subject, found[0].detail) == ("billing", "c@1 (127.0.0.1:5)\n?")
    assert len(found[1].subject) == MAX_TEXT
    disk.write(f"{DIRECTORY}/{FILE}", b"")
    await after.persist(run_blocking)
    again = journal(disk)
    again.load()
    assert [event.kind for event in every(again)] == ["CONSUMER_JOIN", "REBALANCE", "BROKER_START"]


@given(st.binary(max_size=300))
def test_no_damage_of_the_file_keeps_a_broker_from_starting(damage: bytes) -> None:
    disk = MemoryDisk()
    good = b'{"sequence":7,"timestamp":5,"kind":"REBALANCE","subject":"g","detail":""}\n'
    disk.write(f"{DIRECTORY}/{FILE}", damage.replace(b"sequence", b"") + b"\n" + good)
    events = journal(disk)
    events.load()
    assert [event.sequence for event in every(events)] == [7]


@pytest.mark.parametrize(
    "line",
    [
        b"[]",
        b"1",
        b"{}",
        b'{"sequence":true,"timestamp":5,"kind":"K","subject":"","detail":""}',
        b'{"sequence":-1,"timestamp":5,"kind":"K","subject":"","detail":""}',
        b'{"sequence":1,"timestamp":"5","kind":"K","subject":"","detail":""}',
        b'{"sequence":1,"timestamp":5,"kind":null,"subject":"","detail":""}',
    ],
)
def test_a_line_of_another_shape_is_left_out(line: bytes) -> None:
    disk = MemoryDisk()
    disk.write(f"{DIRECTORY}/{FILE}", line + b"\n")
    events = journal(disk)
    events.load()
    assert every(events) == []


EVENTS = st.builds(
    BrokerEvent,
    st.integers(1, 1 << 40),
    st.integers(0, 1 << 40),
    st.sampled_from(list(EventKind)).map(str),
    st.text(st.characters(codec="utf-8"), max_size=30),
    st.text(st.characters(codec="utf-8"), max_size=30),
)


@given(st.builds(BrokerEvents, st.lists(EVENTS, max_size=5), st.integers(0, 1 << 40), st.integers(1, 1 << 40)))
def test_an_answer_is_decoded_as_what_it_was(answer: BrokerEvents) -> None:
    assert BrokerEvents.decode(answer.encode()) == answer
