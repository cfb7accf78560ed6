"""Flush waiters (RocketMQ: GroupCommitRequest): responses that wait for a flush of the log under SYNC_FLUSH, for
slaves under SYNC_MASTER, or for both.

The responses of one iteration of the event loop share one wait.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.command.command import with_code
from orbitmq.protocol.command.header import FLAG
from orbitmq.protocol.message import property_names as names
from orbitmq.protocol.message.flags import ONEWAY
from orbitmq.protocol.message.properties import find
from orbitmq.store.config import FlushDiskType
from orbitmq.store.replication.settings import BrokerRole

if TYPE_CHECKING:
    from orbitmq.broker.ha.master import ReplicationMaster
    from orbitmq.broker.stats.waits import WaitTimes
    from orbitmq.metrics.instrument import Histogram
    from orbitmq.protocol.command.header import Header
    from orbitmq.remoting import Connection
    from orbitmq.store.background.service import StoreService

    Waiting = tuple[Connection, int, bytes, int | None]
    """Connection, number of requests, the responses, and the code that replaces theirs if the flush fails or is
    late; None: the same code, also if slaves are late."""


_WAIT = names.WAIT_STORE_OK.encode()


class FlushWaiters:
    """Sends responses after the flush, and the acknowledgements of slaves, that cover what was appended before."""

    def __init__(
        self,
        service: StoreService,
        timeout_ms: int,
        waits: WaitTimes | None = None,
        replicas: ReplicationMaster | None = None,
    ) -> None:
        """``waits`` gets the seconds that each group of responses waited. ``replicas``: the slaves, of a master."""
        self._flush_waits = None if waits is None else waits.flush
        self._replica_waits = None if waits is None else waits.replication
        self._service = service
        self._timeout = timeout_ms / 1000
        config = service.store.config
        self._config = config
        self.is_sync_flush = config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self._replicas = replicas if config.broker_role is BrokerRole.SYNC_MASTER else None
        self._waiting: list[Waiting] = []

    @property
    def is_needed(self) -> bool:
        """True if responses wait at all with these settings."""
        return self.is_sync_flush or self._replicas is not None

    @property
    def waits_for_slaves(self) -> bool:
        return self._replicas is not None

    def respond(
        self,
        connection: Connection,
        header: Header,
        response: bytes,
        *,
        properties: bytes = b"",
        late_code: int | None = None,
    ) -> bytes | None:
        """The result of a handler that has appended something: the response, or None if it follows after the flush.

        It waits unless ``properties`` have WAIT=false or the request is oneway. ``late_code`` replaces its code if
        the flush fails or takes too long; slaves that take too long have a code of their own.
        """
        if not self.is_needed or header[FLAG] & ONEWAY or find(properties, _WAIT) == b"false":
            return response
        self.wait(connection, header, response, late_code)
        return None

    def wait(self, connection: Connection, header: Header, answer: bytes, late_code: int | None = None) -> None:
        """Send ``answer`` after the next flush; the handler returns None.

        If the flush fails or takes too long it is sent then, with ``late_code``.
        """
        if header[FLAG] & ONEWAY:
            self._add(connection, 0, b"", None)
        else:
            self._add(connection, 1, answer, late_code)

    def wait_batch(self, connection: Connection, count: int, answers: bytes, late_code: int) -> None:
        """The same for the responses to ``count`` requests of the fast path."""
        connection.defer_responses(count)
        self._add(connection, count, answers, late_code)

    def _add(self, connection: Connection, count: int, answers: bytes, late_code: int | None) -> None:
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._begin)
        self._waiting.append((connection, count, answers, late_code))

    def _begin(self) -> None:
        waiting, self._waiting = self._waiting, []
        group = _Group(waiting, self._replicas)
        end = self._service.store.log.end
        if self.is_sync_flush:
            flushed = self._service.flushed(end)
            group.wait_for(flushed, self._timeout, ResponseCode.FLUSH_DISK_TIMEOUT, self._flush_waits)
        if self._replicas is not None:
            replicated = self._replicas.replicated(end)
            if replicated is not None:
                seconds = self._config.slave_timeout / 1000
                group.wait_for(replicated, seconds, ResponseCode.FLUSH_SLAVE_TIMEOUT, self._replica_waits)
        group.done()


class _Group:
    """Responses of one iteration of the event loop, and what they wait for."""

    __slots__ = ("_begun", "_failure", "_left", "_loop", "_replicas", "_waiting")

    def __init__(self, waiting: list[Waiting], replicas: ReplicationMaster | None) -> None:
        self._waiting = waiting
        self._replicas = replicas
        self._loop = asyncio.get_running_loop()
        self._begun = self._loop.time()
        self._failure: int | None = None
        # One more than there are, until all are known.
        self._left = 1

    def wait_for(
        self, future: asyncio.Future[None], seconds: float, late_code: int, waits: Histogram | None
    ) -> None:
        self._left += 1
        if future.done():
            self._completed(future, late_code)
            return
        timer = self._loop.call_later(seconds, future.cancel)

        def complete(done: asyncio.Future[None]) -> None:
            timer.cancel()
            if waits is not None:
                waits.observe(self._loop.time() - self._begun)
            self._completed(done, late_code)

        future.add_done_callback(complete)

    def _completed(self, future: asyncio.Future[None], late_code: int) -> None:
        if future.cancelled() or future.exception() is not None:
            # The code of slaves, which is the greater one, replaces that of the disk, as in RocketMQ.
            self._failure = max(self._failure or 0, late_code)
        self.done()

    def done(self) -> None:
        """Account for one wait that has ended; after the last, send the responses."""
        self._left -= 1
        if self._left:
            return
        failure = self._failure
        if self._replicas is not None and not self._replicas.may_answer:
            # Another master may have been elected meanwhile, and this message may be cut off.
            failure = int(ResponseCode.SERVICE_NOT_AVAILABLE)
        for connection, count, answers, late_code in self._waiting:
            if failure is not None and late_code is not None:
                code = late_code if failure == ResponseCode.FLUSH_DISK_TIMEOUT else failure
                answers = with_code(answers, code)  # noqa: PLW2901
            connection.complete_responses(count, answers)
        self._waiting.clear()
