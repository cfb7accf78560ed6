"""The streams of the HA connection: any cut into chunks gives the same parts, and any bytes an error of its own."""

from __future__ import annotations

import base64
import gzip
import itertools
import json
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from orbitmq.store.replication.frames import HEAD, REPORT, FrameError, LogStream, ReportStream
from orbitmq.store.replication.settings import MAX_FRAME_BODY

CAPTURE = Path(__file__).parents[2] / "data" / "wire" / "ha_stream.jsonl.gz"


def chunks(data: bytes, cuts: list[int]) -> list[bytes]:
    bounds = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(bounds)]


def joined(parts: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    """Parts with contiguous ones joined and heartbeats left out."""
    found: list[tuple[int, bytes]] = []
    for offset, part in parts:
        if found and part and found[-1][0] + len(found[-1][1]) == offset:
            found[-1] = found[-1][0], found[-1][1] + part
        elif part:
            found.append((offset, part))
    return found


FRAMES = st.lists(st.tuples(st.integers(0, 2**62), st.binary(max_size=40)), max_size=8)
CUTS = st.lists(st.integers(0, 10_000), max_size=8)


@given(FRAMES, CUTS)
def test_frames_are_read_in_any_chunks(frames: list[tuple[int, bytes]], cuts: list[int]) -> None:
    data = b"".join(HEAD.pack(offset, len(body)) + body for offset, body in frames)
    stream = LogStream()
    parts = [(offset, bytes(part)) for chunk in chunks(data, cuts) for offset, part in stream.feed(chunk)]
    assert joined(parts) == joined(frames)
    assert sum(not part for _, part in parts) == sum(not body for _, body in frames)


@given(st.binary(max_size=200), CUTS)
def test_any_bytes_are_frames_or_a_frame_error(data: bytes, cuts: list[int]) -> None:
    stream = LogStream()
    try:
        for chunk in chunks(data, cuts):
            for offset, part in stream.feed(chunk):
                assert offset >= 0
                assert len(part) <= MAX_FRAME_BODY
    except FrameError:
        pass


@given(st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=8), CUTS)
def test_the_last_whole_report_counts(ends: list[int], cuts: list[int]) -> None:
    stream = ReportStream()
    data = b"".join(map(REPORT.pack, ends)) + b"\0\0\0"
    found = [end for chunk in chunks(data, cuts) if (end := stream.feed(chunk)) is not None]
    assert found[-1] == ends[-1]
    assert set(found) <= set(ends)


@given(st.binary(max_size=100), CUTS)
def test_any_bytes_are_reports_or_a_frame_error(data: bytes, cuts: list[int]) -> None:
    stream = ReportStream()
    try:
        for chunk in chunks(data, cuts):
            end = stream.feed(chunk)
            assert end is None or end >= 0
    except FrameError:
        pass


def captured() -> list[dict[str, Any]]:
    with gzip.open(CAPTURE, "rt") as file:
        return [json.loads(line) for line in file]


def test_the_stream_of_an_apache_pair_is_read() -> None:
    frames = captured()
    stream, reports = LogStream(), ReportStream()
    log = bytearray()
    for frame in frames:
        data = base64.b64decode(frame["raw_b64"])
        if frame["dir"] == "c2s":
            assert reports.feed(data) == frame["offset"]
            assert frame["offset"] <= len(log)
            continue
        for offset, part in stream.feed(data):
            assert offset == len(log)
            assert (frame["kind"] == "heartbeat") == (not part)
            log += part
    assert len(log) == max(frame["offset"] for frame in frames if frame["dir"] == "c2s")
