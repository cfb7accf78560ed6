"""Short-lived threads for work that would block an event loop: each ends with its work.

The default executor of a loop keeps its threads until the loop ends. A broker embedded in another process must
leave nothing behind when it stops, and this work is rare: encoding a large table, writing a settings file.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
import weakref
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")

MAX_THREADS = 2
"""Maximum threads of one event loop; further work is queued, so that a flood of requests starts only these."""

_turns: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = weakref.WeakKeyDictionary()


class RunBlocking(Protocol):
    """Runs a blocking call without blocking the loop."""

    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]: ...


_replaced: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, RunBlocking] = weakref.WeakKeyDictionary()


def replace_threads(loop: asyncio.AbstractEventLoop, run_blocking: RunBlocking) -> None:
    """Run the work of ``in_thread`` on this loop by ``run_blocking``. A simulation has no threads."""
    _replaced[loop] = run_blocking


async def in_thread(work: Callable[[], T]) -> T:
    """Run work in a thread of its own and return its result. Raises what the work raises."""
    loop = asyncio.get_running_loop()
    replaced = _replaced.get(loop)
    if replaced is not None:
        return await replaced(work)
    turns = _turns.get(loop)
    if turns is None:
        turns = _turns[loop] = asyncio.Semaphore(MAX_THREADS)
    async with turns:
        done: asyncio.Future[T] = loop.create_future()
        # Limits on parsing a request are context variables.
        context = contextvars.copy_context()

        def settle(result: T | None, error: BaseException | None) -> None:
            if done.done():
                return  # the waiter was cancelled
            if error is not None:
                done.set_exception(error)
            else:
                done.set_result(result)  # type: ignore[arg-type]

        def run() -> None:
            try:
                result = context.run(work)
            except BaseException as error:
                loop.call_soon_threadsafe(settle, None, error)
            else:
                loop.call_soon_threadsafe(settle, result, None)

        thread = threading.Thread(target=run, name="orbitmq-work", daemon=True)
        thread.start()
        try:
            return await done
        finally:
            if done.done():
                # It has finished its work and is about to end.
                thread.join()
