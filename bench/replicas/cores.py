"""Cores: a master with its load on one, its slaves on the others, so that the slaves take no time from it."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from bench.server.usage import group_members

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.replicas.pairs import Pair


def has_several() -> bool:
    return len(os.sched_getaffinity(0)) > 1


@contextlib.contextmanager
def apart(pair: Pair) -> Iterator[None]:
    """Within the block the master and what this process starts have the first core for themselves."""
    cores = os.sched_getaffinity(0)
    first = {min(cores)}
    try:
        _pin(pair.master.pid, first)
        for slave in pair.slaves:
            _pin(slave.pid, cores - first)
        os.sched_setaffinity(0, first)
        yield
    finally:
        os.sched_setaffinity(0, cores)
        for group in (pair.master.pid, *(slave.pid for slave in pair.slaves)):
            _pin(group, cores)


def _pin(group: int, cores: set[int]) -> None:
    """Let all threads of a process group run on these cores only."""
    for pid in group_members(group):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for thread in os.listdir(f"/proc/{pid}/task"):
                with contextlib.suppress(ProcessLookupError):
                    os.sched_setaffinity(int(thread), cores)
