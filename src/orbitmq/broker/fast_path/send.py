"""SEND fast path: appends sends and batches of the usual shapes, from all connections of a loop iteration at once.

This includes deferred messages: timers, delay levels and half messages. Everything here happens once per batch. A
queue has a route while nothing about its topic needs a decision of the Python path.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from orbitmq import native
from orbitmq.broker.fast_path.adapter import NOT_NOW, FastPathAdapter
from orbitmq.broker.fast_path.queue_route import open_route, store_parameters
from orbitmq.broker.metadata.attributes import is_plain
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.command.header import LANGUAGES_BY_NAME
from orbitmq.protocol.names import (
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TRANSACTION_HALF_TOPIC,
    is_closed_to_clients,
)
from orbitmq.store.consumequeue.consume_queue import UNIT_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.broker.fast_path.epoch import RouteEpoch
    from orbitmq.broker.metadata.topics import TopicTable
    from orbitmq.broker.runtime import BrokerRuntime, DeferredServices
    from orbitmq.broker.send.flow_control import SendFlow
    from orbitmq.broker.send.flush_waiters import FlushWaiters
    from orbitmq.native._native import SendBatcher
    from orbitmq.native.results import QueueShare, Stored
    from orbitmq.protocol.command.fast_encode import SendAnswers
    from orbitmq.remoting import Connection

_DEFERRAL_PROPERTIES = b"REAL_", b"TIMER_", b"__transactionId__"
"""Must not occur in properties that are added to every message, or deferred messages go to the Python path."""


class SendEncoding(NamedTuple):
    """Everything about records and responses of sends that is the same for all messages of a broker."""

    answers: SendAnswers
    added: bytes
    """Properties that every message gets."""
    kept_flags: int
    """The bits of sysFlag that are stored."""
    unique_ids: Callable[[], str]
    """Makes the unique keys of messages that come without one."""


class SendFastPath(FastPathAdapter["SendBatcher"]):
    """Serves SEND_MESSAGE, SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE requests."""

    def __init__(
        self,
        epoch: RouteEpoch,
        runtime: BrokerRuntime,
        topics: TopicTable,
        deferred: DeferredServices,
        flow: SendFlow,
        flushed: FlushWaiters | None,
        encoding: SendEncoding,
    ) -> None:
        """With ``flushed``, answers wait until their messages are on the disk."""
        self._config = runtime.config
        self._store = store = runtime.store
        self._append = store.appender.native.append
        self._queues = store.queues
        self._topics = topics
        self._schedule = deferred.schedule
        self._timer = deferred.timer
        self._transactions = deferred.transactions
        self._stats = runtime.stats
        self._flow = flow
        self._flushed = flushed
        self._encoding = encoding
        super().__init__(epoch)

    def _create(self) -> SendBatcher:
        config, store, encoding = self._config, self._store, self._encoding
        answers = encoding.answers
        levels = self._schedule.levels
        is_usual = [*levels] == [*range(1, len(levels) + 1)]
        self._deferral_topics = self._allowed_deferral_topics()
        return native.load().send_batcher(
            languages=tuple(name.encode() for name in LANGUAGES_BY_NAME),
            json_parts=answers.json_parts,
            binary_parts=answers.binary_parts,
            timed_json_parts=answers.timed_json_parts,
            timed_binary_parts=answers.timed_binary_parts,
            language=answers.language,
            version=answers.version,
            added=encoding.added,
            **store_parameters(store),
            kept_flags=encoding.kept_flags,
            broker_name=config.broker_name.encode(),
            precision=store.config.timer_precision_ms,
            longest=store.config.timer_max_delay_sec * 1000,
            batch_json=answers.batch_json,
            batch_binary=answers.batch_binary,
            delays=tuple(level.delay_ms for level in levels.values()) if is_usual else (),
            dispatches_later=not store.appender.native.dispatches_at_once,
            unique_ids=encoding.unique_ids,
            answers_later=self._flushed is not None and self._flushed.waits_for_slaves,
        )

    def _allowed_deferral_topics(self) -> frozenset[str]:
        """System topics into which the native code may append deferred messages."""
        if any(text in self._encoding.added for text in _DEFERRAL_PROPERTIES):
            return frozenset()
        topics = {SCHEDULE_TOPIC}
        # Slots with a limit need the timer wheel for each message; recall handles replace what is not ASCII.
        if self._timer is not None and self._timer.has_no_limits and self._config.broker_name.isascii():
            topics.add(TIMER_TOPIC)
        if not self._config.reject_transaction_message:
            topics.add(TRANSACTION_HALF_TOPIC)
        return frozenset(topics)

    def _serve(self, connection: Connection, data: bytes) -> int:
        taken = None if self._flow.refusal is not None else self._append(self._native, [(data, connection.state)])
        if taken is None:
            return NOT_NOW
        count, [served], stored = taken
        if count:
            self.served += count
            self._record(stored)
            answers = served.answers
            if answers and self._flushed is None:
                connection.send(answers, count)
            elif answers:
                self._answer_when_flushed(connection, count, answers)
        return served.size

    def take_together(self, received: list[tuple[Connection, bytes]]) -> list[int]:
        """Serve the sends that several connections' bytes begin with; the bytes served of each.

        Missing routes are not opened here but by ``take``, which gets the rest.
        """
        if self._flow.refusal is not None:
            return [0] * len(received)
        if self._epoch.value != self._seen_epoch:
            self._clear_routes()
        taken = self._append(self._native, [(data, connection.state) for connection, data in received])
        if taken is None:
            return [0] * len(received)
        count, parts, stored = taken
        if count:
            self.served += count
            self._record(stored)
        for (connection, _), served in zip(received, parts, strict=True):
            if served.answers and self._flushed is None:
                connection.send_now(served.answers)
            elif served.answers:
                self._answer_when_flushed(connection, served.message_count, served.answers)
        return [served.size for served in parts]

    def _answer_when_flushed(self, connection: Connection, count: int, answers: bytes) -> None:
        assert self._flushed is not None
        self._flushed.wait_batch(connection, count, answers, ResponseCode.FLUSH_DISK_TIMEOUT)

    def _record(self, stored: Stored) -> None:
        """Count stored messages and notify the services of deferred ones."""
        entered = stored.entered
        self._stats.counted(entered.message_count, entered.size)
        for share in entered.shares:
            self._stats.put(share.topic, share.queue_id, len(share.units) // UNIT_SIZE, share.size, share.requests)
            self._record_deferred(share, stored.halves)

    def _record_deferred(self, share: QueueShare, halves: list[tuple[str, int]]) -> None:
        if share.topic == SCHEDULE_TOPIC:
            self._schedule.on_deferred(share.queue_id + 1)
        elif share.topic == TRANSACTION_HALF_TOPIC:
            self._transactions.on_prepared_batch(halves, share.first, share.units)
        elif self._timer is not None:
            self._timer.on_deferred()

    def _open_route(
        self, _connection: Connection, topic: str, queue_id: int, is_deferral: bool, needs_queue: bool
    ) -> bool:
        if not (topic in self._deferral_topics if is_deferral else self._is_usual(topic, queue_id)):
            return False
        # Deferred messages are reported and not only counted: their service has to be notified.
        counter = None if is_deferral else self._stats.put_counter
        if open_route(self._native, self._queues, topic, queue_id, is_deferral=is_deferral, counter=counter):
            return True
        # The first message of a queue creates it, on the Python path. For the real queue of a deferred message a
        # route without a queue is enough.
        known = self._queues.topics.get(topic)
        if needs_queue or (known is not None and queue_id in known.queues):
            return False
        self._native.add_route(topic, topic.encode(), queue_id, 0, None, False)
        return True

    def _is_usual(self, topic: str, queue_id: int) -> bool:
        """True if sends to the queue need no decision of the Python path."""
        config = self._topics.configs.get(topic)
        return (
            config is not None
            and not is_closed_to_clients(topic)
            and topic[0] != "%"
            and is_plain(config.attributes)
            and not config.order
            and queue_id < config.write_queue_nums
        )
