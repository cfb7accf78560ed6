"""Opening a store that was closed properly, with its files in the page cache and after dropping them from it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from bench.apart import apart
from bench.figures import Size, figure
from bench.machine import GIB, MIB, evict
from bench.messages import body, fill, open_store
from bench.opening import open_once

if TYPE_CHECKING:
    from bench.figures import Figure, Settings


def space(settings: Settings) -> int:
    return settings.choose(GIB // 2, 3 * GIB, 14 * GIB)


def run(settings: Settings) -> list[Figure]:
    """1 GiB of 1 KiB messages; in a full run also 10 GiB of 64 KiB messages, which are quicker to write."""
    rounds = settings.choose(1, 7)
    lines = _measure(settings, settings.choose(8 * MIB, GIB), 1024, rounds)
    if settings.size is Size.FULL:
        lines += _measure(settings, 10 * GIB, 64 * 1024, rounds)
    return lines


def _measure(settings: Settings, size: int, body_size: int, rounds: int) -> list[Figure]:
    directory = os.path.join(settings.directory, str(body_size))
    apart(leave_closed, directory, size, body_size)
    warm = [apart(open_once, directory, crash=False) for _ in range(rounds)]
    cold = []
    for _ in range(rounds):
        evict(directory)
        cold.append(apart(open_once, directory, crash=False))
    amount = f"{size // GIB} GiB" if size >= GIB else f"{size // MIB} MiB"
    content = f"{body_size} B" if body_size < 1024 else f"{body_size // 1024} KiB"
    subject = f"{amount} of {content}"
    return [
        figure(f"{subject}, cached", "time to open", "s", [each.wall for each in warm]),
        figure(f"{subject}, cached", "CPU to open", "s", [each.cpu for each in warm]),
        figure(f"{subject}, cached", "time to read the end of 8 queues", "s", [each.first_reads for each in warm]),
        figure(f"{subject}, cached", "time to close again", "s", [each.closing for each in warm]),
        figure(f"{subject}, not cached", "time to open", "s", [each.wall for each in cold]),
        figure(
            f"{subject}, not cached", "time to read the end of 8 queues", "s", [each.first_reads for each in cold]
        ),
        figure(subject, "log files", "files", warm[0].log_files),
    ]


def leave_closed(directory: str, size: int, body_size: int) -> None:
    """Fill a store and close it."""
    with open_store(directory) as store:
        fill(store, body(body_size), size)
