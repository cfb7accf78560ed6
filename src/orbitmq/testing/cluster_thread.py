"""A local cluster in a thread of its own, for plain code: the same verbs, which wait for what they ask."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
from typing import TYPE_CHECKING, Any, TypeVar

from orbitmq.client.sync.bridge import LoopThread
from orbitmq.testing.local_cluster import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from orbitmq.client.message import ReceivedMessage
    from orbitmq.protocol.bodies import MessageQueue
    from orbitmq.store import LocalDisk
    from orbitmq.testing.local_cluster import LocalCluster
    from orbitmq.testing.simulation.disk import MemoryDisk

T = TypeVar("T")


class ThreadCluster:
    """The cluster of ``with LocalCluster(...) as cluster``. Any thread but the cluster's own may use it.

    A coroutine may use it too, but must not wait with it for consumers of its own loop: that would never end.
    ``until_consumed`` is there for them.
    """

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self._clients = contextlib.ExitStack()
        self._loop: LoopThread | None = None

    # Where it is

    @property
    def name_server(self) -> str:
        """The addresses for clients: ``host:port``, several separated by semicolons."""
        return self._cluster.name_server

    @property
    def names(self) -> list[str]:
        """All servers, running or not, name servers first."""
        return self._cluster.names

    def address(self, name: str) -> str:
        """``host:port`` of a server, which it keeps."""
        return self._cluster.address(name)

    def disk(self, name: str = "broker-a") -> MemoryDisk | LocalDisk:
        """The disk of a broker. One in memory fails on request (``MemoryDisk.fail``)."""
        return self._cluster.disk(name)

    # Starting and stopping

    def start(self, name: str | None = None) -> None:
        """Start everything, or one server that was stopped or killed. See ``LocalCluster.start``."""
        if name is not None:
            self._do(self._cluster.start(name))
            return
        self._loop = LoopThread("orbitmq-cluster")
        try:
            self._do(self._cluster.start())
        except BaseException:
            self._end_thread()
            raise

    def stop(self, name: str | None = None) -> None:
        """Close the clients that were made here, stop everything and end the thread; or stop one server."""
        if name is not None:
            self._do(self._cluster.stop(name))
            return
        if self._loop is None:
            return
        try:
            try:
                self._clients.close()
            finally:
                self._do(self._cluster.stop())
        finally:
            self._end_thread()

    def restart(self, name: str | None = None) -> None:
        """Stop a server, or all brokers, in an orderly way and start it again."""
        self._do(self._cluster.restart(name))

    def kill(self, name: str | None = None) -> None:
        """Cut the power of a server, or of all brokers. See ``LocalCluster.kill``; ``start`` starts it again."""
        self._do(self._cluster.kill(name))

    # Replication

    def pause(self, name: str = "broker-a") -> None:
        """Let a broker hang until ``resume``. See ``LocalCluster.pause``."""
        self._look(lambda: self._cluster.pause(name))

    def resume(self, name: str = "broker-a") -> None:
        """End ``pause``. What was sent to the broker meanwhile is processed."""
        self._look(lambda: self._cluster.resume(name))

    def cut(self, one: str, other: str) -> None:
        """Cut the HA connection between a slave and its master, until ``heal``; clients reach both."""
        self._look(lambda: self._cluster.cut(one, other))

    def stall(self, one: str, other: str) -> None:
        """Let nothing through between a slave and its master, without closing their connection, until ``heal``."""
        self._look(lambda: self._cluster.stall(one, other))

    def heal(self, one: str, other: str) -> None:
        """End ``cut`` and ``stall``."""
        self._look(lambda: self._cluster.heal(one, other))

    # Failover

    def master(self, group: str = "broker-a") -> str:
        """The server that is the master of a broker name now. Raises ValueError while there is none."""
        return self._look(lambda: self._cluster.master(group))

    def wait_until_in_sync(self, timeout: float = PATIENCE) -> None:
        """Wait until each broker name has a master, with all replicas that run in sync. Raises TimeoutError."""
        self._do(self._cluster.wait_until_in_sync(timeout))

    def wait_until_replicated(self, timeout: float = PATIENCE) -> None:
        """Wait until each slave that runs has the log of its master. Raises TimeoutError."""
        self._do(self._cluster.wait_until_replicated(timeout))

    def _end_thread(self) -> None:
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.stop()

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return self._running(work).do(work)

    def _running(self, work: Coroutine[Any, Any, Any]) -> LoopThread:
        """The loop's thread, which must not wait for itself. Closes ``work`` and raises RuntimeError otherwise."""
        if self._loop is None or self._loop.is_current_thread:
            work.close()
            why = "is not running" if self._loop is None else "cannot wait for itself: call it from another thread"
            raise RuntimeError(f"this cluster {why}")
        return self._loop

    # Time

    def advance(self, seconds: float) -> None:
        """Let time pass for the brokers, at once. Delayed messages that came due are delivered on return."""
        self._do(self._cluster.advance(seconds))

    # Looking

    def messages(self, topic: str) -> list[ReceivedMessage]:
        """All messages of a topic, in the order in which they were stored."""
        return self._look(lambda: self._cluster.messages(topic))

    def dead_letters(self, group: str) -> list[ReceivedMessage]:
        """The messages that a consumer group has given up, under the topics that they were sent to."""
        return self._look(lambda: self._cluster.dead_letters(group))

    def consumer_offsets(self, group: str) -> dict[MessageQueue, int]:
        """The committed offsets of a group."""
        return self._look(lambda: self._cluster.consumer_offsets(group))

    def wait_until_consumed(self, group: str, timeout: float = PATIENCE) -> None:
        """Wait until a group has consumed all there is for it. See ``LocalCluster.wait_until_consumed``."""
        self._do(self._cluster.wait_until_consumed(group, timeout))

    async def until_consumed(self, group: str, timeout: float = PATIENCE) -> None:  # noqa: ASYNC109
        """The same for a coroutine, whose loop goes on meanwhile."""
        work = self._cluster.wait_until_consumed(group, timeout)
        await asyncio.wrap_future(self._running(work).submit(work))

    def _look(self, view: Callable[[], T]) -> T:
        async def look() -> T:
            return view()

        return self._do(look())

    # Clients

    def producer(self, **options: Any) -> Any:
        """A producer of this cluster, started; it is closed with the cluster."""
        producer = importlib.import_module("orbitmq").Producer(self.name_server, **options)
        return self._clients.enter_context(producer)

    def consumer(self, group: str, **options: Any) -> Any:
        """A consumer of this cluster, to be given its handlers and started; it is closed with the cluster."""
        consumer = importlib.import_module("orbitmq").Consumer(self.name_server, group=group, **options)
        self._clients.callback(consumer.close)
        return consumer
