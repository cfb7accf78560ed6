"""ACK_MESSAGE and BATCH_ACK_MESSAGE: acknowledgements of popped messages."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from orbitmq.broker.errors import append_failed
from orbitmq.broker.pop.checkpoint import NO_OFFSET
from orbitmq.broker.pop.order_info import ILLEGAL
from orbitmq.broker.time_slices import SMALL_BODY, check_body_size, decoded, in_slices
from orbitmq.protocol.bodies import AckMsg, BatchAckMessageRequestBody
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.command.fields import decode_fields
from orbitmq.protocol.command.header import EXT_FIELDS, OPAQUE
from orbitmq.protocol.command.request_fields import REQUEST_FIELDS
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.message.pop_receipt import Receipt, real_topic
from orbitmq.protocol.names import POP_ORDER_REVIVE_QUEUE
from orbitmq.remoting.error_responses import failed
from orbitmq.remoting.processor import RequestRefusedError, refusal, run_in_background, success_with
from orbitmq.store import AppendRefusedError

if TYPE_CHECKING:
    from orbitmq.broker.lite.acks import LiteAcks
    from orbitmq.broker.offsets.table import OffsetTable
    from orbitmq.broker.pop.checkpoint import CheckpointWriter
    from orbitmq.broker.pop.inflight import PopOffsets
    from orbitmq.broker.pop.order_info import PopOrders
    from orbitmq.broker.pop.processor import PopRequests
    from orbitmq.broker.pop.validation import PopChecks
    from orbitmq.broker.runtime import BrokerRuntime
    from orbitmq.protocol.bodies import BatchAck
    from orbitmq.protocol.command.header import Header
    from orbitmq.remoting import Answer, Connection, Handler

MAX_DISTANCE = 1 << 20
"""Maximum distance of two messages of one pop: its filter did not match those between them."""

MAX_MESSAGES = 4096
"""Messages of one pop that one entry of BATCH_ACK_MESSAGE names. A pop hands out 32 at most in RocketMQ."""

_SET_BYTE = re.compile(rb"[^\0]", re.DOTALL)

_ACK_FIELDS = REQUEST_FIELDS[RequestCode.ACK_MESSAGE]


class PopAcks:
    """The processor of acknowledgements. Under SYNC_FLUSH the response waits for the flush."""

    def __init__(
        self,
        runtime: BrokerRuntime,
        offsets: OffsetTable,
        checks: PopChecks,
        pop_offsets: PopOffsets,
        orders: PopOrders,
        checkpoints: CheckpointWriter | None,
        pops: PopRequests,
        lite: LiteAcks,
    ) -> None:
        self._config = runtime.config
        self._store = runtime.store
        self._checks = checks
        self._offsets = offsets
        self._pop_offsets = pop_offsets
        self._orders = orders
        self._checkpoints = checkpoints
        self._pops = pops
        self._lite = lite
        self._flush_waiters = runtime.flush_waiters
        self._stats = runtime.stats

    @property
    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.ACK_MESSAGE: self.handle, RequestCode.BATCH_ACK_MESSAGE: self.handle_batch}

    def handle(self, connection: Connection, header: Header, body: bytes, serialize_type: int) -> Answer:
        """The handler of ACK_MESSAGE."""
        end = self._store.log.end
        try:
            self._ack(decode_fields(header[EXT_FIELDS], _ACK_FIELDS), connection)
        except (RequestRefusedError, ProtocolError) as error:
            return refusal(Command.of((serialize_type, b"", body), header), error).encode()
        return self._answer(connection, header, serialize_type, end)

    def _answer(self, connection: Connection, header: Header, serialize_type: int, end: int) -> bytes | None:
        """The response, or None if it waits for the flush of what was appended behind ``end``."""
        answer = success_with(b"", header[OPAQUE], serialize_type)
        return answer if self._store.log.end == end else self._flush_waiters.respond(connection, header, answer)

    def handle_batch(self, connection: Connection, header: Header, body: bytes, serialize_type: int) -> Answer:
        """The handler of BATCH_ACK_MESSAGE. A large one is processed in slices: it may name thousands of pops."""
        if len(body) <= SMALL_BODY:
            end = self._store.log.end
            try:
                batch = _checked(BatchAckMessageRequestBody.decode(body) if body else None)
                for acks in batch.acks or ():
                    self._ack_batch(acks, batch.broker_name, connection)
            except (RequestRefusedError, ProtocolError) as error:
                return refusal(Command.of((serialize_type, b"", body), header), error).encode()
            return self._answer(connection, header, serialize_type, end)
        run_in_background(self._answer_batch(connection, header, body, serialize_type))
        return None

    async def _answer_batch(self, connection: Connection, header: Header, body: bytes, serialize_type: int) -> None:
        end = self._store.log.end
        request = Command.of((serialize_type, b"", body), header)
        answer: bytes | None
        try:
            check_body_size(request)
            batch = _checked(await decoded(BatchAckMessageRequestBody, body))
            async for acks in in_slices(batch.acks or ()):
                self._ack_batch(acks, batch.broker_name, connection)
            answer = self._answer(connection, header, serialize_type, end)
        except (RequestRefusedError, ProtocolError) as error:
            answer = refusal(request, error).encode()
        except Exception as error:
            answer = failed(error, header, serialize_type, connection.remote_address)
        if answer is not None:
            connection.answer(header, answer)

    def _ack(self, fields: dict[str, Any], connection: Connection) -> None:
        topic, queue_id, offset = fields["topic"], fields["queueId"], fields["offset"]
        group = fields["consumerGroup"]
        if fields.get("liteTopic"):
            self._lite.acknowledge(fields, connection.remote_address)
            return
        self._checks.check_message(topic, queue_id, connection.remote_address)
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
        self.write(
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

    def write(self, ack: AckMsg, revive_queue: int, visible_ms: int, offsets: list[int] | None = None) -> None:
        """Write an acknowledgement, so that the messages are not redelivered. Raises RequestRefusedError."""
        if self._checkpoints is None:
            raise RequestRefusedError("nothing was popped here: timerWheelEnable is false")
        if not 0 <= revive_queue < self._checkpoints.queue_count:
            raise ProtocolError(f"{revive_queue} is not a revive queue of this broker")
        try:
            self._checkpoints.ack(ack, revive_queue, visible_ms, offsets)
        except AppendRefusedError as error:
            # RocketMQ answers with success, and redelivers the message.
            raise append_failed(error, error.status.response_code) from error
        count = 1 if offsets is None else len(offsets)
        self._pop_offsets.completed(ack.topic, ack.consumer_group, ack.queue_id, count, ack.pop_time)
        self._stats.add("GROUP_ACK_NUMS", f"{ack.topic}@{ack.consumer_group}", count)

    def _ack_batch(self, acks: BatchAck, broker_name: str | None, connection: Connection) -> None:
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
            broker_name=broker_name or self._config.broker_name,
        )
        self.write(ack, acks.revive_queue_id, acks.pop_time + acks.invisible_time, offsets)

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
        self._pop_offsets.completed(topic, group, queue_id, 1, pop_time)


def _checked(batch: BatchAckMessageRequestBody | None) -> BatchAckMessageRequestBody:
    if batch is None or not batch.acks:
        raise RequestRefusedError("no message is named", ResponseCode.NO_MESSAGE)
    return batch


def _bits(bits: int) -> list[int]:
    """The numbers of the bits that are set, lowest first, up to the limit of one pop."""
    bits &= (1 << MAX_DISTANCE) - 1
    count = bits.bit_count()
    if count > MAX_MESSAGES:
        raise ProtocolError(f"{count} messages of one pop are acknowledged, at most {MAX_MESSAGES} are allowed")
    if count == bits.bit_length():
        # The common case: consecutive from the first on.
        return list(range(count))
    data = bits.to_bytes((bits.bit_length() + 7) // 8, "little")
    return [
        8 * byte.start() + bit for byte in _SET_BYTE.finditer(data) for bit in range(8) if byte[0][0] >> bit & 1
    ]
