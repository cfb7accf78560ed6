"""Where an archive ends and brokers go on: every message of a topic comes from one place, and gaps are reported."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable

from orbitmq.client.query.queue_offsets import Bounds
from orbitmq.protocol.bodies import MessageQueue
from orbitmq.spark.errors import OptionError
from orbitmq.spark.pipelines.archive.directory import Archive, ArchivedFile, ArchiveError, Segment
from orbitmq.spark.pipelines.sql.archive_live_boundary import ArchiveMoment, seam_of
from orbitmq.spark.pipelines.sql.archive_stream import ArchivedFilesReader
from orbitmq.spark.pipelines.sql.topics import TopicPlaces, UnknownTopicError
from orbitmq.spark.pipelines.sql.views import quoted, stream_start, wanted_columns

if TYPE_CHECKING:
    from pathlib import Path

QUEUE = MessageQueue("orders", "broker-a", 0)
OTHER = MessageQueue("orders", "broker-a", 1)


def segment(number: int, start: int, end: int, queue: MessageQueue = QUEUE, **more: object) -> Segment:
    return Segment(number, {queue: (start, end)}, (), **more)  # type: ignore[arg-type]


def test_brokers_are_read_from_the_end_of_the_archive_on() -> None:
    seam = seam_of(
        "orders", [segment(1, 0, 40), segment(2, 40, 100)], {QUEUE: Bounds(30, 130), OTHER: Bounds(5, 9)}
    )
    assert seam.archived == {QUEUE: [(0, 100)]}
    assert seam.live == {QUEUE: [(100, 130)], OTHER: [(5, 9)]}
    assert seam.layers == [{QUEUE: (100, 130), OTHER: (5, 9)}]
    assert seam.live_messages == 34
    assert seam.warnings() == []


def test_what_retention_has_overtaken_comes_from_the_archive() -> None:
    seam = seam_of("orders", [segment(1, 0, 100)], {QUEUE: Bounds(100, 100)})
    assert (seam.live, seam.warnings()) == ({}, [])


def test_a_gap_between_archive_and_brokers_is_reported_with_its_offsets() -> None:
    seam = seam_of("orders", [segment(1, 0, 100)], {QUEUE: Bounds(150, 200)})
    assert seam.live == {QUEUE: [(150, 200)]}
    (reason,) = seam.warnings()
    assert reason.startswith(
        "the offsets 100 to 149 of queue 0 of 'orders' on broker-a are neither in the archive nor"
    )


def test_what_is_older_than_the_archive_comes_from_brokers_too() -> None:
    seam = seam_of("orders", [segment(1, 50, 100)], {QUEUE: Bounds(10, 120), OTHER: Bounds(0, 1)})
    assert seam.live == {QUEUE: [(10, 50), (100, 120)], OTHER: [(0, 1)]}
    assert seam.layers == [{QUEUE: (10, 50), OTHER: (0, 1)}, {QUEUE: (100, 120)}]


def test_a_queue_that_ends_before_its_archive_is_reported() -> None:
    seam = seam_of("orders", [segment(1, 0, 100)], {QUEUE: Bounds(0, 20)})
    assert seam.live == {}
    assert "ends at 20 at its broker and at 100 in the archive" in seam.warnings()[0]


def test_a_queue_that_was_recreated_goes_on_after_its_new_archive() -> None:
    seam = seam_of(
        "orders", [segment(1, 0, 100), segment(2, 0, 10, recreated=frozenset([QUEUE]))], {QUEUE: Bounds(0, 30)}
    )
    assert seam.live == {QUEUE: [(10, 30)]}
    assert seam.warnings() == []


def test_other_topics_of_an_archive_do_not_matter() -> None:
    foreign = segment(1, 0, 100, MessageQueue("payments", "broker-a", 0))
    assert seam_of("orders", [foreign], {QUEUE: Bounds(0, 5)}).live == {QUEUE: [(0, 5)]}


@given(
    cuts=st.lists(st.integers(0, 60), min_size=1, max_size=6),
    low=st.integers(0, 80),
    size=st.integers(0, 80),
)
def test_every_offset_comes_from_exactly_one_place(cuts: list[int], low: int, size: int) -> None:
    ends = sorted(cuts)
    segments = [segment(number, start, end) for number, (start, end) in enumerate(itertools.pairwise(ends))]
    seam = seam_of("orders", segments, {QUEUE: Bounds(low, low + size)})
    archived = set(range(ends[0], ends[-1]))
    live = [offset for ranges in seam.live.values() for start, end in ranges for offset in range(start, end)]
    assert len(live) == len(set(live))
    assert not archived & set(live)
    assert archived | set(live) == archived | set(range(low, low + size))
    gaps = {offset for ranges in seam.gaps.values() for start, end in ranges for offset in range(start, end)}
    there = archived | set(live)
    assert gaps == (set(range(min(there), max(there) + 1)) - there if there else set())


def test_a_stream_starts_at_the_end_of_the_archive_and_at_the_oldest_of_new_queues() -> None:
    seam = seam_of("orders", [segment(1, 0, 100)], {QUEUE: Bounds(0, 100), OTHER: Bounds(0, 1)})
    assert json.loads(stream_start(seam)) == {"orders": {"broker-a": {"0": 100, "1": -2}}}
    assert stream_start(seam_of("orders", [], {QUEUE: Bounds(0, 1)})) == "earliest"


def test_an_archive_stays_as_it_was_for_each_caller_that_looked_at_it(tmp_path: Path) -> None:
    archive = Archive(str(tmp_path))
    archive.make()
    file = ArchivedFile("topic=orders/day=2026-01-01/segment-00000001-0.parquet", "orders", "2026-01-01", 40, 1000)
    archive.add(Segment(1, {QUEUE: (0, 40)}, (file,)))
    moment = ArchiveMoment(str(tmp_path))
    archive.add(segment(2, 40, 100))
    assert (moment.ends(), moment.archived_files()) == ({QUEUE: 40}, [file])
    assert ArchiveMoment(str(tmp_path)).ends() == {QUEUE: 100}


def test_a_stream_that_goes_on_leaves_what_was_archived_since_to_brokers() -> None:
    first = ArchivedFilesReader("archive", "orders", ["a", "b"], ["tags"])
    end = first.latestOffset(first.initialOffset(), ReadAllAvailable())
    later = ArchivedFilesReader("archive", "orders", ["a", "b", "c"], ["tags"])
    assert [part.value for part in later.partitions(later.initialOffset(), end)] == ["a", "b"]
    assert later.latestOffset(end, ReadAllAvailable()) == end


def test_topics_of_an_archive_are_found_without_any_broker(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="there is no archive at"):
        TopicPlaces(archive=str(tmp_path), archive_only=True)
    with pytest.raises(OptionError, match="none is named"):
        TopicPlaces(archive_only=True)
    archive = Archive(str(tmp_path))
    archive.make()
    archive.add(segment(1, 0, 40))
    archive.add(segment(2, 0, 1, MessageQueue("Payments", "broker-a", 0)))
    archive.add(segment(3, 0, 1, MessageQueue("payments", "broker-a", 0)))
    places = TopicPlaces(archive=str(tmp_path), archive_only=True)
    assert places.names() == ["Payments", "orders", "payments"]
    assert places.topic_of("ORDERS") == "orders"
    assert places.look("orders")[0].archived == {QUEUE: [(0, 40)]}
    with pytest.raises(UnknownTopicError, match=r"no topic 'ordres' in the archive .*: did you mean orders\?"):
        places.topic_of("ordres")
    with pytest.raises(UnknownTopicError, match="'show topics' lists"):
        places.topic_of("nothing-like-that")
    with pytest.raises(UnknownTopicError):
        places.look("ordres")
    with pytest.raises(Exception, match="'Payments' and 'payments' are one name in SQL"):
        places.topic_of("payments")


def test_columns_come_in_the_order_of_the_schema() -> None:
    assert wanted_columns({"tags", "topic"}) == ["topic", "tags"]
    assert wanted_columns([]) == ["queue_offset"]
    assert len(wanted_columns(None)) == 16
    with pytest.raises(OptionError, match="no column 'price'"):
        wanted_columns(["price"])


def test_names_are_quoted() -> None:
    assert quoted("order-events") == "`order-events`"
    assert quoted("a`b") == "`a``b`"
