"""A server's messages out of memory: its store leaves the page cache, and what is read from the disk is counted.

``posix_fadvise(DONTNEED)`` alone leaves what some process has mapped, and both systems map their logs. So pages are
first taken from the server's maps with ``process_madvise(MADV_PAGEOUT)``, while it runs. That takes Linux 5.10 and
the right to do so to another process (CAP_SYS_NICE and ptrace access: root, mostly).
"""

from __future__ import annotations

import ctypes
import dataclasses
import errno
import mmap
import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bench.machine import MIB, evict
from bench.server.usage import group_members
from peers.process import PeerError

if TYPE_CHECKING:
    from bench.server.systems import Server

_PROCESS_MADVISE = 440
_MADV_PAGEOUT = 21
_PAGE = mmap.PAGESIZE
# A page that is being written, or that was touched a moment ago, stays at the first attempt.
_ATTEMPTS = 3

_libc = ctypes.CDLL(None, use_errno=True)


class _Region(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


@dataclasses.dataclass(frozen=True, slots=True)
class DiskReads:
    """The reads of a server's processes from the disk so far."""

    bytes: int
    faults: int
    """Accesses to mapped pages that had to wait for it."""

    def since(self, before: DiskReads) -> DiskReads:
        return DiskReads(self.bytes - before.bytes, self.faults - before.faults)


def disk_reads(server: Server) -> DiskReads:
    """From ``read_bytes`` of ``/proc/PID/io``, and major faults."""
    read = faults = 0
    for pid, fields in group_members(server.pid).items():
        faults += int(fields[9])
        try:
            lines = Path(f"/proc/{pid}/io").read_text("ascii").splitlines()
        except (FileNotFoundError, ProcessLookupError):
            continue  # ended since the listing
        read += sum(int(line.split()[1]) for line in lines if line.startswith("read_bytes"))
    return DiskReads(read, faults)


def drop_store(server: Server) -> float:
    """Drop what a server has stored from the page cache; returns the MiB of it that stayed nevertheless."""
    left = 0
    for _ in range(_ATTEMPTS):
        evict(str(server.store))  # writes out what is not on the disk yet: only clean pages can go
        for pid in group_members(server.pid):
            _page_out(pid, server.store)
        evict(str(server.store))
        left = _cached(server.store)
        if not left:
            break
    return left / MIB


def _page_out(pid: int, store: Path) -> None:
    handle = os.pidfd_open(pid)
    try:
        for low, high in _maps(pid, store):
            region = _Region(low, high - low)
            while region.length:
                done = _libc.syscall(
                    _PROCESS_MADVISE, handle, ctypes.byref(region), ctypes.c_size_t(1), _MADV_PAGEOUT, 0
                )
                if done <= 0:
                    _complain(ctypes.get_errno())
                    break
                region = _Region(region.base + done, region.length - done)
    finally:
        os.close(handle)


def _complain(number: int) -> None:
    if number in {errno.EPERM, errno.ENOSYS, errno.EINVAL}:
        raise PeerError(
            "reading from the disk cannot be measured here: evicting a server's pages needs Linux 5.10 and "
            f"root ({os.strerror(number)})"
        )
    # Anything else is about a map that is gone meanwhile.


def _maps(pid: int, store: Path) -> list[tuple[int, int]]:
    """Where a process has mapped files of a store."""
    found = []
    for line in Path(f"/proc/{pid}/maps").read_text("utf-8", "replace").splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and fields[5].startswith(f"{store}/"):
            low, _, high = fields[0].partition("-")
            found.append((int(low, 16), int(high, 16)))
    return found


def _cached(store: Path) -> int:
    """Bytes of a store's files that are in the page cache."""
    return sum(_cached_of(path) for path in store.rglob("*") if path.is_file())


def _cached_of(path: Path) -> int:
    try:
        if not path.stat().st_size:
            return 0
    except FileNotFoundError:
        return 0  # replaced meanwhile
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as pages:
        view = np.frombuffer(pages, np.uint8)
        states = np.zeros(-(-len(view) // _PAGE), np.uint8)
        done = _libc.mincore(
            ctypes.c_void_p(view.ctypes.data), ctypes.c_size_t(len(view)), ctypes.c_void_p(states.ctypes.data)
        )
        # A map cannot be closed while something looks at it.
        del view
    if done:
        raise PeerError(f"{path}: the system does not report which pages are in memory")
    return int((states & 1).sum()) * _PAGE
