"""PULL_MESSAGE and LITE_PULL_MESSAGE: records of a queue as they lie in the log, now or when some come."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from orbitmq.broker.hold import LONGEST_HOLD_MS, LOOK_AGAIN_MS, HeldPull, HoldTable
from orbitmq.broker.pull_priority import PullPriority
from orbitmq.broker.refusing import ADVICE, no_topic_to_pull
from orbitmq.filter import FilterError, compile_subscription, is_tag_type
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import Command
from orbitmq.protocol.flags import (
    FORBIDDEN_BROADCASTING,
    FORBIDDEN_BY_BROKER,
    FORBIDDEN_BY_GROUP,
    FORBIDDEN_BY_TOPIC,
    FORBIDDEN_SUBSCRIPTION,
    PERM_READ,
    PULL_COMMIT_OFFSET,
    PULL_SUBSCRIPTION,
    PULL_SUSPEND,
)
from orbitmq.protocol.hot import pull_fields
from orbitmq.protocol.hot_answers import PullAnswers
from orbitmq.protocol.record import properties_of
from orbitmq.protocol.request_fields import IN_BULK
from orbitmq.remoting.processing import RequestRefusedError
from orbitmq.store.reading import COPIED_MOST, MAX_PULL_BYTES, GetResult, GetStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.broker.clients import Clients
    from orbitmq.broker.cold_pulls import ColdPulls
    from orbitmq.broker.config import BrokerConfig
    from orbitmq.broker.filter_data import FilterData
    from orbitmq.broker.groups import GroupTable
    from orbitmq.broker.offsets import OffsetTable
    from orbitmq.broker.stats import BrokerStats
    from orbitmq.broker.topics import TopicTable
    from orbitmq.filter import CompiledFilter
    from orbitmq.protocol.bodies import TopicConfig
    from orbitmq.protocol.header import Header
    from orbitmq.remoting import Answer, Connection, Handler
    from orbitmq.store import MessageStore

LEAST_PULL_BYTES = 100
"""A client that asks for fewer bytes than this at once means it otherwise, as in RocketMQ."""

LONGEST_REMEMBERED = 1024
"""Characters of an expression that is kept compiled. Anybody may send another one with every pull, and long ones
take their room."""

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
    # Of an empty queue the first offset is simply not there yet; any other was moved.
    GetStatus.NO_MATCHED_LOGIC_QUEUE: _MOVED,
    GetStatus.NO_MESSAGE_IN_QUEUE: _MOVED,
}
_compiled = functools.lru_cache(maxsize=1024)(compile_subscription)
_STATUS_TEXT = {status: status.value.encode() for status in GetStatus}
# RocketMQ makes a queue when it is asked for, so to clients there is none that is not there.
_STATUS_TEXT[GetStatus.NO_MATCHED_LOGIC_QUEUE] = _STATUS_TEXT[GetStatus.NO_MESSAGE_IN_QUEUE]


class PullRefusedError(RequestRefusedError):
    """A pull that is not allowed; ``forbidden_type`` says by whom."""

    def __init__(self, remark: str, forbidden_type: int) -> None:
        super().__init__(remark, ResponseCode.NO_PERMISSION)
        self.forbidden_type = forbidden_type


class PullRequests:
    """Consumers read queues."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        topics: TopicTable,
        groups: GroupTable,
        offsets: OffsetTable,
        clients: Clients,
        filter_data: FilterData,
        stats: BrokerStats,
        now_ms: Callable[[], int],
        cold: ColdPulls,
    ) -> None:
        self._config = config
        self._store = store
        self._topics = topics
        self._groups = groups
        self._group_config = groups.configs.get
        self._topic_config = topics.configs.get
        self._offsets = offsets
        self._clients = clients
        self._filter_data = filter_data
        self._stats = stats
        self._now_ms = now_ms
        self._cold = cold
        self.answers = PullAnswers()
        self.held = HoldTable(store, now_ms, self._answer_held, self._finds_some)
        self.priority = PullPriority(config, store, groups, clients, now_ms, self.held.end)

    @property
    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.PULL_MESSAGE: self.pull, RequestCode.LITE_PULL_MESSAGE: self.pull}

    def pull(self, connection: Connection, header: Header, _body: bytes, serialize_type: int) -> Answer:
        """The handler of both codes."""
        return self._pull(connection, header, serialize_type, may_wait=True)

    def _pull(self, connection: Connection, header: Header, serialize_type: int, *, may_wait: bool) -> Answer:
        fields = pull_fields(header[6])
        (
            group, topic, queue_id, offset, most, sys_flag, commit_offset, suspend_ms, _, _, _, most_bytes, _,
        ) = fields  # fmt: skip
        try:
            topic_config = self.check(connection, header[0], group, topic, queue_id)
            wanted = self.wanted(
                group, topic, sys_flag, subscription=fields[8], version=fields[9], expression_type=fields[10]
            )
        except RequestRefusedError as error:
            return _refused(error, header, serialize_type)
        if may_wait and sys_flag & PULL_COMMIT_OFFSET:
            self._offsets.commit(group, topic, queue_id, commit_offset)
        if self._offsets.pending_resets:
            moved = self._offsets.take_reset(group, topic, queue_id)
            if moved is not None:
                return self._moved(header, serialize_type, topic, queue_id, moved)
        if topic_config.attributes and self.priority.withholds(group, topic_config, queue_id, offset):
            if may_wait and sys_flag & PULL_SUSPEND and suspend_ms > 0:
                deadline = self._now_ms() + min(suspend_ms, LONGEST_HOLD_MS)
                held = HeldPull(
                    connection, header, serialize_type, topic, queue_id, offset, deadline, deadline, wanted, offset
                )
                if self.priority.hold(held, group, topic_config):
                    return None
            return self._as_if_empty(header, serialize_type, topic, queue_id, offset)
        result = self._read(
            topic, queue_id, offset, most, most_bytes, wanted, in_bulk=IN_BULK in header[6], may_wait=may_wait
        )
        if result.gap is not None:
            pull = HeldPull(connection, header, serialize_type, topic, queue_id, offset, 0, 0, wanted, offset)
            self._cold.wait(result.gap, functools.partial(self.held.end, pull))
            return None
        status = result.status
        code = _CODES[status]
        if code:
            if offset == 0 and (
                status is GetStatus.NO_MESSAGE_IN_QUEUE or status is GetStatus.NO_MATCHED_LOGIC_QUEUE
            ):
                code = _NOT_FOUND
            if code == _NOT_FOUND and may_wait and sys_flag & PULL_SUSPEND and suspend_ms > 0:
                now = self._now_ms()
                if not self._config.long_polling_enable:
                    suspend_ms = self._config.short_polling_time_mills
                deadline = now + min(suspend_ms, LONGEST_HOLD_MS)
                if self.held.hold(
                    HeldPull(
                        connection, header, serialize_type, topic, queue_id, offset, deadline,
                        min(deadline, now + LOOK_AGAIN_MS), wanted, offset,
                    )
                ):  # fmt: skip
                    return None
            self._stats.missed_get()
        else:
            self._stats.got(group, topic, queue_id, result.count, result.size)
        self._offsets.commit_pull(group, topic, queue_id, result.next_begin_offset)
        head = self.answers.encode_head(
            serialize_type,
            header[1],
            code,
            _STATUS_TEXT[status],
            result.next_begin_offset,
            result.min_offset,
            result.max_offset,
            result.size,
            topic_sys_flag=topic_config.topic_sys_flag,
            group_sys_flag=self._groups.configs[group].group_sys_flag,
        )
        if result.size > COPIED_MOST:
            return [head, *result.slices]
        return b"".join((head, *result.slices))

    def _read(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        most: int,
        most_bytes: int | None,
        wanted: CompiledFilter | None,
        *,
        in_bulk: bool = False,
        may_wait: bool = False,
    ) -> GetResult:
        bytes_limit = MAX_PULL_BYTES if most_bytes is None else max(most_bytes, LEAST_PULL_BYTES)
        if wanted is None:
            return self._store.get(topic, queue_id, offset, most, bytes_limit, in_bulk=in_bulk, may_wait=may_wait)
        if wanted.matches_code is not None:
            # The hash alone, as RocketMQ does: of tags with the same hash the client takes the right ones.
            return self._store.get(
                topic,
                queue_id,
                offset,
                most,
                bytes_limit,
                matches_code=wanted.matches_code,
                in_bulk=in_bulk,
                may_wait=may_wait,
            )
        matches = wanted.matches_properties
        return self._store.get(
            topic,
            queue_id,
            offset,
            most,
            bytes_limit,
            matches_record=lambda record: matches(properties_of(record)),
            in_bulk=in_bulk,
            may_wait=may_wait,
        )

    # Checks

    def check(self, connection: Connection, code: int, group: str, topic: str, queue_id: int) -> TopicConfig:
        """The topic that is pulled from. Raises RequestRefusedError."""
        config = self._config
        if not config.broker_permission & PERM_READ:
            raise PullRefusedError(
                f"the broker[{config.broker_ip1}] pulling message is forbidden", FORBIDDEN_BY_BROKER
            )
        if code == RequestCode.LITE_PULL_MESSAGE and not config.lite_pull_message_enable:
            raise PullRefusedError(
                f"the broker[{config.broker_ip1}] for lite pull consumer is forbidden", FORBIDDEN_BY_BROKER
            )
        group_config = self._group_config(group) or self._groups.find(group)
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
        """What of the queue is wanted; None if it is everything. Raises RequestRefusedError."""
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
        """Clients other than Java's say with every pull what they want."""
        if not is_tag_type(expression_type):
            self._check_property_filter(expression_type)
        try:
            compiled = _compiled if len(expression) <= LONGEST_REMEMBERED else compile_subscription
            wanted = compiled(expression_type, expression)
        except FilterError as error:
            raise RequestRefusedError(
                f"parse the consumer's subscription failed: {error}", ResponseCode.SUBSCRIPTION_PARSE_FAILED
            ) from error
        return None if wanted.matches_all else wanted

    def _check_property_filter(self, expression_type: str | None) -> None:
        if not self._config.enable_property_filter:
            raise RequestRefusedError(
                f"The broker does not support consumer to filter message by {expression_type}"
            )

    # Later

    def _finds_some(self, pull: HeldPull) -> bool:
        while True:
            result = self._read(pull.topic, pull.queue_id, pull.looked_to, 1, None, pull.wanted)
            if result.status is not GetStatus.NO_MATCHED_MESSAGE:
                return result.status is not GetStatus.OFFSET_OVERFLOW_ONE
            # One read looks at some hundred units; more than that may have come at once.
            pull.looked_to = result.next_begin_offset

    def _answer_held(self, pull: HeldPull) -> None:
        answer = self._pull(pull.connection, pull.header, pull.serialize_type, may_wait=False)
        assert answer is not None, "a pull waits once"
        pull.connection.answer(pull.header, answer)

    def _as_if_empty(self, header: Header, serialize_type: int, topic: str, queue_id: int, offset: int) -> bytes:
        """A queue whose turn it is not: its consumer asks again."""
        self._stats.missed_get()
        return self.answers.encode_head(
            serialize_type,
            header[1],
            _NOT_FOUND,
            _STATUS_TEXT[GetStatus.OFFSET_OVERFLOW_ONE],
            offset,
            self._store.min_offset(topic, queue_id),
            self._store.max_offset(topic, queue_id),
            0,
        )

    def _moved(self, header: Header, serialize_type: int, topic: str, queue_id: int, offset: int) -> bytes:
        """The group's offset was set from outside: its consumer goes on there."""
        return self.answers.encode_head(
            serialize_type,
            header[1],
            _MOVED,
            b"OFFSET_RESET",
            offset,
            self._store.min_offset(topic, queue_id),
            self._store.max_offset(topic, queue_id),
            0,
        )


def _refused(error: RequestRefusedError, header: Header, serialize_type: int) -> bytes:
    fields = {"forbiddenType": str(error.forbidden_type)} if isinstance(error, PullRefusedError) else {}
    request = Command.of((serialize_type, b"", b""), header)
    return request.response(error.code, ext_fields=fields, remark=str(error)).encode()
