"""POP_LITE_MESSAGE: messages of the lite topics that a client has chosen, from several of them in one answer.

Each lite topic is consumed in order by each group: what was popped blocks it until it is acknowledged or visible
again. A light queue that gets a message is marked as ready for its clients, and a pop reads only queues that are.
"""

from __future__ import annotations

import asyncio
import dataclasses
import struct
import time
from typing import TYPE_CHECKING

from orbitmq.broker.errors import ADVICE
from orbitmq.broker.long_polling.arrival import listen, unlisten
from orbitmq.broker.long_polling.pop import ANY_QUEUE, EARLY_MS, HeldPop, HoldResult, PopHold
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.message import property_names as names
from orbitmq.protocol.message.flags import PERM_READ
from orbitmq.protocol.message.lite_topic import light_queue_prefix
from orbitmq.protocol.message.pop_receipt import MOST_MESSAGES
from orbitmq.protocol.message.properties import find
from orbitmq.protocol.message.record import properties_of
from orbitmq.protocol.names import LMQ_PREFIX, POP_ORDER_REVIVE_QUEUE
from orbitmq.remoting.processor import RequestRefusedError, fields_of
from orbitmq.store import GetStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from orbitmq.broker.lite.rules import LiteRules
    from orbitmq.broker.lite.subscriptions import LiteSubscription, LiteSubscriptions
    from orbitmq.broker.pop.inflight import PopOffsets
    from orbitmq.broker.pop.order_info import PopOrders
    from orbitmq.broker.pop.validation import PopChecks
    from orbitmq.broker.runtime import BrokerRuntime, Metadata
    from orbitmq.protocol.command.header import Header
    from orbitmq.remoting import Answer, Connection, Handler
    from orbitmq.store import GetResult
    from orbitmq.store.consumequeue.table import Queue

POP_SECONDS = 0.008
"""Time that a pop may read, all queues together, in one iteration of the event loop."""

LINE = LMQ_PREFIX
"""Pops are held in a line for each client, under this name in the place of a topic; no record has it."""

QUEUE = 0
"""The only queue of a light queue."""

FROM_NEWEST = 1
"""``initMode`` of groups without an offset."""

MAX_HIDDEN_MS = 365 * 24 * 3_600_000
"""Longest invisible time."""

_SIZE = struct.Struct(">i")

_SKIPPING = frozenset(
    {
        *(GetStatus.OFFSET_TOO_SMALL, GetStatus.OFFSET_OVERFLOW_BADLY, GetStatus.OFFSET_FOUND_NULL),
        *(GetStatus.NO_MATCHED_MESSAGE, GetStatus.MESSAGE_WAS_REMOVING, GetStatus.NO_MATCHED_LOGIC_QUEUE),
    }
)
"""Results of a read at an offset where there is no message (any more): the next one is at another offset."""


@dataclasses.dataclass(slots=True, eq=False, kw_only=True)
class LitePop(HeldPop):
    """A parsed pop. Its ``topic`` is LINE and its ``group`` the id of the client."""

    parent: str
    consumer_group: str
    max_count: int
    invisible_ms: int
    attempt_id: str | None


@dataclasses.dataclass(slots=True)
class _Popped:
    time_ms: int
    until: float
    slices: list[memoryview] = dataclasses.field(default_factory=list)
    counts: list[int] = dataclasses.field(default_factory=list)
    """Earlier deliveries of each message."""
    is_cut: bool = False
    """True if there was no time to read all queues."""


class LitePops:
    """The processor of POP_LITE_MESSAGE."""

    def __init__(
        self,
        runtime: BrokerRuntime,
        metadata: Metadata,
        checks: PopChecks,
        rules: LiteRules,
        subscriptions: LiteSubscriptions,
        places: PopOffsets,
        orders: PopOrders,
    ) -> None:
        self._config = config = runtime.config
        self._store = store = runtime.store
        self._clock = runtime.clock
        self._stats = runtime.stats
        self._offsets = metadata.offsets
        self._groups = metadata.groups
        self._checks = checks
        self._rules = rules
        self._subscriptions = subscriptions
        self._places = places
        self._orders = orders
        self._arrived: dict[str, None] = {}
        self.held: PopHold[LitePop] = PopHold(config, store, self._clock.now_ms, self._serve, self._free)

    @property
    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.POP_LITE_MESSAGE: self.pop}

    def pop(self, connection: Connection, header: Header, _body: bytes, serialize_type: int) -> Answer:
        command = Command.of((serialize_type, b"", b""), header)
        try:
            request = self._parse(command, connection)
            popped = self._pop(request)
        except RequestRefusedError as error:
            return command.response(error.code, remark=str(error)).encode()
        except ProtocolError as error:
            return command.response(ResponseCode.SYSTEM_ERROR, remark=str(error)).encode()
        code = ResponseCode.SUCCESS
        if not popped.counts:
            held = self.held.hold(request)
            if held is HoldResult.HELD:
                if popped.is_cut:
                    self.held.wake(LINE, request.group, ANY_QUEUE)
                return None
            code = ResponseCode.POLLING_FULL if held is HoldResult.FULL else ResponseCode.POLLING_TIMEOUT
        return self._encode(request, popped, code)

    def _serve(self, request: LitePop, expires: bool) -> bool:
        """Serve a held pop; False if it stays held."""
        command = Command.of((request.serialize_type, b"", b""), request.header)
        try:
            self._check(request)
            popped = self._pop(request)
        except RequestRefusedError as error:
            refused = command.response(error.code, remark=str(error)).encode()
            request.connection.answer(request.header, refused)
            return True
        if not popped.counts and not expires:
            if popped.is_cut:
                self.held.wake(LINE, request.group, ANY_QUEUE)
            return False
        code = ResponseCode.SUCCESS if popped.counts else ResponseCode.POLLING_TIMEOUT
        request.connection.answer(request.header, self._encode(request, popped, code))
        return True

    def _encode(self, request: LitePop, popped: _Popped, code: ResponseCode) -> bytes:
        fields = {
            "popTime": str(popped.time_ms),
            "invisibleTime": str(request.invisible_ms),
            "reviveQid": str(POP_ORDER_REVIVE_QUEUE),
            "orderCountInfo": ";".join(map(str, popped.counts)),
        }
        status = GetStatus.FOUND if popped.counts else GetStatus.NO_MESSAGE_IN_QUEUE
        command = Command.of((request.serialize_type, b"", b""), request.header)
        body = b"".join(popped.slices) if popped.counts else None
        return command.response(code, ext_fields=fields, remark=status.value, body=body).encode()

    # Checks, with RocketMQ's remarks

    def _parse(self, command: Command, connection: Connection) -> LitePop:
        fields = fields_of(command)
        self._rules.check_enabled()
        self._checks.check_permission("pop")
        if not 0 < fields["maxMsgNum"] <= MOST_MESSAGES:
            raise RequestRefusedError(
                f"the broker[{self._config.broker_ip1}] pop message's num is greater than {MOST_MESSAGES}",
                ResponseCode.INVALID_PARAMETER,
            )
        if not 0 <= fields["invisibleTime"] <= MAX_HIDDEN_MS:
            raise RequestRefusedError(
                f"invisibleTime[{fields['invisibleTime']}] is illegal", ResponseCode.INVALID_PARAMETER
            )
        poll_ms = fields["pollTime"]
        request = LitePop(
            connection=connection,
            header=command.header,
            serialize_type=command.serialize_type,
            topic=LINE,
            group=fields["clientId"],
            queue_id=ANY_QUEUE,
            deadline_ms=self._clock.now_ms() + poll_ms - EARLY_MS if poll_ms > 0 else 0,
            parent=fields["topic"],
            consumer_group=fields["consumerGroup"],
            max_count=fields["maxMsgNum"],
            invisible_ms=fields["invisibleTime"],
            attempt_id=fields.get("attemptId"),
        )
        self._check(request)
        return request

    def _check(self, request: LitePop) -> None:
        parent, group = request.parent, request.consumer_group
        if not self._checks.topic(parent).perm & PERM_READ:
            raise RequestRefusedError(
                f"the topic [{parent}] peeking message is forbidden", ResponseCode.NO_PERMISSION
            )
        if not self._rules.is_parent(parent):
            raise RequestRefusedError(
                f"the topic [{parent}] message type not match", ResponseCode.INVALID_PARAMETER
            )
        config = self._groups.configs.get(group)
        if config is None:
            raise RequestRefusedError(
                f"subscription group [{group}] not exist, {ADVICE}", ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
            )
        if not config.consume_enable:
            raise RequestRefusedError(f"subscription group no permission, {group}", ResponseCode.NO_PERMISSION)
        if self._rules.bound_topic(group) != parent:
            raise RequestRefusedError(f"subscription bind topic not match, {group}", ResponseCode.INVALID_PARAMETER)

    # Popping

    def _pop(self, request: LitePop) -> _Popped:
        now = self._clock.now_ms()
        self._free(now)
        popped = _Popped(now, time.monotonic() + POP_SECONDS)
        found = self._subscriptions.find(request.group)
        if found is None or found.group != request.consumer_group:
            return popped
        found.accessed_ms = now
        ready = found.ready
        for _ in range(len(ready)):
            if len(popped.counts) >= request.max_count:
                break
            if time.monotonic() >= popped.until:
                popped.is_cut = True
                break
            queue = next(iter(ready))
            self._pop_queue(request, popped, queue)
            ready.pop(queue, None)
        if popped.counts:
            found.consumed_ms = now
        return popped

    def _pop_queue(self, request: LitePop, popped: _Popped, queue: str) -> None:
        group, invisible_ms = request.consumer_group, request.invisible_ms
        if self._offsets.query(group, queue, QUEUE) < 0:
            # A lite topic that was deleted and came again: what was popped before is gone.
            self._orders.clear(queue, group, QUEUE)
        if self._orders.is_blocked(queue, group, QUEUE, request.attempt_id, invisible_ms):
            return  # marked again when it is free
        client = request.connection.remote_address
        problem = self._offsets.problem(group, queue, QUEUE, client)
        if problem is not None:
            if popped.counts:
                return
            raise RequestRefusedError(problem)
        offset = self._places.next_of(queue, group, QUEUE, FROM_NEWEST, client)
        max_count = request.max_count - len(popped.counts)
        result = self._store.get(queue, QUEUE, offset, max_count)
        if not result.count and result.status in _SKIPPING and result.next_begin_offset != offset:
            offset = result.next_begin_offset
            self._offsets.commit(group, queue, QUEUE, offset)
            result = self._store.get(queue, QUEUE, offset, max_count)
        if result.count:
            self._deliver(request, popped, queue, offset, result)

    def _deliver(self, request: LitePop, popped: _Popped, queue: str, offset: int, result: GetResult) -> None:
        group = request.consumer_group
        records = list(_records(result.slices))
        offsets: Sequence[int] = range(offset, result.next_begin_offset)
        if len(offsets) != result.count:
            # Records in between are lost.
            offsets = [_offset_in(queue, properties_of(record)) for record in records]
        self._orders.note(
            queue,
            group,
            QUEUE,
            request.attempt_id,
            popped.time_ms,
            request.invisible_ms,
            offsets,
            keeps_acknowledged=True,
        )
        self._offsets.commit(group, queue, QUEUE, offsets[0])
        # RocketMQ delivers a message again that was acknowledged while one before it was not.
        wanted = self._orders.unacknowledged(queue, group, QUEUE)
        popped.counts += self._orders.counts(queue, group, QUEUE, wanted)
        popped.slices += [records[offsets.index(one)] for one in wanted]
        self._stats.got(group, request.parent, QUEUE, result.count, result.size)
        self._stats.popped(request.parent, group, result.count, result.size, is_retry=False)

    # Waking

    def watch(self) -> None:
        """Mark the queues of records that arrive while there are clients. Each record costs a call then."""
        (listen if self._subscriptions.count else unlisten)(self._store.dispatcher, self._on_record)

    def _on_record(self, queue: Queue, _code: int, _store_timestamp: int) -> None:
        if self._subscriptions.is_wanted(queue.topic):
            if not self._arrived:
                asyncio.get_running_loop().call_soon(self._mark_arrived)
            self._arrived[queue.topic] = None

    def _mark_arrived(self) -> None:
        arrived, self._arrived = self._arrived, {}
        for queue in arrived:
            self.mark(queue)

    def mark(self, queue: str, group: str | None = None) -> None:
        """There may be a message in a light queue for a group, or for all."""
        for found in self._subscriptions.of_queue(queue, group):
            self.mark_for(found, queue)

    def mark_for(self, found: LiteSubscription, queue: str) -> None:
        """The same for one client, if the group has not read the queue to its end."""
        if self._store.max_offset(queue, QUEUE) > max(self._offsets.query(found.group, queue, QUEUE), 0):
            found.ready[queue] = None
            self.held.wake(LINE, found.client_id, ANY_QUEUE)

    def mark_all(self, found: LiteSubscription) -> None:
        """The same for all light queues of a client."""
        prefix = light_queue_prefix(found.parent)
        every = self._store.queues.names() if found.is_wildcard else list(found.queues)
        for queue in every:
            if queue.startswith(prefix):
                self.mark_for(found, queue)

    def _free(self, now: int) -> None:
        """Mark light queues whose popped messages are visible again."""
        for queue, group, _ in self._orders.freed(now):
            self.mark(queue, group)


def _records(slices: Iterable[memoryview]) -> Iterator[memoryview]:
    for whole in slices:
        at = 0
        while at < len(whole):
            size: int = _SIZE.unpack_from(whole, at)[0]
            yield whole[at : at + size]
            at += size


def _offset_in(queue: str, properties: bytes) -> int:
    """The offset of a message in one of the light queues that its properties name."""
    queues = (find(properties, names.INNER_MULTI_DISPATCH.encode()) or b"").split(b",")
    offsets = (find(properties, names.INNER_MULTI_QUEUE_OFFSET.encode()) or b"").split(b",")
    return int(offsets[queues.index(queue.encode())])
