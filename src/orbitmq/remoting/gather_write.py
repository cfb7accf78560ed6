"""Gathering writes: small parts of frames are joined by copying, large ones are sent without a copy."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

Buffer: TypeAlias = bytes | memoryview

MAX_JOINED_BYTES = 65536
"""Up to this size parts are joined by copying; above it, copying costs more than it saves.

On uvloop, from a mapped file: 64 KiB took 19 µs either way, 256 KiB 61 µs copied and 40 µs not, 1 MiB 289 and 148.
"""


def parts_writer(transport: asyncio.Transport) -> Callable[[list[Buffer]], None]:
    """A function that writes parts of frames to this transport.

    uvloop and the event loop of Python 3.12 pass many parts to one gathering system call. Older loops would join
    them all, and TLS makes a record of each: there, consecutive small
    parts are joined and large ones written alone.
    """
    write = transport.write
    if type(transport).writelines is asyncio.WriteTransport.writelines:

        def write_parts(parts: list[Buffer]) -> None:
            for chunk in gathered(parts):
                write(chunk)

        return write_parts

    gather = transport.writelines

    def write_parts_or_joined(parts: list[Buffer]) -> None:
        if sum(map(len, parts)) > MAX_JOINED_BYTES:
            gather(parts)
        else:
            write(b"".join(parts))

    return write_parts_or_joined


def gathered(parts: list[Buffer]) -> list[Buffer]:
    """The same bytes in fewer chunks: consecutive small parts are joined, large parts are not copied."""
    chunks: list[Buffer] = []
    for is_large, run in itertools.groupby(parts, lambda part: len(part) > MAX_JOINED_BYTES):
        if is_large:
            chunks += run
        else:
            chunks.append(b"".join(run))
    return chunks
