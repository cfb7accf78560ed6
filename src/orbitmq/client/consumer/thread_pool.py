"""Thread pool for handlers. Results return to the event loop.

Not an executor of the standard library: those cannot shrink, and a handler that never returns would keep the
process alive.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import inspect
import itertools
import queue
import threading
from typing import TYPE_CHECKING, Any

from orbitmq.platform.clock import SYSTEM_CLOCK

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.client.consumer.priority_buffer import ThreadPriorityQueue
    from orbitmq.platform.clock import Clock

JOIN_SECONDS = 1.0
"""Timeout of joining an idle thread."""


class Job:
    """One handler call. ``on_done`` is called on the loop with the return value or the exception."""

    __slots__ = ("argument", "handler", "on_done", "started")

    def __init__(
        self,
        handler: Callable[[Any], Any],
        argument: object,
        on_done: Callable[[Job, object, BaseException | None], None],
    ) -> None:
        self.handler = handler
        self.argument = argument
        self.on_done = on_done
        self.started = 0.0


class ConsumeThreads:
    """The threads of one consumer. Everything except handlers runs on the loop."""

    def __init__(
        self,
        name: str,
        limit: int,
        kind: str = "ConsumeMessageThread",
        jobs: queue.SimpleQueue[Job | None] | ThreadPriorityQueue[Job] | None = None,
        *,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """``jobs`` replaces the first-in, first-out queue."""
        self._name = f"{kind}_{name}"
        self._limit = limit
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._jobs = queue.SimpleQueue[Job | None]() if jobs is None else jobs
        self._finished: collections.deque[tuple[Job, object, BaseException | None]] = collections.deque()
        self._is_wakeup_scheduled = False
        self._threads: set[threading.Thread] = set()
        self._numbers = itertools.count(1)
        self._waiting = 0
        """Jobs that were submitted and have no result yet."""
        self.running: dict[int, Job] = {}
        """Running calls by thread."""

    @property
    def limit(self) -> int:
        return self._limit

    @property
    def unfinished(self) -> int:
        return self._waiting

    def submit(self, job: Job) -> None:
        self._waiting += 1
        self._jobs.put(job)
        if len(self._threads) < self._limit:
            self._grow()

    async def call(self, handler: Callable[[Any], Any], argument: object) -> object:
        """Call a handler in a thread; returns or raises what it does."""
        finished: asyncio.Future[object] = self._loop.create_future()

        def on_done(_: Job, returned: object, raised: BaseException | None) -> None:
            if finished.done():
                return
            if raised is None:
                finished.set_result(returned)
            elif isinstance(raised, Exception) and not isinstance(raised, StopIteration):
                finished.set_exception(raised)
            else:
                # Would stop the loop, or cannot be set on a future.
                finished.set_exception(RuntimeError(f"the handler raised {raised!r}"))

        self.submit(Job(handler, argument, on_done))
        returned = await finished
        return await returned if inspect.isawaitable(returned) else returned

    def _grow(self) -> None:
        for _ in range(min(self._limit, self._waiting) - len(self._threads)):
            thread = threading.Thread(target=self._work, name=f"{self._name}_{next(self._numbers)}", daemon=True)
            self._threads.add(thread)
            thread.start()

    def resize(self, limit: int) -> None:
        """Change the number of threads. Running calls are not interrupted."""
        self._limit = limit
        for _ in range(len(self._threads) - limit):
            self._jobs.put(None)
        self._grow()

    def discard(self) -> None:
        """Drop jobs that have not started."""
        with contextlib.suppress(queue.Empty):
            while True:
                if self._jobs.get_nowait() is not None:
                    self._waiting -= 1

    def close(self) -> list[str]:
        """End the threads; returns the names of those whose handlers have not returned."""
        self.discard()
        for _ in self._threads:
            self._jobs.put(None)
        busy = set(self.running)
        for thread in tuple(self._threads):
            if thread.ident not in busy:
                thread.join(JOIN_SECONDS)
        stuck = [thread.name for thread in self._threads if thread.is_alive()]
        self._threads.clear()
        return stuck

    # In the threads

    def _work(self) -> None:
        me = threading.get_ident()
        while (job := self._jobs.get()) is not None:
            job.started = self._clock.monotonic()
            self.running[me] = job
            returned: object = None
            raised: BaseException | None = None
            try:
                returned = job.handler(job.argument)
            except BaseException as error:
                # Includes SystemExit: it must not end the thread, and the message was not consumed.
                raised = error
            del self.running[me]
            self._finished.append((job, returned, raised))
            if not self._is_wakeup_scheduled:
                self._is_wakeup_scheduled = True
                # The loop may be closed if the handler took too long.
                with contextlib.suppress(RuntimeError):
                    self._loop.call_soon_threadsafe(self._drain_finished)
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._threads.discard, threading.current_thread())

    # On the loop

    def _drain_finished(self) -> None:
        # Reset before draining: a result added afterwards schedules another wake-up.
        self._is_wakeup_scheduled = False
        finished = self._finished
        while finished:
            job, returned, raised = finished.popleft()
            self._waiting -= 1
            job.on_done(job, returned, raised)
