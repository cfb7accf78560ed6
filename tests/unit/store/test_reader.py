"""Reading by queue offset, time, key and id: statuses, limits, filters, and nothing damaged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.protocol import ProtocolError
from orbitmq.protocol.java import tags_code
from orbitmq.protocol.message.properties import find
from orbitmq.protocol.message.record import decode_record
from orbitmq.store import Boundary, GetStatus, MessageStore, StoredMessage
from orbitmq.testing import ManualClock, MemoryDisk
from support.store.stores import (
    LOG_FILE,
    SYNC,
    T0,
    TOPIC,
    edit_log,
    offsets_of,
    open_small,
    read_all,
    record_at,
    send,
    served,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BIG: dict[str, Any] = {"mapped_file_size_commit_log": 1 << 20, "mapped_file_size_consume_queue": 1 << 20}
"""Files whose ends are out of a test's way."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    store = open_small(tmp_path, **BIG)
    yield store
    if store.is_open:
        store.abandon()


@pytest.fixture
def small(tmp_path: Path) -> Iterator[MessageStore]:
    """A store whose log begins behind its first files: the first ten messages of a queue have expired."""
    store = open_small(tmp_path)
    send(store, 30, size=600)
    for base in store.log.files.bases[:2]:
        store.log.files.remove(base)
    for queue in store.queues.all():
        queue.expire(store.log.start)
    assert store.min_offset(TOPIC, 0) == 10
    yield store
    store.abandon()


def outcome(store: MessageStore, offset: int, **how: Any) -> tuple[str, int, int]:
    result = store.get(TOPIC, 0, offset, **how)
    assert result.count == len(served(result))
    assert result.size == sum(len(piece) for piece in result.slices)
    assert bool(result.slices) is (result.status is GetStatus.FOUND)
    return result.status.name, result.next_begin_offset, result.count


# Where a reader stands


def test_an_unknown_queue_is_no_queue(store: MessageStore) -> None:
    send(store)
    for topic, queue_id in (("Other", 0), (TOPIC, 1)):
        result = store.get(topic, queue_id, 5)
        assert (result.status, result.next_begin_offset) == (GetStatus.NO_MATCHED_LOGIC_QUEUE, 0)
    assert store.queues.names() == [TOPIC]


def test_a_read_of_an_empty_queue_reports_it(tmp_path: Path) -> None:
    with open_small(tmp_path, **SYNC) as store:
        send(store)  # not seen before it is flushed
        for offset in (0, 5):
            assert outcome(store, offset) == ("NO_MESSAGE_IN_QUEUE", 0, 0)


@pytest.mark.parametrize(
    ("offset", "status", "after"),
    [
        (-1, "OFFSET_TOO_SMALL", 10),
        (0, "OFFSET_TOO_SMALL", 10),
        (9, "OFFSET_TOO_SMALL", 10),
        (30, "OFFSET_OVERFLOW_ONE", 30),
        (31, "OFFSET_OVERFLOW_BADLY", 30),
        (1 << 40, "OFFSET_OVERFLOW_BADLY", 30),
    ],
)
def test_an_offset_outside_of_the_queue_is_corrected(
    small: MessageStore, offset: int, status: str, after: int
) -> None:
    assert outcome(small, offset) == (status, after, 0)
    result = small.get(TOPIC, 0, offset)
    assert (result.min_offset, result.max_offset) == (10, 30)


def test_a_result_begins_at_the_offset_and_has_the_next_one(small: MessageStore) -> None:
    assert outcome(small, 10, max_count=3) == ("FOUND", 13, 3)
    assert outcome(small, 29) == ("FOUND", 30, 1)
    assert [record.queue_offset for record in read_all(small)] == list(range(10, 30))


def test_units_that_cannot_be_read_are_written_again_from_the_log() -> None:
    disk = MemoryDisk()
    with open_small("/store", disk=disk, mapped_file_size_commit_log=1 << 20) as store:
        send(store, 300)
        store.sync_queues()
        disk.remove(f"/store/consumequeue/{TOPIC}/0/{200:020d}")
        assert outcome(store, 5, max_count=9) == ("FOUND", 10, 5)
        assert outcome(store, 13) == ("FOUND", 20, 7)
        assert outcome(store, 10) == ("FOUND", 20, 10)
        assert outcome(store, 20, max_count=1) == ("FOUND", 21, 1)


def test_expired_records_are_skipped(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        send(store, 30, size=600)
        store.log.files.remove(0)  # its queue has not followed yet
        assert outcome(store, 0, max_count=3) == ("FOUND", 8, 3)
        assert outcome(store, 4, max_count=3) == ("FOUND", 8, 3)
    # Written by another process now, and so looked at closely.
    with open_small(tmp_path) as store:
        send(store, 5, size=600)
        store.log.files.remove(LOG_FILE)
        assert outcome(store, 5, max_count=3) == ("MESSAGE_WAS_REMOVING", 10, 0)
        assert outcome(store, 10, max_count=3) == ("FOUND", 13, 3)


def leave_gap(store: MessageStore, count: int) -> None:
    """Let the next records of the queue have numbers as if some before them were damaged."""
    send(store, count, queue_id=9)  # what lies there in the log
    store.queues.get(TOPIC, 0).next_offset += count


def test_fillers_are_passed_over(tmp_path: Path) -> None:
    with open_small(tmp_path, **BIG) as store:
        offsets = send(store, 3)
        leave_gap(store, 4)
        offsets += send(store, 2)
        assert offsets_of(read_all(store)) == offsets
        assert outcome(store, 0) == ("FOUND", 9, 5)
        assert outcome(store, 4) == ("FOUND", 9, 2)
        assert outcome(store, 3, matches_code=lambda _: False) == ("NO_MATCHED_MESSAGE", 9, 0)


# Filters


def test_a_code_filter_sees_the_tags_codes_and_no_record(store: MessageStore) -> None:
    for tag in ("a", "b", "c", "b", "a"):
        send(store, TAGS=tag)
    wanted = {tags_code("b")}
    result = store.get(TOPIC, 0, 0, matches_code=wanted.__contains__)
    assert [record.queue_offset for record in served(result)] == [1, 3]
    assert result.next_begin_offset == 5
    assert outcome(store, 4, matches_code=wanted.__contains__) == ("NO_MATCHED_MESSAGE", 5, 0)


def test_a_record_filter_sees_the_records_that_passed_the_code_filter(store: MessageStore) -> None:
    for number, tag in enumerate("ababab"):
        send(store, TAGS=tag, number=str(number))
    seen: list[bytes | None] = []

    def is_large(record: memoryview) -> bool:
        number = find(decode_record(record).properties, b"number")
        seen.append(number)
        return number is not None and int(number) >= 3

    result = store.get(TOPIC, 0, 0, matches_code={tags_code("b")}.__contains__, matches_record=is_large)
    assert seen == [b"1", b"3", b"5"]
    assert [record.queue_offset for record in served(result)] == [3, 5]


def test_a_filter_examines_a_bounded_number_of_units(store: MessageStore) -> None:
    send(store, 2000)
    store.sync_queues()
    assert outcome(store, 0, matches_code=lambda _: False) == ("NO_MATCHED_MESSAGE", 800, 0)
    assert outcome(store, 100, matches_code=lambda _: False, max_count=900) == ("NO_MATCHED_MESSAGE", 1000, 0)


# Limits


@pytest.mark.parametrize(("memory", "most"), [(1 << 40, 32), (1, 8)])
def test_an_answer_has_a_limited_number_of_messages(tmp_path: Path, memory: int, most: int) -> None:
    with open_small(tmp_path, **BIG, memory_size=memory) as store:
        send(store, 50)
        assert outcome(store, 0, max_count=100) == ("FOUND", most, most)
        assert outcome(store, 0, max_count=5) == ("FOUND", 5, 5)
        assert outcome(store, 0, max_count=1) == ("FOUND", 1, 1)


@pytest.mark.parametrize(("memory", "most"), [(1 << 40, 262144), (1, 65536)])
def test_an_answer_has_a_limited_number_of_bytes(tmp_path: Path, memory: int, most: int) -> None:
    with open_small(tmp_path, **BIG, memory_size=memory) as store:
        send(store, 3, size=most // 2 - 97)  # two of them fill the limit exactly
        size = record_at(store, 0).size
        assert 2 * size == most
        assert outcome(store, 0)[2] == 2
        assert outcome(store, 0, max_bytes=2 * size - 1)[2] == 1
        assert outcome(store, 0, max_bytes=2 * size)[2] == 2
        # The first message comes whatever its size.
        assert outcome(store, 0, max_bytes=1)[2] == 1


def test_the_limits_of_the_disk_hold_for_what_is_far_from_the_end(tmp_path: Path) -> None:
    # Forty per cent of this memory are the last 4000 bytes of the log.
    with open_small(tmp_path, **BIG, memory_size=10_000) as store:
        send(store, 100, size=103)
        assert record_at(store, 0).size == 200
        assert outcome(store, 0)[2] == 8
        assert outcome(store, 80)[2] == 20
        assert outcome(store, 78)[2] == 22  # the first two count as on disk, and eight of those would do
        assert outcome(store, 70)[2] == 8


def test_an_answer_tells_how_far_its_reader_lags(store: MessageStore) -> None:
    offsets = send(store, 10)
    assert store.get(TOPIC, 0, 0, 3).behind == store.log.end - offsets[2]
    assert store.get(TOPIC, 0, 9).behind == store.log.end - offsets[9]


# Slices


def test_records_that_follow_each_other_are_one_slice_of_the_map(store: MessageStore) -> None:
    send(store, 4)
    result = store.get(TOPIC, 0, 0)
    assert [piece.obj for piece in result.slices] == [store.log.files.mapped(0).buffer]
    assert len(result.slices[0]) == result.size == sum(record.size for record in served(result))


def test_scattered_records_are_copied_together_while_they_are_small(tmp_path: Path) -> None:
    with open_small(tmp_path, mapped_file_size_commit_log=1 << 20) as store:
        for size in (10, 40_000):
            for queue_id in (0, 1, 0, 1, 0):
                send(store, 1, queue_id=queue_id, size=size)
        small = store.get(TOPIC, 0, 0, 3)
        assert (len(small.slices), small.count) == (1, 3)
        large = store.get(TOPIC, 0, 3, 3)
        assert [piece.obj for piece in large.slices] == [store.log.files.mapped(0).buffer] * 3
        assert [record.queue_offset for record in (*served(small), *served(large))] == [0, 1, 2, 3, 4, 5]


def test_a_slice_ends_with_its_file(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        send(store, 12, size=600)
        result = store.get(TOPIC, 0, 0)
        assert len(result.slices) == 3
        assert result.count == 12


def test_a_slice_outlives_the_store(store: MessageStore) -> None:
    send(store, 3)
    result = store.get(TOPIC, 0, 0)
    store.close()
    assert len(served(result)) == 3


# Time


def by_time(store: MessageStore, timestamp: int, boundary: Boundary) -> int | None:
    return store.reader.offset_by_time(TOPIC, 0, timestamp, boundary)


@given(
    gaps=st.lists(st.sampled_from([0, 0, 1, 2, 10]), max_size=40),
    expired=st.integers(0, 5),
    fillers=st.integers(0, 3),
    asked=st.integers(-3, 60),
)
def test_a_time_leads_to_the_messages_around_it(gaps: list[int], expired: int, fillers: int, asked: int) -> None:
    clock = ManualClock(T0)
    times: list[tuple[int, int]] = []
    with open_small("/store", disk=MemoryDisk(), clock=clock, mapped_file_size_commit_log=512) as store:
        for number, gap in enumerate(gaps):
            clock.advance(gap)
            if number == 3 and fillers:
                leave_gap(store, fillers)
            times.append((store.append(StoredMessage(TOPIC, 0, b"")).queue_offset, clock.now_ms()))
        for base in store.log.files.bases[:expired][: len(store.log.files) - 1]:
            store.log.files.remove(base)
        for queue in store.queues.all():
            queue.expire(store.log.start)
        first, end = store.min_offset(TOPIC, 0), store.max_offset(TOPIC, 0)
        timestamp = T0 + asked
        lower, upper = (by_time(store, timestamp, boundary) for boundary in Boundary)
    kept = [(offset, time) for offset, time in times if offset >= first]
    if not gaps:
        assert lower is upper is None
        return
    at_or_after = [offset for offset, time in kept if time >= timestamp]
    before_or_at = [offset for offset, time in kept if time <= timestamp]
    # A filler stands for what followed it: nothing is missed by starting there.
    if at_or_after:
        assert lower is not None
        assert lower <= at_or_after[0]
        assert not [offset for offset, _ in kept if lower <= offset < at_or_after[0]]
    else:
        assert lower == end
    if before_or_at:
        assert upper is not None
        assert upper >= before_or_at[-1]
        assert not [offset for offset, _ in kept if before_or_at[-1] < offset <= upper]
    else:
        assert upper == first


@pytest.mark.parametrize(
    ("asked", "lower", "upper"),
    [(-1, 0, 0), (0, 0, 1), (1, 2, 1), (10, 2, 4), (11, 5, 4), (20, 5, 5), (21, 6, 5)],
)
def test_equal_times_are_bounded_by_their_first_and_last_message(
    tmp_path: Path, asked: int, lower: int, upper: int
) -> None:
    clock = ManualClock(T0)
    with open_small(tmp_path, clock=clock) as store:
        for count in (2, 3, 1):
            send(store, count)
            clock.advance(10)
        assert by_time(store, T0 + asked, Boundary.LOWER) == lower
        assert by_time(store, T0 + asked, Boundary.UPPER) == upper
        assert store.reader.offset_by_time("Other", 0, T0) is None


def test_the_earliest_time_is_that_of_the_oldest_message_there_is(tmp_path: Path) -> None:
    clock = ManualClock(T0)
    with open_small(tmp_path, clock=clock) as store:
        assert store.reader.earliest_time(TOPIC, 0) is None
        for _ in range(12):
            send(store, size=600)
            clock.advance(1)
        assert store.reader.earliest_time(TOPIC, 0) == T0
        store.log.files.remove(0)
        for queue in store.queues.all():
            queue.expire(store.log.start)
        assert store.reader.earliest_time(TOPIC, 0) == T0 + 5


# Keys and ids


def test_a_key_is_looked_up_within_a_range_of_time(tmp_path: Path) -> None:
    clock = ManualClock(T0)
    with open_small(tmp_path, clock=clock) as store:
        offsets = []
        for _ in range(5):
            offsets += send(store, KEYS="k")
            clock.advance(10_000)

        def found(**limits: Any) -> list[int]:
            return [decode_record(record).physical_offset for record in store.query(TOPIC, "k", **limits).records]

        assert found() == offsets
        assert found(begin=T0 + 10_000) == offsets[1:]
        assert found(end=T0 + 20_000) == offsets[:3]
        assert found(begin=T0 + 5_000, end=T0 + 35_000) == offsets[1:4]
        assert found(max_count=2) == offsets[-2:]
        result = store.query(TOPIC, "k")
        assert (result.last_update_timestamp, result.last_update_offset) == (T0 + 40_000, offsets[-1])


def test_a_store_without_index_finds_nothing_by_key(tmp_path: Path) -> None:
    with open_small(tmp_path, message_index_enable=False) as store:
        send(store, KEYS="k")
        assert store.query(TOPIC, "k").records == []
    assert not (tmp_path / "index").exists()


def test_a_message_id_leads_to_its_record_whatever_host_it_names(store: MessageStore) -> None:
    offsets = send(store, 3)
    for offset in offsets:
        assert store.message_id(offset) == f"7F00000100002A9F{offset:016X}"
        found = store.reader.by_message_id(f"0A00000100001111{offset:016X}")
        assert found is not None
        assert decode_record(found).physical_offset == offset
    for offset in (offsets[1] - 1, offsets[1] + 1, store.log.end, 1 << 40):
        assert store.reader.by_message_id(f"7F00000100002A9F{offset:016X}") is None
    with pytest.raises(ProtocolError):
        store.reader.by_message_id("nonsense")


# Damage


@pytest.mark.parametrize("damaged", [0, 2, 5])
def test_a_record_whose_body_fails_its_crc_is_never_served(tmp_path: Path, damaged: int) -> None:
    with open_small(tmp_path) as store:
        offsets = send(store, 7, KEYS="k", TAGS="t")
    edit_log(tmp_path, offsets[damaged] + 89, b"\xff")
    with open_small(tmp_path) as store:
        intact = offsets[:damaged] + offsets[damaged + 1 :]
        assert offsets_of(read_all(store)) == intact
        assert store.record(offsets[damaged]) is None
        assert store.reader.by_message_id(store.message_id(offsets[damaged])) is None
        for key, kind in (("k", None), ("t", "T")):
            found = store.query(TOPIC, key, index_type=kind).records
            assert [decode_record(record).physical_offset for record in found] == intact
        assert outcome(store, damaged, max_count=1, matches_record=lambda _: True) == ("FOUND", damaged + 2, 1)
        assert store.max_offset(TOPIC, 0) == 7
        # A time still leads somewhere.
        assert by_time(store, T0, Boundary.LOWER) == 0


@pytest.mark.parametrize("crashed", [False, True])
def test_a_damaged_last_record_is_not_served_either(tmp_path: Path, crashed: bool) -> None:
    with open_small(tmp_path) as store:
        offsets = send(store, 7, KEYS="k")
    edit_log(tmp_path, offsets[6] + 89, b"\xff")
    if crashed:
        (tmp_path / "abort").touch()
    with open_small(tmp_path) as store:
        assert offsets_of(read_all(store)) == offsets[:6]
        assert len(store.query(TOPIC, "k").records) == 6
        # After a crash it counts as torn, and the log goes on in its place.
        (new,) = send(store, KEYS="k")
        assert new == (offsets[6] if crashed else offsets[6] + offsets[6] - offsets[5])
        assert offsets_of(read_all(store)) == [*offsets[:6], new]
        assert len(store.query(TOPIC, "k").records) == 7
