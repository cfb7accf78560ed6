"""LITE_SUBSCRIPTION_CTL: a client chooses lite topics, or gives them up."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from orbitmq.broker.lite.pop import QUEUE
from orbitmq.broker.lite.rules import RESET_WHEN_LEFT, RESET_WHEN_TAKEN
from orbitmq.broker.time_slices import check_body_size, decoded
from orbitmq.protocol.bodies import (
    LiteSubscriptionAction,
    LiteSubscriptionCtlRequestBody,
    OffsetOption,
    OffsetOptionType,
)
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.message.lite_topic import is_lite_topic_name, light_queue, lite_topic_of
from orbitmq.remoting import RemotingError
from orbitmq.remoting.processor import RequestRefusedError, handler_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orbitmq.broker.lite.pop import LitePops
    from orbitmq.broker.lite.rules import LiteRules
    from orbitmq.broker.lite.subscriptions import LiteSubscription, LiteSubscriptions
    from orbitmq.broker.offsets.table import OffsetTable
    from orbitmq.broker.pop.order_info import PopOrders
    from orbitmq.broker.runtime import BrokerRuntime
    from orbitmq.protocol.bodies import LiteSubscriptionDTO
    from orbitmq.remoting import Connection, Handler

log = logging.getLogger("orbitmq.broker")

OLDEST, NEWEST = 1, 2
"""Values of an offset option that names a policy; 0 keeps the offset of the group."""


class LiteControl:
    """The processor of changes of lite subscriptions."""

    def __init__(
        self,
        runtime: BrokerRuntime,
        offsets: OffsetTable,
        rules: LiteRules,
        subscriptions: LiteSubscriptions,
        orders: PopOrders,
        pops: LitePops,
    ) -> None:
        self._config = runtime.config
        self._store = runtime.store
        self._offsets = offsets
        self._rules = rules
        self._subscriptions = subscriptions
        self._orders = orders
        self._pops = pops

    @property
    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.LITE_SUBSCRIPTION_CTL: handler_of(self._apply)}

    async def _apply(self, request: Command, connection: Connection) -> Command:
        self._rules.check_enabled()
        if not request.body:
            raise _illegal("Request body is null.")
        check_body_size(request)
        body = await decoded(LiteSubscriptionCtlRequestBody, request.body)
        if not body.subscription_set:
            raise _illegal("LiteSubscriptionCtlRequestBody is empty.")
        try:
            for change in body.subscription_set:
                self._change(change, connection)
        finally:
            self._pops.watch()
        return request.response(ResponseCode.SUCCESS)

    def _change(self, change: LiteSubscriptionDTO, connection: Connection) -> None:
        client_id, group, parent = change.client_id, change.group, change.topic
        if not client_id or not group or not parent:
            log.warning("lite: change of a subscription without a client, a group or a topic: ignored")
            return
        queues = [light_queue(parent, name) for name in change.lite_topic_set or () if is_lite_topic_name(name)]
        if change.action is LiteSubscriptionAction.COMPLETE_REMOVE:
            found = self._subscriptions.find(client_id)
            if found is not None and found.group == group:
                self._subscriptions.drop(client_id)
        elif change.action is LiteSubscriptionAction.PARTIAL_REMOVE:
            found = self._subscriptions.find(client_id)
            if found is not None and found.group == group:
                self._leave(found, queues, is_reset=self._rules.is_set(group, RESET_WHEN_LEFT))
        else:
            self._check(group, parent)
            if self._subscriptions.find(client_id) is None:
                self._check_quota(len(self._subscriptions), 1)
            found = self._subscriptions.opened(client_id, group, parent, connection)
            if change.action is LiteSubscriptionAction.COMPLETE_ADD:
                self._replace(found, queues)
            else:
                self._choose(found, queues, change.offset_option)

    def _check(self, group: str, parent: str) -> None:
        self._rules.parent(parent)
        if not self._rules.group(group).consume_enable:
            raise _illegal("Consumer group is not allowed to consume.")
        if self._rules.bound_topic(group) != parent:
            # RocketMQ refuses the receives only.
            raise _illegal(f"group {group} is not bound to {parent}: set its attribute lite.bind.topic")

    def _choose(self, found: LiteSubscription, queues: Iterable[str], option: OffsetOption | None) -> None:
        if found.is_wildcard:
            raise _illegal("subscribe lite operation is not supported for this group")
        self._check_new(found, queues)
        is_exclusive = self._rules.is_exclusive(found.group)
        for queue in queues:
            if is_exclusive:
                self._take(found, queue)
            if option is not None:
                self._reset(found.group, queue, option)
        self._subscriptions.add(found, queues)
        if option is not None:
            # Also those that it had chosen before.
            for queue in queues:
                self._pops.mark_for(found, queue)

    def _replace(self, found: LiteSubscription, queues: list[str]) -> None:
        if found.is_wildcard:
            self._find_all(found)
            return
        wanted = dict.fromkeys(queues)
        self._leave(found, [queue for queue in found.queues if queue not in wanted], is_reset=False)
        if self._rules.is_exclusive(found.group):
            # A client that has lost one may not know of it yet.
            queues = [queue for queue in queues if not self._is_of_another(queue, found)]
        self._check_new(found, queues)
        self._subscriptions.add(found, queues)
        # Clients repeat this: a queue that a pop could not read then gets another chance.
        self._pops.mark_all(found)

    def _is_of_another(self, queue: str, found: LiteSubscription) -> bool:
        return any(other is not found for other in self._subscriptions.of_queue(queue, found.group))

    def _check_new(self, found: LiteSubscription, queues: Iterable[str]) -> None:
        new = {queue for queue in queues if queue not in found.queues}
        if new:
            self._check_quota(self._subscriptions.count, len(new))

    def _check_quota(self, count: int, more: int) -> None:
        limit = self._config.max_lite_subscription_count
        if count + more > limit:
            raise RequestRefusedError(
                f"lite subscription quota exceeded {limit} (maxLiteSubscriptionCount)",
                ResponseCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED,
            )

    def _find_all(self, found: LiteSubscription) -> None:
        """Mark the light queues that a new group which gets all has not read."""
        if len(self._subscriptions.of_group(found.group)) == 1 and found.accessed_ms < 0:
            self._pops.mark_all(found)

    def _leave(self, found: LiteSubscription, queues: Iterable[str], *, is_reset: bool) -> None:
        for queue in self._subscriptions.remove(found, queues):
            if is_reset:
                self._reset(found.group, queue, OffsetOption(OffsetOptionType.POLICY, OLDEST))

    def _take(self, newcomer: LiteSubscription, queue: str) -> None:
        """Take a lite topic from the other clients of an exclusive group."""
        is_reset = self._rules.is_set(newcomer.group, RESET_WHEN_TAKEN)
        for other in list(self._subscriptions.of_queue(queue, newcomer.group)):
            if other is not newcomer:
                self._leave(other, [queue], is_reset=is_reset)
                _notify(other, queue)

    def _reset(self, group: str, queue: str, option: OffsetOption) -> None:
        """Move the offset of a group, as an option says."""
        now = self._offsets.query(group, queue, QUEUE)
        value = option.value
        if option.type is OffsetOptionType.OFFSET:
            target = value
        elif option.type is OffsetOptionType.POLICY and value == OLDEST:
            target = 0
        elif option.type is OffsetOptionType.POLICY and value == NEWEST:
            target = self._store.max_offset(queue, QUEUE)
        elif option.type is OffsetOptionType.TAIL_N and now >= 0:
            target = max(now - value, 0)
        else:
            return  # RocketMQ ignores times too.
        if target != now and target >= 0:
            self._offsets.reset(group, queue, QUEUE, target)
            self._orders.clear(queue, group, QUEUE)


def _notify(found: LiteSubscription, queue: str) -> None:
    fields = {"liteTopic": lite_topic_of(queue), "consumerGroup": found.group, "clientId": found.client_id}
    try:
        found.connection.call_oneway(Command(RequestCode.NOTIFY_UNSUBSCRIBE_LITE, ext_fields=fields))
    except RemotingError as error:
        log.info("lite: %s was not notified that it lost a lite topic: %s", found.client_id, error)


def _illegal(remark: str) -> RequestRefusedError:
    return RequestRefusedError(remark, ResponseCode.ILLEGAL_OPERATION)
