"""The loop behind the sync faces, one thread for all of a process while somebody needs it; and what they share."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import TYPE_CHECKING, Generic, Protocol, Self, TypeVar

from orbitmq.client.errors import NotRunningError
from orbitmq.remoting.loops import new_event_loop

if TYPE_CHECKING:
    import concurrent.futures
    from collections.abc import Callable, Coroutine

T = TypeVar("T")


class Client(Protocol):
    """A producer or consumer for asyncio."""

    def start(self) -> Coroutine[None, None, object]: ...

    def close(self) -> Coroutine[None, None, None]: ...


ClientT = TypeVar("ClientT", bound=Client)

_guard = threading.Lock()
_current: SyncLoop | None = None


class SyncLoop:
    """An event loop in a daemon thread. Calls from other threads are run there and waited for."""

    def __init__(self) -> None:
        self._loop = new_event_loop()
        self._process = os.getpid()
        self._users = 0
        self._thread = threading.Thread(target=self._run, name="orbitmq-client", daemon=True)
        self._thread.start()

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
        """End the thread if nobody else needs it."""
        global _current  # noqa: PLW0603
        with _guard:
            self._users -= 1
            if self._users or self._process != os.getpid():
                return
            if _current is self:
                _current = None
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    def submit(self, work: Coroutine[None, None, T]) -> concurrent.futures.Future[T]:
        """Begin something and return at once."""
        if os.getpid() != self._process:
            work.close()
            raise NotRunningError(
                "this client was made before a fork; make producers and consumers in the process that uses them"
            )
        if threading.get_ident() == self._thread.ident:
            work.close()
            raise NotRunningError(
                "a handler that runs on the client's loop cannot wait for the client: use orbitmq.aio there, or "
                "a plain function that is not inline"
            )
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def do(self, work: Coroutine[None, None, T]) -> T:
        """Do something and wait for it. An interruption here stops it there."""
        future = self.submit(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise


class SyncFace(Generic[ClientT]):
    """A client for plain code: one for asyncio, and the loop that it runs on between ``start`` and ``close``."""

    def __init__(self, client: ClientT) -> None:
        self._client = client
        self._loop: SyncLoop | None = None

    def start(self) -> Self:
        """Connect. Raises OrbitMQError, and is then as it was."""
        if self._loop is not None:
            raise NotRunningError("it runs already")
        self._loop = SyncLoop.acquire()
        try:
            self._loop.do(self._client.start())
        except BaseException:
            self._leave()
            raise
        return self

    def close(self) -> None:
        """Finish what has begun, and leave. Harmless if it never ran."""
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
            raise NotRunningError("it does not run: use `with`, or start() it")
        return self._loop

    def _there(self, work: Callable[[], T]) -> T:
        """Run something where the client lives."""

        async def call() -> T:
            return work()

        return self._running().do(call())
