"""The operator's client for plain code: every subject and method of ``AdminClient``, with blocking calls."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from orbitmq.admin.client import AdminClient
from orbitmq.client.sync.bridge import SyncFace

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator

    from orbitmq.admin.config import AdminConfig, AdminOptions
    from orbitmq.client.sync.bridge import SyncLoop

T = TypeVar("T")

SUBJECTS = (
    *("brokers", "clusters", "name_servers", "controllers", "services", "topics", "members", "lag", "groups"),
    *("offsets", "messages", "delivery", "dead_letters", "deferred", "waiting", "access"),
    *("lite_topics", "events", "health", "definitions"),
)


class SyncAdminClient(SyncFace[AdminClient]):
    """Administers clusters, with blocking calls.

    ::

        with SyncAdminClient("127.0.0.1:9876") as admin:
            for topic in admin.topics.all():
                print(topic.name, topic.write_queues)

    Its subjects have the methods of those of ``AdminClient``. ``do`` runs any coroutine of that with its types.
    """

    def __init__(self, name_servers: str | Iterable[str] | None = None, **options: Unpack[AdminOptions]) -> None:
        """Connects with the first request. Raises InvalidRequestError."""
        super().__init__(AdminClient(name_servers, **options))

    @property
    def config(self) -> AdminConfig:
        return self._client.config

    def do(self, work: Callable[[AdminClient], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine of the client for asyncio: ``admin.do(lambda client: client.topics.names())``."""
        return self._running().do(work(self._client))

    def __getattr__(self, name: str) -> Any:
        if name not in SUBJECTS:
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        return SyncSubject(getattr(self._client, name), self._running)


class SyncSubject:
    """One subject, with blocking methods."""

    def __init__(self, subject: object, running: Callable[[], SyncLoop]) -> None:
        self._subject = subject
        self._running = running

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._subject, name)
        if inspect.isasyncgenfunction(method):
            return functools.wraps(method)(lambda *args, **options: self._iterate(method(*args, **options)))
        if not inspect.iscoroutinefunction(method):
            return method
        return functools.wraps(method)(lambda *args, **options: self._running().do(method(*args, **options)))

    def _iterate(self, values: AsyncIterator[T]) -> Iterator[T]:
        loop = self._running()
        try:
            while True:
                try:
                    yield loop.do(_next(values))
                except StopAsyncIteration:
                    return
        finally:
            loop.do(_close(values))


async def _next(values: AsyncIterator[T]) -> T:
    return await values.__anext__()


async def _close(values: AsyncIterator[T]) -> None:
    if inspect.isasyncgen(values):
        await values.aclose()
