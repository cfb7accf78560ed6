"""Ranges cut for tasks, and a limit shared by queues."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from orbitmq.client.query.range_reader import QueueRange
from orbitmq.protocol.bodies import MessageQueue
from orbitmq.spark.topic_source.partitioning import shared, split

sizes = st.lists(st.integers(0, 5000), max_size=12)


def ranges(*lengths: int) -> list[QueueRange]:
    return [QueueRange(MessageQueue("t", "a", number), 100, 100 + length) for number, length in enumerate(lengths)]


def lengths(found: list[QueueRange]) -> list[tuple[int, int]]:
    return [(one.queue.queue_id, one.end - one.start) for one in found]


def test_a_queue_is_one_range_if_nothing_is_reported() -> None:
    assert lengths(split(ranges(5, 0, 7))) == [(0, 5), (2, 7)]


def test_queues_are_in_order_however_they_come() -> None:
    assert split(reversed(ranges(5, 6, 7))) == ranges(5, 6, 7)


def test_no_range_is_longer_than_allowed() -> None:
    assert lengths(split(ranges(10, 3), max_records=4)) == [(0, 3), (0, 3), (0, 4), (1, 3)]


def test_long_ranges_are_cut_until_there_are_enough() -> None:
    assert lengths(split(ranges(600, 300), min_partitions=3)) == [(0, 300), (0, 300), (1, 300)]
    assert len(split(ranges(1000), min_partitions=7)) == 7


def test_short_ranges_stay_whole_and_do_not_take_from_the_share_of_long_ones() -> None:
    assert lengths(split(ranges(5, 1000, 5), min_partitions=6)) == [
        (0, 5), (1, 250), (1, 250), (1, 250), (1, 250), (2, 5)
    ]  # fmt: skip


def test_enough_ranges_are_not_cut_further() -> None:
    assert split(ranges(5, 6), min_partitions=2) == ranges(5, 6)


def test_a_range_is_never_cut_into_nothing() -> None:
    assert lengths(split(ranges(2), min_partitions=10)) == [(0, 1), (0, 1)]
    assert split([], min_partitions=10) == []


@given(sizes, st.none() | st.integers(1, 50), st.none() | st.integers(1, 2000))
def test_everything_is_read_once_and_always_in_the_same_parts(
    given_sizes: list[int], least: int | None, most: int | None
) -> None:
    whole = ranges(*given_sizes)
    found = split(whole, min_partitions=least, max_records=most)
    assert found == split(reversed(whole), min_partitions=least, max_records=most)
    offsets = [(one.queue, offset) for one in found for offset in range(one.start, one.end)]
    assert offsets == [(one.queue, offset) for one in whole for offset in range(one.start, one.end)]
    assert all(one.start < one.end for one in found)
    assert most is None or all(one.end - one.start <= most for one in found)


def test_a_limit_is_shared_by_size() -> None:
    assert shared(100, {"a": 300, "b": 100, "c": 0}) == {"a": 75, "b": 25, "c": 0}
    assert shared(1000, {"a": 300, "b": 100}) == {"a": 300, "b": 100}


def test_who_has_little_is_not_forgotten() -> None:
    assert shared(10, {"a": 1_000_000, "b": 1}) == {"a": 9, "b": 1}


@given(st.integers(1, 10_000), st.dictionaries(st.integers(), st.integers(0, 10_000), max_size=20))
def test_a_share_is_never_more_than_there_is_and_always_gets_further(
    most: int, given_sizes: dict[int, int]
) -> None:
    found = shared(most, given_sizes)
    assert found.keys() == given_sizes.keys()
    assert all(found[key] <= size and (found[key] > 0) == (size > 0) for key, size in given_sizes.items())
    assert min(most, sum(given_sizes.values())) <= sum(found.values()) <= most + len(given_sizes)


def test_what_rounding_leaves_over_is_shared_as_well() -> None:
    assert shared(11, {"a": 20, "b": 10, "c": 10}) == {"a": 5, "b": 3, "c": 3}
    assert shared(10, {"a": 10, "b": 10, "c": 10}) == {"a": 4, "b": 3, "c": 3}


@given(st.integers(1, 500), st.dictionaries(st.integers(), st.integers(100, 10_000), min_size=1, max_size=8))
def test_batches_of_one_size_leave_no_small_one_behind_them(most: int, left: dict[int, int]) -> None:
    batches = 0
    total = sum(left.values())
    while any(left.values()):
        taken = shared(most, left)
        left = {key: size - taken[key] for key, size in left.items()}
        batches += 1
    assert batches <= -(-total // most)
