"""Acknowledgements of popped messages, many at a time: for which queues the kernel may, and what it did."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.broker.kernel_lanes import facts_of, open_lane
from orbitmq.protocol.header import LANGUAGES_BY_NAME
from orbitmq.protocol.names import TIMER_TOPIC
from orbitmq.remoting.processing import SUCCESS_PARTS
from orbitmq.store.consume_queue import UNIT_SIZE

if TYPE_CHECKING:
    from orbitmq.broker.pop_checkpoints import PopJournal
    from orbitmq.broker.pop_offsets import PopOffsets
    from orbitmq.broker.stats import BrokerStats
    from orbitmq.broker.timer import TimerService
    from orbitmq.broker.topics import TopicTable
    from orbitmq.kernel._native import AckRuns as Kernel
    from orbitmq.remoting import Connection
    from orbitmq.store import MessageStore


class AckRuns:
    """Takes acknowledgements of single messages off what connections receive."""

    def __init__(
        self,
        kernel: type[Kernel],
        store: MessageStore,
        topics: TopicTable,
        timer: TimerService,
        journal: PopJournal,
        places: PopOffsets,
        stats: BrokerStats,
    ) -> None:
        self._kernel_type = kernel
        self._store = store
        self._topics = topics
        self._timer = timer
        self._journal = journal
        self._places = places
        self._stats = stats
        self._append = store.appender.runs.acknowledge
        self.renew()

    def renew(self) -> None:
        """Go by the settings as they are now."""
        store = self._store
        self._kernel = self._kernel_type(
            languages=tuple(name.encode() for name in LANGUAGES_BY_NAME),
            json_parts=SUCCESS_PARTS,
            **facts_of(store),
            revive_topic=self._journal.revive_topic.encode("utf-8", "replace"),
            revive_queues=self._journal.queue_count,
            precision=store.config.timer_precision_ms,
            longest=store.config.timer_max_delay_sec * 1000,
        )
        self._is_wanted = self._timer.has_no_limits and self._journal.revive_topic.isascii()
        self._version = self._topics.data_version
        self._removals = store.queues.removals

    def take(self, connection: Connection, data: bytes) -> int:
        """Note the acknowledgements that ``data`` begins with and answer them; returns how many bytes they have."""
        if not self._is_wanted:
            return 0
        if self._topics.data_version is not self._version or self._store.queues.removals != self._removals:
            self._version, self._removals = self._topics.data_version, self._store.queues.removals
            self._kernel.clear_lanes()
        total = 0
        while True:
            taken = self._append(self._kernel, data)
            if taken is None:
                return total
            size, count, _, answers, (runs, *_), _, _, _, settled = taken
            if count:
                for topic, queue_id, _, units, stored, _ in runs:
                    number = len(units) // UNIT_SIZE
                    self._stats.put(topic, queue_id, number, stored, number)
                self._journal.end = self._store.log.end
                self._timer.note_parked()
                for topic, queue_id, group, pop_time, number in settled:
                    self._places.settled(topic, group, queue_id, number, pop_time)
                    self._stats.add("GROUP_ACK_NUMS", f"{topic}@{group}", number, number)
                if answers:
                    connection.send(answers, count)
                total += size
            missing = self._kernel.missing
            if missing is None or not self._open_lane(*missing):
                return total
            data = data[size:]

    def _open_lane(self, topic: str, queue_id: int, is_parking: bool, _: bool) -> bool:
        """Let messages of a queue be acknowledged; False if each of them has to be looked at."""
        config = self._topics.configs.get(topic)
        if not (topic == TIMER_TOPIC if is_parking else config is not None and queue_id < config.read_queue_nums):
            return False
        return open_lane(self._kernel, self._store.queues, topic, queue_id, is_parking=is_parking)
