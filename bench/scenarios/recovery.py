"""Opening a store after a crash: how long until the end of the log is found and queues and index agree with it."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING

from bench.apart import apart
from bench.figures import Size, figure
from bench.machine import GIB, MIB
from bench.messages import body, fill, open_store
from bench.opening import open_once

if TYPE_CHECKING:
    from bench.figures import Figure, Settings

AFTER_CHECKPOINT = 64 * MIB


def space(settings: Settings) -> int:
    return settings.choose(GIB, 3 * GIB)


def run(settings: Settings) -> list[Figure]:
    """A log of 1 GiB is left as a killed process leaves it, and opened in fresh processes.

    The worst case is a store that was never checkpointed: the whole log is walked. The usual one is a checkpoint
    some way before the end. The log ends shortly after the beginning of its last file, so that nearly all of that
    file is empty, which is what a search for records behind the end takes longest for.
    """
    size = settings.choose(8 * MIB, GIB)
    rounds = settings.choose(1, 3)
    lines = _recover(settings, size, 1024, 0, rounds)
    lines += _recover(settings, size, 1024, min(AFTER_CHECKPOINT, size // 2), rounds)
    if settings.size is Size.FULL:
        lines += _recover(settings, size, 128, 0, 1)
    return lines


def _recover(settings: Settings, size: int, body_size: int, after_checkpoint: int, rounds: int) -> list[Figure]:
    # A quick run has small files: searching an empty one of the usual size takes seconds.
    file_size = settings.choose(64 * MIB, GIB)
    openings = []
    for _ in range(rounds):
        # A crash for every round: a recovery brings pages into the cache and files into order for the next one.
        with tempfile.TemporaryDirectory(dir=settings.directory) as directory:
            apart(leave_crashed, directory, size, body_size, after_checkpoint, file_size)
            openings.append(apart(open_once, directory, crash=True, log_file_size=file_size))
    checkpoint = f"{after_checkpoint // MIB} MiB after a checkpoint" if after_checkpoint else "no checkpoint"
    subject = f"{size // MIB} MiB of {body_size} B, {checkpoint}"
    walked = [float(opening.records) for opening in openings]
    return [
        figure(subject, "time to open", "s", [opening.wall for opening in openings]),
        figure(subject, "records walked", "records", walked),
        figure(
            subject,
            "CPU per record walked",
            "µs",
            [opening.cpu / max(opening.records, 1) * 1e6 for opening in openings],
        ),
    ]


def leave_crashed(directory: str, size: int, body_size: int, after_checkpoint: int, file_size: int) -> None:
    """Fill a store and go away without closing it, with so many bytes behind the last checkpoint (0: none)."""
    store = open_store(directory, log_file_size=file_size)
    content = body(body_size)
    if after_checkpoint:
        fill(store, content, size - after_checkpoint)
        store.flush()
        store.sync_queues()
        fill(store, content, after_checkpoint)
    else:
        fill(store, content, size)
    store.abandon()
