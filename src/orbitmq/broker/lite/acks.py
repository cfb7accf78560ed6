"""Acknowledgements of messages of lite topics, and changes of their invisible times."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from orbitmq.broker.lite.pop import MAX_HIDDEN_MS, QUEUE
from orbitmq.broker.pop.order_info import ILLEGAL
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.message.lite_topic import light_queue
from orbitmq.protocol.message.pop_receipt import Receipt
from orbitmq.remoting.processor import RequestRefusedError

if TYPE_CHECKING:
    from typing import Any

    from orbitmq.broker.lite.pop import LitePops
    from orbitmq.broker.lite.rules import LiteRules
    from orbitmq.broker.offsets.table import OffsetTable
    from orbitmq.broker.pop.order_info import PopOrders
    from orbitmq.broker.runtime import BrokerRuntime


class _Named(NamedTuple):
    """The message that a request names."""

    queue: str
    group: str
    offset: int
    receipt: Receipt


class LiteAcks:
    """The part of ACK_MESSAGE and CHANGE_MESSAGE_INVISIBLETIME that is about requests with a ``liteTopic``."""

    def __init__(
        self,
        runtime: BrokerRuntime,
        offsets: OffsetTable,
        rules: LiteRules,
        orders: PopOrders,
        pops: LitePops,
    ) -> None:
        self._store = runtime.store
        self._stats = runtime.stats
        self._clock = runtime.clock
        self._offsets = offsets
        self._rules = rules
        self._orders = orders
        self._pops = pops

    def acknowledge(self, fields: dict[str, Any], client: str) -> None:
        """Acknowledge a message. Raises RequestRefusedError."""
        queue, group, offset, receipt = self._named(fields, "ack")
        before = self._offsets.query(group, queue, QUEUE)
        if before < 0 or offset < before:
            # Acknowledged, or the lite topic was deleted after the pop.
            return
        if self._orders.is_known(queue, group, QUEUE):
            following = self._orders.acknowledge(queue, group, QUEUE, offset, receipt.pop_time)
        elif offset == before:
            following = offset + 1
        else:
            # It was popped before the broker started, as were those before it, which are not acknowledged. It is
            # delivered again after them.
            return
        if following == ILLEGAL:
            raise RequestRefusedError("ack offset illegal.", ResponseCode.MESSAGE_ILLEGAL)
        if following >= 0:
            self._offsets.commit(group, queue, QUEUE, following, client)
            self._orders.clear_acknowledged(queue, group, QUEUE)
            if not self._orders.is_blocked(queue, group, QUEUE, None, receipt.invisible_ms):
                self._pops.mark(queue, group)
        self._stats.add("GROUP_ACK_NUMS", f"{fields['topic']}@{group}")

    def hide(self, fields: dict[str, Any]) -> tuple[int, int, int]:
        """Change the time at which a message is visible again; its receipt's pop time, invisible time and revive
        queue. Raises RequestRefusedError and ProtocolError."""
        queue, group, offset, receipt = self._named(fields, "changeInvisibleTime")
        invisible = fields["invisibleTime"]
        if not 0 <= invisible <= MAX_HIDDEN_MS:
            raise ProtocolError(f"invisibleTime {invisible} is illegal")
        if offset < self._offsets.query(group, queue, QUEUE):
            return 0, 0, 0
        visible = self._clock.now_ms() + invisible
        if fields["suspend"]:
            self._orders.suspend(queue, group, QUEUE, receipt.pop_time, visible)
        else:
            self._orders.hide_until(queue, group, QUEUE, offset, receipt.pop_time, visible)
        return receipt.pop_time, visible - receipt.pop_time, receipt.revive_queue

    def _named(self, fields: dict[str, Any], action: str) -> _Named:
        topic, group, offset = fields["topic"], fields["consumerGroup"], fields["offset"]
        if topic != self._rules.bound_topic(group):
            raise RequestRefusedError("group type or bind topic not match.", ResponseCode.INVALID_PARAMETER)
        queue = light_queue(topic, fields["liteTopic"])
        if not 0 <= offset <= self._store.max_offset(queue, QUEUE):
            raise RequestRefusedError(f"{action} offset illegal.", ResponseCode.NO_MESSAGE)
        receipt = Receipt.parse(fields["extraInfo"])
        if fields["queueId"] != QUEUE or not receipt.is_orderly:
            raise RequestRefusedError(f"{action} queue illegal.", ResponseCode.INVALID_PARAMETER)
        return _Named(queue, group, offset, receipt)
