"""RECALL_MESSAGE: take back a message that waits for its time.

A marker is parked for the same slot as the message, which is left out when the slot is due.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.protocol import property_names as names
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import Command
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.flags import ONEWAY, PERM_WRITE
from orbitmq.protocol.names import RETRY_PREFIX
from orbitmq.protocol.properties import encode
from orbitmq.protocol.recall_handle import decode_recall_handle, encode_recall_handle
from orbitmq.remoting.processing import RequestRefusedError, fields_of, refusal
from orbitmq.store import AppendRefusedError
from orbitmq.store.config import BrokerRole, FlushDiskType

if TYPE_CHECKING:
    from orbitmq.broker.config import BrokerConfig
    from orbitmq.broker.flushed_answers import FlushedAnswers
    from orbitmq.broker.stats import BrokerStats
    from orbitmq.broker.timer import TimerService
    from orbitmq.broker.topics import TopicTable
    from orbitmq.protocol.header import Header
    from orbitmq.protocol.recall_handle import RecallHandle
    from orbitmq.remoting import Answer, Connection, Handler
    from orbitmq.store import Clock, MessageStore

RECALL_TAG = "_RECALL_TAG_"
_BODY = b"0"
_UNAVAILABLE = "recall failed, broker service not available"
_REMARK = "not set any response code"
"""Stands in successful answers of RocketMQ."""

_EMPTY_CONTEXT = names.TRACE_CONTEXT.encode() + b"\x01\x02"
"""No reader sees it, but in RocketMQ's markers it is there."""

_OUT = names.TIMER_OUT_MS.encode()
_REAL_TOPIC = names.REAL_TOPIC.encode()
_RETRY = RETRY_PREFIX.encode()


class RecallRequests:
    """Producers take messages back. Without a ``timer`` nothing waits."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        topics: TopicTable,
        timer: TimerService | None,
        stats: BrokerStats,
        flushed: FlushedAnswers,
        clock: Clock,
    ) -> None:
        self._config = config
        self._store = store
        self._topics = topics
        self._timer = timer
        self._stats = stats
        self._flushed = flushed
        self._waits = store.config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self._clock = clock

    @property
    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.RECALL_MESSAGE: self.recall}

    def recall(self, connection: Connection, header: Header, body: bytes, serialize_type: int) -> Answer:
        """The answer has the id of the message, whether or not it is still there to be taken back."""
        request = Command.of((serialize_type, b"", body), header)
        told = {"MSG_REGION": self._config.region_id}
        try:
            fields = fields_of(request)
            handle = self._checked(fields["topic"], fields["recallHandle"])
            self._put_marker(handle, fields.get("producerGroup") or "", connection.state)
        except RequestRefusedError as error:
            return request.response(error.code, ext_fields=told, remark=str(error)).encode()
        except ProtocolError as error:
            return refusal(request, error).encode()
        told = {"msgId": handle.unique_key, **told}
        answer = request.response(ResponseCode.SUCCESS, ext_fields=told, remark=_REMARK).encode()
        if header[2] & ONEWAY or not self._waits:
            return answer
        self._flushed.wait(connection, header, answer)
        return None

    def _checked(self, topic: str, text: str) -> RecallHandle:
        config = self._config
        if not config.recall_message_enable:
            raise RequestRefusedError("recall failed, operation is forbidden", ResponseCode.NO_PERMISSION)
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
            parked = None if self._timer is None else self._timer.park(properties, handle.topic, 0)
            if parked is None:
                raise RequestRefusedError("recall failed, execute error")
            topic, queue_id, properties = parked
            appended = self._store.append(
                topic, queue_id, _BODY, properties, born_timestamp=now, born_host=born_host
            )
        except AppendRefusedError as error:
            self._stats.put_failed()
            raise RequestRefusedError(f"recall failed, execute error ({error})") from error
        self._stats.put(topic, queue_id, 1, appended.size)


def handle_of_parked(properties: bytes, broker_name: str, unique_key: bytes) -> bytes | None:
    """The handle of a message that was parked with these properties; None for one that is tried again."""
    # Both were put behind all others, side by side, when it was parked.
    out, _, place = properties.rpartition(_OUT + b"\x01")[2].partition(b"\x02")
    topic = place.removeprefix(_REAL_TOPIC + b"\x01").partition(b"\x02")[0]
    if topic.startswith(_RETRY):
        return None
    # A time within the slot, so that the marker of a recall gets into the same one.
    return encode_recall_handle(topic, broker_name.encode(), int(out) + 1, unique_key)
