"""Sends in the shapes that most have, many at a time: which queues the compiled kernel may fill, and what it did.

The kernel stores these straight from what a connection received, those that wait for a time, for a delay or for the
end of a transaction too; everything here is done once for a run of them. A queue is open to it while nothing about
its topic asks for a closer look, and until any topic changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.broker.kernel_lanes import facts_of, open_lane
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.header import LANGUAGES_BY_NAME
from orbitmq.protocol.names import (
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TOPICS_CLOSED_TO_CLIENTS,
    TRANSACTION_HALF_TOPIC,
)
from orbitmq.store.consume_queue import UNIT_SIZE

if TYPE_CHECKING:
    from orbitmq.broker.config import BrokerConfig
    from orbitmq.broker.flow import SendFlow
    from orbitmq.broker.flushed_answers import FlushedAnswers
    from orbitmq.broker.schedule import ScheduleService
    from orbitmq.broker.stats import BrokerStats
    from orbitmq.broker.timer import TimerService
    from orbitmq.broker.topics import TopicTable
    from orbitmq.broker.transaction import Transactions
    from orbitmq.kernel._native import SendRuns as Kernel
    from orbitmq.kernel._native import Stored
    from orbitmq.protocol.hot_answers import SendAnswers
    from orbitmq.remoting import Connection
    from orbitmq.store import MessageStore

_WRITTEN_BEHIND = b"REAL_", b"TIMER_", b"__transactionId__"
"""What properties must not have in them for those of waiting messages to be put behind them as they are."""


class SendRuns:
    """Takes sends off what connections receive. Only where the kernel was built, and the store is for it."""

    def __init__(
        self,
        kernel: type[Kernel],
        config: BrokerConfig,
        store: MessageStore,
        topics: TopicTable,
        schedule: ScheduleService,
        timer: TimerService | None,
        transactions: Transactions,
        stats: BrokerStats,
        flow: SendFlow,
        flushed: FlushedAnswers | None,
        answers: SendAnswers,
        added: bytes,
        kept_flags: int,
    ) -> None:
        """``added`` are the properties that every message gets, ``kept_flags`` what is kept of its sysFlag.

        If answers are ``flushed`` they say that a message is on the disk, and wait until it is.
        """
        self._kernel_type = kernel
        self._config = config
        self._store = store
        self._append = store.appender.runs.append
        self._queues = store.queues
        self._topics = topics
        self._schedule = schedule
        self._timer = timer
        self._transactions = transactions
        self._stats = stats
        self._flow = flow
        self._flushed = flushed
        self._answers = answers
        self._added = added
        self._kept_flags = kept_flags
        self.renew()

    def renew(self) -> None:
        """Go by the settings as they are now."""
        config, store, answers = self._config, self._store, self._answers
        levels = self._schedule.levels
        is_usual = [*levels] == [*range(1, len(levels) + 1)]
        self._kernel = self._kernel_type(
            languages=tuple(name.encode() for name in LANGUAGES_BY_NAME),
            json_parts=answers.json_parts,
            binary_parts=answers.binary_parts,
            timed_json_parts=answers.timed_json_parts,
            timed_binary_parts=answers.timed_binary_parts,
            language=answers.language,
            version=answers.version,
            added=self._added,
            **facts_of(store),
            kept_flags=self._kept_flags,
            broker_name=config.broker_name.encode(),
            precision=store.config.timer_precision_ms,
            longest=store.config.timer_max_delay_sec * 1000,
            batch_json=answers.batch_json,
            batch_binary=answers.batch_binary,
            delays=tuple(level.delay_ms for level in levels.values()) if is_usual else (),
            is_deferred=not store.appender.runs.shows_at_once,
        )
        self._note_versions()
        self._waiting = self._kinds_of_waiting()

    def _kinds_of_waiting(self) -> frozenset[str]:
        """The topics under which messages may wait that the kernel stores."""
        if any(text in self._added for text in _WRITTEN_BEHIND):
            return frozenset()
        waiting = {SCHEDULE_TOPIC}
        # Where slots have a limit the wheel is asked for each message, and what is no ASCII is replaced in handles.
        if self._timer is not None and self._timer.has_no_limits and self._config.broker_name.isascii():
            waiting.add(TIMER_TOPIC)
        if not self._config.reject_transaction_message:
            waiting.add(TRANSACTION_HALF_TOPIC)
        return frozenset(waiting)

    def take(self, connection: Connection, data: bytes) -> int:
        """Store the sends that ``data`` begins with and answer them; returns how many bytes they have."""
        if not self._may_take():
            return 0
        total = 0
        while True:
            taken = self._append(self._kernel, [(data, connection.state)])
            if taken is None:
                return total
            count, [(size, _, answers)], stored = taken
            if count:
                self._note(stored)
                if answers and self._flushed is None:
                    connection.send(answers, count)
                elif answers:
                    self._answer_when_flushed(connection, count, answers)
                total += size
            missing = self._kernel.missing
            if missing is None or not self._open_lane(*missing):
                return total
            data = data[size:]

    def take_together(self, received: list[tuple[Connection, bytes]]) -> list[int]:
        """The same for what several connections sent; how many bytes of each. No lane is opened for it."""
        if not self._may_take():
            return [0] * len(received)
        taken = self._append(self._kernel, [(data, connection.state) for connection, data in received])
        if taken is None:
            return [0] * len(received)
        count, pieces, stored = taken
        if count:
            self._note(stored)
        for (connection, _), (_, number, answers) in zip(received, pieces, strict=True):
            if answers and self._flushed is None:
                connection.send_now(answers)
            elif answers:
                self._answer_when_flushed(connection, number, answers)
        return [size for size, _, _ in pieces]

    def _answer_when_flushed(self, connection: Connection, count: int, answers: bytes) -> None:
        assert self._flushed is not None
        self._flushed.wait_together(connection, count, answers, ResponseCode.FLUSH_DISK_TIMEOUT)

    def _may_take(self) -> bool:
        """Whether anything may be stored now. Lanes of what has changed are closed."""
        if self._flow.refusal is not None:
            return False
        if (
            self._topics.data_version is not self._version
            or self._queues.removals != self._removals
            or self._stats.forgets != self._forgets
        ):
            self._note_versions()
            self._kernel.clear_lanes()
        return True

    def _note_versions(self) -> None:
        self._version = self._topics.data_version
        self._removals = self._queues.removals
        self._forgets = self._stats.forgets

    def _note(self, stored: Stored) -> None:
        """Messages were stored: count them, and tell those who wait for some."""
        _, (runs, _, _, _, nums, size), _, _, _, halves = stored
        self._stats.counted(nums, size)
        for topic, queue_id, first, units, run_size, requests in runs:
            self._stats.put(topic, queue_id, len(units) // UNIT_SIZE, run_size, requests)
            self._note_waiting(topic, queue_id, first, units, halves)

    def _note_waiting(
        self, topic: str, queue_id: int, first: int, units: bytes, halves: list[tuple[str, int]]
    ) -> None:
        """Messages were stored under a topic under which they wait."""
        if topic == SCHEDULE_TOPIC:
            self._schedule.note_parked(queue_id + 1)
        elif topic == TRANSACTION_HALF_TOPIC:
            self._transactions.note_prepared(halves, first, units)
        elif self._timer is not None:
            self._timer.note_parked()

    def _open_lane(self, topic: str, queue_id: int, is_parking: bool, needs_queue: bool) -> bool:
        """Let the kernel store messages for a place; False if they have to be looked at."""
        if not (topic in self._waiting if is_parking else self._is_usual(topic, queue_id)):
            return False
        # What waits somewhere is told, because somebody has to hear of it.
        counter = None if is_parking else self._stats.put_counter
        if open_lane(self._kernel, self._queues, topic, queue_id, is_parking=is_parking, counter=counter):
            return True
        # The first message to a queue makes it, which takes more than the kernel does. One that waits elsewhere
        # needs none yet.
        known = self._queues.topics.get(topic)
        if needs_queue or (known is not None and queue_id in known.queues):
            return False
        self._kernel.add_lane(topic, topic.encode(), queue_id, 0, None, False)
        return True

    def _is_usual(self, topic: str, queue_id: int) -> bool:
        """Whether nothing about a place asks for a closer look at what is sent there."""
        config = self._topics.configs.get(topic)
        return (
            config is not None
            and topic not in TOPICS_CLOSED_TO_CLIENTS
            and topic[0] != "%"
            and not config.attributes
            and not config.order
            and queue_id < config.write_queue_nums
        )
