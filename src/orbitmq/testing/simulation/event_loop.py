"""SimulatedLoop: an asyncio event loop in virtual time, on which every process of a simulated cluster runs.

Nothing waits: when no callback is ready, time jumps to the next timer. Callbacks run in the order in which they
were scheduled, so a run depends on its seed alone.

Every callback belongs to a process (``Process``), through its context: a task inherits the process of the code that
made it. So a process can be killed as ``kill -9`` does it, its callbacks never run again, or stopped as ``SIGSTOP``
does it, they run when it goes on.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import contextvars
import heapq
import itertools
import random
import warnings
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple, Unpack

from orbitmq.platform.threads import replace_threads

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from concurrent.futures import Executor

    from orbitmq.testing.simulation.network import Network

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

DISK_SECONDS = (0.000_05, 0.003)
"""Time that work in a thread takes, mostly a sync of the disk: shortest and longest."""


class DeadlockError(RuntimeError):
    """Nothing is ready and no timer is set: the simulation would stand still for ever."""


class Process:
    """A simulated process: the owner of tasks, timers and connections."""

    def __init__(self, name: str, host: str) -> None:
        self.name = name
        self.host = host
        """The address of its machine."""
        self.is_dead = False
        self.is_paused = False
        self.disk_delay = 0.0
        """Additional seconds that work in a thread takes: a slow disk."""
        self.held: collections.deque[asyncio.Handle] = collections.deque()
        """Callbacks that became ready while it was paused."""

    def __repr__(self) -> str:
        return f"<{self.name} at {self.host}>"


_process: contextvars.ContextVar[Process | None] = contextvars.ContextVar("orbitmq_simulated_process", default=None)


def current_process() -> Process | None:
    """The process whose code runs; None for the simulation itself."""
    return _process.get()


@contextlib.contextmanager
def running_as(process: Process | None) -> Iterator[None]:
    """Code inside runs as this process."""
    token = _process.set(process)
    try:
        yield
    finally:
        _process.reset(token)


class SimulatedLoop(asyncio.BaseEventLoop):
    """The loop of one simulated cluster. ``network`` has its connections, ``seed`` the time that a disk takes."""

    def __init__(self, network: Network, seed: int = 0) -> None:
        super().__init__()
        self.network = network
        self.callbacks = 0
        """Number of callbacks that have run."""
        self._now = 0.0
        self._clock_resolution = 1e-9
        self._random = random.Random(seed)
        self._tie = itertools.count()
        self._due: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._dead_tasks: list[asyncio.Task[Any]] = []
        self._tasks: dict[Process, set[asyncio.Task[Any]]] = {}
        self.set_task_factory(self._make_task)  # type: ignore[arg-type]
        replace_threads(self, self._run_in_thread)

    # Time and callbacks

    def time(self) -> float:
        return self._now

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._due, (when, next(self._tie), timer))
        return timer

    def call_later(
        self,
        delay: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_soon_threadsafe(
        self,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """As ``call_soon``: there are no threads."""
        return self.call_soon(callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """A cancelled timer is dropped when it comes due."""

    def _run_once(self) -> None:
        """One iteration: the callbacks that are ready, or the jump to the next timer."""
        ready: collections.deque[asyncio.Handle] = self._ready  # type: ignore[attr-defined]
        due = self._due
        while due and due[0][2].cancelled():
            heapq.heappop(due)
        if not ready and not self._stopping:  # type: ignore[attr-defined]
            if not due:
                raise DeadlockError("no callback is ready and no timer is set")
            self._now = max(self._now, due[0][0])
        while due and due[0][0] <= self._now:
            handle = heapq.heappop(due)[2]
            if not handle.cancelled():
                ready.append(handle)
        for _ in range(len(ready)):
            self._run_callback(ready.popleft())

    def _run_callback(self, handle: asyncio.Handle) -> None:
        if handle.cancelled():
            return
        context: contextvars.Context = handle._context  # type: ignore[attr-defined]
        process = context.get(_process)
        if process is not None:
            if process.is_dead:
                return
            if process.is_paused:
                process.held.append(handle)
                return
        self.callbacks += 1
        handle._run()

    # Work in threads: done on the loop, after the time that a disk takes

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        del executor
        return asyncio.ensure_future(self._run_in_thread(lambda: func(*args)), loop=self)

    async def _run_in_thread(self, work: Callable[[], T]) -> T:
        process = current_process()
        await asyncio.sleep(self._random.uniform(*DISK_SECONDS) + (0 if process is None else process.disk_delay))
        return work()

    # Connections

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:
        return await self.network.connect(self, protocol_factory, str(host), int(port))

    async def create_server(self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:
        return self.network.listen(self, protocol_factory, str(host), int(port or 0))

    # Processes

    def _make_task(
        self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T], **options: Any
    ) -> asyncio.Task[T]:
        task = asyncio.Task(work, loop=loop, **options)
        process = current_process()
        if process is not None:
            tasks = self._tasks.setdefault(process, set())
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        return task

    def kill(self, process: Process) -> None:
        """End a process at once: nothing of it runs any more, not even a ``finally``."""
        process.is_dead = True
        process.held.clear()
        # Kept, because a collected coroutine would run its ``finally`` blocks.
        self._dead_tasks += self._tasks.pop(process, ())
        self.network.process_died(process)

    def pause(self, process: Process) -> None:
        """As SIGSTOP: nothing of it runs until ``resume``."""
        process.is_paused = True

    def resume(self, process: Process) -> None:
        process.is_paused = False
        self._ready.extend(process.held)  # type: ignore[attr-defined]
        process.held.clear()

    # End

    def close(self) -> None:
        """Close the loop, and throw away what dead processes have left, without a word."""
        # What closed coroutines leave, such as futures that fail without a reader, is no finding.
        self.set_exception_handler(lambda *_: None)
        left, self._dead_tasks = [*self._dead_tasks, *(t for ts in self._tasks.values() for t in ts)], []
        self._tasks.clear()
        for task in left:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            with contextlib.suppress(BaseException), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                task.get_coro().close()
        self._due.clear()
        self._ready.clear()  # type: ignore[attr-defined]
        super().close()

    # What asyncio's base class leaves to loops with a selector

    def _write_to_self(self) -> None:
        """Nothing sleeps that would have to be woken."""

    def _process_events(self, event_list: object) -> None:
        """There are no events of the system."""
