"""Supervisor of broker processes: starts them, restarts those that die with backoff, and stops them together."""

import asyncio
import contextlib
import dataclasses
import logging
import sys
from collections.abc import Sequence

log = logging.getLogger("orbitmq.serve")

MIN_BACKOFF = 1.0
MAX_BACKOFF = 30.0
"""Seconds before a broker that died is restarted. The backoff doubles while it keeps dying soon after its start."""

STABLE_SECONDS = 60.0
"""A broker that ran for this long is restarted after the minimum backoff."""

STOP_SECONDS = 30.0
"""Time for a broker to stop before it is killed; its store recovers at the next start."""


@dataclasses.dataclass(slots=True)
class Child:
    """A broker process: its name and the arguments of its command."""

    name: str
    arguments: Sequence[str]
    pid: int = 0
    """Of the process that was started last; 0 before."""


class Supervisor:
    """Keeps child processes running."""

    def __init__(self, children: Sequence[Child]) -> None:
        self._children = children
        self._stopping = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._was_tried: list[asyncio.Event] = [asyncio.Event() for _ in children]

    def start(self) -> None:
        self._tasks = [
            asyncio.create_task(self._keep_running(child, was_tried))
            for child, was_tried in zip(self._children, self._was_tried, strict=True)
        ]

    async def stop(self) -> None:
        """Stop all children and wait until they have ended."""
        self._stopping.set()
        await asyncio.gather(*self._tasks)

    async def pids(self) -> list[int]:
        """Process ids of the children, once each was tried to be started; 0 where that failed."""
        for was_tried in self._was_tried:
            await was_tried.wait()
        return [child.pid for child in self._children]

    async def _keep_running(self, child: Child, was_tried: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        backoff = MIN_BACKOFF
        while not self._stopping.is_set():
            started = loop.time()
            try:
                end = f"ended with exit code {await self._run_once(child, was_tried)}"
            except OSError as error:
                # Perhaps out of memory or processes, which may pass: the other brokers keep running.
                end = f"could not be started ({error.strerror or error})"
                was_tried.set()
            if self._stopping.is_set():
                return
            backoff = MIN_BACKOFF if loop.time() - started > STABLE_SECONDS else min(2 * backoff, MAX_BACKOFF)
            log.error("supervisor: broker %s %s, restart in %.0f s", child.name, end, backoff)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), backoff)

    async def _run_once(self, child: Child, was_tried: asyncio.Event) -> int | None:
        # Standard input is a pipe from this process without data: it ends with this process, even after a SIGKILL.
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "orbitmq", *child.arguments, stdin=asyncio.subprocess.PIPE
        )
        child.pid = process.pid
        was_tried.set()
        ended = asyncio.create_task(process.wait())
        stopping = asyncio.create_task(self._stopping.wait())
        await asyncio.wait((ended, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not ended.done():
            process.terminate()
            await asyncio.wait((ended,), timeout=STOP_SECONDS)
            if not ended.done():
                log.error("supervisor: broker %s did not stop within %.0f s, killing it", child.name, STOP_SECONDS)
                process.kill()
        return await ended
