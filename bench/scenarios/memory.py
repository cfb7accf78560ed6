"""Memory of a broker's store after appending: its own, and mapped pages of files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.figures import figure
from bench.machine import GIB, own_memory, own_open_files
from bench.messages import Producer, body, open_store

if TYPE_CHECKING:
    from bench.figures import Figure, Settings


def space(settings: Settings) -> int:
    return settings.choose(GIB // 2, 2 * GIB)


def run(settings: Settings) -> list[Figure]:
    """Append half a million messages of 128 bytes and look at the process before and after."""
    count = settings.choose(5_000, 500_000)
    before = own_memory()
    with open_store(settings.directory) as store:
        Producer(store).append(body(128), count)
        after = own_memory()
        files = own_open_files()
    subject = f"{count} records of 128 B"
    return [
        figure("before opening a store", "anonymous memory", "MiB", before.anonymous),
        figure(subject, "anonymous memory", "MiB", after.anonymous),
        figure(subject, "mapped pages of files", "MiB", after.mapped),
        figure(subject, "open files", "files", files),
    ]
