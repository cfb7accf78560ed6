"""ACK fast path: appends acknowledgements of popped messages in batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq import native
from orbitmq.broker.fast_path.adapter import NOT_NOW, FastPathAdapter
from orbitmq.broker.fast_path.queue_route import open_route, store_parameters
from orbitmq.protocol.command.header import LANGUAGES_BY_NAME
from orbitmq.protocol.names import TIMER_TOPIC
from orbitmq.remoting.processor import SUCCESS_PARTS
from orbitmq.store.consumequeue.consume_queue import UNIT_SIZE

if TYPE_CHECKING:
    from orbitmq.broker.fast_path.epoch import RouteEpoch
    from orbitmq.broker.metadata.topics import TopicTable
    from orbitmq.broker.pop.checkpoint import CheckpointWriter
    from orbitmq.broker.pop.inflight import PopOffsets
    from orbitmq.broker.stats.counters import BrokerStats
    from orbitmq.broker.timer.service import TimerService
    from orbitmq.native._native import AckBatcher
    from orbitmq.remoting import Connection
    from orbitmq.store import MessageStore


class AckFastPath(FastPathAdapter["AckBatcher"]):
    """Serves ACK_MESSAGE and BATCH_ACK_MESSAGE requests."""

    def __init__(
        self,
        epoch: RouteEpoch,
        store: MessageStore,
        topics: TopicTable,
        timer: TimerService,
        journal: CheckpointWriter,
        places: PopOffsets,
        stats: BrokerStats,
    ) -> None:
        self._store = store
        self._topics = topics
        self._timer = timer
        self._journal = journal
        self._places = places
        self._stats = stats
        self._append = store.appender.native.acknowledge
        super().__init__(epoch)

    def _create(self) -> AckBatcher:
        store = self._store
        self._is_usable = self._timer.has_no_limits and self._journal.revive_topic.isascii()
        return native.load().ack_batcher(
            languages=tuple(name.encode() for name in LANGUAGES_BY_NAME),
            json_parts=SUCCESS_PARTS,
            **store_parameters(store),
            revive_topic=self._journal.revive_topic.encode("utf-8", "replace"),
            revive_queues=self._journal.queue_count,
            precision=store.config.timer_precision_ms,
            longest=store.config.timer_max_delay_sec * 1000,
        )

    def _serve(self, connection: Connection, data: bytes) -> int:
        taken = self._append(self._native, data) if self._is_usable else None
        if taken is None:
            return NOT_NOW
        if taken.request_count:
            self.served += taken.request_count
            for share in taken.entered.shares:
                number = len(share.units) // UNIT_SIZE
                self._stats.put_by_broker(share.topic, share.queue_id, number, share.size, number)
            self._journal.end = self._store.log.end
            self._timer.on_deferred()
            for topic, queue_id, group, pop_time, number, times in taken.ranges:
                self._places.completed(topic, group, queue_id, number, pop_time)
                self._stats.add("GROUP_ACK_NUMS", f"{topic}@{group}", number, times)
            if taken.answers:
                connection.send(taken.answers, taken.request_count)
        return taken.size

    def _open_route(
        self, _connection: Connection, topic: str, queue_id: int, is_deferral: bool, _needs_queue: bool
    ) -> bool:
        config = self._topics.configs.get(topic)
        if not (topic == TIMER_TOPIC if is_deferral else config is not None and queue_id < config.read_queue_nums):
            return False
        return open_route(self._native, self._store.queues, topic, queue_id, is_deferral=is_deferral)
