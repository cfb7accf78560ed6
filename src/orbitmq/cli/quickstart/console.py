"""The web console beside the quickstart's broker: a process of its own, so that pages never hold the broker up."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import re
import socket
import sys
from typing import TYPE_CHECKING

from orbitmq.cli.dashboard import PORT
from orbitmq.cli.output import complain
from orbitmq.cli.server.listen_address import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

START_SECONDS = 60.0
STOP_SECONDS = 10.0


@contextlib.asynccontextmanager
async def console_beside(nameserver: str, data: Path, port: int | None) -> AsyncIterator[str | None]:
    """The address of a console of this cluster while the block runs; None without the extra, or if it failed."""
    if importlib.util.find_spec("nicegui") is None:
        yield None
        return
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "orbitmq", "dashboard", "-n", f"quickstart={nameserver}", "--no-login"),
        *("--data", str(data / "dashboard"), "--until-eof", "--port", str(_port(port))),
        # Its end is the end of this process, even after a SIGKILL.
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        yield await _address(process)
    finally:
        await _stop(process)


async def _address(process: asyncio.subprocess.Process) -> str | None:
    """The address that the console prints when it serves."""
    assert process.stdout is not None
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(START_SECONDS):
            while line := await process.stdout.readline():
                if (found := re.search(r"http://\S+", line.decode())) is not None:
                    return found[0]
    complain("the console did not start; the broker runs without it")
    return None


async def _stop(process: asyncio.subprocess.Process) -> None:
    assert process.stdin is not None
    process.stdin.close()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(STOP_SECONDS):
            await process.wait()
    if process.returncode is None:
        process.kill()
        await process.wait()


def _port(wanted: int | None) -> int:
    """The usual port, or any free one if that is in use."""
    if wanted is not None:
        return wanted
    try:
        with socket.create_server((LOOPBACK, PORT)):
            return PORT
    except OSError:
        return 0
