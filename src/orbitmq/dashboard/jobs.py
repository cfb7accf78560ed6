"""Jobs: long work that the console does for users in the background, with its progress. The newest are kept."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from typing import TYPE_CHECKING

from orbitmq.admin.errors import AdminError, InvalidRequestError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from orbitmq.dashboard.auth.roles import Actor
    from orbitmq.platform.clock import Clock

log = logging.getLogger("orbitmq.dashboard")

MAX_RUNNING = 8
MAX_KEPT = 200

RUNNING, DONE, CANCELLED = "running", "done", "cancelled"


@dataclasses.dataclass(slots=True)
class Job:
    """One job. ``state`` is running, done, cancelled, or the error that ended it."""

    number: int
    user: str
    cluster: str
    action: str
    target: str
    begun_ms: int
    total: int
    done: int = 0
    failed: int = 0
    """Parts that failed; the job goes on with the others."""
    ended_ms: int = 0
    state: str = RUNNING

    def step(self, *, is_good: bool) -> None:
        """Count one part."""
        self.done += 1
        self.failed += not is_good


class Jobs:
    """The jobs of a console, on its loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._jobs: dict[int, Job] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._last = 0

    def all(self) -> list[Job]:
        """The newest first."""
        return list(reversed(self._jobs.values()))

    def start(
        self,
        actor: Actor,
        cluster: str,
        about: tuple[str, str],
        total: int,
        work: Callable[[Job], Awaitable[object]],
    ) -> Job:
        """Begin a job of ``total`` parts; ``about`` is its action and target. Raises InvalidRequestError."""
        if len(self._tasks) >= MAX_RUNNING:
            raise InvalidRequestError(f"{MAX_RUNNING} jobs are running: wait for one, or cancel it")
        self._last += 1
        job = Job(self._last, actor.user, cluster, *about, self._clock.now_ms(), total)
        self._jobs[job.number] = job
        while len(self._jobs) > MAX_KEPT:
            # Running jobs are among the newest: there are fewer than are kept.
            del self._jobs[next(iter(self._jobs))]
        self._tasks[job.number] = asyncio.get_running_loop().create_task(self._run(job, work))
        return job

    async def _run(self, job: Job, work: Callable[[Job], Awaitable[object]]) -> None:
        try:
            await work(job)
            job.state = DONE
        except asyncio.CancelledError:
            job.state = CANCELLED
        except AdminError as error:
            job.state = str(error)
        except Exception as error:
            log.exception("jobs: %s failed", job.action)
            job.state = f"unexpected error, see the log of the console: {type(error).__name__}"
        finally:
            job.ended_ms = self._clock.now_ms()
            self._tasks.pop(job.number, None)

    def cancel(self, number: int) -> Job:
        """Stop a job; what it has done stays done. Raises NotFoundError."""
        job = self._jobs.get(number)
        if job is None:
            raise NotFoundError("job", str(number))
        if (task := self._tasks.get(number)) is not None:
            task.cancel()
        return job

    async def close(self) -> None:
        """Stop all jobs."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
