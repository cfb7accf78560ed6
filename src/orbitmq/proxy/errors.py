"""Errors of calls as status codes of the protocol, and the codes for a broker's response codes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.errors import ProtocolError
from orbitmq.proxy.proto import definition_pb2 as pb
from orbitmq.remoting.errors import CallTimeoutError, RemotingError, TooManyCallsError, one_sentence

if TYPE_CHECKING:
    from orbitmq.protocol.command.command import Command


class StatusError(Exception):
    """A call that is answered with this status."""

    def __init__(self, code: pb.Code, message: str = "") -> None:
        super().__init__(message or pb.Code.Name(code))
        self.code = code


class TopicNotFoundError(StatusError):
    """The topic does not exist."""

    def __init__(self, topic: str) -> None:
        super().__init__(
            pb.TOPIC_NOT_FOUND, f"topic {topic} does not exist: create it first, with its message.type"
        )


_BROKER_CODES: dict[int, pb.Code] = {
    ResponseCode.SUCCESS: pb.OK,
    ResponseCode.SYSTEM_BUSY: pb.TOO_MANY_REQUESTS,
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: pb.NOT_IMPLEMENTED,
    ResponseCode.TOPIC_NOT_EXIST: pb.TOPIC_NOT_FOUND,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: pb.CONSUMER_GROUP_NOT_FOUND,
    ResponseCode.LMQ_QUOTA_EXCEEDED: pb.LITE_TOPIC_QUOTA_EXCEEDED,
    ResponseCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED: pb.LITE_SUBSCRIPTION_QUOTA_EXCEEDED,
}

SEND_CODES: dict[int, pb.Code] = {
    ResponseCode.FLUSH_DISK_TIMEOUT: pb.MASTER_PERSISTENCE_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: pb.SLAVE_PERSISTENCE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: pb.HA_NOT_AVAILABLE,
}
"""Results of a message that was stored, but not as safely as the broker is set to."""

NOT_FOUND = frozenset({ResponseCode.POLLING_TIMEOUT, ResponseCode.PULL_NOT_FOUND})


def code_of_broker(code: int) -> pb.Code:
    """The code for a broker's response code."""
    return _BROKER_CODES.get(code, pb.INTERNAL_SERVER_ERROR)


def broker_status(response: Command) -> StatusError:
    """The status of a broker's error response."""
    return StatusError(
        code_of_broker(response.code), response.remark or f"the broker answered with code {response.code}"
    )


def status_of(error: BaseException) -> pb.Status:
    """The status of a failed call."""
    if isinstance(error, StatusError):
        return pb.Status(code=error.code, message=str(error))
    if isinstance(error, CallTimeoutError):
        return pb.Status(code=pb.PROXY_TIMEOUT, message=str(error))
    if isinstance(error, TooManyCallsError):
        return pb.Status(code=pb.TOO_MANY_REQUESTS, message=str(error))
    if isinstance(error, (RemotingError, ProtocolError)):
        return pb.Status(code=pb.INTERNAL_SERVER_ERROR, message=str(error))
    return pb.Status(code=pb.INTERNAL_SERVER_ERROR, message=one_sentence(error))


def ok() -> pb.Status:
    return pb.Status(code=pb.OK, message="OK")
