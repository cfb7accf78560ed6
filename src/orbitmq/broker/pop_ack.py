"""ACK_MESSAGE and BATCH_ACK_MESSAGE: a consumer has done its work with messages that it popped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orbitmq.broker.pop_checkpoints import NO_OFFSET
from orbitmq.broker.pop_orders import ILLEGAL
from orbitmq.protocol.bodies import AckMsg, BatchAckMessageRequestBody
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import Command
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.fields import decode_fields
from orbitmq.protocol.flags import ONEWAY
from orbitmq.protocol.names import POP_ORDER_REVIVE_QUEUE
from orbitmq.protocol.pop import Receipt, real_topic
from orbitmq.protocol.request_fields import REQUEST_FIELDS
from orbitmq.remoting.processing import RequestRefusedError, refusal, success_with
from orbitmq.store import AppendRefusedError
from orbitmq.store.config import FlushDiskType

if TYPE_CHECKING:
    from orbitmq.broker.config import BrokerConfig
    from orbitmq.broker.flushed_answers import FlushedAnswers
    from orbitmq.broker.offsets import OffsetTable
    from orbitmq.broker.pop import PopRequests
    from orbitmq.broker.pop_checkpoints import PopJournal
    from orbitmq.broker.pop_checks import PopChecks
    from orbitmq.broker.pop_offsets import PopOffsets
    from orbitmq.broker.pop_orders import PopOrders
    from orbitmq.broker.stats import BrokerStats
    from orbitmq.protocol.bodies import BatchAck
    from orbitmq.protocol.header import Header
    from orbitmq.remoting import Answer, Connection, Handler
    from orbitmq.store import MessageStore

FURTHEST = 1 << 20
"""Between two messages of one pop there are at most so many others, which its filter did not want."""

_ACK_FIELDS = REQUEST_FIELDS[RequestCode.ACK_MESSAGE]


class PopAcks:
    """Consumers acknowledge. Under SYNC_FLUSH they hear of it when it is on the disk."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        checks: PopChecks,
        offsets: OffsetTable,
        places: PopOffsets,
        orders: PopOrders,
        journal: PopJournal | None,
        pops: PopRequests,
        flushed: FlushedAnswers,
        stats: BrokerStats,
    ) -> None:
        self._config = config
        self._store = store
        self._checks = checks
        self._offsets = offsets
        self._places = places
        self._orders = orders
        self._journal = journal
        self._pops = pops
        self._flushed = flushed
        self._stats = stats
        self._waits_for_disk = store.config.flush_disk_type is FlushDiskType.SYNC_FLUSH

    @property
    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.ACK_MESSAGE: self.handle, RequestCode.BATCH_ACK_MESSAGE: self.handle}

    def handle(self, connection: Connection, header: Header, body: bytes, serialize_type: int) -> Answer:
        """The handler of both codes."""
        end = self._store.log.end
        try:
            if header[0] == RequestCode.ACK_MESSAGE:
                self._ack(decode_fields(header[6], _ACK_FIELDS), connection)
            else:
                self._ack_many(body, connection)
        except (RequestRefusedError, ProtocolError) as error:
            return refusal(Command.of((serialize_type, b"", body), header), error).encode()
        answer = success_with(b"", header[1], serialize_type)
        if self._waits_for_disk and self._store.log.end > end and not header[2] & ONEWAY:
            self._flushed.wait(connection, header, answer)
            return None
        return answer

    def _ack(self, fields: dict[str, Any], connection: Connection) -> None:
        topic, queue_id, offset = fields["topic"], fields["queueId"], fields["offset"]
        group = fields["consumerGroup"]
        self._checks.check_settled(topic, queue_id, connection.remote_address)
        low, high = self._store.min_offset(topic, queue_id), self._store.max_offset(topic, queue_id)
        if not low <= offset <= high:
            raise RequestRefusedError(
                f"offset is illegal, key:{topic}@{queue_id}, commit:{offset}, store:{low}~{high}",
                ResponseCode.NO_MESSAGE,
            )
        receipt = Receipt.parse(fields["extraInfo"])
        if receipt.is_orderly:
            self._ack_orderly(connection, topic, group, queue_id, offset, receipt.pop_time, receipt.invisible_ms)
            return
        self.note(
            AckMsg(
                ack_offset=offset,
                start_offset=receipt.start_offset,
                consumer_group=group,
                topic=topic,
                queue_id=queue_id,
                pop_time=receipt.pop_time,
                broker_name=receipt.broker_name,
            ),
            receipt.revive_queue,
            receipt.pop_time + receipt.invisible_ms,
        )

    def note(self, ack: AckMsg, revive_queue: int, visible_ms: int, offsets: list[int] | None = None) -> None:
        """Write an acknowledgement that lets nobody see the messages again. Raises RequestRefusedError."""
        if self._journal is None:
            raise RequestRefusedError("nothing was popped here: timerWheelEnable is false")
        if not 0 <= revive_queue < self._journal.queue_count:
            raise ProtocolError(f"{revive_queue} is no queue that popped messages are kept in")
        try:
            self._journal.ack(ack, revive_queue, visible_ms, offsets)
        except AppendRefusedError as error:
            # RocketMQ says that all is well, and the message comes again.
            raise RequestRefusedError(f"{error.status.name}: {error}", error.status.response_code) from error
        count = 1 if offsets is None else len(offsets)
        self._places.settled(ack.topic, ack.consumer_group, ack.queue_id, count, ack.pop_time)
        self._stats.add("GROUP_ACK_NUMS", f"{ack.topic}@{ack.consumer_group}", count)

    def _ack_many(self, body: bytes, connection: Connection) -> None:
        said = BatchAckMessageRequestBody.decode(body) if body else None
        if said is None or not said.acks:
            raise RequestRefusedError("no message is named", ResponseCode.NO_MESSAGE)
        for acks in said.acks:
            self._ack_batch(acks, said.broker_name or self._config.broker_name, connection)

    def _ack_batch(self, acks: BatchAck, broker_name: str, connection: Connection) -> None:
        topic, queue_id = real_topic(acks.topic, acks.consumer_group, acks.retry), acks.queue_id
        group = acks.consumer_group
        low, high = self._store.min_offset(topic, queue_id), self._store.max_offset(topic, queue_id)
        start = acks.start_offset
        offsets = [start + bit for bit in _bits(acks.bit_set or 0)]
        if offsets and not low <= offsets[0] <= offsets[-1] <= high:
            offsets = [offset for offset in offsets if low <= offset <= high]
        if not offsets:
            return
        if acks.revive_queue_id == POP_ORDER_REVIVE_QUEUE:
            for offset in offsets:
                self._ack_orderly(connection, topic, group, queue_id, offset, acks.pop_time, acks.invisible_time)
            return
        ack = AckMsg(
            ack_offset=NO_OFFSET,
            start_offset=acks.start_offset,
            consumer_group=group,
            topic=topic,
            queue_id=queue_id,
            pop_time=acks.pop_time,
            broker_name=broker_name,
        )
        self.note(ack, acks.revive_queue_id, acks.pop_time + acks.invisible_time, offsets)

    def _ack_orderly(
        self,
        connection: Connection,
        topic: str,
        group: str,
        queue_id: int,
        offset: int,
        pop_time: int,
        invisible_ms: int,
    ) -> None:
        before = self._offsets.query(group, topic, queue_id)
        if offset < before:
            return
        following = self._orders.acknowledge(topic, group, queue_id, offset, pop_time)
        if following == ILLEGAL:
            raise RequestRefusedError(
                f"offset is illegal, key:{topic}@{group}@{queue_id}, old:{before}, commit:{offset}, "
                f"next:{following}, /{connection.remote_address}",
                ResponseCode.MESSAGE_ILLEGAL,
            )
        if following >= 0:
            self._offsets.commit(group, topic, queue_id, following, connection.remote_address)
            if not self._orders.is_blocked(topic, group, queue_id, None, invisible_ms):
                self._pops.held.wake(topic, group, queue_id)
        self._places.settled(topic, group, queue_id, 1, pop_time)


def _bits(bits: int) -> list[int]:
    """Which bits are set, the lowest first. No pop reaches further in a queue than the limit."""
    bits &= (1 << FURTHEST) - 1
    if not bits & (bits + 1):
        # All from the first on, as mostly.
        return list(range(bits.bit_length()))
    digits = bin(bits)[:1:-1]
    return [at for at, digit in enumerate(digits) if digit == "1"]
