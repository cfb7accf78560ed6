"""A blocking client of a cluster for Spark's processes: topics, bounds, offsets and range reads.

Spark calls a data source from one thread and forks its workers, so there is no thread here: the event loop runs
only in a thread that waits for a result. Between two steps of a read the responses to its pulls wait in the socket
buffer.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import threading
import time
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from orbitmq.client.config import ClientConfig, name_server_list
from orbitmq.client.consumer.start_offset import QUEUE_SECONDS
from orbitmq.client.errors import BrokerError, NoNameServerError, NotRunningError, OrbitMQError
from orbitmq.client.instance.instance import ClientInstance
from orbitmq.client.instance.routes import MASTER
from orbitmq.client.namespace import unwrap, wrap
from orbitmq.client.query import queue_offsets as queue_bounds
from orbitmq.client.query.range_protocol import BUSY
from orbitmq.client.query.range_reader import (
    ANSWER_SECONDS,
    BATCH,
    FIRST_PAUSE,
    MAX_PAUSE,
    RETRY_SECONDS,
    WINDOW,
    QueueRange,
    RangeReader,
    RecordChunk,
)
from orbitmq.client.sync.bridge import CallerLoop
from orbitmq.protocol.bodies import CheckClientRequestBody, MessageQueue, SubscriptionData
from orbitmq.protocol.codes import LanguageCode, RequestCode
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.names import NAMESPACE_SEPARATOR, TOOLS_CONSUMER_GROUP
from orbitmq.remoting import RemotingError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping

    from orbitmq.client.config import ClientOptions
    from orbitmq.client.query.queue_offsets import BoundaryName, Bounds

T = TypeVar("T")

_Key = tuple[int, int, tuple[str, ...], float, tuple[tuple[str, object], ...]]
_clusters: dict[_Key, Cluster] = {}
"""By process, thread, name servers and options. Those of a process that was forked stay here unused: to close them
would be to close what the other process uses."""


class Cluster:
    """The cluster of some name servers. Topics and groups are named as applications name them.

    Requests are retried for ``retry_seconds`` while a server that has responded before is unreachable.
    """

    def __init__(self, config: ClientConfig, retry_seconds: float = RETRY_SECONDS) -> None:
        """Raises OrbitMQError."""
        self.retry_seconds = retry_seconds
        self._namespace = config.namespace
        self._is_reached = False
        """True after the first response: only then errors are retried."""
        self._loop = CallerLoop()
        try:
            self.instance = self._loop.run(_made(config, config.client_id(config.own_instance_name)))
            """The client instance for coroutines of ``run``."""
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
        """The cluster of this process and thread for these name servers (``host:port;host:port``) and options.

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
        return self._loop.is_closed

    def close(self) -> None:
        """Close the connections. ``of`` returns a new cluster afterwards."""
        if self.is_closed:
            return
        for key in [key for key, cluster in _clusters.items() if cluster is self]:
            del _clusters[key]
        self._loop.close(self.instance.release())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop of ``instance``, and wait for its result."""
        if not self._loop.is_usable:
            work.close()
            raise NotRunningError("this cluster is closed, or was made before a fork: get one by Cluster.of")
        return self._loop.run(work)

    # Topics and queues

    def topics(self) -> list[str]:
        """All topics but RocketMQ's own, retry and dead letter topics, sorted. Raises OrbitMQError."""
        start = self._namespace + NAMESPACE_SEPARATOR if self._namespace else ""
        found = self._request(lambda: queue_bounds.topics(self.instance))
        return [topic.removeprefix(start) for topic in found if topic.startswith(start)]

    def queues(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic, sorted. Raises NoRouteError if there is no such topic, and OrbitMQError."""
        found = self._request(lambda: queue_bounds.queues(self.instance, self.wrap(topic)))
        return [self._plain(queue) for queue in found]

    def bounds(self, topics: Iterable[str]) -> dict[str, dict[MessageQueue, Bounds]]:
        """The bounds of the queues of topics. Raises NoRouteError if a topic does not exist, and OrbitMQError."""
        names = list(topics)

        async def ask() -> list[dict[MessageQueue, Bounds]]:
            return await queue_bounds.together(
                queue_bounds.bounds(self.instance, self.wrap(name)) for name in names
            )

        found = zip(names, self._request(ask), strict=True)
        return {name: {self._plain(queue): ends for queue, ends in of.items()} for name, of in found}

    def offsets_at(
        self, queues: Iterable[MessageQueue], timestamp_ms: int, boundary: BoundaryName = "LOWER"
    ) -> dict[MessageQueue, int]:
        """The offsets of the first messages stored at a time or after it; where there is none, the queue's end.

        With ``UPPER`` those of the last messages stored at the time or before it. Raises OrbitMQError.
        """
        inward = [self._inward(queue) for queue in queues]
        found = self._request(
            lambda: queue_bounds.offsets_at(self.instance, inward, timestamp_ms, boundary), inward
        )
        return {self._plain(queue): offset for queue, offset in found.items()}

    def check_filter(self, topics: Iterable[str], expression: str, expression_type: str) -> None:
        """Have each broker that is a master of these topics check a filter. Raises BrokerError, with its name."""
        for topic in topics:
            for broker in sorted({queue.broker_name for queue in self.queues(topic)}):

                async def check(topic: str = self.wrap(topic), broker: str = broker) -> None:
                    address = self.instance.address(topic, broker, MASTER, only_this=False)
                    data = SubscriptionData(topic=topic, sub_string=expression, expression_type=expression_type)
                    body = CheckClientRequestBody(subscription_data=data)
                    command = Command(
                        RequestCode.CHECK_CLIENT_CONFIG, body=body.encode(), language=LanguageCode.PYTHON
                    )
                    if address is not None:
                        await self.instance.call(address, command, QUEUE_SECONDS)

                self._request(check)

    # Offsets of groups

    def committed(self, group: str, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        """The committed offsets of a group; queues without one are left out. Raises OrbitMQError."""
        inward = [self._inward(queue) for queue in queues]
        found = self._request(lambda: queue_bounds.committed(self.instance, self.wrap(group), inward), inward)
        return {self._plain(queue): offset for queue, offset in found.items()}

    def commit(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Commit offsets of a group. Raises OrbitMQError."""
        inward = {self._inward(queue): offset for queue, offset in offsets.items()}
        self._request(lambda: queue_bounds.commit(self.instance, self.wrap(group), inward), inward)

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
    ) -> Iterator[RecordChunk]:
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
        return self._chunks(reader, QueueRange(self._inward(of.queue), of.start, of.end))

    def _chunks(self, reader: RangeReader, of: QueueRange) -> Iterator[RecordChunk]:
        reading = reader.reading(of)
        try:
            while chunks := self.run(reading.some()):
                yield from chunks
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

    # Requests with retry

    def _request(self, request_of: Callable[[], Coroutine[Any, Any, T]], of: Iterable[MessageQueue] = ()) -> T:
        return self.run(self._with_retry(request_of, {queue.topic for queue in of}))

    async def _with_retry(self, request_of: Callable[[], Coroutine[Any, Any, T]], topics: set[str]) -> T:
        """Retry a request with backoff. The routes of ``topics`` are refreshed before each retry."""
        until = time.monotonic() + self.retry_seconds
        pause = 0.0
        while True:
            try:
                answer = await request_of()
            except (OrbitMQError, RemotingError, ProtocolError) as error:
                if time.monotonic() + pause >= until or not self._is_retryable(error):
                    if isinstance(error, OrbitMQError):
                        raise
                    raise OrbitMQError(f"a broker did not answer: {error}; is it running?") from error
            else:
                self._is_reached = True
                return answer
            await asyncio.sleep(pause)
            pause = min(max(2 * pause, FIRST_PAUSE), MAX_PAUSE)
            for topic in topics:
                # Brokers may have moved; if the refresh fails, the retry fails as well.
                with contextlib.suppress(OrbitMQError, RemotingError):
                    await self.instance.refresh(topic)

    def _is_retryable(self, error: Exception) -> bool:
        """True if the request can succeed when it is retried."""
        if isinstance(error, NoNameServerError):
            # A name server that has never responded is probably a wrong address.
            return self._is_reached
        return isinstance(error, RemotingError) or (isinstance(error, BrokerError) and error.code in BUSY)


async def _made(config: ClientConfig, client_id: str) -> ClientInstance:
    return ClientInstance.acquire(config, client_id)


@atexit.register
def _close_all() -> None:
    """Close the clusters of this thread at exit."""
    here = os.getpid(), threading.get_ident()
    for cluster in [cluster for key, cluster in _clusters.items() if key[:2] == here]:
        with contextlib.suppress(Exception):
            cluster.close()
