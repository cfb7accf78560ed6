"""A cluster as plain code in Spark's processes sees it: what there is to read, and reading it.

Spark calls a data source from one thread and forks its workers, so there is no thread here: the event loop runs
only while somebody waits for something, in the thread that waits. Between two steps of a reading the answers to its
pulls pile up in the socket.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import threading
import time
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from orbitmq.client import queue_bounds
from orbitmq.client.config import DEFAULT_INSTANCE, ClientConfig, name_server_list, unique_instance_name
from orbitmq.client.errors import BrokerError, NoNameServerError, NotRunningError, OrbitMQError
from orbitmq.client.instance import ClientInstance
from orbitmq.client.namespaces import unwrap, wrap
from orbitmq.client.range_answers import BUSY
from orbitmq.client.range_reading import (
    ANSWER_SECONDS,
    BATCH,
    FIRST_PAUSE,
    LONGEST_PAUSE,
    RETRY_SECONDS,
    WINDOW,
    Piece,
    QueueRange,
    RangeReader,
)
from orbitmq.protocol.bodies import MessageQueue
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.names import NAMESPACE_SEPARATOR, TOOLS_CONSUMER_GROUP
from orbitmq.remoting import RemotingError
from orbitmq.remoting.loops import new_event_loop

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping

    from orbitmq.client.config import ClientOptions
    from orbitmq.client.queue_bounds import BoundaryName, Bounds

T = TypeVar("T")

IDLE_SECONDS = 1.0
"""After so long without a call connections may have been closed by the other side: that is looked at first."""

_Key = tuple[int, int, tuple[str, ...], float, tuple[tuple[str, object], ...]]
_clusters: dict[_Key, Cluster] = {}
"""By process, thread, name servers and options. Those of a process that was forked stay here unused: to close them
would be to close what the other process uses."""


class Cluster:
    """The cluster of some name servers. Topics and groups are named as applications name them.

    All that is asked is asked again for ``retry_seconds`` while a server that was there is away.
    """

    def __init__(self, config: ClientConfig, retry_seconds: float = RETRY_SECONDS) -> None:
        """Raises OrbitMQError."""
        self.retry_seconds = retry_seconds
        self._namespace = config.namespace
        self._process = os.getpid()
        self._used = time.monotonic()
        self._is_reached = False
        """Whether it was ever there: what never was is not waited for."""
        name = config.instance_name
        name = unique_instance_name() if name == DEFAULT_INSTANCE else name
        self._loop = new_event_loop()
        try:
            self.instance = self._loop.run_until_complete(_made(config, config.client_id(name)))
            """For what is run here."""
        except RemotingError as error:
            self._loop.close()
            raise OrbitMQError(str(error)) from error

    @classmethod
    def of(
        cls,
        nameserver: str | Iterable[str] | None = None,
        *,
        retry_seconds: float = RETRY_SECONDS,
        **options: Unpack[ClientOptions],
    ) -> Cluster:
        """The one of this process and thread for these name servers (``host:port;host:port``) and options.

        Raises InvalidMessageError if no name server is given, here or by NAMESRV_ADDR, and OrbitMQError.
        """
        servers = name_server_list(nameserver)
        key = (os.getpid(), threading.get_ident(), servers, retry_seconds, tuple(sorted(options.items())))
        found = _clusters.get(key)
        if found is None or found.is_closed:
            found = _clusters[key] = cls(ClientConfig(name_servers=servers, **options), retry_seconds)
        return found

    @property
    def is_closed(self) -> bool:
        return self._loop.is_closed()

    def close(self) -> None:
        """Leave. Whoever needs it again gets a new one by ``of``."""
        if self.is_closed:
            return
        for key in [key for key, cluster in _clusters.items() if cluster is self]:
            del _clusters[key]
        try:
            self._loop.run_until_complete(self.instance.release())
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something where ``instance`` lives, and wait for it."""
        if self.is_closed or os.getpid() != self._process:
            work.close()
            raise NotRunningError("this cluster is closed, or was made before a fork: get one by Cluster.of")
        task = self._loop.create_task(self._awake(work))
        try:
            return self._loop.run_until_complete(task)
        except BaseException:
            if not task.done():
                # Whoever was interrupted does not wait for it any more.
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    self._loop.run_until_complete(task)
            raise
        finally:
            self._used = time.monotonic()

    async def _awake(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            if time.monotonic() - self._used > IDLE_SECONDS:
                # Let the loop see which connections were closed while it stood still.
                for _ in range(3):
                    await asyncio.sleep(0)
        except BaseException:
            work.close()
            raise
        return await work

    # What there is

    def topics(self) -> list[str]:
        """All topics but RocketMQ's own, retry and dead letter topics, sorted. Raises OrbitMQError."""
        start = self._namespace + NAMESPACE_SEPARATOR if self._namespace else ""
        found = self._ask(lambda: queue_bounds.topics(self.instance))
        return [topic.removeprefix(start) for topic in found if topic.startswith(start)]

    def queues(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic, sorted. Raises NoRouteError if there is no such topic, and OrbitMQError."""
        found = self._ask(lambda: queue_bounds.queues(self.instance, self.wrap(topic)))
        return [self._plain(queue) for queue in found]

    def bounds(self, topics: Iterable[str]) -> dict[str, dict[MessageQueue, Bounds]]:
        """Where the queues of topics begin and end. Raises NoRouteError if one does not exist, and OrbitMQError."""
        names = list(topics)

        async def ask() -> list[dict[MessageQueue, Bounds]]:
            return await queue_bounds.together(
                queue_bounds.bounds(self.instance, self.wrap(name)) for name in names
            )

        found = zip(names, self._ask(ask), strict=True)
        return {name: {self._plain(queue): ends for queue, ends in of.items()} for name, of in found}

    def offsets_at(
        self, queues: Iterable[MessageQueue], timestamp_ms: int, boundary: BoundaryName = "LOWER"
    ) -> dict[MessageQueue, int]:
        """The offsets of the first messages stored at a time or after it; where there is none, the queue's end.

        With ``UPPER`` those of the last messages stored at the time or before it. Raises OrbitMQError.
        """
        inward = [self._inward(queue) for queue in queues]
        found = self._ask(lambda: queue_bounds.offsets_at(self.instance, inward, timestamp_ms, boundary), inward)
        return {self._plain(queue): offset for queue, offset in found.items()}

    # How far a group is

    def committed(self, group: str, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        """What a group has committed of these queues; where it has not, they are left out. Raises OrbitMQError."""
        inward = [self._inward(queue) for queue in queues]
        found = self._ask(lambda: queue_bounds.committed(self.instance, self.wrap(group), inward), inward)
        return {self._plain(queue): offset for queue, offset in found.items()}

    def commit(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Say that a group has come so far. Raises OrbitMQError."""
        inward = {self._inward(queue): offset for queue, offset in offsets.items()}
        self._ask(lambda: queue_bounds.commit(self.instance, self.wrap(group), inward), inward)

    # Reading

    def read(
        self,
        of: QueueRange,
        *,
        group: str = TOOLS_CONSUMER_GROUP,
        expression: str = "*",
        expression_type: str = "TAG",
        window: int = WINDOW,
        batch: int = BATCH,
        timeout: float = ANSWER_SECONDS,
        retry_seconds: float | None = None,
    ) -> Iterator[Piece]:
        """A range of a queue, in the order of offsets; see ``RangeReader``. May be closed before its end.

        Raises OffsetsLostError if messages of it are not there any more, and OrbitMQError.
        """
        reader = RangeReader(
            self.instance,
            self.wrap(group),
            expression=expression,
            expression_type=expression_type,
            window=window,
            batch=batch,
            timeout=timeout,
            retry_seconds=self.retry_seconds if retry_seconds is None else retry_seconds,
        )
        return self._pieces(reader, QueueRange(self._inward(of.queue), of.start, of.end))

    def _pieces(self, reader: RangeReader, of: QueueRange) -> Iterator[Piece]:
        reading = reader.reading(of)
        try:
            while pieces := self.run(reading.some()):
                yield from pieces
        finally:
            reading.close()

    # Names

    def wrap(self, name: str) -> str:
        """A topic or group as brokers know it."""
        return wrap(self._namespace, name)

    def _inward(self, queue: MessageQueue) -> MessageQueue:
        return MessageQueue(self.wrap(queue.topic), queue.broker_name, queue.queue_id)

    def _plain(self, queue: MessageQueue) -> MessageQueue:
        return MessageQueue(unwrap(self._namespace, queue.topic), queue.broker_name, queue.queue_id)

    # Asking

    def _ask(self, question: Callable[[], Coroutine[Any, Any, T]], of: Iterable[MessageQueue] = ()) -> T:
        return self.run(self._asked(question, {queue.topic for queue in of}))

    async def _asked(self, question: Callable[[], Coroutine[Any, Any, T]], topics: set[str]) -> T:
        """The answer to a question that may be asked again. Routes of ``topics`` are refreshed in between."""
        until = time.monotonic() + self.retry_seconds
        pause = 0.0
        while True:
            try:
                answer = await question()
            except (OrbitMQError, RemotingError, ProtocolError) as error:
                if time.monotonic() + pause >= until or not self._may_pass(error):
                    if isinstance(error, OrbitMQError):
                        raise
                    raise OrbitMQError(f"a broker could not be asked: {error}; is it running?") from error
            else:
                self._is_reached = True
                return answer
            await asyncio.sleep(pause)
            pause = min(max(2 * pause, FIRST_PAUSE), LONGEST_PAUSE)
            for topic in topics:
                # Brokers may be somewhere else by now; if nobody can say so, the question will fail again.
                with contextlib.suppress(OrbitMQError, RemotingError):
                    await self.instance.refresh(topic)

    def _may_pass(self, error: Exception) -> bool:
        """Whether it makes sense to ask again."""
        if isinstance(error, NoNameServerError):
            # One that was never there is rather a wrong address.
            return self._is_reached
        return isinstance(error, RemotingError) or (isinstance(error, BrokerError) and error.code in BUSY)


async def _made(config: ClientConfig, client_id: str) -> ClientInstance:
    return ClientInstance.acquire(config, client_id)


@atexit.register
def _close_all() -> None:
    """Say goodbye to the brokers, where it is this thread's to do."""
    here = os.getpid(), threading.get_ident()
    for cluster in [cluster for key, cluster in _clusters.items() if key[:2] == here]:
        with contextlib.suppress(Exception):
            cluster.close()
