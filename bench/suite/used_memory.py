"""Memory as it is on a machine that has run for a while: full of files that nobody needs any more.

A virtual machine that was just started, or has just removed large files, has memory that its host has not given to
it yet. The first touch of such a page takes 10 µs instead of 0.1, and a log that grows touches nothing else: that
was a third of the processor time of a server, and another third in every round. What old files leave is there.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bench.machine import GIB, MIB

if TYPE_CHECKING:
    from collections.abc import Callable

_LEFT_FREE = GIB // 2
_PIECE = 8 * MIB


def free_memory() -> int:
    """Bytes that nothing is in, not even the contents of a file; 0 where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
    except OSError:
        return 0
    found = (line.split() for line in lines if line.startswith("MemFree:"))
    return next((int(line[1]) * 1024 for line in found), 0)


def use_memory(root: Path, tell: Callable[[str], None]) -> None:
    """Read zeros of files without contents until hardly any memory is free. They take no space on the disk.

    A new file each time: pages that are read twice count as wanted, and would be kept instead of a log's.
    """
    size = free_memory() - _LEFT_FREE
    if size <= 0:
        return
    tell(f"{size // MIB:,} MiB of memory are used once")
    path = root / f"memory-{len(list(root.glob('memory-*')))}"
    piece = bytearray(_PIECE)
    with path.open("w+b", buffering=0) as file:
        file.truncate(size)
        while file.readinto(piece):
            pass
