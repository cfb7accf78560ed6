"""PULL_MESSAGE and LITE_PULL_MESSAGE: records of a queue as the commit log has them, or a long poll."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from orbitmq.broker.errors import ADVICE, no_topic_to_pull
from orbitmq.broker.long_polling.pull import MAX_HOLD_MS, HeldPull, PullHold
from orbitmq.broker.pull.filtered_read import read_filtered
from orbitmq.broker.pull.priority import PullPriority
from orbitmq.broker.pull.replica_reads import ReplicaReads
from orbitmq.broker.pull.request import PullRequest
from orbitmq.broker.pull.subscription_filter import compile_carried
from orbitmq.filter import FilterError, is_tag_type
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.command.fast_encode import PullAnswers
from orbitmq.protocol.command.header import CODE, OPAQUE
from orbitmq.protocol.message.flags import (
    FORBIDDEN_BROADCASTING,
    FORBIDDEN_BY_BROKER,
    FORBIDDEN_BY_GROUP,
    FORBIDDEN_BY_TOPIC,
    FORBIDDEN_SUBSCRIPTION,
    PERM_READ,
    PULL_COMMIT_OFFSET,
    PULL_SUBSCRIPTION,
)
from orbitmq.protocol.remarks import switched_off
from orbitmq.remoting.processor import RequestRefusedError
from orbitmq.store.reader import MAX_COPIED, GetStatus

if TYPE_CHECKING:
    from orbitmq.broker.clients.registry import Clients
    from orbitmq.broker.pull.cold_read import ColdPulls
    from orbitmq.broker.runtime import BrokerRuntime, Metadata
    from orbitmq.filter import CompiledFilter
    from orbitmq.protocol.bodies import TopicConfig
    from orbitmq.protocol.command.header import Header
    from orbitmq.remoting import Answer, Connection, Handler
    from orbitmq.remoting.gather_write import Buffer
    from orbitmq.store.reader import GetResult

_FOUND = int(ResponseCode.SUCCESS)
_NOT_FOUND = int(ResponseCode.PULL_NOT_FOUND)
_MOVED = int(ResponseCode.PULL_OFFSET_MOVED)
_CODES = {
    GetStatus.FOUND: _FOUND,
    GetStatus.NO_MATCHED_MESSAGE: int(ResponseCode.PULL_RETRY_IMMEDIATELY),
    GetStatus.MESSAGE_WAS_REMOVING: int(ResponseCode.PULL_RETRY_IMMEDIATELY),
    GetStatus.OFFSET_FOUND_NULL: _NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_ONE: _NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_BADLY: _MOVED,
    GetStatus.OFFSET_TOO_SMALL: _MOVED,
    # Except for offset 0, which an empty queue merely does not have yet.
    GetStatus.NO_MATCHED_LOGIC_QUEUE: _MOVED,
    GetStatus.NO_MESSAGE_IN_QUEUE: _MOVED,
}
_STATUS_TEXT = {status: status.value.encode() for status in GetStatus}
# RocketMQ creates a queue on the first request for it, so clients never see one that does not exist.
_STATUS_TEXT[GetStatus.NO_MATCHED_LOGIC_QUEUE] = _STATUS_TEXT[GetStatus.NO_MESSAGE_IN_QUEUE]


class PullRefusedError(RequestRefusedError):
    """A forbidden pull; ``forbidden_type`` is RocketMQ's code for the part that forbids it."""

    def __init__(self, remark: str, forbidden_type: int) -> None:
        super().__init__(remark, ResponseCode.NO_PERMISSION)
        self.forbidden_type = forbidden_type


class PullRequests:
    """The pull processor."""

    def __init__(
        self,
        runtime: BrokerRuntime,
        metadata: Metadata,
        clients: Clients,
        cold: ColdPulls,
    ) -> None:
        self.replicas = ReplicaReads(runtime, metadata.groups)
        self._config = config = runtime.config
        self._store = store = runtime.store
        self._groups = groups = metadata.groups
        self._group_config = groups.configs.get
        self._topic_config = metadata.topics.configs.get
        self._offsets = metadata.offsets
        self._clients = clients
        self._filter_data = metadata.filters
        self._stats = runtime.stats
        self._now_ms = runtime.clock.now_ms
        self._cold = cold
        self.answers = PullAnswers()
        self.held = PullHold(store, runtime.clock.now_ms, self._answer_held, self._has_match, config)
        self.priority = PullPriority(runtime, groups, clients, self.held.end)

    @property
    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.PULL_MESSAGE: self.pull, RequestCode.LITE_PULL_MESSAGE: self.pull}

    def pull(self, connection: Connection, header: Header, _body: bytes, serialize_type: int) -> Answer:
        """The handler of both codes."""
        request = PullRequest.parse(connection, header, serialize_type)
        group, topic, queue_id, offset = request.group, request.topic, request.queue_id, request.offset
        try:
            topic_config, wanted = self._admit(request)
        except RequestRefusedError as error:
            return _refused(error, request)
        if request.sys_flag & PULL_COMMIT_OFFSET:
            self._offsets.commit(group, topic, queue_id, request.commit_offset, connection.remote_address)
        if self._offsets.pending_resets and (moved := self._moved(request)) is not None:
            return moved
        if topic_config.attributes and self.priority.withholds(group, topic_config, queue_id, offset):
            if request.may_be_held:
                held = self._held_pull(request, topic_config, wanted, request.suspend_ms)
                if self.priority.hold(held):
                    return None
            return self._as_if_empty(request)
        result = self._read(request, wanted, may_wait=True)
        if result.cold_ranges is not None:
            self._cold.wait(
                result.cold_ranges, functools.partial(self.held.end, self._held_pull(request, topic_config, wanted))
            )
            return None
        if request.may_be_held and self._code_of(request, result) == _NOT_FOUND:
            suspend_ms = request.suspend_ms
            if not self._config.long_polling_enable:
                suspend_ms = self._config.short_polling_time_mills
            if self.held.hold(self._held_pull(request, topic_config, wanted, suspend_ms)):
                return None
        return self._response(request, topic_config, result)

    def _held_pull(
        self, request: PullRequest, topic_config: TopicConfig, wanted: CompiledFilter | None, suspend_ms: int = 0
    ) -> HeldPull:
        return HeldPull(
            connection=request.connection,
            header=request.header,
            serialize_type=request.serialize_type,
            deadline_ms=self._now_ms() + min(suspend_ms, MAX_HOLD_MS),
            request=request,
            topic_config=topic_config,
            wanted=wanted,
            read_to=request.offset,
        )

    def _answer_held(self, pull: HeldPull) -> None:
        """Answer a pull that was held with what there is now. Permissions and filter may have changed meanwhile."""
        pull.connection.answer(pull.header, self._response_to_held(pull.request))

    def _response_to_held(self, request: PullRequest) -> bytes | list[Buffer]:
        try:
            topic_config, wanted = self._admit(request)
        except RequestRefusedError as error:
            return _refused(error, request)
        if self._offsets.pending_resets and (moved := self._moved(request)) is not None:
            return moved
        if topic_config.attributes and self.priority.withholds(
            request.group, topic_config, request.queue_id, request.offset
        ):
            return self._as_if_empty(request)
        return self._response(request, topic_config, self._read(request, wanted, may_wait=False))

    def _read(self, request: PullRequest, wanted: CompiledFilter | None, *, may_wait: bool) -> GetResult:
        return read_filtered(
            self._store,
            request.topic,
            request.queue_id,
            request.offset,
            request.max_count,
            wanted,
            max_bytes=request.max_bytes,
            in_bulk=request.in_bulk,
            may_wait=may_wait,
        )

    def _response(self, request: PullRequest, topic_config: TopicConfig, result: GetResult) -> bytes | list[Buffer]:
        group, topic, queue_id = request.group, request.topic, request.queue_id
        code = self._code_of(request, result)
        if code:
            self._stats.missed_get()
        else:
            self._stats.got(group, topic, queue_id, result.count, result.size)
        self._offsets.commit_pull(
            group, topic, queue_id, result.next_begin_offset, request.connection.remote_address
        )
        head = self.answers.encode_head(
            request.serialize_type,
            request.header[OPAQUE],
            code,
            _STATUS_TEXT[result.status],
            result.next_begin_offset,
            result.min_offset,
            result.max_offset,
            result.size,
            suggest_broker_id=self.replicas.suggested(group, result.behind),
            topic_sys_flag=topic_config.topic_sys_flag,
            group_sys_flag=self._groups.configs[group].group_sys_flag,
        )
        if result.size > MAX_COPIED:
            return [head, *result.slices]
        return b"".join((head, *result.slices))

    def _code_of(self, request: PullRequest, result: GetResult) -> int:
        return self.replicas.code(_code_of(request, result), result, request)

    # Checks

    def _admit(self, request: PullRequest) -> tuple[TopicConfig, CompiledFilter | None]:
        """The topic that is pulled and the filter of the group. Raises RequestRefusedError."""
        topic_config = self.check(
            request.connection, request.header[CODE], request.group, request.topic, request.queue_id
        )
        wanted = self.wanted(
            request.group,
            request.topic,
            request.sys_flag,
            subscription=request.subscription,
            version=request.version,
            expression_type=request.expression_type,
        )
        return topic_config, wanted

    def check(self, connection: Connection, code: int, group: str, topic: str, queue_id: int) -> TopicConfig:
        """Check permissions, group, topic and queue; returns the topic. Raises RequestRefusedError."""
        config = self._config
        self.replicas.check()
        if not config.broker_permission & PERM_READ:
            raise PullRefusedError(
                f"the broker[{config.broker_ip1}] pulling message is forbidden", FORBIDDEN_BY_BROKER
            )
        if code == RequestCode.LITE_PULL_MESSAGE and not config.lite_pull_message_enable:
            raise PullRefusedError(
                f"the broker[{config.broker_ip1}] for lite pull consumer is forbidden", FORBIDDEN_BY_BROKER
            )
        group_config = self._group_config(group) or self._groups.find(group, connection.remote_address)
        if group_config is None:
            raise RequestRefusedError(
                f"subscription group [{group}] does not exist, {ADVICE}", ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
            )
        if not group_config.consume_enable:
            raise PullRefusedError(f"subscription group no permission, {group}", FORBIDDEN_BY_GROUP)
        topic_config = self._topic_config(topic)
        if topic_config is None:
            raise no_topic_to_pull(topic)
        if not topic_config.perm & PERM_READ:
            raise PullRefusedError(f"the topic[{topic}] pulling message is forbidden", FORBIDDEN_BY_TOPIC)
        if not 0 <= queue_id < topic_config.read_queue_nums:
            raise RequestRefusedError(
                f"queueId[{queue_id}] is illegal, topic:[{topic}] topicConfig.readQueueNums:"
                f"[{topic_config.read_queue_nums}] consumer:[/{connection.remote_address}]",
                ResponseCode.INVALID_PARAMETER,
            )
        return topic_config

    def wanted(
        self,
        group: str,
        topic: str,
        sys_flag: int,
        *,
        subscription: str | None,
        version: int,
        expression_type: str | None,
    ) -> CompiledFilter | None:
        """The filter of a pull; None if it matches everything. Raises RequestRefusedError."""
        if sys_flag & PULL_SUBSCRIPTION:
            return self._carried_filter(subscription or "*", expression_type)
        known = self._clients.consumers.get(group)
        if known is None:
            raise RequestRefusedError(
                f"the consumer's group info not exist{ADVICE}", ResponseCode.SUBSCRIPTION_NOT_EXIST
            )
        group_config = self._groups.configs[group]
        if not group_config.consume_broadcast_enable and known.message_model == "BROADCASTING":
            raise PullRefusedError(
                f"the consumer group[{group}] can not consume by broadcast way", FORBIDDEN_BROADCASTING
            )
        if self._groups.is_forbidden(group, topic):
            raise PullRefusedError(
                f"the consumer group[{group}] is forbidden for topic[{topic}]", FORBIDDEN_SUBSCRIPTION
            )
        subscribed = known.subscriptions.get(topic)
        if subscribed is None:
            raise RequestRefusedError(
                f"the consumer's subscription not exist{ADVICE}", ResponseCode.SUBSCRIPTION_NOT_EXIST
            )
        if subscribed.sub_version < version:
            raise RequestRefusedError(
                "the consumer's subscription not latest", ResponseCode.SUBSCRIPTION_NOT_LATEST
            )
        if not is_tag_type(subscribed.expression_type):
            self._check_property_filter(subscribed.expression_type)
            data = self._filter_data.find(group, topic)
            if data is None:
                raise RequestRefusedError(
                    "The broker's consumer filter data is not exist!Your expression may be wrong!",
                    ResponseCode.FILTER_DATA_NOT_EXIST,
                )
            if data.client_version < subscribed.sub_version:
                raise RequestRefusedError(
                    "The broker's consumer filter data is not latest!", ResponseCode.FILTER_DATA_NOT_LATEST
                )
        wanted = known.filter_of(topic)
        return None if wanted is None or wanted.matches_all else wanted

    def _carried_filter(self, expression: str, expression_type: str | None) -> CompiledFilter | None:
        """The filter of a client that sends its subscription with every pull, as all but Java's do."""
        if not is_tag_type(expression_type):
            self._check_property_filter(expression_type)
        try:
            wanted = compile_carried(self._config, expression_type, expression)
        except FilterError as error:
            raise RequestRefusedError(
                f"parse the consumer's subscription failed: {error}", ResponseCode.SUBSCRIPTION_PARSE_FAILED
            ) from error
        return None if wanted.matches_all else wanted

    def _check_property_filter(self, expression_type: str | None) -> None:
        if not self._config.enable_property_filter:
            raise RequestRefusedError(
                f"The broker does not support consumer to filter message by {expression_type}"
                f"{switched_off('enablePropertyFilter')}"
            )

    # Held pulls

    def _has_match(self, pull: HeldPull) -> bool | None:
        request = pull.request
        result = read_filtered(self._store, request.topic, request.queue_id, pull.read_to, 1, pull.wanted)
        if result.status is not GetStatus.NO_MATCHED_MESSAGE:
            return result.status is not GetStatus.OFFSET_OVERFLOW_ONE
        # One read covers some hundred units; more than that may have arrived at once.
        pull.read_to = result.next_begin_offset
        return None if pull.read_to < result.max_offset else False

    def _as_if_empty(self, request: PullRequest) -> bytes:
        """The response of a level that must wait for a higher one: its consumer pulls again."""
        self._stats.missed_get()
        return self._without_messages(
            request, _NOT_FOUND, _STATUS_TEXT[GetStatus.OFFSET_OVERFLOW_ONE], request.offset
        )

    def _moved(self, request: PullRequest) -> bytes | None:
        """The response after an offset reset: the consumer continues there. None if there was no reset."""
        offset = self._offsets.take_reset(request.group, request.topic, request.queue_id)
        return None if offset is None else self._without_messages(request, _MOVED, b"OFFSET_RESET", offset)

    def _without_messages(self, request: PullRequest, code: int, remark: bytes, next_offset: int) -> bytes:
        topic, queue_id = request.topic, request.queue_id
        return self.answers.encode_head(
            request.serialize_type,
            request.header[OPAQUE],
            code,
            remark,
            next_offset,
            self._store.min_offset(topic, queue_id),
            self._store.max_offset(topic, queue_id),
            0,
        )


def _code_of(request: PullRequest, result: GetResult) -> int:
    is_empty = result.status is GetStatus.NO_MESSAGE_IN_QUEUE or result.status is GetStatus.NO_MATCHED_LOGIC_QUEUE
    return _NOT_FOUND if is_empty and request.offset == 0 else _CODES[result.status]


def _refused(error: RequestRefusedError, request: PullRequest) -> bytes:
    fields = {"forbiddenType": str(error.forbidden_type)} if isinstance(error, PullRefusedError) else {}
    command = Command.of((request.serialize_type, b"", b""), request.header)
    return command.response(error.code, ext_fields=fields, remark=str(error)).encode()
