"""Archives without Spark: what a segment is to hold, what files hold, and the directory that says what counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

from orbitmq.client.query.queue_offsets import Bounds
from orbitmq.protocol.bodies import MessageQueue
from orbitmq.spark.errors import OptionError
from orbitmq.spark.pipelines.archive import plan as archive_planning
from orbitmq.spark.pipelines.archive.directory import Archive, ArchivedFile, ArchiveError, Segment
from orbitmq.spark.pipelines.archive.job import ArchiveJob
from orbitmq.spark.pipelines.archive.lock import locked
from orbitmq.spark.pipelines.archive.plan import plan, recreated_queues, refuse_recreated, waiting
from orbitmq.spark.pipelines.archive.verify import in_words, missing_of, written_files

if TYPE_CHECKING:
    from pathlib import Path

ONE = MessageQueue("orders", "broker-a", 0)
TWO = MessageQueue("orders", "broker-a", 1)
FAR = MessageQueue("clicks", "broker-b", 0)


# What a segment holds


def test_a_segment_begins_where_the_archive_ends() -> None:
    bounds = {ONE: Bounds(0, 10), TWO: Bounds(5, 20)}
    found = plan({ONE: 4, TWO: 5}, bounds, {ONE: 10, TWO: 20}, 100)
    assert found is not None
    assert found.ranges == found.readable == {ONE: (4, 10), TWO: (5, 20)}
    assert found.lost == {}
    assert found.messages == 21


def test_there_is_no_segment_of_nothing() -> None:
    assert plan({ONE: 10}, {ONE: Bounds(0, 10)}, {ONE: 10}, 100) is None
    assert plan({ONE: 0}, {}, {ONE: 10}, 100) is None


def test_a_segment_ends_at_its_target() -> None:
    found = plan({ONE: 0}, {ONE: Bounds(0, 50)}, {ONE: 10}, 100)
    assert found is not None
    assert found.ranges == {ONE: (0, 10)}


def test_queues_share_a_segment_by_what_waits_in_them() -> None:
    found = plan({ONE: 0, TWO: 0}, {ONE: Bounds(0, 900), TWO: Bounds(0, 100)}, {ONE: 900, TWO: 100}, 100)
    assert found is not None
    assert found.ranges == {ONE: (0, 90), TWO: (0, 10)}


def test_messages_that_are_gone_are_lost_and_not_read() -> None:
    found = plan({ONE: 4, TWO: 1}, {ONE: Bounds(7, 10), TWO: Bounds(9, 9)}, {ONE: 10, TWO: 9}, 100)
    assert found is not None
    assert found.ranges == {ONE: (4, 10), TWO: (1, 9)}
    assert found.readable == {ONE: (7, 10)}
    assert found.lost == {ONE: (4, 7), TWO: (1, 9)}


def test_a_segment_has_the_fullest_of_very_many_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_planning, "QUEUES_AT_ONCE", 1)
    found = plan({ONE: 0, TWO: 0}, {ONE: Bounds(0, 5), TWO: Bounds(0, 6)}, {ONE: 5, TWO: 6}, 100)
    assert found is not None
    assert found.ranges == {TWO: (0, 6)}


def test_a_queue_that_is_shorter_than_its_archive_was_recreated() -> None:
    ends, bounds = {ONE: 10, TWO: 10}, {ONE: Bounds(0, 3), TWO: Bounds(0, 10)}
    assert recreated_queues(ends, bounds) == {ONE}
    with pytest.raises(ArchiveError, match="queue 0 of 'orders' on broker-a is archived up to 10 but ends at 3"):
        refuse_recreated(recreated_queues(ends, bounds), ends, bounds)


def test_what_waits_is_between_the_archive_and_the_targets() -> None:
    assert waiting({ONE: 4, TWO: 7}, {ONE: 10, TWO: 5, FAR: 3}) == 6


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({}, "give the topics to archive, or a pattern"),
        ({"topics": ["a"], "pattern": "b"}, "and not both"),
        ({"topics": ["a"], "max_messages": 0}, "a segment of 0 messages is none"),
        ({"topics": ["a"], "start": "yesterday"}, "startingOffsets=yesterday is not possible"),
        ({"topics": ["a"], "start": '{"a": -2}'}, "an archive starts at earliest, latest or a time"),
        ({"topics": ["a b"]}, "subscribe cannot be used"),
        ({"pattern": "("}, "is not a regular expression"),
        ({"topics": ["a"], "group": "a b"}, "groupId cannot be used"),
        ({"topics": ["a"], "to": ""}, "say where the archive is to be"),
    ],
)
def test_a_job_that_cannot_be_is_refused(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(OptionError, match=sentence):
        ArchiveJob.of(**{"to": "/archive", "nameserver": "127.0.0.1:9876", **given})


# What files hold


def write(root: Path, name: str, rows: list[tuple[str, int, int]]) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    brokers, numbers, offsets = zip(*rows, strict=True)
    table = pa.table(
        {
            "broker": pa.array(brokers, pa.string()),
            "queue_id": pa.array(numbers, pa.int32()),
            "queue_offset": pa.array(offsets, pa.int64()),
            "body": pa.array([b"x"] * len(rows)),
        }
    )
    pq.write_table(table, path, row_group_size=3)


def files_of(root: Path) -> list[Any]:
    return written_files(pafs.LocalFileSystem(), str(root))


def test_files_tell_which_offsets_they_hold(tmp_path: Path) -> None:
    rows = [("broker-a", 0, offset) for offset in range(5)] + [("broker-a", 1, 7), ("broker-b", 1, 8)]
    write(tmp_path, "topic=orders/day=2026-11-16/part-0.parquet", rows)
    write(tmp_path, "topic=%25DLQ%25group/day=2026-11-17/part-0.parquet", [("broker-a", 0, 3)])
    dead, orders = files_of(tmp_path)
    assert (orders.topic, orders.day, orders.rows) == ("orders", "2026-11-16", 7)
    assert (dead.topic, dead.folder) == ("%DLQ%group", "topic=%25DLQ%25group/day=2026-11-17")
    ranges = {ONE: (0, 5), TWO: (7, 8), MessageQueue("orders", "broker-b", 1): (8, 9)}
    assert missing_of({**ranges, MessageQueue("%DLQ%group", "broker-a", 0): (3, 4)}, [dead, orders]) == {}


def test_offsets_that_no_file_has_are_missing(tmp_path: Path) -> None:
    write(tmp_path, "topic=orders/day=2026-11-16/a.parquet", [("broker-a", 0, offset) for offset in (6, 7, 2)])
    missing = missing_of({ONE: (0, 10), TWO: (3, 5)}, files_of(tmp_path))
    assert missing == {ONE: ((0, 2), (3, 6), (8, 10)), TWO: ((3, 5),)}
    assert in_words(missing, 2) == (
        "0 to 1 of queue 0 of 'orders' on broker-a, 3 to 5 of queue 0 of 'orders' on broker-a and 2 more ranges"
    )


def test_an_offset_that_is_there_twice_is_a_fault(tmp_path: Path) -> None:
    write(tmp_path, "topic=orders/day=2026-11-16/a.parquet", [("broker-a", 0, 0), ("broker-a", 0, 1)])
    write(tmp_path, "topic=orders/day=2026-11-17/a.parquet", [("broker-a", 0, 1)])
    with pytest.raises(
        ArchiveError, match="the offsets 1 to 1 of queue 0 of 'orders' on broker-a were written twice"
    ):
        missing_of({ONE: (0, 2)}, files_of(tmp_path))


def test_a_queue_that_was_not_requested_is_a_fault(tmp_path: Path) -> None:
    write(tmp_path, "topic=orders/day=2026-11-16/a.parquet", [("broker-a", 0, 0)])
    with pytest.raises(ArchiveError, match="is not part of this segment"):
        missing_of({TWO: (0, 1)}, files_of(tmp_path))


def test_where_nothing_was_written_everything_is_missing(tmp_path: Path) -> None:
    assert missing_of({ONE: (0, 2)}, files_of(tmp_path / "nowhere")) == {ONE: ((0, 2),)}


# The directory


def made(path: Path) -> Archive:
    archive = Archive(str(path))
    archive.make()
    return archive


def segment(number: int, start: int, end: int, *files: str, **more: Any) -> Segment:
    named = tuple(ArchivedFile(file, "orders", "2026-11-16", 1, 1) for file in files)
    return Segment(number, {ONE: (start, end)}, named, **more)


def test_an_archive_ends_where_its_last_segment_does(tmp_path: Path) -> None:
    archive = made(tmp_path)
    assert archive.ends() == {}
    archive.add(segment(1, 5, 10))
    archive.add(segment(2, 10, 12))
    assert Archive.existing(str(tmp_path)).ranges() == {ONE: (5, 12)}


def test_a_segment_survives_its_file() -> None:
    given = Segment(
        3,
        {ONE: (1, 9), FAR: (0, 2)},
        (ArchivedFile("topic=orders/day=2026-11-16/segment-00000003-0.parquet", "orders", "2026-11-16", 8, 100),),
        missing={ONE: ((2, 4), (6, 7))},
        recreated=frozenset({FAR}),
    )
    assert Segment.from_json(given.to_json()) == given


@pytest.mark.parametrize("start", [8, 12])
def test_ranges_lie_end_to_end_or_the_archive_is_damaged(tmp_path: Path, start: int) -> None:
    archive = made(tmp_path)
    archive.add(segment(1, 0, 10))
    archive.add(segment(2, start, 15))
    with pytest.raises(ArchiveError, match="which is archived up to 10"):
        archive.ends()


def test_a_queue_that_was_recreated_ends_where_its_new_part_does(tmp_path: Path) -> None:
    archive = made(tmp_path)
    archive.add(segment(1, 0, 10))
    archive.add(segment(2, 0, 3, recreated=frozenset({ONE})))
    archive.add(segment(3, 3, 4))
    assert archive.ranges() == {ONE: (0, 4)}


def put(archive: Archive, name: str) -> str:
    path = archive.within("topic=orders/day=2026-11-16", name)
    archive.files.create_dir(archive.within("topic=orders/day=2026-11-16"))
    with archive.files.open_output_stream(path) as out:
        out.write(b"rows")
    return f"topic=orders/day=2026-11-16/{name}"


def test_files_of_an_attempt_that_came_to_no_end_are_removed(tmp_path: Path) -> None:
    archive = made(tmp_path)
    kept, moved = put(archive, "segment-00000001-0.parquet"), put(archive, "segment-00000002-0.parquet")
    archive.add(segment(1, 0, 10, kept))
    archive.announce(segment(2, 10, 20, moved, "topic=orders/day=2026-11-16/segment-00000002-1.parquet"))
    (tmp_path / "_orbitmq/staging/00000002-abc").mkdir(parents=True)
    assert archive.forget_attempts() == 1
    left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    assert left == ["_orbitmq/segments/00000001.json", kept]
    assert not (tmp_path / "_orbitmq/staging").exists()
    assert archive.forget_attempts() == 0


def test_an_announcement_that_was_torn_is_forgotten(tmp_path: Path) -> None:
    archive = made(tmp_path)
    kept = put(archive, "segment-00000001-0.parquet")
    archive.add(segment(1, 0, 10, kept))
    (tmp_path / "_orbitmq/adding-00000002").write_bytes(segment(2, 10, 20, kept).to_json()[:-20])
    assert archive.forget_attempts() == 0
    assert (tmp_path / kept).exists()


def test_a_segment_that_another_process_has_added_is_not_replaced(tmp_path: Path) -> None:
    archive = made(tmp_path)
    archive.add(segment(1, 0, 10))
    with pytest.raises(ArchiveError, match="another process is adding to the archive"):
        archive.add(segment(1, 0, 12))
    assert archive.ends() == {ONE: 10}


def test_only_one_may_add_to_an_archive_at_a_time(tmp_path: Path) -> None:
    archive = made(tmp_path)
    sentence = r"is being written by process \d+ on .* since .* UTC: only one"
    with locked(archive), pytest.raises(ArchiveError, match=sentence), locked(Archive(str(tmp_path))):
        pass
    with locked(archive):
        pass


def test_an_archive_that_is_not_there_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="'orbitmq pipeline archive' makes one"):
        Archive.existing(str(tmp_path / "nowhere"))
    with pytest.raises(ArchiveError, match="there can be no archive at"):
        Archive("nosuch://place")
