"""POP revive of an acting slave: messages that were popped from the dead master and not acknowledged.

Check points and acknowledgements come due in the timer. The slave cannot append them to its revive topic, so they
are held in memory beside those that the topic has already, and what was not acknowledged goes through the outbox to
the retry topic of its group at another master. A check point counts as delivered once these are stored there.

Some are not decided when the master is back: their acknowledgements come due later. The master gets these.
"""

from __future__ import annotations

import asyncio
import collections
import logging
from typing import TYPE_CHECKING

from orbitmq.broker.pop.checkpoint import AHEAD_MS
from orbitmq.broker.pop.revive import SLICE_RECORDS, Key, ReviveQueue, ReviveService
from orbitmq.protocol.message.record import decode_record, encode_record
from orbitmq.protocol.names import REVIVE_GROUP
from orbitmq.store import AppendRefusedError, PutStatus, StoreError

if TYPE_CHECKING:
    from orbitmq.broker.escape.bridge import EscapeBridge
    from orbitmq.broker.pop.checkpoint import Timer
    from orbitmq.broker.pop.service import PopService
    from orbitmq.broker.runtime import BrokerRuntime, Metadata
    from orbitmq.protocol.bodies import AckMsg, PopCheckPoint
    from orbitmq.protocol.message.record import Record
    from orbitmq.store import StoredMessage

log = logging.getLogger("orbitmq.broker")

NOWHERE = -1
"""The revive offset of a check point that is not in the revive topic."""

MAX_HELD = 100_000
"""Records in memory; beyond that the timer waits."""

MAX_HANDED_OVER = 20_000
"""Check points in one response to the master. The messages of others are redelivered."""

RETRY_SECONDS = 0.02

Undecided = list[tuple[int, "PopCheckPoint"]]
"""Check points with their revive queues."""


class EscapeRevive(ReviveService):
    """Redelivers to another master, between ``begin`` and ``finish``."""

    def __init__(
        self, runtime: BrokerRuntime, metadata: Metadata, pop: PopService, timer: Timer, bridge: EscapeBridge
    ) -> None:
        assert pop.checkpoints is not None, "a broker without timer has no POP"
        super().__init__(runtime, metadata, pop.pop_offsets, pop.checkpoints, timer)
        self._bridge = bridge
        self._inbox: collections.deque[tuple[int, Record]] = collections.deque()
        """Records that came due, with their numbers."""
        self._held: collections.OrderedDict[tuple[int, Key], int] = collections.OrderedDict()
        """Check points in memory that decide about records that came due, with the numbers of these."""
        self._count = 0
        self._number = 0
        """Of the record in hand, if it came due here."""
        self._moved = asyncio.Event()
        self._done: dict[int, int] = {}
        """By revive queue, the offset of the last check point that was processed."""
        self._committing: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Start, from the progress that the master had."""
        self._drop()
        self.queues.clear()
        self.start()

    def take(self, message: StoredMessage) -> int:
        """Take a record for the revive topic that came due; returns its size. Raises AppendRefusedError."""
        if len(self._inbox) + len(self._held) >= MAX_HELD:
            raise AppendRefusedError(
                PutStatus.SERVICE_NOT_AVAILABLE, f"{MAX_HELD} check points of this acting slave wait"
            )
        host = self._store.log.store_host
        data = encode_record(
            topic=message.topic.encode(),
            queue_id=message.queue_id,
            body=message.body,
            properties=message.properties,
            queue_offset=NOWHERE,
            born_host=host,
            store_host=host,
            store_timestamp=self._clock.now_ms(),
        )
        self._count += 1
        self._inbox.append((self._count, decode_record(data)))
        return len(data)

    async def settled(self) -> None:
        """Wait until all records that were taken so far have been decided about."""
        mark = self._count
        while self._oldest <= mark:
            self._moved.clear()
            await self._moved.wait()

    @property
    def _oldest(self) -> int:
        """The number of the first record that is not decided about."""
        held = next(iter(self._held.values()), self._count + 1)
        return min(held, self._inbox[0][0]) if self._inbox else held

    # One pass

    def turn(self) -> bool:
        """As of the master's; what came due follows when the revive topic was read."""
        is_done = super().turn()
        for _ in range(SLICE_RECORDS if is_done else 0):
            if not self._inbox:
                break
            self._take_one(*self._inbox.popleft())
        self._moved.set()
        if self._done and self._committing is None:
            self._committing = asyncio.get_running_loop().create_task(self._commit())
        return is_done and not self._inbox

    def _take_one(self, number: int, record: Record) -> None:
        queues = {queue.queue_id: queue for queue in self.queues}
        queue = queues.get(record.queue_id) or next(iter(queues.values()), None)
        if queue is None:
            return
        self._number = number
        self._process(queue, record)
        self._number = 0

    def _add_point(self, queue: ReviveQueue, record: Record) -> None:
        super()._add_point(queue, record)
        self._hold(queue, next(reversed(queue.pending)))

    def _acknowledge(self, queue: ReviveQueue, ack: AckMsg, offsets: tuple[int, ...]) -> None:
        super()._acknowledge(queue, ack, offsets)
        key = self._key_of(ack)
        if key in queue.pending:
            self._hold(queue, key)

    def _hold(self, queue: ReviveQueue, key: Key) -> None:
        """Count the record in hand as decided about when this check point is."""
        if self._number:
            self._held.setdefault((queue.queue_id, key), self._number)

    def _processed(self, queue: ReviveQueue, key: Key, point: PopCheckPoint) -> None:
        self._held.pop((queue.queue_id, key), None)
        if point.revive_offset != NOWHERE:
            self._done[queue.queue_id] = point.revive_offset

    def _append(self, retry: StoredMessage, _: str) -> int:
        return self._bridge.append(retry).size

    def _reschedule(self, _: ReviveQueue, point: PopCheckPoint, offset: int) -> None:
        """The outbox is full or closed: the next pass tries again."""
        raise StoreError(f"message {offset} of {point.topic} waits for another master")

    async def _commit(self) -> None:
        """Count check points as processed when their messages are stored."""
        done, self._done = self._done, {}
        try:
            await self._bridge.sent()
        except StoreError:
            return  # left to the master
        finally:
            self._committing = None
        for queue_id, offset in done.items():
            self._offsets.commit(REVIVE_GROUP, self.topic, queue_id, offset)

    # The end

    async def finish(self, until_ms: int, *, hands_over: bool) -> Undecided:
        """End, and redeliver what was not acknowledged until now.

        ``until_ms``: the timer has delivered what was due before. With ``hands_over`` the check points are returned
        whose acknowledgements may come due later; otherwise their messages are redelivered.
        """
        self.stop()
        while not self.turn():  # noqa: ASYNC110  # a slice of work each
            await asyncio.sleep(0)
        undecided: Undecided = []
        for queue in self.queues:
            for key, point in list(queue.pending.items()):
                is_open = point.revive_time + AHEAD_MS > until_ms
                if hands_over and is_open and len(undecided) < MAX_HANDED_OVER:
                    undecided.append((queue.queue_id, point))
                else:
                    await self._revive_now(queue, point)
                del queue.pending[key]
                self._processed(queue, key, point)
        self._moved.set()
        if self._committing is not None:
            await self._committing
        await self._commit()
        return undecided

    async def _revive_now(self, queue: ReviveQueue, point: PopCheckPoint) -> None:
        while True:
            try:
                self._revive(queue, point)
            except StoreError:
                await asyncio.sleep(RETRY_SECONDS)
            else:
                return

    def drop(self) -> None:
        """End, and leave everything to the master."""
        self.stop()
        self._drop()

    @property
    def waiting(self) -> int:
        """Records and check points in memory."""
        return len(self._inbox) + len(self._held)

    def _drop(self) -> None:
        for queue in self.queues:
            queue.pending.clear()
        self._inbox.clear()
        self._held.clear()
        self._done.clear()
        self._moved.set()
