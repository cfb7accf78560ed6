"""Telling the system how a map is used next, piece by piece: the plain twin of the kernel's.

Not by ``mmap.madvise``, which keeps the interpreter lock while the system reads from the disk or finds memory.
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
    """Give all of this advice about every piece of a part of a map, one after the other.

    A system that does not know one of them refuses it, and that is the end of it. Not for maps that are only read.
    """
    end = min(end, len(buffer))
    if start < 0 or step < 1:
        raise ValueError("a part of a map is advised in steps")
    address = _address(buffer)
    for at in range(start - start % mmap.PAGESIZE, end, step):
        for advice in advices:
            if _libc().madvise(address + at, min(step, end - at), advice):
                return


def take_large(buffer: mmap.mmap, start: int, end: int, size: int, /) -> None:
    """Have a part of a map in memory, in large pages of this size, if the system keeps such.

    For a file the system clears a whole page in one go, and nothing else gets that processor meanwhile. Mostly that
    is a tenth of a millisecond. But on a virtual machine the host may have taken back memory that nobody used for a
    while, and finds it again bit by bit while it is cleared: that took 5 ms, and whoever was to run there waited.
    For a process it is cleared bit by bit, and others run in between. So each page is taken for this process first,
    and left at once: the system gives what was left last to whoever asks next, which is the file.
    """
    if start < 0 or size < 1 or start % size or end % size:
        raise ValueError("take_large(buffer, start, end, size) takes whole pages")
    end = min(end, len(buffer) // size * size)
    if start >= end:
        return
    libc, address = _libc(), _address(buffer)
    room = mmap.mmap(-1, 2 * size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    page = -(-_address(room) // size) * size
    # Where the system has no large pages, small ones are taken.
    parts = ((address + start, end - start), (page, size))
    are_large = not any(libc.madvise(at, length, mmap.MADV_HUGEPAGE) for at, length in parts)
    for at in range(start, end, size):
        if are_large:
            libc.memset(page, 1, 1)
            libc.madvise(page, size, mmap.MADV_DONTNEED)
        if libc.madvise(address + at, size, _POPULATE_READ):
            return
