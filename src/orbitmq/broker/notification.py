"""NOTIFICATION and POLLING_INFO: whether a group would get something by a pop now, and how many pops wait."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from orbitmq.broker.pop_checks import wanted_by
from orbitmq.broker.pop_hold import EARLY_MS, Held, PopHold, Waiting
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import Command
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.pop import pop_retry_topic
from orbitmq.protocol.record import properties_of
from orbitmq.remoting.processing import RequestRefusedError, fields_of, handler_of, refusal
from orbitmq.store import GetStatus

if TYPE_CHECKING:
    from orbitmq.broker.config import BrokerConfig
    from orbitmq.broker.pop import PopRequests
    from orbitmq.broker.pop_checks import PopChecks
    from orbitmq.broker.pop_offsets import PopOffsets
    from orbitmq.broker.pop_orders import PopOrders
    from orbitmq.broker.topics import TopicTable
    from orbitmq.filter import CompiledFilter
    from orbitmq.protocol.header import Header
    from orbitmq.remoting import Answer, Connection, Handler
    from orbitmq.store import Clock, MessageStore

_SAID = "not set any response code"
"""RocketMQ's remark of an answer that all is well."""


@dataclasses.dataclass(slots=True, eq=False, kw_only=True)
class NotificationAsked(Waiting):
    """A question whether there is something, while it waits."""

    wanted: CompiledFilter | None
    is_order: bool
    attempt_id: str | None


class Notifications:
    """Proxies ask before they pop, and wait for the answer."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        topics: TopicTable,
        checks: PopChecks,
        places: PopOffsets,
        orders: PopOrders,
        pops: PopRequests,
        clock: Clock,
    ) -> None:
        self._config = config
        self._store = store
        self._topics = topics
        self._checks = checks
        self._places = places
        self._orders = orders
        self._pops = pops
        self._clock = clock
        self.held: PopHold[NotificationAsked] = PopHold(config, store, clock.now_ms, self._serve)

    @property
    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.NOTIFICATION: self.notify,
            RequestCode.POLLING_INFO: handler_of(self.polling_info),
        }

    def notify(self, connection: Connection, header: Header, _body: bytes, serialize_type: int) -> Answer:
        """The handler of NOTIFICATION."""
        request = Command.of((serialize_type, b"", b""), header)
        try:
            asked = self._asked(request, connection)
        except RequestRefusedError as error:
            fields = {"hasMsg": "false", "pollingFull": "false"}
            return request.response(error.code, ext_fields=fields, remark=str(error)).encode()
        except ProtocolError as error:
            return refusal(request, error).encode()
        if self._has_some(asked):
            return self._answer(asked, has_some=True)
        held = self.held.hold(asked)
        return None if held is Held.WAITS else self._answer(asked, has_some=False, is_full=held is Held.FULL)

    def polling_info(self, request: Command, connection: Connection) -> Command:
        """The processor of POLLING_INFO."""
        fields = fields_of(request)
        self._checks.check_permission("peeking")
        topic, group, queue_id = fields["topic"], fields["consumerGroup"], fields["queueId"]
        self._checks.check(topic, group, queue_id, connection.remote_address)
        count = self._pops.held.waiting_for(topic, group, max(queue_id, -1))
        return request.response(ResponseCode.SUCCESS, ext_fields={"pollingNum": str(count)}, remark=_SAID)

    def _asked(self, request: Command, connection: Connection) -> NotificationAsked:
        fields = fields_of(request)
        self._checks.check_permission("peeking")
        topic, group, queue_id = fields["topic"], fields["consumerGroup"], fields["queueId"]
        self._checks.check(topic, group, queue_id, connection.remote_address)
        poll_ms = fields["pollTime"]
        born = fields["bornTime"] or self._clock.now_ms()
        expression = fields.get("exp") if self._config.use_message_filter_for_notification else None
        return NotificationAsked(
            connection=connection,
            header=request.header,
            serialize_type=request.serialize_type,
            group=group,
            topic=topic,
            queue_id=max(queue_id, -1),
            deadline_ms=born + poll_ms - EARLY_MS if poll_ms > 0 else 0,
            wanted=wanted_by(fields.get("expType"), expression),
            is_order=fields["order"],
            attempt_id=fields.get("attemptId"),
        )

    def _serve(self, asked: NotificationAsked, is_over: bool) -> bool:
        has_some = self._has_some(asked)
        if not has_some and not is_over:
            return False
        asked.connection.answer(asked.header, self._answer(asked, has_some=has_some))
        return True

    def _answer(self, asked: NotificationAsked, *, has_some: bool, is_full: bool = False) -> bytes:
        request = Command.of((asked.serialize_type, b"", b""), asked.header)
        fields = {"hasMsg": str(has_some).lower(), "pollingFull": str(is_full).lower()}
        return request.response(ResponseCode.SUCCESS, ext_fields=fields, remark=_SAID).encode()

    # Looking

    def _has_some(self, asked: NotificationAsked) -> bool:
        topic, config = asked.topic, self._topics.get(asked.topic)
        queues = 0 if config is None else config.read_queue_nums
        wanted = range(queues) if asked.queue_id < 0 else (asked.queue_id,)
        if any(self._queue_has_some(asked, topic, queue_id) for queue_id in wanted):
            return True
        kinds = (False, True) if self._config.enable_retry_topic_v2 else (False,)
        return any(self._retries_have_some(asked, v2=v2) for v2 in kinds)

    def _retries_have_some(self, asked: NotificationAsked, *, v2: bool) -> bool:
        topic = pop_retry_topic(asked.topic, asked.group, v2=v2)
        config = self._topics.get(topic)
        return config is not None and any(
            self._queue_has_some(asked, topic, queue_id) for queue_id in range(config.read_queue_nums)
        )

    def _queue_has_some(self, asked: NotificationAsked, topic: str, queue_id: int) -> bool:
        group = asked.group
        if asked.is_order and self._orders.is_blocked(asked.topic, group, queue_id, asked.attempt_id, 0):
            return False
        offset = self._places.look_at(topic, group, queue_id)
        if self._store.max_offset(topic, queue_id) <= offset:
            return False
        wanted = asked.wanted
        if wanted is None:
            return True
        if wanted.matches_code is not None:
            result = self._store.get(topic, queue_id, offset, 1, matches_code=wanted.matches_code)
        else:
            matches = wanted.matches_properties
            result = self._store.get(
                topic, queue_id, offset, 1, matches_record=lambda record: matches(properties_of(record))
            )
        # More than one read looks at is for the pop to look through, which moves the group on.
        return result.status is GetStatus.FOUND or result.next_begin_offset < result.max_offset
