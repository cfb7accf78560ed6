"""NOTIFICATION and POLLING_INFO: availability of messages for a pop (long poll), and the number of held pops."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING

from orbitmq.broker.long_polling.pop import EARLY_MS, HeldPop, HoldResult, PopHold
from orbitmq.broker.pop.validation import filter_of
from orbitmq.broker.pull.filtered_read import read_filtered
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.message.pop_receipt import pop_retry_topic
from orbitmq.remoting.processor import RequestRefusedError, fields_of, handler_of, refusal
from orbitmq.store import GetStatus

if TYPE_CHECKING:
    from orbitmq.broker.metadata.topics import TopicTable
    from orbitmq.broker.pop.inflight import PopOffsets
    from orbitmq.broker.pop.order_info import PopOrders
    from orbitmq.broker.pop.processor import PopRequests
    from orbitmq.broker.pop.validation import PopChecks
    from orbitmq.broker.runtime import BrokerRuntime
    from orbitmq.filter import CompiledFilter
    from orbitmq.protocol.command.header import Header
    from orbitmq.remoting import Answer, Connection, Handler

CHECK_SECONDS = 0.008
"""Time that a check for messages may hold the event loop, all queues together."""

_OK_REMARK = "not set any response code"
"""RocketMQ's remark on a successful response."""


@dataclasses.dataclass(slots=True, eq=False, kw_only=True)
class NotificationRequest(HeldPop):
    """A parsed NOTIFICATION command."""

    wanted: CompiledFilter | None
    is_order: bool
    attempt_id: str | None


class Notifications:
    """The processor of NOTIFICATION, which proxies send before a pop, and of POLLING_INFO."""

    def __init__(
        self,
        runtime: BrokerRuntime,
        topics: TopicTable,
        checks: PopChecks,
        pop_offsets: PopOffsets,
        orders: PopOrders,
        pops: PopRequests,
    ) -> None:
        self._config = config = runtime.config
        self._store = store = runtime.store
        self._topics = topics
        self._checks = checks
        self._pop_offsets = pop_offsets
        self._orders = orders
        self._pops = pops
        self._clock = clock = runtime.clock
        self.held: PopHold[NotificationRequest] = PopHold(config, store, clock.now_ms, self._serve)

    @property
    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.NOTIFICATION: self.notify,
            RequestCode.POLLING_INFO: handler_of(self.polling_info),
        }

    def notify(self, connection: Connection, header: Header, _body: bytes, serialize_type: int) -> Answer:
        """The handler of NOTIFICATION."""
        command = Command.of((serialize_type, b"", b""), header)
        try:
            request = self._parse(command, connection)
        except RequestRefusedError as error:
            fields = {"hasMsg": "false", "pollingFull": "false"}
            return command.response(error.code, ext_fields=fields, remark=str(error)).encode()
        except ProtocolError as error:
            return refusal(command, error).encode()
        if self._has_messages(request):
            return self._encode(request, has_messages=True)
        held = self.held.hold(request)
        if held is HoldResult.HELD:
            return None
        return self._encode(request, has_messages=False, is_full=held is HoldResult.FULL)

    def polling_info(self, command: Command, connection: Connection) -> Command:
        """The handler of POLLING_INFO."""
        fields = fields_of(command)
        self._checks.check_permission("peeking")
        topic, group, queue_id = fields["topic"], fields["consumerGroup"], fields["queueId"]
        self._checks.check(topic, group, queue_id, connection.remote_address)
        count = self._pops.held.waiting_for(topic, group, max(queue_id, -1))
        return command.response(ResponseCode.SUCCESS, ext_fields={"pollingNum": str(count)}, remark=_OK_REMARK)

    def _parse(self, command: Command, connection: Connection) -> NotificationRequest:
        fields = fields_of(command)
        self._checks.check_permission("peeking")
        topic, group, queue_id = fields["topic"], fields["consumerGroup"], fields["queueId"]
        self._checks.check(topic, group, queue_id, connection.remote_address)
        poll_ms = fields["pollTime"]
        # From its arrival, and not from bornTime: clocks of clients may be wrong.
        now = self._clock.now_ms()
        expression = fields.get("exp") if self._config.use_message_filter_for_notification else None
        return NotificationRequest(
            connection=connection,
            header=command.header,
            serialize_type=command.serialize_type,
            group=group,
            topic=topic,
            queue_id=max(queue_id, -1),
            deadline_ms=now + poll_ms - EARLY_MS if poll_ms > 0 else 0,
            wanted=filter_of(self._config, fields.get("expType"), expression),
            is_order=fields["order"],
            attempt_id=fields.get("attemptId"),
        )

    def _serve(self, request: NotificationRequest, expires: bool) -> bool:
        has_messages = self._has_messages(request)
        if not has_messages and not expires:
            return False
        request.connection.answer(request.header, self._encode(request, has_messages=has_messages))
        return True

    def _encode(self, request: NotificationRequest, *, has_messages: bool, is_full: bool = False) -> bytes:
        command = Command.of((request.serialize_type, b"", b""), request.header)
        fields = {"hasMsg": str(has_messages).lower(), "pollingFull": str(is_full).lower()}
        return command.response(ResponseCode.SUCCESS, ext_fields=fields, remark=_OK_REMARK).encode()

    # Availability

    def _has_messages(self, request: NotificationRequest) -> bool:
        topic, config = request.topic, self._topics.get(request.topic)
        queues = 0 if config is None else config.read_queue_nums
        wanted = range(queues) if request.queue_id < 0 else (request.queue_id,)
        end = time.monotonic() + CHECK_SECONDS
        if any(self._queue_has_messages(request, topic, queue_id, end) for queue_id in wanted):
            return True
        kinds = (False, True) if self._config.enable_retry_topic_v2 else (False,)
        return any(self._retry_has_messages(request, end, v2=v2) for v2 in kinds)

    def _retry_has_messages(self, request: NotificationRequest, end: float, *, v2: bool) -> bool:
        topic = pop_retry_topic(request.topic, request.group, v2=v2)
        config = self._topics.get(topic)
        return config is not None and any(
            self._queue_has_messages(request, topic, queue_id, end) for queue_id in range(config.read_queue_nums)
        )

    def _queue_has_messages(self, request: NotificationRequest, topic: str, queue_id: int, end: float) -> bool:
        if time.monotonic() >= end:
            # There was no time for this queue: the pop reads it, and continues where it is cut.
            return True
        group = request.group
        if request.is_order and self._orders.is_blocked(request.topic, group, queue_id, request.attempt_id, 0):
            return False
        offset = self._pop_offsets.peek(topic, group, queue_id)
        if self._store.max_offset(topic, queue_id) <= offset:
            return False
        if request.wanted is None:
            return True
        result = read_filtered(self._store, topic, queue_id, offset, 1, request.wanted)
        # What one read does not cover is left to the pop, which advances the group.
        return result.status is GetStatus.FOUND or result.next_begin_offset < result.max_offset
