"""Admin requests about lite topics: what a broker has of them, their consumers, and how far each group has come."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from orbitmq.broker.lite.pop import QUEUE
from orbitmq.broker.time_slices import encoded, in_slices
from orbitmq.protocol.bodies import (
    ClientGroup,
    GetBrokerLiteInfoResponseBody,
    GetLiteClientInfoResponseBody,
    GetLiteGroupInfoResponseBody,
    GetLiteTopicInfoResponseBody,
    GetParentTopicInfoResponseBody,
    LiteLagInfo,
    OffsetWrapper,
    TopicOffset,
)
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.message.lite_topic import light_queue, light_queue_prefix, lite_topic_of
from orbitmq.remoting.processor import RequestRefusedError, fields_of, handler_of
from orbitmq.store.consumequeue.consume_queue import ConsumeQueue

if TYPE_CHECKING:
    from orbitmq.broker.lite.pop import LitePops
    from orbitmq.broker.lite.rules import LiteRules
    from orbitmq.broker.lite.subscriptions import LiteSubscriptions
    from orbitmq.broker.offsets.table import OffsetTable
    from orbitmq.broker.pop.order_info import PopOrders
    from orbitmq.broker.runtime import BrokerRuntime
    from orbitmq.protocol.bodies import Body
    from orbitmq.protocol.command.command import Command
    from orbitmq.remoting import Connection, Handler

MAX_RETURNED = 10_000
"""Lite topics of one answer, as in RocketMQ."""

FILE_STORE = "defaultStore"


class LiteAdmin:
    """The processor of the six requests that ``mqadmin`` has for lite topics."""

    def __init__(
        self,
        runtime: BrokerRuntime,
        offsets: OffsetTable,
        rules: LiteRules,
        subscriptions: LiteSubscriptions,
        orders: PopOrders,
        pops: LitePops,
    ) -> None:
        self._store = runtime.store
        self._offsets = offsets
        self._rules = rules
        self._subscriptions = subscriptions
        self._orders = orders
        self._pops = pops

    @property
    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.GET_BROKER_LITE_INFO: handler_of(self._broker),
            RequestCode.GET_PARENT_TOPIC_INFO: handler_of(self._parent),
            RequestCode.GET_LITE_TOPIC_INFO: handler_of(self._lite_topic),
            RequestCode.GET_LITE_CLIENT_INFO: handler_of(self._client),
            RequestCode.GET_LITE_GROUP_INFO: handler_of(self._group),
            RequestCode.TRIGGER_LITE_DISPATCH: handler_of(self._dispatch),
        }

    def _broker(self, request: Command, _: Connection) -> Command:
        queues = self._store.queues
        body = GetBrokerLiteInfoResponseBody(
            store_type=FILE_STORE,
            max_lmq_num=self._store.config.max_lmq_consume_queue_num,
            current_lmq_num=queues.count_lmq(),
            lite_subscription_count=self._subscriptions.count,
            order_info_count=len(self._orders),
            cq_table_size=len(queues.names()),
            offset_table_size=len(self._offsets),
            event_map_size=len(self._subscriptions),
            topic_meta=self._rules.parents(),
            group_meta=self._rules.bound_groups(),
        )
        return _answer(request, body)

    def _parent(self, request: Command, _: Connection) -> Command:
        topic = fields_of(request)["topic"]
        self._rules.parent(topic)
        prefix = light_queue_prefix(topic)
        body = GetParentTopicInfoResponseBody(
            topic=topic,
            ttl=self._rules.minutes_kept(topic),
            groups=self._rules.bound_groups().get(topic),
            lmq_num=self._store.queues.count_lmq(),
            lite_topic_count=sum(name.startswith(prefix) for name in self._store.queues.names()),
        )
        return _answer(request, body)

    def _lite_topic(self, request: Command, _: Connection) -> Command:
        """A broker says that a lite topic is assigned to it once it has messages of it: producers choose it."""
        fields = fields_of(request)
        parent, lite_topic = fields.get("parentTopic") or "", fields.get("liteTopic") or ""
        self._rules.parent(parent)
        queue = light_queue(parent, lite_topic)
        low, high = self._store.min_offset(queue, QUEUE), self._store.max_offset(queue, QUEUE)
        last = self._time_of(queue, high - 1) if high > 0 else 0
        subscribers = {
            ("*" if found.is_wildcard else found.client_id, found.group)
            for found in self._subscriptions.of_queue(queue)
        }
        body = GetLiteTopicInfoResponseBody(
            parent_topic=parent,
            lite_topic=lite_topic,
            subscriber=[ClientGroup(*pair) for pair in sorted(subscribers)],
            topic_offset=TopicOffset(max(low, 0), max(high, 0), last),
            sharding_to_broker=high > 0,
        )
        return _answer(request, body)

    def _client(self, request: Command, _: Connection) -> Command:
        fields = fields_of(request)
        parent, group = fields.get("parentTopic") or "", fields.get("group") or ""
        client_id = fields.get("clientId") or ""
        self._rules.parent(parent)
        self._rules.group(group)
        if self._rules.bound_topic(group) != parent:
            raise RequestRefusedError(
                f"Subscription [{group}]-[{parent}] not match.", ResponseCode.INVALID_PARAMETER
            )
        found = self._subscriptions.find(client_id)
        body = GetLiteClientInfoResponseBody(parent_topic=parent, group=group, client_id=client_id)
        if found is None or found.group != group:
            body.lite_topic_count, body.last_access_time = -1, -1
        else:
            limit = max(min(fields["maxCount"], MAX_RETURNED), 0)
            body.lite_topic_count = len(found.queues)
            body.lite_topic_set = list(found.queues)[:limit]
            body.last_access_time, body.last_consume_time = found.accessed_ms, found.consumed_ms
        return _answer(request, body)

    async def _group(self, request: Command, _: Connection) -> Command:
        fields = fields_of(request)
        group, lite_topic = fields["group"], fields.get("liteTopic") or ""
        parent = self._rules.topic_of_group(group)
        body = GetLiteGroupInfoResponseBody(group=group, parent_topic=parent, lite_topic=lite_topic or None)
        if lite_topic:
            self._add_progress(body, group, light_queue(parent, lite_topic))
            return _answer(request, body)
        lags = await self._lags(group, light_queue_prefix(parent))
        count = max(min(fields["topK"], MAX_RETURNED), 0)
        body.total_lag_count = sum(lag.lag_count for lag in lags)
        body.earliest_unconsumed_timestamp = min((lag.earliest_unconsumed_timestamp for lag in lags), default=-1)
        body.lag_count_top_k = heapq.nlargest(count, lags, key=lambda lag: lag.lag_count)
        body.lag_timestamp_top_k = heapq.nsmallest(count, lags, key=lambda lag: lag.earliest_unconsumed_timestamp)
        return request.response(ResponseCode.SUCCESS, body=await encoded(body, 2 * count))

    def _add_progress(self, body: GetLiteGroupInfoResponseBody, group: str, queue: str) -> None:
        high = self._store.max_offset(queue, QUEUE)
        offset = self._offsets.query(group, queue, QUEUE)
        if high <= 0:
            body.total_lag_count = -1
        elif offset >= 0:
            body.total_lag_count = high - offset
            body.earliest_unconsumed_timestamp = self._time_of(queue, offset)
            body.lite_topic_offset_wrapper = OffsetWrapper(
                broker_offset=high,
                consumer_offset=offset,
                last_timestamp=self._time_of(queue, offset - 1) if offset > 0 else 0,
            )

    async def _lags(self, group: str, prefix: str) -> list[LiteLagInfo]:
        """The lite topics that a group has not read to their ends."""
        found = []
        async for queue in in_slices([name for name in self._offsets.topics_of(group) if name.startswith(prefix)]):
            offset = self._offsets.query(group, queue, QUEUE)
            lag = self._store.max_offset(queue, QUEUE) - offset
            if offset >= 0 and lag > 0:
                found.append(LiteLagInfo(lite_topic_of(queue), lag, self._time_of(queue, offset)))
        return found

    def _dispatch(self, request: Command, _: Connection) -> Command:
        """Look again for messages for a group, or for one of its clients."""
        fields = fields_of(request)
        group, client_id = fields["group"], fields.get("clientId") or ""
        self._rules.topic_of_group(group)
        for found in self._subscriptions.of_group(group):
            if not client_id or found.client_id == client_id:
                self._pops.mark_all(found)
        return request.response(ResponseCode.SUCCESS)

    def _time_of(self, queue: str, offset: int) -> int:
        """When the message at an offset was stored; -1 if there is none."""
        found = self._store.queues.find(queue, QUEUE)
        unit = found.unit(offset) if isinstance(found, ConsumeQueue) and offset < found.max_offset else None
        time = None if unit is None else self._store.reader.store_timestamp(unit[0])
        return -1 if time is None else time


def _answer(request: Command, body: Body) -> Command:
    return request.response(ResponseCode.SUCCESS, body=body.encode())
