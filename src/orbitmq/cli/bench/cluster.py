"""Temporary cluster of a benchmark: a name server in this process, and a broker in its own process."""

import asyncio
import contextlib
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

from orbitmq.cli.server.listen_address import LOOPBACK
from orbitmq.cli.server.serve import name_server_at
from orbitmq.platform.settings import ConfigError

if TYPE_CHECKING:
    from orbitmq.nameserver import NameServer

START_SECONDS = 30.0
STOP_SECONDS = 20.0
_LOOK_SECONDS = 0.01


@contextlib.asynccontextmanager
async def temporary_cluster() -> AsyncIterator[str]:
    """The address of its name server. The data is deleted at the end. Raises ConfigError."""
    with tempfile.TemporaryDirectory(prefix="orbitmq-bench-") as folder:
        names = name_server_at(Path(folder), LOOPBACK, 0)
        await names.start()
        try:
            address = f"{LOOPBACK}:{names.port}"
            async with _broker(names, address, Path(folder) / "store"):
                yield address
        finally:
            await names.stop()


@contextlib.asynccontextmanager
async def _broker(names: "NameServer", address: str, data: Path) -> AsyncIterator[None]:
    log = data.with_name("broker.log")
    with log.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "orbitmq", "broker", "--until-eof", "-n", address),
            *("--host", LOOPBACK, "--port", "0", "--data", str(data)),
            # Standard input is a pipe from this process without data: the broker ends with this process.
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=errors,
            # Ctrl-C must not reach the broker, which is needed until the last response.
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
            raise ConfigError(f"the temporary broker did not start within {START_SECONDS:g} s")
        await asyncio.sleep(_LOOK_SECONDS)


def _last_line(log: Path) -> str:
    return log.read_text("utf-8", "replace").strip().rpartition("\n")[2]
