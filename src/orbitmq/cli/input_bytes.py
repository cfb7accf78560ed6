"""What comes from a file, a pipe or a terminal, read without holding up the event loop."""

import asyncio
import os
import stat
from collections.abc import AsyncIterator

from orbitmq.cli.console import size_text
from orbitmq.settings import ConfigError

CHUNK = 64 << 10


async def chunks_of(source: int) -> AsyncIterator[bytes]:
    """The bytes of a descriptor as they come, until it ends."""
    mode = os.fstat(source).st_mode
    # Files and /dev/null never make anybody wait, and cannot be waited for.
    has_to_wait = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(source)
    while True:
        if has_to_wait:
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


async def all_of(source: int, most: int) -> bytes:
    """Everything that comes. Raises ConfigError if that is more than ``most`` bytes."""
    data = bytearray()
    async for chunk in chunks_of(source):
        data += chunk
        if len(data) > most:
            raise ConfigError(f"standard input has more than the {size_text(most)} that a message may have")
    return bytes(data)


async def lines_of(source: int, most: int) -> AsyncIterator[tuple[int, bytes]]:
    """Lines that are not blank, with their numbers. Raises ConfigError if one has more than ``most`` bytes."""
    rest = bytearray()
    number = 0
    async for chunk in chunks_of(source):
        rest += chunk
        if b"\n" not in chunk:
            if len(rest) > most:
                raise ConfigError(f"line {number + 1} has more than {size_text(most)}")
            continue
        *lines, rest = rest.split(b"\n")
        for line in lines:
            number += 1
            if not line.isspace() and line:
                yield number, bytes(line)
    if rest.strip():
        yield number + 1, bytes(rest)
