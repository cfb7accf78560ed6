"""Pull requests of range reads, and the errors behind responses without messages."""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING

import orjson

from orbitmq.client.consumer.pull_response import PullStatus, parse_pull_response
from orbitmq.client.errors import BrokerError, OffsetsLostError, OrbitMQError
from orbitmq.protocol.codes import LanguageCode, RequestCode, ResponseCode
from orbitmq.protocol.command.fields import INT32_MAX
from orbitmq.protocol.command.frame import FRAME_PREFIX
from orbitmq.protocol.command.request_fields import IN_BULK
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.message.flags import PULL_SUBSCRIPTION
from orbitmq.protocol.versions import CURRENT_VERSION

if TYPE_CHECKING:
    from orbitmq.client.consumer.pull_response import PullResponse
    from orbitmq.protocol.bodies import MessageQueue
    from orbitmq.protocol.command.command import Command

TRANSIENT_SECONDS = 5.0
"""Seconds to retry errors that may be transient: a broker error, or a queue shorter than planned."""

BUSY = frozenset(
    {int(ResponseCode.SYSTEM_BUSY), int(ResponseCode.FLOW_CONTROL), int(ResponseCode.SERVICE_NOT_AVAILABLE)}
)
"""Response codes that a retry may resolve."""

_SIZE = struct.Struct(">i")
_QUEUE_OFFSET = struct.Struct(">q")
_QUEUE_OFFSET_AT = 20
_LEAST_RECORD = _QUEUE_OFFSET_AT + _QUEUE_OFFSET.size
"""Position of the queue offset in a record, and the minimum size that contains it."""

_REMOVED = "MESSAGE_WAS_REMOVING"


class TransientPullError(OrbitMQError):
    """An error that may be transient. If it persists, ``lost`` is raised instead, where set."""

    def __init__(self, text: str, lost: OffsetsLostError | None = None) -> None:
        super().__init__(text)
        self.lost = lost


class RangeProtocol:
    """Requests and responses for one queue. ``end`` is the end of the range."""

    __slots__ = ("_end", "_is_filtered", "_queue", "_template")

    def __init__(
        self,
        group: str,
        queue: MessageQueue,
        end: int,
        *,
        expression: str,
        expression_type: str,
        is_filtered: bool,
    ) -> None:
        self._queue = queue
        self._end = end
        self._is_filtered = is_filtered
        fields = {
            "consumerGroup": group,
            "topic": queue.topic,
            "queueId": str(queue.queue_id),
            "maxMsgBytes": str(INT32_MAX),
            "sysFlag": str(PULL_SUBSCRIPTION),
            "commitOffset": "0",
            "suspendTimeoutMillis": "0",
            "subscription": expression,
            "subVersion": "0",
            "expressionType": expression_type,
            "bname": queue.broker_name,
            IN_BULK: "true",
        }
        self._template = b"".join(
            (
                b'{"code":%d,"extFields":' % RequestCode.PULL_MESSAGE,
                orjson.dumps(fields)[:-1].replace(b"%", b"%%"),
                b',"queueOffset":"%d","maxMsgNums":"%d"},"flag":0,"language":"',
                LanguageCode.PYTHON.name.encode(),
                b'","opaque":%d,"serializeTypeCurrentRPC":"JSON","version":',
                b"%d}" % CURRENT_VERSION,
            )
        )

    def request(self, at: int, most: int, opaque: int) -> bytes:
        """Frame of a pull of up to ``most`` messages from an offset."""
        header = self._template % (at, most, opaque)
        size = len(header)
        return FRAME_PREFIX.pack(4 + size, size) + header

    def read(self, answer: Command, at: int) -> tuple[bytes, int, int]:
        """The records of a response to a pull at an offset, the next offset, and the next replica.

        No records: the broker found none that match. Raises OrbitMQError and ProtocolError.
        """
        response = parse_pull_response(answer, self._queue.broker_name)
        after, broker_id = response.next_offset, response.broker_id
        if response.status is not PullStatus.FOUND:
            is_skip = response.status is PullStatus.NO_MATCHED_MSG and response.remark != _REMOVED
            if is_skip and self._is_filtered and after > at:
                return b"", after, broker_id
            raise self._not_there(response, at)
        body = response.body
        if after <= at or len(body) < _LEAST_RECORD:
            raise ProtocolError(f"pull at {at}: response has {len(body)} bytes and the next offset {after}")
        if response.offset_delta:
            body = _shifted(response.offset_delta, body)
        if not self._is_filtered:
            (first,) = _QUEUE_OFFSET.unpack_from(body, _QUEUE_OFFSET_AT)
            if first > at:
                raise self._lost(at, first, "they were removed")
        return body, after, broker_id

    def _not_there(self, response: PullResponse, at: int) -> OrbitMQError:
        """The error for an offset that was readable when the range was planned."""
        (low, high), after = response.queue_bounds, response.next_offset
        if at < low:
            return self._lost(at, low, f"the queue now begins at {low}")
        if at >= high:
            lost = self._lost(at, self._end, f"the queue now ends at {high}")
            return TransientPullError(str(lost), lost)
        if response.status is PullStatus.NO_MATCHED_MSG and after > at:
            return self._lost(at, after, "they were removed")
        if response.status is PullStatus.NO_NEW_MSG and after > at:
            lost = self._lost(at, after, "the broker cannot read them")
            return TransientPullError(str(lost), lost)
        # A slave that lags, or a concurrent reset of the group.
        return TransientPullError(
            f"the broker {self._queue.broker_name} returns no messages at {at}: {response.remark}"
        )

    def _lost(self, first: int, after: int, why: str) -> OffsetsLostError:
        return OffsetsLostError(self._queue, first, min(after, self._end), why)


def max_retry_seconds(failure: Exception) -> float:
    """For how many seconds retries of a failure make sense."""
    if isinstance(failure, TransientPullError):
        return TRANSIENT_SECONDS
    if isinstance(failure, BrokerError):
        if failure.code in BUSY:
            return math.inf
        return TRANSIENT_SECONDS if failure.code == ResponseCode.SYSTEM_ERROR else 0.0
    return math.inf


def _shifted(delta: int, body: bytes) -> bytes:
    """Records with queue offsets shifted by ``delta``, for a static topic."""
    moved = bytearray(body)
    at = 0
    while at < len(moved):
        size = _SIZE.unpack_from(moved, at)[0] if at + _SIZE.size <= len(moved) else 0
        if size < _LEAST_RECORD or at + size > len(moved):
            raise ProtocolError(f"pull response with a record of {size} bytes at {at} of {len(moved)}")
        (offset,) = _QUEUE_OFFSET.unpack_from(moved, at + _QUEUE_OFFSET_AT)
        _QUEUE_OFFSET.pack_into(moved, at + _QUEUE_OFFSET_AT, offset + delta)
        at += size
    return bytes(moved)
