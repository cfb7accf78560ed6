"""What orderly consumers ask for: queues of their own, and to be rid of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.broker.clients import check_name
from orbitmq.protocol.bodies import LockBatchRequestBody, LockBatchResponseBody
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.errors import ProtocolError
from orbitmq.remoting.processing import handler_of

if TYPE_CHECKING:
    from orbitmq.broker.locks import QueueLocks
    from orbitmq.protocol.command import Command
    from orbitmq.remoting import Connection, Handler


class LockRequests:
    """Processors for locks on queues."""

    def __init__(self, locks: QueueLocks) -> None:
        self._locks = locks

    @property
    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.LOCK_BATCH_MQ: handler_of(self.lock),
            RequestCode.UNLOCK_BATCH_MQ: handler_of(self.unlock),
        }

    def lock(self, request: Command, _: Connection) -> Command:
        asked = _body(request)
        locked = self._locks.lock(asked.consumer_group, asked.client_id, asked.mq_set)
        return request.response(ResponseCode.SUCCESS, body=LockBatchResponseBody(locked).encode())

    def unlock(self, request: Command, _: Connection) -> Command:
        asked = _body(request)
        self._locks.unlock(asked.consumer_group, asked.client_id, asked.mq_set)
        return request.response(ResponseCode.SUCCESS)


def _body(request: Command) -> LockBatchRequestBody:
    if request.body is None:
        raise ProtocolError("which queues? The body is missing")
    asked = LockBatchRequestBody.decode(request.body)
    check_name("consumer group", asked.consumer_group)
    check_name("client id", asked.client_id)
    for queue in asked.mq_set:
        check_name("topic", queue.topic)
        check_name("broker name", queue.broker_name)
    return asked
