"""CHANGE_MESSAGE_INVISIBLETIME: extends or shortens the time for which a popped message is invisible."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.broker.errors import append_failed
from orbitmq.protocol.bodies import AckMsg, PopCheckPoint
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.command.fields import INT64_MAX
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.message.pop_receipt import Receipt
from orbitmq.remoting.processor import RequestRefusedError, fields_of, refusal
from orbitmq.store import AppendRefusedError

if TYPE_CHECKING:
    from typing import Any

    from orbitmq.broker.lite.acks import LiteAcks
    from orbitmq.broker.offsets.table import OffsetTable
    from orbitmq.broker.pop.ack import PopAcks
    from orbitmq.broker.pop.checkpoint import CheckpointWriter
    from orbitmq.broker.pop.order_info import PopOrders
    from orbitmq.broker.pop.validation import PopChecks
    from orbitmq.broker.runtime import BrokerRuntime
    from orbitmq.protocol.command.header import Header
    from orbitmq.remoting import Answer, Connection, Handler

_OK_REMARK = "not set any response code"
"""RocketMQ's remark on a successful response."""


class PopInvisibleTimes:
    """Writes a new check point for the message, and acknowledges it in the old one."""

    def __init__(
        self,
        runtime: BrokerRuntime,
        offsets: OffsetTable,
        checks: PopChecks,
        orders: PopOrders,
        checkpoints: CheckpointWriter | None,
        acks: PopAcks,
        lite: LiteAcks,
    ) -> None:
        self._store = runtime.store
        self._checks = checks
        self._offsets = offsets
        self._orders = orders
        self._checkpoints = checkpoints
        self._acks = acks
        self._lite = lite
        self._flush_waiters = runtime.flush_waiters
        self._clock = runtime.clock

    @property
    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.CHANGE_MESSAGE_INVISIBLETIME: self.handle}

    def handle(self, connection: Connection, header: Header, body: bytes, serialize_type: int) -> Answer:
        request = Command.of((serialize_type, b"", body), header)
        end = self._store.log.end
        try:
            fields = self._change(fields_of(request), connection)
        except (RequestRefusedError, ProtocolError) as error:
            return refusal(request, error).encode()
        answer = request.response(ResponseCode.SUCCESS, ext_fields=fields, remark=_OK_REMARK).encode()
        return answer if self._store.log.end == end else self._flush_waiters.respond(connection, header, answer)

    def _change(self, fields: dict[str, Any], connection: Connection) -> dict[str, str]:
        topic, queue_id, offset = fields["topic"], fields["queueId"], fields["offset"]
        if fields.get("liteTopic"):
            return _fields(*self._lite.hide(fields))
        self._checks.check_message(topic, queue_id, connection.remote_address)
        low, high = self._store.min_offset(topic, queue_id), self._store.max_offset(topic, queue_id)
        if not low <= offset < high:
            raise RequestRefusedError(
                f"there is no message at {offset} of {topic}@{queue_id}, it has {low} to {high}",
                ResponseCode.NO_MESSAGE,
            )
        receipt = Receipt.parse(fields["extraInfo"])
        now = self._clock.now_ms()
        # Differs from the time of the pop, by which the two check points are distinguished.
        now += now == receipt.pop_time
        invisible = fields["invisibleTime"]
        if now + invisible > INT64_MAX:
            raise ProtocolError(f"invisibleTime {invisible}: the message would never be visible again")
        if receipt.is_orderly:
            if offset >= self._offsets.query(fields["consumerGroup"], topic, queue_id):
                visible = now + invisible
                self._orders.hide_until(topic, fields["consumerGroup"], queue_id, offset, receipt.pop_time, visible)
                return _fields(receipt.pop_time, visible - receipt.pop_time, receipt.revive_queue)
            return _fields(0, 0, 0)
        self._move(fields, receipt, now)
        return _fields(now, invisible, receipt.revive_queue)

    def _move(self, fields: dict[str, Any], receipt: Receipt, now: int) -> None:
        topic, queue_id, offset = fields["topic"], fields["queueId"], fields["offset"]
        if self._checkpoints is None:
            raise RequestRefusedError("nothing was popped here: timerWheelEnable is false")
        if not 0 <= receipt.revive_queue < self._checkpoints.queue_count or fields["invisibleTime"] < 0:
            raise ProtocolError("the receipt or the time is not from this broker")
        point = PopCheckPoint(
            start_offset=offset,
            pop_time=now,
            invisible_time=fields["invisibleTime"],
            num=1,
            queue_id=queue_id,
            topic=topic,
            cid=fields["consumerGroup"],
            queue_offset_diff=(0,),
            broker_name=receipt.broker_name,
            suspend=fields["suspend"],
        )
        try:
            self._checkpoints.check_point(point, receipt.revive_queue)
        except AppendRefusedError as error:
            raise append_failed(error) from error
        # In this order: after a crash between the two the message is redelivered twice rather than never.
        ack = AckMsg(
            ack_offset=offset,
            start_offset=receipt.start_offset,
            consumer_group=fields["consumerGroup"],
            topic=topic,
            queue_id=queue_id,
            pop_time=receipt.pop_time,
            broker_name=receipt.broker_name,
        )
        self._acks.write(ack, receipt.revive_queue, receipt.pop_time + receipt.invisible_ms)


def _fields(pop_time: int, invisible_ms: int, revive_queue: int) -> dict[str, str]:
    return {"popTime": str(pop_time), "invisibleTime": str(invisible_ms), "reviveQid": str(revive_queue)}
