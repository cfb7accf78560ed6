"""A cluster for the time of a benchmark: a name server here, and a broker in a process of its own."""

import asyncio
import contextlib
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

from orbitmq.cli.serve import HOST, name_server_at
from orbitmq.settings import ConfigError

if TYPE_CHECKING:
    from orbitmq.nameserver import NameServer

START_SECONDS = 30.0
STOP_SECONDS = 20.0
_LOOK_SECONDS = 0.01


@contextlib.asynccontextmanager
async def temporary_cluster() -> AsyncIterator[str]:
    """Where its name server is. Its data is gone afterwards. Raises ConfigError."""
    with tempfile.TemporaryDirectory(prefix="orbitmq-bench-") as folder:
        names = name_server_at(Path(folder), HOST, 0)
        await names.start()
        try:
            address = f"{HOST}:{names.port}"
            async with _broker(names, address, Path(folder) / "store"):
                yield address
        finally:
            await names.stop()


@contextlib.asynccontextmanager
async def _broker(names: "NameServer", address: str, data: Path) -> AsyncIterator[None]:
    log = data.with_name("broker.log")
    with log.open("wb") as said:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "orbitmq", "broker", "--until-eof", "-n", address),
            *("--host", HOST, "--port", "0", "--data", str(data)),
            # Its input is a pipe that nobody writes to: it ends when this process does, however that happens.
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=said,
            # Ctrl-C is for us; the broker is needed until the last answer.
            start_new_session=True,
        )
    try:
        await _registered(names, process, log)
        yield
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), STOP_SECONDS)
        except TimeoutError:
            process.kill()
            await process.wait()


async def _registered(names: "NameServer", process: asyncio.subprocess.Process, log: Path) -> None:
    deadline = asyncio.get_running_loop().time() + START_SECONDS
    while not names.table.brokers:
        if process.returncode is not None:
            raise ConfigError(f"the temporary broker ended: {_last_line(log)}")
        if asyncio.get_running_loop().time() > deadline:
            raise ConfigError(f"the temporary broker has not come up within {START_SECONDS:g} s")
        await asyncio.sleep(_LOOK_SECONDS)


def _last_line(log: Path) -> str:
    return log.read_text("utf-8", "replace").strip().rpartition("\n")[2]
