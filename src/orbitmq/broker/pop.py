"""POP_MESSAGE: messages of any queue of a topic, hidden from the rest of the group until they are settled.

A pop reads where the group is in each queue, moves it on, and leaves a check point that brings the messages back
if nobody acknowledges them. An orderly pop leaves none: the queue is closed instead until its messages are settled.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import random
import struct
from typing import TYPE_CHECKING

from orbitmq.broker.pop_checks import wanted_by
from orbitmq.broker.pop_hold import EARLY_MS, Held, PopHold, Waiting
from orbitmq.protocol import property_names as names
from orbitmq.protocol.bodies import PopCheckPoint
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import Command
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.names import POP_ORDER_REVIVE_QUEUE
from orbitmq.protocol.pop import MOST_MESSAGES, Receipt, join_offsets, pop_retry_topic, topic_kind
from orbitmq.protocol.properties import find, with_property, without
from orbitmq.protocol.record import CRC_PROPERTY, decode_record, encode_record, properties_of
from orbitmq.remoting.processing import RequestRefusedError, fields_of
from orbitmq.store import AppendRefusedError, GetStatus
from orbitmq.store.config import FlushDiskType
from orbitmq.store.consume_queue import ConsumeQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from orbitmq.broker.config import BrokerConfig
    from orbitmq.broker.flushed_answers import FlushedAnswers
    from orbitmq.broker.offsets import OffsetTable
    from orbitmq.broker.pop_checkpoints import PopJournal
    from orbitmq.broker.pop_checks import PopChecks
    from orbitmq.broker.pop_offsets import PopOffsets
    from orbitmq.broker.pop_orders import PopOrders
    from orbitmq.broker.stats import BrokerStats
    from orbitmq.broker.topics import TopicTable
    from orbitmq.filter import CompiledFilter
    from orbitmq.protocol.header import Header
    from orbitmq.remoting import Answer, Connection, Handler
    from orbitmq.store import Clock, GetResult, MessageStore

log = logging.getLogger("orbitmq.broker")

LATE_MS = 500
"""A pop that comes so long after its client's patience ended is answered with nothing."""

UNMATCHED_READS = 8
"""How often a pop goes on behind messages that its filter does not want, before others get a turn."""

MESSAGE_TYPE = "message.type"
PRIORITY = "PRIORITY"

_WRONG = frozenset({GetStatus.OFFSET_TOO_SMALL, GetStatus.OFFSET_OVERFLOW_BADLY, GetStatus.OFFSET_FOUND_NULL})
_NOTHING_THERE = frozenset(
    {GetStatus.NO_MATCHED_MESSAGE, GetStatus.MESSAGE_WAS_REMOVING, GetStatus.OFFSET_FOUND_NULL}
)
_POP_CK = names.POP_CHECKPOINT.encode()
_SIZE = struct.Struct(">i")
_QUEUE_OFFSET = struct.Struct(">q")
_QUEUE_OFFSET_AT = 20
_NO_FIELDS = {"popTime": "0", "invisibleTime": "0", "reviveQid": "0", "restNum": "0"}


@dataclasses.dataclass(slots=True, eq=False, kw_only=True)
class PopAsked(Waiting):
    """A pop, while it is looked at and while it waits."""

    most: int
    invisible_ms: int
    init_mode: int
    wanted: CompiledFilter | None
    is_order: bool
    attempt_id: str | None


@dataclasses.dataclass(slots=True)
class Popped:
    """What a pop has so far."""

    time_ms: int
    revive_queue: int
    pieces: list[bytes | memoryview] = dataclasses.field(default_factory=list)
    count: int = 0
    rest: int = 0
    has_moved: bool = False
    """Whether it went past messages that nobody wants: there may be others behind them."""
    starts: list[str] = dataclasses.field(default_factory=list)
    offsets: list[str] = dataclasses.field(default_factory=list)
    order_counts: list[str] = dataclasses.field(default_factory=list)


class PopRequests:
    """Consumers pop."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        topics: TopicTable,
        checks: PopChecks,
        offsets: OffsetTable,
        places: PopOffsets,
        orders: PopOrders,
        journal: PopJournal | None,
        flushed: FlushedAnswers,
        stats: BrokerStats,
        clock: Clock,
    ) -> None:
        """Without a ``journal`` there is no timer, and then no POP."""
        self._config = config
        self._store = store
        self._topics = topics
        self._checks = checks
        self._offsets = offsets
        self._places = places
        self._orders = orders
        self._journal = journal
        self._flushed = flushed
        self._stats = stats
        self._clock = clock
        self._waits_for_disk = store.config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self.pops = 0
        """Counted for the revive queues, which take turns."""
        self.draw: Callable[[], int] = functools.partial(random.randrange, 100)
        """Decides with which queue a pop begins, and whether with messages that came again."""
        self.held: PopHold[PopAsked] = PopHold(config, store, clock.now_ms, self._serve, self._free_orders)

    @property
    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.POP_MESSAGE: self.pop}

    def pop(self, connection: Connection, header: Header, _body: bytes, serialize_type: int) -> Answer:
        """The handler."""
        request = Command.of((serialize_type, b"", b""), header)
        try:
            asked = self._asked(request, connection)
            popped = self._pop(asked)
        except RequestRefusedError as error:
            return request.response(error.code, ext_fields=dict(_NO_FIELDS), remark=str(error)).encode()
        except ProtocolError as error:
            return request.response(ResponseCode.SYSTEM_ERROR, remark=str(error)).encode()
        code = ResponseCode.SUCCESS
        if not popped.count:
            held = self.held.hold(asked)
            if held is Held.WAITS:
                if popped.has_moved and popped.rest > 0:
                    self.held.wake(asked.topic, asked.group, asked.queue_id)
                return None
            code = ResponseCode.POLLING_FULL if held is Held.FULL else ResponseCode.POLLING_TIMEOUT
        answer = self._answer(asked, popped, code)
        if self._waits_for_disk and popped.count and not asked.is_order:
            self._flushed.wait(connection, header, answer)
            return None
        return answer

    def _serve(self, asked: PopAsked, is_over: bool) -> bool:
        """Look once more for one that waits; False if it goes on waiting."""
        request = Command.of((asked.serialize_type, b"", b""), asked.header)
        try:
            self._check(asked)
            popped = self._pop(asked)
        except RequestRefusedError as error:
            answer = request.response(error.code, ext_fields=dict(_NO_FIELDS), remark=str(error)).encode()
            asked.connection.answer(asked.header, answer)
            return True
        if not popped.count and not is_over:
            if popped.has_moved and popped.rest > 0:
                self.held.wake(asked.topic, asked.group, asked.queue_id)
            return False
        code = ResponseCode.SUCCESS if popped.count else ResponseCode.POLLING_TIMEOUT
        answer = self._answer(asked, popped, code)
        if self._waits_for_disk and popped.count and not asked.is_order:
            self._flushed.wait(asked.connection, asked.header, answer)
        else:
            asked.connection.answer(asked.header, answer)
        return True

    def _free_orders(self, now: int) -> None:
        """Queues of orderly pops whose messages are visible again have something for those who wait."""
        if self._config.enable_notify_after_pop_order_lock_release:
            for topic, group, queue_id in self._orders.freed(now):
                self.held.wake(topic, group, queue_id)

    def _answer(self, asked: PopAsked, popped: Popped, code: ResponseCode) -> bytes:
        if popped.count and popped.rest > 0:
            self.held.wake(asked.topic, asked.group, asked.queue_id)
        fields = {
            "popTime": str(popped.time_ms),
            "invisibleTime": str(asked.invisible_ms),
            "reviveQid": str(popped.revive_queue),
            "restNum": str(popped.rest),
            "startOffsetInfo": ";".join(popped.starts),
            "msgOffsetInfo": ";".join(popped.offsets),
        }
        if asked.is_order:
            fields["orderCountInfo"] = ";".join(popped.order_counts)
        status = GetStatus.FOUND if popped.count else GetStatus.NO_MESSAGE_IN_QUEUE
        request = Command.of((asked.serialize_type, b"", b""), asked.header)
        body = b"".join(popped.pieces) if popped.count else None
        return request.response(code, ext_fields=fields, remark=status.value, body=body).encode()

    # What is asked

    def _asked(self, request: Command, connection: Connection) -> PopAsked:
        fields = fields_of(request)
        now = self._clock.now_ms()
        config = self._config
        born = fields["bornTime"] or now
        poll_ms = fields["pollTime"]
        if now - born - poll_ms > LATE_MS:
            raise RequestRefusedError(
                f"the broker[{config.broker_ip1}] pop message is timeout too much", ResponseCode.POLLING_TIMEOUT
            )
        self._checks.check_permission("pop")
        if fields["maxMsgNums"] > MOST_MESSAGES:
            raise RequestRefusedError(
                f"the broker[{config.broker_ip1}] pop message's num is greater than {MOST_MESSAGES}",
                ResponseCode.INVALID_PARAMETER,
            )
        if self._journal is None:
            raise RequestRefusedError(
                f"the broker[{config.broker_ip1}] pop message is forbidden because timerWheelEnable is false"
            )
        asked = PopAsked(
            connection=connection,
            header=request.header,
            serialize_type=request.serialize_type,
            group=fields["consumerGroup"],
            topic=fields["topic"],
            queue_id=max(fields["queueId"], -1),
            deadline_ms=born + poll_ms - EARLY_MS if poll_ms > 0 else 0,
            most=fields["maxMsgNums"],
            invisible_ms=fields["invisibleTime"],
            init_mode=fields["initMode"],
            wanted=None,
            is_order=fields["order"],
            attempt_id=fields.get("attemptId"),
        )
        self._check(asked)
        longest = self._store.config.timer_max_delay_sec * 1000
        if not asked.is_order and not 0 <= asked.invisible_ms <= longest:
            # RocketMQ finds that out when it cannot store the check point, and answers that there is nothing.
            raise RequestRefusedError(
                f"invisibleTime[{asked.invisible_ms}] is illegal: messages are hidden for {longest}ms at most",
                ResponseCode.INVALID_PARAMETER,
            )
        asked.wanted = wanted_by(fields.get("expType"), fields.get("exp"))
        return asked

    def _check(self, asked: PopAsked) -> None:
        self._checks.check(asked.topic, asked.group, asked.queue_id, asked.connection.remote_address)

    # Popping

    def _pop(self, asked: PopAsked) -> Popped:
        config = self._config
        draw = self.draw()
        if asked.is_order:
            revive_queue = POP_ORDER_REVIVE_QUEUE
        else:
            revive_queue = self.pops % config.revive_queue_num
            self.pops += 1
        popped = Popped(self._clock.now_ms(), revive_queue)
        probability = config.pop_from_retry_probability
        if self._goes_by_priority(asked, draw):
            # From the most important queue on, and messages that came again behind all of them.
            draw, probability = 0, config.pop_from_retry_probability_for_priority
        retries_first = draw < probability
        if retries_first and not asked.is_order:
            self._pop_retries(asked, popped, draw)
        if asked.queue_id < 0:
            self._pop_topic(asked, popped, asked.topic, draw)
        else:
            self._pop_queue(asked, popped, asked.topic, asked.queue_id)
        if not retries_first and popped.count < asked.most and not asked.is_order:
            self._pop_retries(asked, popped, draw)
        return popped

    def _goes_by_priority(self, asked: PopAsked, draw: int) -> bool:
        topic = self._topics.get(asked.topic)
        if asked.is_order or topic is None or topic.attributes.get(MESSAGE_TYPE) != PRIORITY:
            return False
        return draw < self._checks.priority_factor(asked.group)

    def _pop_retries(self, asked: PopAsked, popped: Popped, draw: int) -> None:
        config = self._config
        v2 = config.enable_retry_topic_v2
        if v2 and config.retrieve_message_from_pop_retry_topic_v1 and draw % 2 == 0:
            # What was put there before the setting was changed.
            v2 = False
        self._pop_topic(asked, popped, pop_retry_topic(asked.topic, asked.group, v2=v2), draw)

    def _pop_topic(self, asked: PopAsked, popped: Popped, topic: str, draw: int) -> None:
        config = self._topics.get(topic)
        queues = 0 if config is None else config.read_queue_nums
        order = reversed(range(queues)) if self._config.priority_order_asc else range(queues)
        for at in order:
            self._pop_queue(asked, popped, topic, (draw + at) % queues)

    def _pop_queue(self, asked: PopAsked, popped: Popped, topic: str, queue_id: int) -> None:
        group, store = asked.group, self._store
        offset = self._places.next_of(topic, group, queue_id, asked.init_mode)
        if self._places.has_too_many(topic, group, queue_id):
            popped.rest += max(store.max_offset(topic, queue_id) - offset, 0)
            return
        if asked.is_order:
            if self._orders.is_blocked(topic, group, queue_id, asked.attempt_id, asked.invisible_ms):
                return
            self._places.all_settled(topic, group, queue_id)
        if popped.count >= asked.most:
            popped.rest += max(store.max_offset(topic, queue_id) - offset, 0)
            return
        result, offset = self._read(asked, popped, topic, queue_id, offset)
        if result.count and not self._hand_out(asked, popped, topic, queue_id, offset, result):
            popped.rest += result.count
            return
        popped.rest += max(result.max_offset - result.next_begin_offset, 0)

    def _read(
        self, asked: PopAsked, popped: Popped, topic: str, queue_id: int, offset: int
    ) -> tuple[GetResult, int]:
        """What the group gets of a queue, and from where; it is moved on past what it does not get."""
        group = asked.group
        most = asked.most - popped.count
        result = self._get(asked, topic, queue_id, offset, most)
        for _ in range(UNMATCHED_READS):
            if result.count or result.status not in _WRONG | _NOTHING_THERE:
                break
            if result.next_begin_offset != offset:
                self._offsets.commit(group, topic, queue_id, result.next_begin_offset)
                popped.has_moved = True
            offset = result.next_begin_offset
            if offset >= result.max_offset:
                break
            result = self._get(asked, topic, queue_id, offset, most)
        return result, offset

    def _get(self, asked: PopAsked, topic: str, queue_id: int, offset: int, most: int) -> GetResult:
        wanted = asked.wanted
        if wanted is None:
            return self._store.get(topic, queue_id, offset, most)
        if wanted.matches_code is not None:
            return self._store.get(topic, queue_id, offset, most, matches_code=wanted.matches_code)
        matches = wanted.matches_properties
        return self._store.get(
            topic, queue_id, offset, most, matches_record=lambda record: matches(properties_of(record))
        )

    def _hand_out(
        self, asked: PopAsked, popped: Popped, topic: str, queue_id: int, start: int, result: GetResult
    ) -> bool:
        """Take note of messages and add them to the answer; False if that could not be noted."""
        group = asked.group
        is_single = isinstance(self._store.queues.find(topic, queue_id), ConsumeQueue)
        if is_single and result.next_begin_offset - start == result.count:
            # Each unit that was read gave a message, so there is no need to look into them.
            offsets = list(range(start, result.next_begin_offset))
        else:
            offsets = [
                int(_QUEUE_OFFSET.unpack_from(record, _QUEUE_OFFSET_AT)[0]) for record in _records(result.slices)
            ]
        if asked.is_order:
            popped.order_counts += self._orders.note(
                topic, group, queue_id, asked.attempt_id, popped.time_ms, asked.invisible_ms, offsets
            )
            self._offsets.commit(group, topic, queue_id, start)
        else:
            assert self._journal is not None
            point = PopCheckPoint(
                start_offset=start,
                pop_time=popped.time_ms,
                invisible_time=asked.invisible_ms,
                num=len(offsets),
                queue_id=queue_id,
                topic=topic,
                cid=group,
                queue_offset_diff=tuple([offset - start for offset in offsets]),
                broker_name=self._config.broker_name,
            )
            try:
                self._journal.check_point(point, popped.revive_queue)
            except AppendRefusedError as error:
                log.warning("%s gets nothing of %s: no check point could be written: %s", group, topic, error)
                return False
            # Only now: without the check point nobody would bring the messages back.
            self._offsets.commit(group, topic, queue_id, result.next_begin_offset)
            self._stats.add("GROUP_CK_NUMS", f"{asked.topic}@{group}")
        kind = topic_kind(topic)
        popped.starts.append(f"{kind} {queue_id} {start}")
        popped.offsets.append(join_offsets(kind, queue_id, offsets))
        if topic == asked.topic or self._config.pop_response_return_actual_retry_topic:
            popped.pieces += result.slices
        else:
            popped.pieces += [
                self._as_before(asked, popped, record, start, kind) for record in _records(result.slices)
            ]
        popped.count += len(offsets)
        self._places.handed_out(topic, group, queue_id, result.count)
        self._stats.got(group, topic, queue_id, result.count, result.size)
        return True

    def _as_before(self, asked: PopAsked, popped: Popped, piece: memoryview, start: int, kind: str) -> bytes:
        """A message of a retry topic as one of its own topic: the receipt says where it really is."""
        record = decode_record(piece)
        properties = record.properties
        if CRC_PROPERTY in properties:
            properties = without(properties, (CRC_PROPERTY,))
        if find(properties, _POP_CK) is None:
            receipt = Receipt(
                start, popped.time_ms, asked.invisible_ms, popped.revive_queue, kind, self._config.broker_name,
                record.queue_id, record.queue_offset,
            )  # fmt: skip
            properties = with_property(properties, _POP_CK, str(receipt).encode())
        return encode_record(
            topic=asked.topic.encode(),
            queue_id=record.queue_id,
            body=record.body,
            properties=properties,
            queue_offset=record.queue_offset,
            physical_offset=record.physical_offset,
            flag=record.flag,
            sys_flag=record.sys_flag,
            born_timestamp=record.born_timestamp,
            born_host=record.born_host,
            store_timestamp=record.store_timestamp,
            store_host=record.store_host,
            reconsume_times=record.reconsume_times,
            prepared_transaction_offset=record.prepared_transaction_offset,
        )


def _records(slices: Iterable[memoryview]) -> Iterator[memoryview]:
    """Records that follow each other in slices of the log, one by one."""
    for whole in slices:
        at = 0
        while at < len(whole):
            size: int = _SIZE.unpack_from(whole, at)[0]
            yield whole[at : at + size]
            at += size
