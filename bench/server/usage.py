"""Resource usage of a process group: processor time and memory, from ``/proc``."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

_TICK = 1 / os.sysconf("SC_CLK_TCK")


@dataclasses.dataclass(frozen=True, slots=True)
class Resident:
    """Memory in MiB."""

    total: float
    anonymous: float
    """The processes' own memory; the rest is mapped page cache, which the operating system can reclaim."""


def processor_seconds(group: int) -> float:
    """User and system time of all processes of a group, with their threads, ended ones included."""
    return sum(int(fields[11]) + int(fields[12]) for fields in group_members(group).values()) * _TICK


def resident_memory(group: int) -> Resident:
    """The resident memory of a process group. Shared pages count for each process."""
    kib = {"Rss": 0, "Anonymous": 0}
    for pid in group_members(group):
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").splitlines()
        except (FileNotFoundError, ProcessLookupError):
            continue  # ended since the listing
        for line in lines:
            name, _, value = line.partition(":")
            if name in kib:
                kib[name] += int(value.split()[0])
    return Resident(kib["Rss"] / 1024, kib["Anonymous"] / 1024)


def group_members(group: int) -> dict[int, list[str]]:
    """The fields of ``/proc/PID/stat`` behind the name, of the processes of a group."""
    found: dict[int, list[str]] = {}
    for name in os.listdir("/proc"):
        if not name.isdecimal():
            continue
        try:
            text = Path(f"/proc/{name}/stat").read_text("utf-8", "replace")
        except (FileNotFoundError, ProcessLookupError):
            continue  # ended since the listing
        # The name is in parentheses and may hold anything, spaces and parentheses too.
        fields = text.rpartition(")")[2].split()
        if int(fields[2]) == group:
            found[int(name)] = fields
    return found
