"""Background reader: an operator's client on a loop of its own, for reads that decode very much.

The lag of thousands of groups takes seconds to decode. On the console's loop every page would wait for it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from orbitmq.admin import AdminClient
from orbitmq.client.sync.bridge import LoopThread

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from orbitmq.admin.config import AdminOptions

T = TypeVar("T")

PAUSE_SECONDS = 0.02
MAX_PAUSES = 50
"""So often a read in the background waits at most, before each of its parts: it must go on too."""


class Ahead:
    """Counts the reads that a viewer waits for. What is read in the background pauses for them."""

    def __init__(self) -> None:
        self._count = 0

    def of(self, read: Callable[[], Coroutine[Any, Any, T]]) -> Callable[[], Coroutine[Any, Any, T]]:
        """The read, counted while it goes on."""

        async def counted() -> T:
            self._count += 1
            try:
                return await read()
            finally:
                self._count -= 1

        return counted

    async def pause(self) -> None:
        """Wait until none goes on, or for about a second."""
        for _ in range(MAX_PAUSES):
            if not self._count:
                return
            await asyncio.sleep(PAUSE_SECONDS)


class BackgroundReader:
    """Runs reads of one cluster in a thread, which starts with the first one."""

    def __init__(self, name: str, name_servers: str, options: AdminOptions) -> None:
        self._name = name
        self._name_servers = name_servers
        self._options = options
        self._thread: LoopThread | None = None
        self._admin: asyncio.Task[AdminClient] | None = None

    async def read(self, work: Callable[[AdminClient], Coroutine[Any, Any, T]]) -> T:
        """The result of a read. Raises its errors."""
        if self._thread is None:
            self._thread = LoopThread(f"orbitmq-console-{self._name}")
        return await asyncio.wrap_future(self._thread.submit(self._run(work)))

    async def _run(self, work: Callable[[AdminClient], Coroutine[Any, Any, T]]) -> T:
        if self._admin is None:
            self._admin = asyncio.create_task(AdminClient(self._name_servers, **self._options).start())
        return await work(await self._admin)

    async def close(self) -> None:
        thread, self._thread = self._thread, None
        if thread is None:
            return
        if self._admin is not None:
            await asyncio.wrap_future(thread.submit(self._close()))
        await asyncio.to_thread(thread.stop)

    async def _close(self) -> None:
        assert self._admin is not None
        await (await self._admin).close()
