"""POP_MESSAGE: messages of any queue of a topic, invisible to the rest of the group until they are acknowledged.

A pop reads each queue from the group's offset, advances that offset, and writes a check point, by which messages
that are not acknowledged in time are redelivered. An orderly pop writes none: the queue is blocked instead until
its messages are acknowledged or visible again.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import math
import struct
import time
from typing import TYPE_CHECKING

from orbitmq.broker.deferred.property_room import fitted
from orbitmq.broker.long_polling.pop import EARLY_MS, HeldPop, HoldResult, PopHold
from orbitmq.broker.metadata.topics import MAX_QUEUES
from orbitmq.broker.pop.validation import filter_of
from orbitmq.broker.pull.filtered_read import read_filtered
from orbitmq.protocol.bodies import PopCheckPoint
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.message import property_names as names
from orbitmq.protocol.message.pop_receipt import MOST_MESSAGES, Receipt, join_offsets, pop_retry_topic, topic_kind
from orbitmq.protocol.message.properties import find, with_property, without
from orbitmq.protocol.message.record import (
    CRC_PROPERTY,
    MAX_PROPERTIES_SIZE,
    decode_record,
    encode_record,
)
from orbitmq.protocol.names import POP_ORDER_REVIVE_QUEUE
from orbitmq.remoting.processor import RequestRefusedError, fields_of
from orbitmq.store import AppendRefusedError, GetStatus
from orbitmq.store.consumequeue.consume_queue import ConsumeQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from orbitmq.broker.pop.checkpoint import CheckpointWriter
    from orbitmq.broker.pop.inflight import PopOffsets
    from orbitmq.broker.pop.order_info import PopOrders
    from orbitmq.broker.pop.validation import PopChecks
    from orbitmq.broker.runtime import BrokerRuntime, Metadata
    from orbitmq.filter import CompiledFilter
    from orbitmq.protocol.command.header import Header
    from orbitmq.remoting import Answer, Connection, Handler
    from orbitmq.store import GetResult

log = logging.getLogger("orbitmq.broker")

POP_SECONDS = 0.008
"""Time that a pop may read, all queues together, in one iteration of the event loop."""

MAX_CUT = 10_000
"""Topics and groups with a pop that was cut; beyond that the table is cleared."""

UNMATCHED_READS = 8
"""Reads of one pop past messages that its filter does not match, before other requests are served."""

MESSAGE_TYPE = "message.type"
PRIORITY = "PRIORITY"

_WRONG_OFFSET = frozenset(
    {GetStatus.OFFSET_TOO_SMALL, GetStatus.OFFSET_OVERFLOW_BADLY, GetStatus.OFFSET_FOUND_NULL}
)
_NOTHING_THERE = frozenset(
    {GetStatus.NO_MATCHED_MESSAGE, GetStatus.MESSAGE_WAS_REMOVING, GetStatus.OFFSET_FOUND_NULL}
)
_POP_CK = names.POP_CHECKPOINT.encode()
_SIZE = struct.Struct(">i")
_QUEUE_OFFSET = struct.Struct(">q")
_QUEUE_OFFSET_AT = 20
_NO_FIELDS = {"popTime": "0", "invisibleTime": "0", "reviveQid": "0", "restNum": "0"}


@dataclasses.dataclass(slots=True, eq=False, kw_only=True)
class PopRequest(HeldPop):
    """A parsed pop."""

    max_count: int
    invisible_ms: int
    init_mode: int
    wanted: CompiledFilter | None
    is_order: bool
    attempt_id: str | None


@dataclasses.dataclass(slots=True)
class Popped:
    """The result of a pop, while it is collected."""

    time_ms: int
    revive_queue: int
    slices: list[bytes | memoryview] = dataclasses.field(default_factory=list)
    count: int = 0
    rest: int = 0
    has_moved: bool = False
    """True if it skipped messages that the filter does not match: there may be matching ones behind them."""
    until: float = math.inf
    """The monotonic time at which it has held the event loop for long enough."""
    is_cut: bool = False
    """True if there was no time to read all queues."""

    @property
    def may_find_more(self) -> bool:
        """True if another read may find messages that this one did not reach."""
        return self.is_cut or (self.has_moved and self.rest > 0)

    starts: list[str] = dataclasses.field(default_factory=list)
    offsets: list[str] = dataclasses.field(default_factory=list)
    order_counts: list[str] = dataclasses.field(default_factory=list)


class PopRequests:
    """The processor of POP_MESSAGE."""

    def __init__(
        self,
        runtime: BrokerRuntime,
        metadata: Metadata,
        checks: PopChecks,
        pop_offsets: PopOffsets,
        orders: PopOrders,
        checkpoints: CheckpointWriter | None,
    ) -> None:
        """``checkpoints`` is None if there is no timer: then pops are refused."""
        self._config = config = runtime.config
        self._store = store = runtime.store
        self._topics = metadata.topics
        self._checks = checks
        self._offsets = metadata.offsets
        self._pop_offsets = pop_offsets
        self._orders = orders
        self._checkpoints = checkpoints
        self._flush_waiters = runtime.flush_waiters
        self._stats = runtime.stats
        self._clock = clock = runtime.clock
        self._cut_at: dict[tuple[str, str], tuple[int, int]] = {}
        """By topic and group, the queue at which the last pop was cut, and how many queues were left."""
        self.pops = 0
        """Number of pops: they use the revive queues in rotation."""
        self.draw: Callable[[], int] = functools.partial(runtime.random.randrange, 100)
        """Chooses the first queue of a pop, and whether retries come first."""
        self.held: PopHold[PopRequest] = PopHold(
            config, store, clock.now_ms, self._serve, self._free_orders, self._on_arrival
        )

    @property
    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.POP_MESSAGE: self.pop}

    def pop(self, connection: Connection, header: Header, _body: bytes, serialize_type: int) -> Answer:
        """The handler of POP_MESSAGE."""
        command = Command.of((serialize_type, b"", b""), header)
        try:
            request = self._parse(command, connection)
            popped = self._pop(request)
        except RequestRefusedError as error:
            return command.response(error.code, ext_fields=dict(_NO_FIELDS), remark=str(error)).encode()
        except ProtocolError as error:
            return command.response(ResponseCode.SYSTEM_ERROR, remark=str(error)).encode()
        code = ResponseCode.SUCCESS
        if not popped.count:
            held = self.held.hold(request)
            if held is HoldResult.HELD:
                if popped.may_find_more:
                    self.held.wake(request.topic, request.group, request.queue_id)
                return None
            code = ResponseCode.POLLING_FULL if held is HoldResult.FULL else ResponseCode.POLLING_TIMEOUT
        return self._respond(request, popped, code)

    def _serve(self, request: PopRequest, expires: bool) -> bool:
        """Serve a held pop; False if it stays held."""
        command = Command.of((request.serialize_type, b"", b""), request.header)
        try:
            self._check(request)
            popped = self._pop(request)
        except RequestRefusedError as error:
            refused = command.response(error.code, ext_fields=dict(_NO_FIELDS), remark=str(error)).encode()
            request.connection.answer(request.header, refused)
            return True
        if not popped.count and not expires:
            if popped.may_find_more:
                self.held.wake(request.topic, request.group, request.queue_id)
            return False
        code = ResponseCode.SUCCESS if popped.count else ResponseCode.POLLING_TIMEOUT
        response = self._respond(request, popped, code)
        if response is not None:
            request.connection.answer(request.header, response)
        return True

    def _respond(self, request: PopRequest, popped: Popped, code: ResponseCode) -> bytes | None:
        """The response, or None if it waits for the flush of a check point."""
        response = self._encode(request, popped, code)
        if not popped.count or request.is_order:
            return response
        return self._flush_waiters.respond(request.connection, request.header, response)

    def _free_orders(self, now: int) -> None:
        """Wake held pops of queues whose orderly messages are visible again."""
        if self._config.enable_notify_after_pop_order_lock_release:
            for topic, group, queue_id in self._orders.freed(now):
                self.held.wake(topic, group, queue_id)

    def _encode(self, request: PopRequest, popped: Popped, code: ResponseCode) -> bytes:
        if popped.count and popped.rest > 0:
            self.held.wake(request.topic, request.group, request.queue_id)
        fields = {
            "popTime": str(popped.time_ms),
            "invisibleTime": str(request.invisible_ms),
            "reviveQid": str(popped.revive_queue),
            "restNum": str(popped.rest),
            "startOffsetInfo": ";".join(popped.starts),
            "msgOffsetInfo": ";".join(popped.offsets),
        }
        if request.is_order:
            fields["orderCountInfo"] = ";".join(popped.order_counts)
        status = GetStatus.FOUND if popped.count else GetStatus.NO_MESSAGE_IN_QUEUE
        command = Command.of((request.serialize_type, b"", b""), request.header)
        body = b"".join(popped.slices) if popped.count else None
        return command.response(code, ext_fields=fields, remark=status.value, body=body).encode()

    # Parsing

    def _parse(self, command: Command, connection: Connection) -> PopRequest:
        fields = fields_of(command)
        now = self._clock.now_ms()
        config = self._config
        # Counted from its arrival. RocketMQ counts from bornTime, and refuses a request that is too old because it
        # had to wait for a thread: a client whose clock is a few seconds behind gets no message there, ever. Here
        # no request waits for a thread.
        poll_ms = fields["pollTime"]
        self._checks.check_permission("pop")
        if fields["maxMsgNums"] > MOST_MESSAGES:
            raise RequestRefusedError(
                f"the broker[{config.broker_ip1}] pop message's num is greater than {MOST_MESSAGES}",
                ResponseCode.INVALID_PARAMETER,
            )
        if self._checkpoints is None:
            raise RequestRefusedError(
                f"the broker[{config.broker_ip1}] pop message is forbidden because timerWheelEnable is false"
            )
        request = PopRequest(
            connection=connection,
            header=command.header,
            serialize_type=command.serialize_type,
            group=fields["consumerGroup"],
            topic=fields["topic"],
            queue_id=max(fields["queueId"], -1),
            deadline_ms=now + poll_ms - EARLY_MS if poll_ms > 0 else 0,
            max_count=fields["maxMsgNums"],
            invisible_ms=fields["invisibleTime"],
            init_mode=fields["initMode"],
            wanted=None,
            is_order=fields["order"],
            attempt_id=fields.get("attemptId"),
        )
        self._check(request)
        max_hidden_ms = self._store.config.timer_max_delay_sec * 1000
        if not request.is_order and not 0 <= request.invisible_ms <= max_hidden_ms:
            # RocketMQ fails to store the check point later, and answers that there are no messages.
            raise RequestRefusedError(
                f"invisibleTime[{request.invisible_ms}] is illegal: messages are hidden for "
                f"{max_hidden_ms}ms at most",
                ResponseCode.INVALID_PARAMETER,
            )
        request.wanted = filter_of(self._config, fields.get("expType"), fields.get("exp"))
        return request

    def _check(self, request: PopRequest) -> None:
        self._checks.check(request.topic, request.group, request.queue_id, request.connection.remote_address)

    # For the fast path

    def admit(
        self, group: str, topic: str, expression_type: str | None, expression: str | None, client: str
    ) -> CompiledFilter | None:
        """Check a pop of all queues, and return its filter, if it has one. Raises RequestRefusedError."""
        self._checks.check_permission("pop")
        self._checks.check(topic, group, -1, client)
        return filter_of(self._config, expression_type, expression)

    def is_cut(self, topic: str, group: str) -> bool:
        """True if the last pop of a group had no time to read all queues."""
        return (topic, group) in self._cut_at

    def has_priorities(self, topic: str) -> bool:
        """True if the order of a topic's queues is that of their priorities."""
        config = self._topics.get(topic)
        return config is not None and config.attributes.get(MESSAGE_TYPE) == PRIORITY

    # Popping

    def _pop(self, request: PopRequest) -> Popped:
        config = self._config
        draw = self.draw()
        if request.is_order:
            revive_queue = POP_ORDER_REVIVE_QUEUE
        else:
            revive_queue = self.pops % config.revive_queue_num
            self.pops += 1
        popped = Popped(self._clock.now_ms(), revive_queue, until=time.monotonic() + POP_SECONDS)
        probability = config.pop_from_retry_probability
        if self._goes_by_priority(request, draw):
            # From the highest priority on, and retries after all of them.
            draw, probability = 0, config.pop_from_retry_probability_for_priority
        retries_first = draw < probability
        if retries_first and not request.is_order:
            self._pop_retries(request, popped, draw)
        if request.queue_id < 0:
            self._pop_topic(request, popped, request.topic, draw)
        else:
            self._pop_queue(request, popped, request.topic, request.queue_id)
        if not retries_first and popped.count < request.max_count and not request.is_order:
            self._pop_retries(request, popped, draw)
        return popped

    def _goes_by_priority(self, request: PopRequest, draw: int) -> bool:
        if request.is_order or not self.has_priorities(request.topic):
            return False
        return draw < self._checks.priority_factor(request.group)

    def _pop_retries(self, request: PopRequest, popped: Popped, draw: int) -> None:
        config = self._config
        v2 = config.enable_retry_topic_v2
        if v2 and config.retrieve_message_from_pop_retry_topic_v1 and draw % 2 == 0:
            # Retries that were stored before the setting was changed.
            v2 = False
        self._pop_topic(request, popped, pop_retry_topic(request.topic, request.group, v2=v2), draw)

    def _pop_topic(self, request: PopRequest, popped: Popped, topic: str, draw: int) -> None:
        """Pop the queues of a topic in turn. The next pop of the group continues where this one is cut."""
        config = self._topics.get(topic)
        queues = 0 if config is None else config.read_queue_nums
        key = topic, request.group
        start, left = self._cut_at.pop(key, (0, queues))
        for done in range(min(left, queues)):
            if popped.is_cut or (done and time.monotonic() >= popped.until):
                popped.is_cut = True
                if len(self._cut_at) >= MAX_CUT:
                    self._cut_at.clear()
                self._cut_at[key] = (start + done) % queues, left - done
                return
            at = (start + done) % queues
            if self._config.priority_order_asc:
                at = queues - 1 - at
            self._pop_queue(request, popped, topic, (draw + at) % queues)

    def _on_arrival(self, topic: str, group: str) -> None:
        """A record has arrived, perhaps in a queue that was read before the pop was cut."""
        cut = self._cut_at.get((topic, group))
        if cut is not None:
            self._cut_at[topic, group] = cut[0], MAX_QUEUES

    def _pop_queue(self, request: PopRequest, popped: Popped, topic: str, queue_id: int) -> None:
        group, store = request.group, self._store
        client = request.connection.remote_address
        problem = self._offsets.problem(group, topic, queue_id, client)
        if problem is not None:
            if popped.count:
                return
            raise RequestRefusedError(problem)
        offset = self._pop_offsets.next_of(topic, group, queue_id, request.init_mode, client)
        if self._pop_offsets.has_too_many(topic, group, queue_id):
            popped.rest += max(store.max_offset(topic, queue_id) - offset, 0)
            return
        if request.is_order:
            if self._orders.is_blocked(topic, group, queue_id, request.attempt_id, request.invisible_ms):
                return
            self._pop_offsets.reset(topic, group, queue_id)
        if popped.count >= request.max_count:
            popped.rest += max(store.max_offset(topic, queue_id) - offset, 0)
            return
        result, offset = self._read(request, popped, topic, queue_id, offset)
        if result.count and not self._deliver(request, popped, topic, queue_id, offset, result):
            popped.rest += result.count
            return
        popped.rest += max(result.max_offset - result.next_begin_offset, 0)

    def _read(
        self, request: PopRequest, popped: Popped, topic: str, queue_id: int, offset: int
    ) -> tuple[GetResult, int]:
        """Read messages of a queue, and their first offset; the group advances past what does not match."""
        group = request.group
        max_count = request.max_count - popped.count
        result = read_filtered(self._store, topic, queue_id, offset, max_count, request.wanted)
        for _ in range(UNMATCHED_READS):
            if result.count or result.status not in _WRONG_OFFSET | _NOTHING_THERE:
                break
            if result.next_begin_offset != offset:
                self._offsets.commit(group, topic, queue_id, result.next_begin_offset)
                popped.has_moved = True
            offset = result.next_begin_offset
            if offset >= result.max_offset:
                break
            if time.monotonic() >= popped.until:
                popped.is_cut = True
                break
            result = read_filtered(self._store, topic, queue_id, offset, max_count, request.wanted)
        return result, offset

    def _deliver(
        self, request: PopRequest, popped: Popped, topic: str, queue_id: int, start: int, result: GetResult
    ) -> bool:
        """Write the check point of messages and add them to the response; False if the check point failed."""
        group = request.group
        is_single = isinstance(self._store.queues.find(topic, queue_id), ConsumeQueue)
        if is_single and result.next_begin_offset - start == result.count:
            # Every unit that was read gave a message, so the offsets are consecutive.
            offsets = list(range(start, result.next_begin_offset))
        else:
            offsets = [
                int(_QUEUE_OFFSET.unpack_from(record, _QUEUE_OFFSET_AT)[0]) for record in _records(result.slices)
            ]
        if request.is_order:
            popped.order_counts += self._orders.note(
                topic, group, queue_id, request.attempt_id, popped.time_ms, request.invisible_ms, offsets
            )
            self._offsets.commit(group, topic, queue_id, start)
        else:
            assert self._checkpoints is not None
            point = PopCheckPoint(
                start_offset=start,
                pop_time=popped.time_ms,
                invisible_time=request.invisible_ms,
                num=len(offsets),
                queue_id=queue_id,
                topic=topic,
                cid=group,
                queue_offset_diff=tuple([offset - start for offset in offsets]),
                broker_name=self._config.broker_name,
            )
            try:
                self._checkpoints.check_point(point, popped.revive_queue)
            except AppendRefusedError as error:
                log.warning("pop: check point failed, group %s gets no messages of %s: %s", group, topic, error)
                return False
            # After the check point: without it the messages would not be redelivered.
            self._offsets.commit(group, topic, queue_id, result.next_begin_offset)
            self._stats.add("GROUP_CK_NUMS", f"{request.topic}@{group}")
        kind = topic_kind(topic)
        popped.starts.append(f"{kind} {queue_id} {start}")
        popped.offsets.append(join_offsets(kind, queue_id, offsets))
        if topic == request.topic or self._config.pop_response_return_actual_retry_topic:
            popped.slices += result.slices
        else:
            popped.slices += [
                self._under_original_topic(request, popped, record, start, kind)
                for record in _records(result.slices)
            ]
        popped.count += len(offsets)
        self._pop_offsets.handed_out(topic, group, queue_id, result.count)
        self._stats.got(group, topic, queue_id, result.count, result.size)
        self._stats.popped(request.topic, group, result.count, result.size, is_retry=topic != request.topic)
        return True

    def _under_original_topic(
        self, request: PopRequest, popped: Popped, stored: memoryview, start: int, kind: str
    ) -> bytes:
        """A message of a retry topic as one of its original topic, with a receipt that names the retry queue."""
        record = decode_record(stored)
        properties = record.properties
        if CRC_PROPERTY in properties:
            properties = without(properties, (CRC_PROPERTY,))
        if find(properties, _POP_CK) is None:
            receipt = Receipt(
                start, popped.time_ms, request.invisible_ms, popped.revive_queue, kind, self._config.broker_name,
                record.queue_id, record.queue_offset,
            )  # fmt: skip
            properties = with_property(properties, _POP_CK, str(receipt).encode())
        if len(properties) > MAX_PROPERTIES_SIZE:
            properties = fitted(properties, MAX_PROPERTIES_SIZE)
            if len(properties) > MAX_PROPERTIES_SIZE:
                # Under the retry topic the client finds the receipt in the fields of the response.
                return bytes(stored)
        return encode_record(
            topic=request.topic.encode(),
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
    """The consecutive records in slices of the log."""
    for whole in slices:
        at = 0
        while at < len(whole):
            size: int = _SIZE.unpack_from(whole, at)[0]
            yield whole[at : at + size]
            at += size
