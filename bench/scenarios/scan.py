"""Verifying a log: every record and its CRC, one by one, in bulk, and together with queues and index."""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING

from bench.figures import figure
from bench.machine import GIB, MIB
from bench.messages import body, fill, open_store, store_root
from bench.rounds import Stopwatch, take_turns
from orbitmq.platform.local_disk import LocalDisk
from orbitmq.store.commitlog.column_scanner import Chunk, scan_log
from orbitmq.store.commitlog.read_only import ReadOnlyLog
from orbitmq.store.commitlog.scanner import Seen, walk
from orbitmq.store.tools.detect_layout import survey
from orbitmq.store.tools.verify import verify

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.figures import Figure, Settings

SIZES = (128, 1024)
FILE_SIZE = 8 * MIB


def space(settings: Settings) -> int:
    return settings.choose(GIB // 2, 2 * GIB)


def run(settings: Settings) -> list[Figure]:
    """Logs of small and of usual messages, verified in turn by each of the three ways, out of the page cache.

    Their files are small, so that nearly all that is read are records. What the empty part of a file costs is a
    figure of its own.
    """
    cases: dict[str, Callable[[], int]] = {}
    for size in SIZES:
        directory = os.path.join(settings.directory, str(size))
        root, end = _make(directory, size, settings.choose(2 * MIB, 128 * MIB), FILE_SIZE)
        cases |= {
            f"{size} B, record by record": functools.partial(_walk, root, end),
            f"{size} B, in bulk": functools.partial(_scan, root, end),
            f"{size} B, with queues and index": functools.partial(_verify, root, end),
        }
    lines: list[Figure] = []
    for name, timing in take_turns(cases, settings.choose(2, 5)).items():
        lines.append(figure(name, "log verified, by CPU time", "MB/s", [1e-6 / each for each in timing.cpu]))
        lines.append(figure(name, "log verified, by the clock", "MB/s", [1e-6 / each for each in timing.wall]))
    return lines + _empty_file(settings)


def _make(directory: str, body_size: int, log_size: int, file_size: int) -> tuple[str, int]:
    """A closed store; returns its root and where its log ends."""
    with open_store(directory, log_file_size=file_size) as store:
        fill(store, body(body_size), log_size)
        return store_root(directory), store.log.end


def _empty_file(settings: Settings) -> list[Figure]:
    """A log that has just begun a file of a broker's own size: first with the empty pages unread, then again."""
    first: list[float] = []
    again: list[float] = []
    file_size = settings.choose(64 * MIB, GIB)
    for number in range(settings.choose(1, 3)):
        root, end = _make(os.path.join(settings.directory, f"empty-{number}"), 1024, MIB, file_size)
        for times in (first, again):
            with Stopwatch() as watch:
                _verify(root, end)
            times.append(watch.wall)
    subject = f"1 MiB in a file of {file_size // MIB} MiB"
    return [
        figure(subject, "time to verify, first", "s", first),
        figure(subject, "time to verify, again", "s", again),
    ]


def _log(root: str) -> ReadOnlyLog:
    disk = LocalDisk()
    log = ReadOnlyLog(disk, survey(disk, root).config)
    log.load()
    return log


def _walk(root: str, end: int) -> int:
    """As recovery reads; returns the bytes of the log."""
    at = 0
    for found in walk(_log(root), 0, end):
        assert isinstance(found, Seen)
        assert found.body_is_intact
        at = found.offset + found.size
    assert at == end
    return end


def _scan(root: str, end: int) -> int:
    at = 0
    for found in scan_log(_log(root)):
        if isinstance(found, Chunk):
            assert found.is_whole
            at = found.end
    assert at == end
    return end


def _verify(root: str, end: int) -> int:
    """As an operator verifies a store."""
    disk = LocalDisk()
    report = verify(disk, survey(disk, root))
    assert report.is_sound
    assert report.log_end == end
    return end
