"""CHANGE_MESSAGE_INVISIBLETIME: a consumer wants a popped message hidden for longer, or back sooner."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.protocol.bodies import AckMsg, PopCheckPoint
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import Command
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.pop import Receipt
from orbitmq.remoting.processing import RequestRefusedError, fields_of, refusal
from orbitmq.store import AppendRefusedError
from orbitmq.store.config import FlushDiskType

if TYPE_CHECKING:
    from typing import Any

    from orbitmq.broker.flushed_answers import FlushedAnswers
    from orbitmq.broker.offsets import OffsetTable
    from orbitmq.broker.pop_ack import PopAcks
    from orbitmq.broker.pop_checkpoints import PopJournal
    from orbitmq.broker.pop_checks import PopChecks
    from orbitmq.broker.pop_orders import PopOrders
    from orbitmq.protocol.header import Header
    from orbitmq.remoting import Answer, Connection, Handler
    from orbitmq.store import Clock, MessageStore

_SAID = "not set any response code"
"""RocketMQ's remark of an answer that all is well."""


class PopInvisibleTimes:
    """The message gets a check point of its own, and is acknowledged in the one that it was in."""

    def __init__(
        self,
        store: MessageStore,
        checks: PopChecks,
        offsets: OffsetTable,
        orders: PopOrders,
        journal: PopJournal | None,
        acks: PopAcks,
        flushed: FlushedAnswers,
        clock: Clock,
    ) -> None:
        self._store = store
        self._checks = checks
        self._offsets = offsets
        self._orders = orders
        self._journal = journal
        self._acks = acks
        self._flushed = flushed
        self._clock = clock
        self._waits_for_disk = store.config.flush_disk_type is FlushDiskType.SYNC_FLUSH

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
        answer = request.response(ResponseCode.SUCCESS, ext_fields=fields, remark=_SAID).encode()
        if self._waits_for_disk and self._store.log.end > end:
            self._flushed.wait(connection, header, answer)
            return None
        return answer

    def _change(self, fields: dict[str, Any], connection: Connection) -> dict[str, str]:
        topic, queue_id, offset = fields["topic"], fields["queueId"], fields["offset"]
        self._checks.check_settled(topic, queue_id, connection.remote_address)
        low, high = self._store.min_offset(topic, queue_id), self._store.max_offset(topic, queue_id)
        if not low <= offset < high:
            raise RequestRefusedError(
                f"there is no message at {offset} of {topic}@{queue_id}, it has {low} to {high}",
                ResponseCode.NO_MESSAGE,
            )
        receipt = Receipt.parse(fields["extraInfo"])
        now = self._clock.now_ms()
        # Another time than that of the pop, by which the two check points are told apart.
        now += now == receipt.pop_time
        invisible = fields["invisibleTime"]
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
        if self._journal is None:
            raise RequestRefusedError("nothing was popped here: timerWheelEnable is false")
        if not 0 <= receipt.revive_queue < self._journal.queue_count or fields["invisibleTime"] < 0:
            raise ProtocolError("the receipt or the time is not one that this broker gave")
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
            self._journal.check_point(point, receipt.revive_queue)
        except AppendRefusedError as error:
            raise RequestRefusedError(f"{error.status.name}: {error}") from error
        # In this order: between the two the message is in both check points, and comes twice rather than never.
        ack = AckMsg(
            ack_offset=offset,
            start_offset=receipt.start_offset,
            consumer_group=fields["consumerGroup"],
            topic=topic,
            queue_id=queue_id,
            pop_time=receipt.pop_time,
            broker_name=receipt.broker_name,
        )
        self._acks.note(ack, receipt.revive_queue, receipt.pop_time + receipt.invisible_ms)


def _fields(pop_time: int, invisible_ms: int, revive_queue: int) -> dict[str, str]:
    return {"popTime": str(pop_time), "invisibleTime": str(invisible_ms), "reviveQid": str(revive_queue)}
