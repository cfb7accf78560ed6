"""How the parts of answers reach a transport: small ones copied together, large ones as they lie in the log."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

Buffer: TypeAlias = bytes | memoryview

COPIED_MOST = 32768
"""Parts below this are copied into one piece with their neighbours.

Copying this much costs less than one more system call, and about as much as the kernel takes for the additional
entries of a gathering write.
"""


def gathered(parts: list[Buffer]) -> list[Buffer]:
    """The same bytes in few pieces: runs of small parts are joined, large parts stay what they are."""
    pieces: list[Buffer] = []
    run: list[Buffer] = []
    run_size = 0
    for part in parts:
        size = len(part)
        if run_size + size > COPIED_MOST and run:
            pieces.append(run[0] if len(run) == 1 else b"".join(run))
            run = []
            run_size = 0
        if size > COPIED_MOST:
            pieces.append(part)
        else:
            run.append(part)
            run_size += size
    if run:
        pieces.append(run[0] if len(run) == 1 else b"".join(run))
    return pieces


def pieces_writer(transport: asyncio.Transport) -> Callable[[list[Buffer]], None]:
    """What writes several pieces to this transport without joining them.

    uvloop and the loop of Python 3.12 hand them to one gathering system call. Older loops would join them all
    first; there each large piece goes straight to the socket.
    """
    if type(transport).writelines is not asyncio.WriteTransport.writelines:
        return transport.writelines

    def write_each(pieces: list[Buffer]) -> None:
        for piece in pieces:
            transport.write(piece)

    return write_each
