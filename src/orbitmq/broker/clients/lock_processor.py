"""LOCK_BATCH_MQ and UNLOCK_BATCH_MQ: queue locks for orderly consumers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.broker.clients.registry import check_name
from orbitmq.broker.time_slices import SMALL_BODY, check_body_size, encoded, in_slices
from orbitmq.platform.threads import in_thread
from orbitmq.protocol.bodies import LockBatchRequestBody, LockBatchResponseBody
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.errors import ProtocolError
from orbitmq.remoting.processor import RequestRefusedError, handler_of

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable

    from orbitmq.broker.clients.queue_locks import QueueLocks
    from orbitmq.protocol.bodies import MessageQueue
    from orbitmq.protocol.command.command import Command
    from orbitmq.remoting import Connection, Handler


QUEUES_AT_ONCE = 100
"""Queues that are locked or unlocked in one slice of the event loop."""


class LockRequests:
    """Requests for queue locks."""

    def __init__(self, locks: QueueLocks) -> None:
        self._locks = locks

    @property
    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.LOCK_BATCH_MQ: handler_of(self.lock),
            RequestCode.UNLOCK_BATCH_MQ: handler_of(self.unlock),
        }

    def lock(self, request: Command, connection: Connection) -> Command | Coroutine[None, None, Command]:
        """LOCK_BATCH_MQ. Thousands of queues are locked in slices."""
        if len(request.body or b"") > SMALL_BODY:
            return self._lock_many(request, connection)
        request_body = _validated(LockBatchRequestBody.decode(_body(request)))
        locked = self._locks.lock(
            request_body.consumer_group, request_body.client_id, request_body.mq_set, connection.remote_address
        )
        return request.response(ResponseCode.SUCCESS, body=LockBatchResponseBody(locked).encode())

    async def _lock_many(self, request: Command, connection: Connection) -> Command:
        request_body = await _large_body(request)
        locked: list[MessageQueue] = []
        problem: RequestRefusedError | None = None
        async for some in in_slices(_parts(request_body.mq_set)):
            try:
                locked += self._locks.lock(
                    request_body.consumer_group, request_body.client_id, some, connection.remote_address
                )
            except RequestRefusedError as error:
                problem = error
        if problem is not None and not locked:
            raise problem
        body = await encoded(LockBatchResponseBody(locked), len(locked))
        return request.response(ResponseCode.SUCCESS, body=body)

    def unlock(self, request: Command, _: Connection) -> Command | Coroutine[None, None, Command]:
        """UNLOCK_BATCH_MQ."""
        if len(request.body or b"") > SMALL_BODY:
            return self._unlock_many(request)
        request_body = _validated(LockBatchRequestBody.decode(_body(request)))
        self._locks.unlock(request_body.consumer_group, request_body.client_id, request_body.mq_set)
        return request.response(ResponseCode.SUCCESS)

    async def _unlock_many(self, request: Command) -> Command:
        request_body = await _large_body(request)
        async for some in in_slices(_parts(request_body.mq_set)):
            self._locks.unlock(request_body.consumer_group, request_body.client_id, some)
        return request.response(ResponseCode.SUCCESS)


def _parts(queues: Iterable[MessageQueue]) -> list[list[MessageQueue]]:
    every = list(queues)
    return [every[start : start + QUEUES_AT_ONCE] for start in range(0, len(every), QUEUES_AT_ONCE)]


def _body(request: Command) -> bytes:
    if request.body is None:
        raise ProtocolError("the body with the queues is missing")
    return request.body


async def _large_body(request: Command) -> LockBatchRequestBody:
    check_body_size(request)
    body = _body(request)
    return await in_thread(lambda: _validated(LockBatchRequestBody.decode(body)))


def _validated(request_body: LockBatchRequestBody) -> LockBatchRequestBody:
    check_name("consumer group", request_body.consumer_group)
    check_name("client id", request_body.client_id)
    for queue in request_body.mq_set:
        check_name("topic", queue.topic)
        check_name("broker name", queue.broker_name)
    return request_body
