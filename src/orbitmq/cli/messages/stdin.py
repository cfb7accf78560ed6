"""Non-blocking reads from a file, a pipe or a terminal on the event loop."""

import asyncio
import os
import stat
from collections.abc import AsyncIterator

from orbitmq.cli.output import size_text
from orbitmq.platform.settings import ConfigError

CHUNK = 64 << 10


async def chunks_of(source: int) -> AsyncIterator[bytes]:
    """The bytes of a descriptor in chunks, until its end."""
    mode = os.fstat(source).st_mode
    # Files and /dev/null never block, and event loops cannot wait for them.
    may_block = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(source)
    while True:
        if may_block:
            await _readable(source)
        data = os.read(source, CHUNK)
        if not data:
            return
        yield data
        await asyncio.sleep(0)


async def _readable(source: int) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(source, lambda: None if ready.done() else ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_reader(source)


async def all_of(source: int, maximum: int) -> bytes:
    """All bytes up to the end. Raises ConfigError for more than ``maximum`` bytes."""
    data = bytearray()
    async for chunk in chunks_of(source):
        data += chunk
        if len(data) > maximum:
            raise ConfigError(f"standard input is larger than a message may be ({size_text(maximum)})")
    return bytes(data)


async def lines_of(source: int, maximum: int) -> AsyncIterator[tuple[int, bytes]]:
    """Lines that are not blank, with their numbers. Raises ConfigError for a line over ``maximum`` bytes."""
    rest = bytearray()
    number = 0
    async for chunk in chunks_of(source):
        rest += chunk
        if b"\n" not in chunk:
            if len(rest) > maximum:
                raise ConfigError(f"line {number + 1} is longer than {size_text(maximum)}")
            continue
        *lines, rest = rest.split(b"\n")
        for line in lines:
            number += 1
            if not line.isspace() and line:
                yield number, bytes(line)
    if rest.strip():
        yield number + 1, bytes(rest)
