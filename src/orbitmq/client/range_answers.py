"""Pulls of a range of a queue as they stand on the wire, and what is wrong with answers that do not bring it."""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING

import orjson

from orbitmq.client.errors import BrokerError, OffsetsLostError, OrbitMQError
from orbitmq.client.routes import MASTER
from orbitmq.protocol.codes import LanguageCode, RequestCode, ResponseCode
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.fields import INT32_MAX
from orbitmq.protocol.flags import PULL_SUBSCRIPTION
from orbitmq.protocol.request_fields import IN_BULK
from orbitmq.protocol.versions import CURRENT_VERSION

if TYPE_CHECKING:
    from orbitmq.protocol.bodies import MessageQueue
    from orbitmq.protocol.command import Command

MOMENT = 5.0
"""Seconds for what may be so for a moment only: that a broker cannot, or that its queue is shorter than it was."""

BUSY = frozenset(
    {int(ResponseCode.SYSTEM_BUSY), int(ResponseCode.FLOW_CONTROL), int(ResponseCode.SERVICE_NOT_AVAILABLE)}
)
"""Refusals that another attempt may not meet."""

_PREFIX = struct.Struct(">iI")
_SIZE = struct.Struct(">i")
_QUEUE_OFFSET = struct.Struct(">q")
_QUEUE_OFFSET_AT = 20
_LEAST_RECORD = _QUEUE_OFFSET_AT + _QUEUE_OFFSET.size
"""Where a record has the offset in its queue; shorter than that there is none."""

_FOUND = int(ResponseCode.SUCCESS)
_NOT_FOUND = int(ResponseCode.PULL_NOT_FOUND)
_LOOK_FURTHER = int(ResponseCode.PULL_RETRY_IMMEDIATELY)
_MOVED = int(ResponseCode.PULL_OFFSET_MOVED)
_REMOVED = "MESSAGE_WAS_REMOVING"


class PassingError(OrbitMQError):
    """Something that may be otherwise in a moment. If it stays, it is ``lost``, where that is something."""

    def __init__(self, text: str, lost: OffsetsLostError | None = None) -> None:
        super().__init__(text)
        self.lost = lost


class RangePulls:
    """The pulls of one queue, and what their answers say. ``end`` is that of the range."""

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
        """The frame of a pull of so many messages from an offset on."""
        header = self._template % (at, most, opaque)
        size = len(header)
        return _PREFIX.pack(4 + size, size) + header

    def read(self, answer: Command, at: int) -> tuple[bytes, int, int]:
        """The records of the answer to a pull at an offset, where to go on, and which replica to ask.

        There are none if none of those looked at is wanted. Raises OrbitMQError and ProtocolError.
        """
        code, fields = answer.code, answer.ext_fields
        if code != _FOUND and code not in (_NOT_FOUND, _LOOK_FURTHER, _MOVED):
            raise BrokerError(code, answer.remark, self._queue.broker_name)
        try:
            after = int(fields["nextBeginOffset"])
            broker_id = int(fields.get("suggestWhichBrokerId", MASTER))
            delta = int(fields.get("offsetDelta", 0))
        except (KeyError, ValueError) as error:
            raise ProtocolError(f"a pull answer does not say where to go on: {error!r}") from error
        if code != _FOUND:
            if code == _LOOK_FURTHER and self._is_filtered and after > at and answer.remark != _REMOVED:
                return b"", after, broker_id
            raise self._not_there(answer, at, after)
        body = answer.body or b""
        if after <= at or len(body) < _LEAST_RECORD:
            raise ProtocolError(f"a pull at {at} was answered with {len(body)} bytes and goes on at {after}")
        if delta:
            body = _moved_by(delta, body)
        if not self._is_filtered:
            (first,) = _QUEUE_OFFSET.unpack_from(body, _QUEUE_OFFSET_AT)
            if first > at:
                raise self._lost(at, first, "they were removed")
        return body, after, broker_id

    def _not_there(self, answer: Command, at: int, after: int) -> OrbitMQError:
        """Why there is nothing at an offset that was there when the range was made."""
        try:
            low, high = int(answer.ext_fields["minOffset"]), int(answer.ext_fields["maxOffset"])
        except (KeyError, ValueError) as error:
            raise ProtocolError(f"a pull answer does not say where the queue begins and ends: {error!r}") from error
        if at < low:
            return self._lost(at, low, f"the queue begins at {low} by now")
        if at >= high:
            lost = self._lost(at, self._end, f"the queue ends at {high} by now")
            return PassingError(str(lost), lost)
        if answer.code == _LOOK_FURTHER and after > at:
            return self._lost(at, after, "they were removed")
        if answer.code == _NOT_FOUND and after > at:
            lost = self._lost(at, after, "the broker cannot read them")
            return PassingError(str(lost), lost)
        # A slave that is behind, or somebody has just set the offset of the group.
        return PassingError(f"the broker {self._queue.broker_name} gives nothing at {at} now: {answer.remark}")

    def _lost(self, first: int, after: int, why: str) -> OffsetsLostError:
        return OffsetsLostError(self._queue, first, min(after, self._end), why)


def seconds_of_hope(failure: Exception) -> float:
    """For how long it makes sense to try again."""
    if isinstance(failure, PassingError):
        return MOMENT
    if isinstance(failure, BrokerError):
        if failure.code in BUSY:
            return math.inf
        return MOMENT if failure.code == ResponseCode.SYSTEM_ERROR else 0.0
    return math.inf


def _moved_by(delta: int, body: bytes) -> bytes:
    """Records with the offsets that they have in a queue that goes on from one broker to another."""
    moved = bytearray(body)
    at = 0
    while at < len(moved):
        size = _SIZE.unpack_from(moved, at)[0] if at + _SIZE.size <= len(moved) else 0
        if size < _LEAST_RECORD or at + size > len(moved):
            raise ProtocolError(f"a pull answer has a record of {size} bytes at {at} of {len(moved)}")
        (offset,) = _QUEUE_OFFSET.unpack_from(moved, at + _QUEUE_OFFSET_AT)
        _QUEUE_OFFSET.pack_into(moved, at + _QUEUE_OFFSET_AT, offset + delta)
        at += size
    return bytes(moved)
