"""Archives and checkpoints of streaming queries as the console reads them."""

from __future__ import annotations

import json
import os
import socket
from typing import TYPE_CHECKING

import pytest

from orbitmq.admin.errors import InvalidRequestError
from orbitmq.dashboard.config import ClusterTarget, PipelineTarget, parse_pipelines
from orbitmq.dashboard.subjects.pipelines import ARCHIVE, STREAM, Run, _read
from orbitmq.protocol.bodies import MessageQueue
from orbitmq.spark.pipelines.archive.directory import Archive, ArchivedFile, Segment

if TYPE_CHECKING:
    from pathlib import Path

FIRST, SECOND = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-a", 1)
TARGETS = (ClusterTarget("prod", "a:1"), ClusterTarget("test", "b:1"))


def test_an_archive_has_its_segments_and_ends(tmp_path: Path) -> None:
    archive = Archive(str(tmp_path))
    archive.make()
    for number, begin, end in ((1, 5, 8), (2, 8, 10)):
        files = (ArchivedFile(f"{number}.parquet", "orders", "2026-11-01", end - begin, 1000),)
        archive.add(Segment(number, {FIRST: (begin, end)}, files, written_ms=number * 1000))
    found = _read(str(tmp_path))
    assert (found.kind, found.begins, found.ends) == (ARCHIVE, {FIRST: 5}, {FIRST: 10})
    assert found.runs == [Run(1, 1000, 3, 1000, is_done=True), Run(2, 2000, 2, 1000, is_done=True)]
    assert found.held_by == ""
    lock = tmp_path / "_orbitmq/lock"
    lock.write_text(f"process {os.getpid()} on {socket.gethostname()} since 2026-11-01 12:00:00 UTC")
    assert _read(str(tmp_path)).held_by.startswith(f"process {os.getpid()}")
    lock.write_text(f"process 999999999 on {socket.gethostname()} since 2026-11-01 12:00:00 UTC")
    assert _read(str(tmp_path)).held_by == ""


def _write_batch(path: Path, number: int, offset: object, *, is_done: bool = True) -> None:
    lines = ["v1", json.dumps({"batchTimestampMs": number * 1000}), json.dumps(offset), '{"another": "source"}']
    for folder in ("offsets", "commits"):
        (path / folder).mkdir(exist_ok=True)
    (path / "offsets" / str(number)).write_text("\n".join(lines))
    (path / "offsets" / f".{number}.crc").write_bytes(b"\xff")
    if is_done:
        (path / "commits" / str(number)).write_text("v1\n{}")


def test_a_streaming_query_has_its_batches_and_ends(tmp_path: Path) -> None:
    began = {"orders": {"broker-a": {"0": 2, "1": 0}}}
    _write_batch(tmp_path, 0, {"$began": began, "orders": {"broker-a": {"0": 5, "1": 1}}})
    _write_batch(tmp_path, 1, {"orders": {"broker-a": {"0": 6, "1": 4}}})
    _write_batch(tmp_path, 2, {"orders": {"broker-a": {"0": 9, "1": 4}}}, is_done=False)
    found = _read(str(tmp_path))
    assert (found.kind, found.begins) == (STREAM, {FIRST: 2, SECOND: 0})
    assert found.ends == {FIRST: 6, SECOND: 4}
    assert [(run.number, run.time_ms, run.messages, run.is_done) for run in found.runs] == [
        (0, 0, 4, True),
        (1, 1000, 4, True),
        (2, 2000, 3, False),
    ]


def test_old_batches_that_spark_removed_are_not_needed(tmp_path: Path) -> None:
    _write_batch(tmp_path, 7, {"orders": {"broker-a": {"0": 5}}})
    _write_batch(tmp_path, 8, {"orders": {"broker-a": {"0": 9}}})
    found = _read(str(tmp_path))
    assert (found.begins, found.ends, [run.messages for run in found.runs]) == ({FIRST: 5}, {FIRST: 9}, [0, 4])


def test_another_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match="neither an archive nor the checkpoint"):
        _read(str(tmp_path))


def test_pipelines_have_names_and_clusters() -> None:
    assert parse_pipelines(["a=/x", "test/a=s3://b/c=d"], TARGETS) == (
        PipelineTarget("a", "/x", "prod"),
        PipelineTarget("a", "s3://b/c=d", "test"),
    )
    for wrong in (["a"], ["=x"], ["a="], ["none/a=/x"], ["a=/x", "a=/y"], ["a b=/x"]):
        with pytest.raises(InvalidRequestError):
            parse_pipelines(wrong, TARGETS)
