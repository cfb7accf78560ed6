"""Threads that call handlers, as many as are wanted at the moment; what they say comes back to the event loop.

Not an executor of the standard library: those cannot be made smaller, and a handler that never returns would keep
the process from ending.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import inspect
import itertools
import queue
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.client.levels import QueueByLevel

JOIN_SECONDS = 1.0
"""How long an idle thread may take to end."""


class Job:
    """One call of a handler. ``settle`` is called on the loop with what was returned, or what was raised."""

    __slots__ = ("argument", "handler", "settle", "started")

    def __init__(
        self,
        handler: Callable[[Any], Any],
        argument: object,
        settle: Callable[[Job, object, BaseException | None], None],
    ) -> None:
        self.handler = handler
        self.argument = argument
        self.settle = settle
        self.started = 0.0


class ConsumeThreads:
    """The threads of one consumer. Everything but the handlers runs on the loop."""

    def __init__(
        self,
        name: str,
        limit: int,
        kind: str = "ConsumeMessageThread",
        jobs: queue.SimpleQueue[Job | None] | QueueByLevel[Job] | None = None,
    ) -> None:
        """``jobs`` are those that wait, if they are not to be done in their order."""
        self._name = f"{kind}_{name}"
        self._limit = limit
        self._loop = asyncio.get_running_loop()
        self._jobs = queue.SimpleQueue[Job | None]() if jobs is None else jobs
        self._settled: collections.deque[tuple[Job, object, BaseException | None]] = collections.deque()
        self._is_told = False
        self._threads: set[threading.Thread] = set()
        self._numbers = itertools.count(1)
        self._waiting = 0
        """Jobs that were submitted and are not settled."""
        self.running: dict[int, Job] = {}
        """By thread, the calls that have not returned."""

    @property
    def limit(self) -> int:
        return self._limit

    @property
    def unsettled(self) -> int:
        return self._waiting

    def submit(self, job: Job) -> None:
        self._waiting += 1
        self._jobs.put(job)
        if len(self._threads) < self._limit:
            self._grow()

    async def call(self, handler: Callable[[Any], Any], argument: object) -> object:
        """What a handler returns. Raises what it raises."""
        settled: asyncio.Future[object] = self._loop.create_future()

        def settle(_: Job, returned: object, raised: BaseException | None) -> None:
            if settled.done():
                return
            if raised is None:
                settled.set_result(returned)
            elif isinstance(raised, Exception) and not isinstance(raised, StopIteration):
                settled.set_exception(raised)
            else:
                # What would end the loop, or is nothing that a future can hold.
                settled.set_exception(RuntimeError(f"the handler raised {raised!r}"))

        self.submit(Job(handler, argument, settle))
        returned = await settled
        return await returned if inspect.isawaitable(returned) else returned

    def _grow(self) -> None:
        for _ in range(min(self._limit, self._waiting) - len(self._threads)):
            thread = threading.Thread(target=self._work, name=f"{self._name}_{next(self._numbers)}", daemon=True)
            self._threads.add(thread)
            thread.start()

    def resize(self, limit: int) -> None:
        """Call so many handlers at the same time from now on. Calls that run are not broken off."""
        self._limit = limit
        for _ in range(len(self._threads) - limit):
            self._jobs.put(None)
        self._grow()

    def discard(self) -> None:
        """Forget what has not begun."""
        with contextlib.suppress(queue.Empty):
            while True:
                if self._jobs.get_nowait() is not None:
                    self._waiting -= 1

    def close(self) -> list[str]:
        """End the threads, and say which do not, because their handlers have not returned."""
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
            job.started = time.monotonic()
            self.running[me] = job
            returned: object = None
            raised: BaseException | None = None
            try:
                returned = job.handler(job.argument)
            except BaseException as error:
                # Also what ends programs: this thread is not one, and the message was not consumed.
                raised = error
            del self.running[me]
            self._settled.append((job, returned, raised))
            if not self._is_told:
                self._is_told = True
                # The loop may be gone, if the handler took too long.
                with contextlib.suppress(RuntimeError):
                    self._loop.call_soon_threadsafe(self._settle)
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._threads.discard, threading.current_thread())

    # On the loop

    def _settle(self) -> None:
        # First this, then looking: who adds something afterwards tells again.
        self._is_told = False
        settled = self._settled
        while settled:
            job, returned, raised = settled.popleft()
            self._waiting -= 1
            job.settle(job, returned, raised)
