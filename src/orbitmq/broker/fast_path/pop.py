"""POP fast path: pops that find messages, one native call for each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq import native
from orbitmq.broker.fast_path.adapter import NOT_NOW, FastPathAdapter
from orbitmq.broker.fast_path.pull import MAX_ROUTE_KEY_BYTES, MAX_ROUTES, codes_of, is_by_few_tags
from orbitmq.broker.fast_path.queue_route import open_route, store_parameters
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.command.header import LANGUAGES_BY_NAME
from orbitmq.protocol.message.flags import RESPONSE
from orbitmq.protocol.message.pop_receipt import pop_retry_topic
from orbitmq.protocol.names import RETRY_PREFIX, TIMER_TOPIC, is_system_topic
from orbitmq.remoting.processor import RequestRefusedError
from orbitmq.store.consumequeue.consume_queue import UNIT_SIZE, ConsumeQueue
from orbitmq.store.reader import GetStatus

if TYPE_CHECKING:
    from orbitmq.broker.fast_path.epoch import RouteEpoch
    from orbitmq.broker.metadata.topics import TopicTable
    from orbitmq.broker.offsets.table import OffsetTable
    from orbitmq.broker.pop.checkpoint import CheckpointWriter
    from orbitmq.broker.pop.inflight import PopOffsets
    from orbitmq.broker.pop.processor import PopRequests
    from orbitmq.broker.runtime import BrokerRuntime
    from orbitmq.broker.timer.service import TimerService
    from orbitmq.native._native import PopServer
    from orbitmq.native.results import Popped
    from orbitmq.remoting import Connection

MAX_QUEUES = 64
"""Queues of a topic that is popped natively: each pop looks at all of them."""

MAX_FILTERED = 4096
"""Units of a queue that a pop with a filter examines at most; with larger settings it falls back."""

MAX_ANSWER_BYTES = 1024 * 1024
"""Bytes of responses in one batch, as for pulls: the peer has to read them."""

Names = tuple[str, str]
"""Group and topic of a route."""


class PopFastPath(FastPathAdapter["PopServer"]):
    """Serves POP_MESSAGE requests for all queues of a topic.

    A pop that finds nothing falls back, and is held there. So does one that is ordered, has a filter by properties,
    or may have to give messages of a retry topic.
    """

    def __init__(
        self,
        epoch: RouteEpoch,
        runtime: BrokerRuntime,
        topics: TopicTable,
        offsets: OffsetTable,
        timer: TimerService,
        checkpoints: CheckpointWriter,
        pop_offsets: PopOffsets,
        pops: PopRequests,
    ) -> None:
        self._config = runtime.config
        self._store = runtime.store
        self._stats = runtime.stats
        self._topics = topics
        self._offsets = offsets
        self._timer = timer
        self._checkpoints = checkpoints
        self._pop_offsets = pop_offsets
        self._pops = pops
        self._append = runtime.store.appender.native.pop
        self.is_full = False
        """True if the last ``take`` ended because its answers reached the bytes that a peer may leave unread."""
        super().__init__(epoch)

    def _create(self) -> PopServer:
        config, store = self._config, self._store
        self._filtered = store.config.max_filter_message_size // UNIT_SIZE
        names = self._checkpoints.revive_topic, config.broker_name
        self._is_usable = self._timer.has_no_limits and all(
            name.isascii() and name.isprintable() and not set('"\\') & set(name) for name in names
        )
        revive_topic, broker_name = [name.encode("utf-8", "replace") for name in names]
        return native.load().pop_server(
            languages=tuple(name.encode() for name in LANGUAGES_BY_NAME),
            json_parts=_answer_parts(),
            **store_parameters(store),
            revive_topic=revive_topic,
            broker_name=broker_name,
            precision=store.config.timer_precision_ms,
            longest=store.config.timer_max_delay_sec * 1000,
            most=store.config.max_transfer_count_on_message_in_memory,
            most_bytes=store.config.max_transfer_bytes_on_message_in_memory,
            filtered=min(self._filtered, MAX_FILTERED),
            goes_down=config.priority_order_asc,
            state=self._offsets_of,
        )

    def _serve(self, connection: Connection, data: bytes) -> int:
        self.is_full = False
        if not self._is_usable or self._offsets.pending_resets:
            return NOT_NOW
        pops = self._pops
        size = answered = 0
        while len(data) > size:
            revive_queue = pops.pops % self._config.revive_queue_num
            rest = data[size:] if size else data
            popped = self._append(self._native, rest, revive_queue, pops.draw(), self._store.reader)
            if popped is None:
                break
            size += popped.size
            answered += len(popped.answer)
            self._record(popped)
            connection.send(popped.answer)
            if answered >= MAX_ANSWER_BYTES:
                self.is_full = True
                break
        return size

    def _record(self, popped: Popped) -> None:
        """Advance the group, count, and notify whom it concerns."""
        group, topic = popped.names
        stats = self._stats
        self.served += 1
        self._pops.pops += 1
        self._checkpoints.end = self._store.log.end
        self._timer.on_deferred()
        for share in popped.entered.shares:
            number = len(share.units) // UNIT_SIZE
            stats.put_by_broker(share.topic, share.queue_id, number, share.size, number)
        for queue_id, following, count, size in popped.queues:
            self._offsets.commit(group, topic, queue_id, following)
            stats.add("GROUP_CK_NUMS", f"{topic}@{group}")
            self._pop_offsets.handed_out(topic, group, queue_id, count)
            stats.got(group, topic, queue_id, count, size)
            stats.popped(topic, group, count, size, is_retry=False)
        if popped.rest > 0:
            self._pops.held.wake(topic, group, -1)

    def _offsets_of(self, names: Names) -> dict[int, int] | None:
        """The offsets of a group, for a pop; None if it needs the Python path."""
        group, topic = names
        if self._pops.is_cut(topic, group) or self._pop_offsets.has_too_many_somewhere(topic, group):
            return None
        for v2 in (False, True):
            retry_topic = pop_retry_topic(topic, group, v2=v2)
            config = self._topics.configs.get(retry_topic)
            for queue_id in range(0 if config is None else config.read_queue_nums):
                # An offset that the group does not have yet is -1.
                if self._offsets.query(group, retry_topic, queue_id) != self._store.max_offset(
                    retry_topic, queue_id
                ):
                    return None
        return self._offsets.table_of(group, topic)

    def _open_route(self, connection: Connection, *missing: str | int | bytes | None) -> bool:
        if isinstance(missing[0], str):
            # The queue of the timer, to which check points go.
            is_timer = missing[0] == TIMER_TOPIC
            return is_timer and open_route(self._native, self._store.queues, TIMER_TOPIC, 0, is_deferral=True)
        key, group, topic, expression_type, expression = missing
        assert isinstance(key, bytes)
        assert isinstance(group, str)
        assert isinstance(topic, str)
        assert not isinstance(expression_type, int | bytes)
        assert not isinstance(expression, int | bytes)
        if len(key) > MAX_ROUTE_KEY_BYTES:
            return False
        if self._native.route_count >= MAX_ROUTES:
            self._clear_routes()
        try:
            wanted = self._pops.admit(group, topic, expression_type, expression, connection.remote_address)
        except RequestRefusedError:
            return False
        queues = self._queues_of(topic)
        is_native = wanted is None or (is_by_few_tags(topic, wanted) and self._filtered <= MAX_FILTERED)
        if not is_native or queues is None:
            # Not kept without queues: they are made by their first messages.
            if queues is not None:
                self._native.close_pop_route(key)
            return False
        pairs = tuple([(queue, queue.read) for queue in queues])
        self._native.add_pop_route(key, pairs, (group, topic), codes_of(wanted))
        return True

    def _queues_of(self, topic: str) -> list[ConsumeQueue] | None:
        """The queues of a topic that is popped natively; None of any other."""
        config = self._topics.configs.get(topic)
        if config is None or is_system_topic(topic) or topic.startswith(RETRY_PREFIX):
            return None
        if not 0 < config.read_queue_nums <= MAX_QUEUES or self._pops.has_priorities(topic):
            return None
        found = [self._store.queues.find(topic, queue_id) for queue_id in range(config.read_queue_nums)]
        queues = [queue for queue in found if isinstance(queue, ConsumeQueue)]
        return queues if len(queues) == len(found) else None


def _answer_parts() -> tuple[bytes, ...]:
    """The text around the values in the JSON header of a response: pop time, invisible time, revive queue, messages
    that are left, start offsets, offsets and opaque.
    """
    names = ("popTime", "invisibleTime", "reviveQid", "restNum", "startOffsetInfo", "msgOffsetInfo")
    opaque = 1_234_567_890
    fields = {name: f"<{name}>" for name in names}
    remark = GetStatus.FOUND.value
    left = Command(ResponseCode.SUCCESS, opaque, RESPONSE, ext_fields=fields, remark=remark).encode()[8:]
    parts = []
    for mark in (*fields.values(), str(opaque)):
        part, found, left = left.partition(mark.encode())
        assert found, f"a response has no {mark} behind {part!r}"
        parts.append(part)
    return (*parts, left)
