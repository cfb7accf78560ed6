"""RECALL_MESSAGE: cancel a message that waits for its delivery time.

A recall marker is deferred for the same slot as the message; when the slot is due, the message is skipped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.message import property_names as names
from orbitmq.protocol.message.flags import ONEWAY, PERM_WRITE
from orbitmq.protocol.message.properties import encode
from orbitmq.protocol.message.recall_handle import decode_recall_handle, encode_recall_handle
from orbitmq.protocol.names import RETRY_PREFIX
from orbitmq.protocol.remarks import switched_off
from orbitmq.remoting.processor import RequestRefusedError, fields_of, refusal
from orbitmq.store import AppendRefusedError, StoredMessage
from orbitmq.store.replication.settings import BrokerRole

if TYPE_CHECKING:
    from orbitmq.broker.metadata.topics import TopicTable
    from orbitmq.broker.runtime import BrokerRuntime
    from orbitmq.broker.timer.service import TimerService
    from orbitmq.protocol.command.header import Header
    from orbitmq.protocol.message.recall_handle import RecallHandle
    from orbitmq.remoting import Answer, Connection, Handler

RECALL_TAG = "_RECALL_TAG_"
_BODY = b"0"
_UNAVAILABLE = "recall failed, broker service not available"
_REMARK = "not set any response code"
"""Remark of successful responses of RocketMQ."""

_EMPTY_CONTEXT = names.TRACE_CONTEXT.encode() + b"\x01\x02"
"""Invisible to readers, but present in RocketMQ's recall markers."""

_OUT = names.TIMER_OUT_MS.encode()
_REAL_TOPIC = names.REAL_TOPIC.encode()
_RETRY = RETRY_PREFIX.encode()


class RecallRequests:
    """RECALL_MESSAGE requests. Without a ``timer`` they are refused."""

    def __init__(
        self,
        runtime: BrokerRuntime,
        topics: TopicTable,
        timer: TimerService | None,
    ) -> None:
        self._config = runtime.config
        self._store = runtime.store
        self._topics = topics
        self._timer = timer
        self._stats = runtime.stats
        self._flush_waiters = runtime.flush_waiters
        self._waits = runtime.flush_waiters.is_needed
        self._clock = runtime.clock

    @property
    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.RECALL_MESSAGE: self.recall}

    def recall(self, connection: Connection, header: Header, body: bytes, serialize_type: int) -> Answer:
        """The response carries the message id, whether or not the message can still be recalled."""
        _, _, flag, _, _, _, _ = header
        request = Command.of((serialize_type, b"", body), header)
        response_fields = {"MSG_REGION": self._config.region_id}
        try:
            fields = fields_of(request)
            handle = self._checked(fields["topic"], fields["recallHandle"])
            self._put_marker(handle, fields.get("producerGroup") or "", connection.state)
        except RequestRefusedError as error:
            return request.response(error.code, ext_fields=response_fields, remark=str(error)).encode()
        except ProtocolError as error:
            return refusal(request, error).encode()
        response_fields = {"msgId": handle.unique_key, **response_fields}
        answer = request.response(ResponseCode.SUCCESS, ext_fields=response_fields, remark=_REMARK).encode()
        if flag & ONEWAY or not self._waits:
            return answer
        self._flush_waiters.wait(connection, header, answer)
        return None

    def _checked(self, topic: str, text: str) -> RecallHandle:
        config = self._config
        if not config.recall_message_enable:
            raise RequestRefusedError(
                f"recall failed, operation is forbidden{switched_off('recallMessageEnable')}",
                ResponseCode.NO_PERMISSION,
            )
        if self._store.config.broker_role is BrokerRole.SLAVE:
            raise RequestRefusedError(_UNAVAILABLE, ResponseCode.SLAVE_NOT_AVAILABLE)
        now = self._clock.now_ms()
        is_writable = config.broker_permission & PERM_WRITE or config.allow_recall_when_broker_not_writeable
        if now < config.start_accept_send_request_time_stamp or not is_writable:
            raise RequestRefusedError(_UNAVAILABLE, ResponseCode.SERVICE_NOT_AVAILABLE)
        if self._topics.get(topic) is None:
            raise RequestRefusedError(f"recall failed, the topic[{topic}] not exist", ResponseCode.TOPIC_NOT_EXIST)
        try:
            handle = decode_recall_handle(text)
        except ProtocolError as error:
            raise RequestRefusedError(str(error), ResponseCode.ILLEGAL_OPERATION) from error
        if handle.topic != topic:
            raise RequestRefusedError("recall failed, topic not match", ResponseCode.ILLEGAL_OPERATION)
        if handle.broker_name != config.broker_name:
            raise RequestRefusedError(_UNAVAILABLE, ResponseCode.ILLEGAL_OPERATION)
        timestamp = int(handle.timestamp) if handle.timestamp.isdecimal() and len(handle.timestamp) < 19 else -1
        if not 0 < timestamp - now < self._store.config.timer_max_delay_sec * 1000:
            raise RequestRefusedError("recall failed, timestamp invalid", ResponseCode.ILLEGAL_OPERATION)
        return handle

    def _put_marker(self, handle: RecallHandle, group: str, born_host: bytes) -> None:
        now = self._clock.now_ms()
        key = handle.unique_key
        if self._store.config.append_topic_for_timer_delete_key:
            key = f"{handle.topic}+{key}"
        properties = encode(
            {
                names.TAGS: RECALL_TAG,
                names.TIMER_DELETE_UNIQUE_KEY: key,
                names.UNIQUE_KEY: handle.unique_key,
                names.TIMER_DELIVER_MS: handle.timestamp,
                names.BORN_TIMESTAMP: str(now),
                names.PRODUCER_GROUP: group,
            }
        )
        properties += _EMPTY_CONTEXT
        try:
            deferred = None if self._timer is None else self._timer.defer(properties, handle.topic, 0)
            if deferred is None:
                raise RequestRefusedError("recall failed, execute error")
            topic, queue_id, properties = deferred
            message = StoredMessage(topic, queue_id, _BODY, properties, born_timestamp=now, born_host=born_host)
            appended = self._store.append(message)
        except AppendRefusedError as error:
            self._stats.put_failed()
            raise RequestRefusedError(f"recall failed, execute error ({error})") from error
        self._stats.put_by_broker(topic, queue_id, 1, appended.size)


def handle_of_deferred(properties: bytes, broker_name: str, unique_key: bytes) -> bytes | None:
    """Recall handle of a message deferred with these properties; None for a retry."""
    # Both properties were appended last, in this order, when it was deferred.
    out, _, rest = properties.rpartition(_OUT + b"\x01")[2].partition(b"\x02")
    topic = rest.removeprefix(_REAL_TOPIC + b"\x01").partition(b"\x02")[0]
    if topic.startswith(_RETRY):
        return None
    # A time within the slot, so that the recall marker gets into the same slot.
    return encode_recall_handle(topic, broker_name.encode(), int(out) + 1, unique_key)
