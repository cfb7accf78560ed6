"""LiteService: builds the parts of lite topics, and runs what they need regularly."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.broker.lite.acks import LiteAcks
from orbitmq.broker.lite.admin import LiteAdmin
from orbitmq.broker.lite.control import LiteControl
from orbitmq.broker.lite.expiry import LiteExpiry
from orbitmq.broker.lite.pop import QUEUE, LitePops
from orbitmq.broker.lite.rules import LiteRules
from orbitmq.broker.lite.subscriptions import LiteSubscriptions
from orbitmq.broker.pop.inflight import PopOffsets
from orbitmq.broker.pop.order_info import PopOrders

if TYPE_CHECKING:
    from orbitmq.broker.pop.validation import PopChecks
    from orbitmq.broker.runtime import BrokerRuntime, Metadata
    from orbitmq.remoting import Handler


class LiteService:
    """Lite topics of a broker. What was popped is known in memory only: after a start of the broker, messages that
    were not acknowledged are delivered again."""

    def __init__(self, runtime: BrokerRuntime, metadata: Metadata, checks: PopChecks) -> None:
        self._config, self._clock = runtime.config, runtime.clock
        topics, groups, offsets = metadata.topics, metadata.groups, metadata.offsets
        self._offsets = offsets
        self._rules = rules = LiteRules(topics, groups, runtime.store)
        self.orders = PopOrders(runtime.writer, topics, groups, runtime.clock)
        places = PopOffsets(runtime.config, runtime.store, offsets, self.orders, runtime.clock)
        self.subscriptions = LiteSubscriptions(runtime.clock, rules)
        self.pops = LitePops(runtime, metadata, checks, rules, self.subscriptions, places, self.orders)
        self.subscriptions.on_added = self.pops.mark_for
        self.acks = LiteAcks(runtime, offsets, rules, self.orders, self.pops)
        self.expiry = LiteExpiry(runtime, rules)
        parts = rules, self.subscriptions, self.orders, self.pops
        self._parts = self.pops, LiteControl(runtime, offsets, *parts), LiteAdmin(runtime, offsets, *parts)

    @property
    def handlers(self) -> dict[int, Handler]:
        return {code: handler for part in self._parts for code, handler in part.handlers.items()}

    def expire_clients(self) -> None:
        """Forget clients that have not sent their subscription for long."""
        self.subscriptions.expire(self._clock.now_ms() - self._config.lite_subscription_check_timeout_mills)
        self.pops.watch()
        # Those of deleted lite topics have no offset any more.
        self.orders.retain(lambda queue, group: self._offsets.query(group, queue, QUEUE) >= 0)
