"""Telling the system how a map is used next, piece by piece: the plain twin of the kernel's.

Not by ``mmap.madvise``, which keeps the interpreter lock while the system reads from the disk or finds memory.
"""

from __future__ import annotations

import ctypes
import functools
import mmap


@functools.cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return libc


def advise(buffer: mmap.mmap, start: int, end: int, step: int, /, *advices: int) -> None:
    """Give all of this advice about every piece of a part of a map, one after the other.

    A system that does not know one of them refuses it, and that is the end of it. Not for maps that are only read.
    """
    end = min(end, len(buffer))
    if start < 0 or step < 1:
        raise ValueError("a part of a map is advised in steps")
    address = ctypes.addressof(ctypes.c_char.from_buffer(buffer))
    for at in range(start - start % mmap.PAGESIZE, end, step):
        for advice in advices:
            if _libc().madvise(address + at, min(step, end - at), advice):
                return
