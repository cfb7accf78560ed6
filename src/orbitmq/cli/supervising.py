"""Brokers in processes of their own: started, restarted when they die, and stopped together."""

import asyncio
import contextlib
import dataclasses
import logging
import sys
from collections.abc import Sequence

log = logging.getLogger("orbitmq.serve")

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 30.0
"""Seconds before a broker that died is started again. The pause doubles while it keeps dying soon."""

LIVED_LONG = 60.0
"""A broker that ran for so many seconds is started again after the first pause only."""

STOP_SECONDS = 30.0
"""A broker that has not stopped by itself after so long is killed; its store recovers at the next start."""


@dataclasses.dataclass(slots=True)
class Child:
    """A broker that has to run: its name and the arguments of its command."""

    name: str
    arguments: Sequence[str]


class Supervisor:
    """Keeps children running."""

    def __init__(self, children: Sequence[Child]) -> None:
        self._children = children
        self._stopping = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._tasks = [asyncio.create_task(self._keep_running(child)) for child in self._children]

    async def stop(self) -> None:
        """Ask all of them to stop and wait until they have."""
        self._stopping.set()
        await asyncio.gather(*self._tasks)

    async def _keep_running(self, child: Child) -> None:
        loop = asyncio.get_running_loop()
        pause = FIRST_PAUSE
        while not self._stopping.is_set():
            began = loop.time()
            try:
                end = f"ended with exit code {await self._run_once(child)}"
            except OSError as error:
                # No memory or no process left, perhaps: the others run, and later there may be some.
                end = f"could not be started ({error.strerror or error})"
            if self._stopping.is_set():
                return
            pause = FIRST_PAUSE if loop.time() - began > LIVED_LONG else min(2 * pause, LONGEST_PAUSE)
            log.error("%s %s; it is started again in %.0f s", child.name, end, pause)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause)

    async def _run_once(self, child: Child) -> int | None:
        # Its input is a pipe of ours that nobody writes to: it ends when this process does, however that happens.
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "orbitmq", *child.arguments, stdin=asyncio.subprocess.PIPE
        )
        ended = asyncio.create_task(process.wait())
        told = asyncio.create_task(self._stopping.wait())
        await asyncio.wait((ended, told), return_when=asyncio.FIRST_COMPLETED)
        told.cancel()
        if not ended.done():
            process.terminate()
            await asyncio.wait((ended,), timeout=STOP_SECONDS)
            if not ended.done():
                log.error("%s did not stop in %.0f s and is killed", child.name, STOP_SECONDS)
                process.kill()
        return await ended
