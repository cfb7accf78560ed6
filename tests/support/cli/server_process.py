"""Servers as processes of their own: started by the ``orbitmq`` command, read from, signalled, and ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import sys
from typing import TYPE_CHECKING

from orbitmq.protocol.bodies import ClusterInfo
from orbitmq.protocol.codes import RequestCode
from peers.frames import ask
from support.cli.command import WIDTH
from support.remoting_harness import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

SMALL_FILES = "mappedFileSizeCommitLog=4194304\nmappedFileSizeConsumeQueue=60000\nmaxIndexNum=10000\n"
"""Settings of a store whose files are made and removed quickly."""

_WAITS = 0.01


class ServerProcess:
    """A process that runs a server."""

    def __init__(self, process: asyncio.subprocess.Process, errors: Path) -> None:
        self._process = process
        self._errors = errors
        self.lines: list[str] = []
        """What it has printed."""
        self._reading = asyncio.create_task(self._read())

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def errors(self) -> str:
        """What it has written to standard error."""
        return self._errors.read_text()

    @property
    def memory(self) -> int:
        """Bytes of memory that are its own and in use."""
        with open(f"/proc/{self.pid}/status") as file:
            found = re.search(r"RssAnon:\s+(\d+) kB", file.read())
        assert found is not None
        return int(found[1]) * 1024

    def children(self) -> list[int]:
        return [pid for pid in _processes() if _parent(pid) == self.pid]

    async def says(self, pattern: str) -> str:
        """Wait until it has printed a line with this in it; the first group of what was found."""
        async with asyncio.timeout(PATIENCE):
            while True:
                for line in self.lines:
                    if (found := re.search(pattern, line)) is not None:
                        return found[1]
                assert not self._reading.done(), f"it ended: {self.lines} {self.errors}"
                await asyncio.sleep(_WAITS)

    def tell(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def ended(self) -> int:
        """Its exit code, when it has ended and all that it said was read."""
        async with asyncio.timeout(PATIENCE):
            code = await self._process.wait()
            await self._reading
        return code

    async def stopped(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Have it stop, and wait until it has; its exit code."""
        self.tell(number)
        return await self.ended()

    async def clean_up(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        if self._process.returncode is None:
            with contextlib.suppress(TimeoutError, ProcessLookupError):
                await self.stopped()
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
        await self._reading

    async def _read(self) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            self.lines.append(line.decode())


@contextlib.asynccontextmanager
async def orbitmq(home: Path, *arguments: object, **options: int) -> AsyncIterator[ServerProcess]:
    """The command, running; ``home`` is its home directory and keeps what it writes to standard error."""
    errors = home / f"errors-{len(os.listdir(home))}"
    with errors.open("w") as file:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "orbitmq",
            *map(str, arguments),
            stdout=asyncio.subprocess.PIPE,
            stderr=file,
            env={**os.environ, **WIDTH, "HOME": str(home)},
            **options,  # type: ignore[arg-type]
        )
    server = ServerProcess(process, errors)
    try:
        yield server
    finally:
        await server.clean_up()


def brokers_known_at(nameserver: str) -> dict[str, str]:
    """The brokers that a name server knows: their names and addresses."""
    answer = ask(nameserver, RequestCode.GET_BROKER_CLUSTER_INFO)
    table = ClusterInfo.decode(answer.body).broker_addr_table
    return {name: data.broker_addrs[0] for name, data in table.items()}


async def soon(condition: Callable[[], object]) -> None:
    """Wait until a condition holds; as often as a process can be asked."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - conditions of another process
            await asyncio.sleep(_WAITS)


def is_running(pid: int) -> bool:
    """Whether there is such a process that has not ended."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _parent(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return int(file.read().rpartition(")")[2].split()[1])
    except OSError:
        return 0
