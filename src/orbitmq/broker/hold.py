"""Pulls that wait for messages (long polling): woken by dispatch, looked at every few seconds, ended in time.

A record that arrives marks its queue; the pulls held for the marked queues run once in the next turn of the loop,
however many records came in this one. A pull whose filter wants none of them stays, and remembers how far it has
looked. Time-outs are found by one sweep, not by a timer each.
"""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING

from orbitmq.broker.arrivals import listen, unlisten
from orbitmq.remoting.refusals import failed

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.filter import CompiledFilter
    from orbitmq.protocol.header import Header
    from orbitmq.remoting import Connection
    from orbitmq.store import MessageStore
    from orbitmq.store.queue_table import Queue

MOST_HELD = 500_000
"""Pulls held by one broker; a further one is answered at once. Each takes about a kilobyte."""

LONGEST_HOLD_MS = 120_000
"""A connection on which nothing happens for longer than this is closed anyway."""

SWEEP_SECONDS = 0.25
"""How exactly a pull's time-out is kept."""

LOOK_AGAIN_MS = 5_000
"""A pull that the filter of each arrival has kept waiting is answered after this, so that its client gets on."""


@dataclasses.dataclass(slots=True, eq=False)
class HeldPull:
    """One pull that waits."""

    connection: Connection
    header: Header
    serialize_type: int
    topic: str
    queue_id: int
    offset: int
    deadline_ms: int
    look_again_ms: int
    wanted: CompiledFilter | None
    looked_to: int
    """Queue offset before which the filter wants nothing."""


class HoldTable:
    """All pulls that wait, by the queue that they wait for."""

    def __init__(
        self,
        store: MessageStore,
        now_ms: Callable[[], int],
        answer: Callable[[HeldPull], None],
        finds_some: Callable[[HeldPull], bool],
    ) -> None:
        """``answer`` answers a pull with what there is now, ``finds_some`` looks whether there is anything."""
        self._store = store
        self._now_ms = now_ms
        self._answer = answer
        self._finds_some = finds_some
        self._held: dict[tuple[str, int], list[HeldPull]] = {}
        self._count = 0
        self._arrived: set[tuple[str, int]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._is_over = False

    def __len__(self) -> int:
        return self._count

    def hold(self, pull: HeldPull) -> bool:
        """Keep a pull until there is something for it; False if there is no room, or the broker stops."""
        if self._count >= MOST_HELD or self._is_over:
            return False
        if not self._held:
            listen(self._store.dispatcher, self._note_arrival)
        self._held.setdefault((pull.topic, pull.queue_id), []).append(pull)
        self._count += 1
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(SWEEP_SECONDS, self._sweep)
        return True

    def waiting_for(self, topic: str, queue_id: int) -> int:
        """How many pulls wait for a queue."""
        return len(self._held.get((topic, queue_id), ()))

    def release(self) -> None:
        """Answer all pulls with what there is and hold no more, because the broker stops.

        Clients pull again as soon as they are answered, and what they wait for then would never come.
        """
        self._is_over = True
        for key in tuple(self._held):
            for pull in self._take(key):
                self.end(pull)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # Waking

    def _note_arrival(self, queue: Queue, _code: int, _store_timestamp: int) -> None:
        key = (queue.topic, queue.queue_id)
        if key in self._held:
            if not self._arrived:
                asyncio.get_running_loop().call_soon(self._wake)
            self._arrived.add(key)

    def _wake(self) -> None:
        arrived, self._arrived = self._arrived, set()
        for key in arrived:
            pulls = self._take(key)
            kept = [pull for pull in pulls if not self._ends_now(pull)]
            self._keep(key, kept)

    def _ends_now(self, pull: HeldPull) -> bool:
        """Answer a pull if there is something for it, or nobody who would read it."""
        try:
            if pull.wanted is not None and not pull.connection.is_closing and not self._finds_some(pull):
                return False
        except Exception as error:
            self._fail(pull, error)
        else:
            self.end(pull)
        return True

    def _sweep(self) -> None:
        self._timer = None
        try:
            self._end_those_due(self._now_ms())
        finally:
            # Whatever happened: without the next sweep nobody would hear that his time is over.
            if self._held:
                self._timer = asyncio.get_running_loop().call_later(SWEEP_SECONDS, self._sweep)

    def _end_those_due(self, now: int) -> None:
        for key in tuple(self._held):
            pulls = self._held[key]
            if all(now < pull.look_again_ms and not pull.connection.is_closing for pull in pulls):
                continue
            max_offset = self._store.max_offset(*key)
            kept = []
            for pull in self._take(key):
                looks_again = now >= pull.look_again_ms
                has_more = looks_again and max_offset != pull.offset
                if has_more or now >= pull.deadline_ms or pull.connection.is_closing:
                    self.end(pull)
                else:
                    if looks_again:
                        pull.look_again_ms = min(pull.deadline_ms, now + LOOK_AGAIN_MS)
                    kept.append(pull)
            self._keep(key, kept)

    def end(self, pull: HeldPull) -> None:
        """Answer a pull that is in no table any more."""
        try:
            if pull.connection.is_closing:
                # Nobody reads the answer, but it is owed.
                pull.connection.answer(pull.header, b"")
            else:
                self._answer(pull)
        except Exception as error:
            self._fail(pull, error)

    @staticmethod
    def _fail(pull: HeldPull, error: Exception) -> None:
        """The pull is out of the table and owed an answer; that it is this one must not stop the others."""
        connection, header = pull.connection, pull.header
        connection.answer(header, failed(error, header, pull.serialize_type, connection.remote_address))

    def _take(self, key: tuple[str, int]) -> list[HeldPull]:
        pulls = self._held.pop(key, [])
        self._count -= len(pulls)
        if not self._held:
            unlisten(self._store.dispatcher, self._note_arrival)
        return pulls

    def _keep(self, key: tuple[str, int], pulls: list[HeldPull]) -> None:
        if pulls:
            # Behind those that came while these were looked at, if any did.
            self._held.setdefault(key, []).extend(pulls)
            self._count += len(pulls)
            listen(self._store.dispatcher, self._note_arrival)
