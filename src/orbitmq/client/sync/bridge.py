"""Bridge from blocking code to asyncio: event loops that plain threads hand coroutines to and wait for.

``LoopThread`` runs its loop in a thread of its own. ``SyncLoop`` is the one that all blocking clients of a process
share. ``CallerLoop`` has no thread: it runs in the calling thread, while a call waits. ``SyncFace`` is the base
class of the blocking clients.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

from orbitmq.client.errors import NotRunningError
from orbitmq.platform.event_loop import new_event_loop

if TYPE_CHECKING:
    import concurrent.futures
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator

T = TypeVar("T")

IDLE_SECONDS = 1.0
"""After this long without a call the peer may have closed connections: ``CallerLoop`` polls its sockets first."""

POLLS_AFTER_IDLE = 3
"""Loop iterations that are enough for the loop to notice connections that were closed while it stood still."""


class Client(Protocol):
    """A producer or consumer for asyncio."""

    def start(self) -> Coroutine[None, None, object]: ...

    def close(self) -> Coroutine[None, None, None]: ...


class Member(Client, Protocol):
    """A producer or consumer of messages."""

    @property
    def is_connected(self) -> bool: ...


ClientT = TypeVar("ClientT", bound=Client)
MemberT = TypeVar("MemberT", bound=Member)

_guard = threading.Lock()
_current: SyncLoop | None = None


class LoopThread:
    """An event loop in a daemon thread. Other threads submit coroutines to it and may wait for them."""

    def __init__(self, name: str) -> None:
        self._loop = new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def is_current_thread(self) -> bool:
        return threading.get_ident() == self._thread.ident

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(_cancel_remaining_tasks())
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()

    def submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Start a coroutine on the loop and return at once."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and wait for it. An exception in the waiting thread cancels it."""
        future = self.submit(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        """Cancel what still runs, close the loop and join the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


async def _cancel_remaining_tasks() -> None:
    remaining = asyncio.all_tasks() - {asyncio.current_task()}
    for task in remaining:
        task.cancel()
    await asyncio.gather(*remaining, return_exceptions=True)


class SyncLoop(LoopThread):
    """The loop that the blocking clients of a process share. It ends with the last of them."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._users = 0
        super().__init__("orbitmq-client")

    @classmethod
    def acquire(cls) -> SyncLoop:
        """The loop of this process. ``release`` it when it is not needed any more."""
        global _current  # noqa: PLW0603 - the one thing that a process shares
        with _guard:
            if _current is None or _current._process != os.getpid():
                _current = cls()
            _current._users += 1
            return _current

    def release(self) -> None:
        """Stop the loop and its thread after the last user."""
        global _current  # noqa: PLW0603
        with _guard:
            self._users -= 1
            if self._users or self._process != os.getpid():
                return
            if _current is self:
                _current = None
        self.stop()

    def submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Start a coroutine on the loop and return at once. Raises NotRunningError."""
        if os.getpid() != self._process:
            work.close()
            raise NotRunningError(
                "this client was created before a fork: create clients in the process that uses them"
            )
        if self.is_current_thread:
            work.close()
            raise NotRunningError(
                "a handler that runs on the client's loop cannot wait for the client: use orbitmq.aio there, or "
                "a plain function that is not inline"
            )
        return super().submit(work)


def users_of_the_sync_loop() -> int:
    """Blocking clients of this process that are started and not closed."""
    current = _current
    return 0 if current is None or current._process != os.getpid() else current._users


class CallerLoop:
    """An event loop without a thread: it runs in the calling thread, only while a call waits.

    For processes that fork, and for callers that always come from one thread. Between two calls nothing is read:
    responses stay in the socket buffers.
    """

    def __init__(self) -> None:
        self._loop = new_event_loop()
        self._process = os.getpid()
        self._last_used = time.monotonic()

    @property
    def is_closed(self) -> bool:
        return self._loop.is_closed()

    @property
    def is_usable(self) -> bool:
        """Not closed, and made in this process and not before a fork."""
        return not self.is_closed and os.getpid() == self._process

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and wait for it. An exception in the waiting thread cancels it."""
        task = self._loop.create_task(self._after_polling(work))
        try:
            return self._loop.run_until_complete(task)
        except BaseException:
            if not task.done():
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    self._loop.run_until_complete(task)
            raise
        finally:
            self._last_used = time.monotonic()

    async def _after_polling(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            if time.monotonic() - self._last_used > IDLE_SECONDS:
                for _ in range(POLLS_AFTER_IDLE):
                    await asyncio.sleep(0)
        except BaseException:
            work.close()
            raise
        return await work

    def close(self, last_work: Coroutine[Any, Any, None] | None = None) -> None:
        """Run ``last_work``, then close the loop."""
        try:
            if last_work is not None:
                self._loop.run_until_complete(last_work)
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()


class SyncFace(Generic[ClientT]):
    """Base of the blocking clients: an asyncio client and the loop that runs it from ``start`` to ``close``."""

    def __init__(self, client: ClientT) -> None:
        self._client = client
        self._loop: SyncLoop | None = None

    def start(self) -> Self:
        """Connect. Raises OrbitMQError; the client can be started again then."""
        if self._loop is not None:
            raise NotRunningError("it is already running")
        self._loop = SyncLoop.acquire()
        try:
            self._loop.do(self._client.start())
        except BaseException:
            self._leave()
            raise
        return self

    def close(self) -> None:
        """Wait for work in flight, then leave. Does nothing if it was never started."""
        self._end(self._client.close)

    def _end(self, close: Callable[[], Coroutine[None, None, None]]) -> None:
        if self._loop is not None:
            try:
                self._loop.do(close())
            finally:
                self._leave()

    def _leave(self) -> None:
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.release()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self.close()

    def _running(self) -> SyncLoop:
        if self._loop is None:
            raise NotRunningError("it is not running: use `with`, or start() it")
        return self._loop

    def _call_on_loop(self, work: Callable[[], T]) -> T:
        """Call a function on the client's loop."""

        async def call() -> T:
            return work()

        return self._running().do(call())


class SyncMember(SyncFace[MemberT]):
    """Base of the blocking producers and consumers."""

    @property
    def is_connected(self) -> bool:
        """True while a connection to a broker is open; before any topic is known, to a name server."""
        return self._loop is not None and self._call_on_loop(lambda: self._client.is_connected)

    def __repr__(self) -> str:
        return repr(self._client)

    def _iterate(self, messages: AsyncIterator[T]) -> Iterator[T]:
        """The items of an asynchronous generator, which is closed when the loop over them is left."""
        try:
            while (message := self._running().do(_next(messages))) is not None:
                yield message
        finally:
            if self._loop is not None:
                self._loop.do(_close(messages))


async def _next(messages: AsyncIterator[T]) -> T | None:
    return await anext(messages, None)


async def _close(messages: AsyncIterator[object]) -> None:
    if isinstance(messages, AsyncGenerator):
        await messages.aclose()
