"""Advice to the operating system about mapped memory, step by step. Twin of ``native/src/base/madvise.c``.

Through libc and not ``mmap.madvise``, which holds the interpreter lock while the system reads from the disk or
finds memory.
"""

from __future__ import annotations

import ctypes
import functools
import mmap

_POPULATE_READ = 22
"""Linux 5.14; Python has no name for it."""


@functools.cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    libc.memset.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t)
    return libc


def _address(buffer: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(buffer))


def advise(buffer: mmap.mmap, start: int, end: int, step: int, /, *advices: int) -> None:
    """Give each advice for every step of a part of a map, one step after the other.

    Ends without an error at the first advice that the system refuses. Not for read-only maps.
    """
    end = min(end, len(buffer))
    if start < 0 or step < 1:
        raise ValueError("a part of a map is advised in steps")
    address = _address(buffer)
    for at in range(start - start % mmap.PAGESIZE, end, step):
        for advice in advices:
            if _libc().madvise(address + at, min(step, end - at), advice):
                return


def populate_huge_pages(buffer: mmap.mmap, start: int, end: int, size: int, /) -> None:
    """Make a part of a map resident, in huge pages of this size where the system has them.

    For a file the system clears a whole page without a break, and no other thread gets that processor meanwhile:
    mostly a tenth of a millisecond. On a virtual machine the host may have reclaimed the idle memory and finds it
    again in small steps while it is cleared: that took 5 ms. For a process it is cleared in small steps with
    breaks. So each page is allocated for this process first and freed at once: the system reuses the page freed
    last, for the file.
    """
    if start < 0 or size < 1 or start % size or end % size:
        raise ValueError("populate_huge_pages(buffer, start, end, size) takes whole pages")
    end = min(end, len(buffer) // size * size)
    if start >= end:
        return
    libc, address = _libc(), _address(buffer)
    room = mmap.mmap(-1, 2 * size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    page = -(-_address(room) // size) * size
    # Without huge pages, small ones are populated.
    parts = ((address + start, end - start), (page, size))
    are_huge = not any(libc.madvise(at, length, mmap.MADV_HUGEPAGE) for at, length in parts)
    for at in range(start, end, size):
        if are_huge:
            libc.memset(page, 1, 1)
            libc.madvise(page, size, mmap.MADV_DONTNEED)
        if libc.madvise(address + at, size, _POPULATE_READ):
            return
