"""Many messages of many queues into the log at once, as a broker has them when their time has come.

Appended one by one a message costs several times as much, of which most are calls: to the clock, into the log, to
its queue and to the index. Here records are made side by side and written together, and each queue, and whoever
waits for it, hears of them once. What comes out is what single appends make, to the byte.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import TYPE_CHECKING, NamedTuple

from orbitmq.protocol.crc import MASK, crc32
from orbitmq.protocol.flags import BORN_HOST_V6, INNER_BATCH, STORE_HOST_V6
from orbitmq.protocol.java import tags_code
from orbitmq.protocol.properties import index_fields
from orbitmq.protocol.record import HEADS, MAGIC_V1, MAGIC_V2
from orbitmq.store.consume_queue import UNIT, ConsumeQueue
from orbitmq.store.dispatch import MULTI_DISPATCH, NOT_QUEUED
from orbitmq.store.errors import AppendRefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from orbitmq.store.commit_log import CommitLog
    from orbitmq.store.dispatch import Dispatcher
    from orbitmq.store.index_pending import Pending
    from orbitmq.store.queue_table import QueueTable

_GONE_HOSTS = ~(BORN_HOST_V6 | STORE_HOST_V6)
_V6_BITS = {8: 0, 20: BORN_HOST_V6}
_NOT_PLAIN = NOT_QUEUED | INNER_BATCH


class Message(NamedTuple):
    """A message and the queue it goes to: what ``append`` is told of one."""

    topic: str
    queue_id: int
    body: bytes
    properties: bytes
    flag: int
    sys_flag: int
    born_timestamp: int
    born_host: bytes
    reconsume_times: int
    prepared_transaction_offset: int = 0


@dataclasses.dataclass(slots=True)
class Share:
    """What one queue got of the messages of a call."""

    topic: str
    queue_id: int
    count: int = 0
    size: int = 0
    """Of their records, in bytes."""


@dataclasses.dataclass(frozen=True, slots=True)
class Bulk:
    """How many messages were appended, the first ones of those that were given, and to which queues."""

    count: int
    shares: list[Share]


class _Run:
    """The records that one queue gets in one piece of the log."""

    __slots__ = ("code", "field", "field_size", "first", "magic", "next", "queue", "share", "stop", "units")

    def __init__(self, field: bytes, magic: int, queue: ConsumeQueue, share: Share) -> None:
        self.field = field
        self.field_size = len(field) + 2
        self.magic = magic
        self.queue = queue
        self.share = share
        self.first = self.next = queue.next_offset
        self.units: list[bytes] = []
        self.code = self.stop = 0


class BulkAppender:
    """Appends what is plain, up to the first message that is not."""

    def __init__(
        self,
        log: CommitLog,
        queues: QueueTable,
        dispatcher: Dispatcher,
        make_room: Callable[[int], None],
        *,
        max_body: int,
        max_properties: int,
        shows_at_once: bool,
        multi_dispatch: bool,
    ) -> None:
        """``make_room`` sees to it that so many bytes of records land in one file, if they may."""
        self._log = log
        self._queues = queues
        self._dispatcher = dispatcher
        self._make_room = make_room
        self._max_body = max_body
        self._max_properties = max_properties
        self._shows_at_once = shows_at_once
        self._multi_dispatch = multi_dispatch
        self._store_host_bit = STORE_HOST_V6 if len(log.store_host) == 20 else 0

    def append(self, messages: Sequence[Message], now: int) -> Bulk:
        """Append messages until one has to go by itself, because it is special or refused: ``append`` says why."""
        shares: dict[tuple[str, int], Share] = {}
        count = 0
        while count < len(messages):
            taken = self._append_piece(messages, count, now, shares)
            if not taken:
                break
            count += taken
        return Bulk(count, list(shares.values()))

    def _append_piece(
        self, messages: Sequence[Message], start: int, now: int, shares: dict[tuple[str, int], Share]
    ) -> int:
        """Append messages from ``start`` on that fit into what is left of a file; returns how many."""
        log, dispatcher = self._log, self._dispatcher
        in_step = self._shows_at_once and dispatcher.position == log.end
        store_host, store_host_bit = log.store_host, self._store_host_bit
        max_body, max_properties, multi_dispatch = self._max_body, self._max_properties, self._multi_dispatch
        offset, room = log.end, log.room
        runs: dict[tuple[str, int], _Run] = {}
        parts: list[bytes] = []
        indexed: list[Pending] = []
        count = 0
        for (
            topic, queue_id, body, properties, flag, sys_flag, born_timestamp, born_host, reconsume_times, prepared,
        ) in itertools.islice(messages, start, None):  # fmt: skip
            key = (topic, queue_id)
            run = runs.get(key)
            if run is None:
                run = self._new_run(key, shares, in_step=in_step)
                if run is None:
                    break
            body_size, properties_size = len(body), len(properties)
            if (
                sys_flag & _NOT_PLAIN
                or body_size > max_body
                or properties_size > max_properties
                or (multi_dispatch and MULTI_DISPATCH in properties)
            ):
                break
            all_flags = sys_flag & _GONE_HOSTS | _V6_BITS[len(born_host)] | store_host_bit
            head = HEADS[all_flags >> 4 & 3]
            size = head.size + body_size + run.field_size + properties_size
            if size > room:
                if count or not self._has_room(size):
                    break
                offset, room = log.end, log.room
            runs[key] = run
            room -= size
            queue_offset = run.next
            run.next = queue_offset + 1
            parts += (
                head.pack(
                    size, run.magic, crc32(body) & MASK, queue_id, flag, queue_offset, offset, all_flags,
                    born_timestamp, born_host, now, store_host, reconsume_times, prepared, body_size,
                ),
                body,
                run.field,
                properties_size.to_bytes(2, "big"),
                properties,
            )  # fmt: skip
            if in_step:
                tags, keys, unique_key = index_fields(properties)
                run.code = code = tags_code(tags) if tags else 0
                run.units.append(UNIT.pack(offset, size, code))
                indexed.append((topic, offset, now, unique_key, keys, tags))
            offset += size
            run.stop = offset
            run.share.size += size
            count += 1
        if not count:
            return 0
        log.append_raw(b"".join(parts))
        log.last_store_timestamp = now
        for key, run in runs.items():
            run.queue.next_offset = run.next
            run.share.count += run.next - run.first
            shares[key] = run.share
            if in_step:
                dispatcher.enter_run(run.queue, run.first, b"".join(run.units), run.stop, run.code, now)
        if in_step:
            dispatcher.index_many(indexed)
            dispatcher.position = offset
        return count

    def _new_run(self, key: tuple[str, int], shares: dict[tuple[str, int], Share], *, in_step: bool) -> _Run | None:
        """None if messages to this queue have to be appended one by one."""
        try:
            queue = self._queues.get(*key)
        except (AppendRefusedError, OSError):
            return None
        known = self._queues.topics[key[0]]
        if not isinstance(queue, ConsumeQueue) or known.is_schedule:
            return None
        if in_step and (queue.end != queue.next_offset or queue.max_physical > self._log.end):
            return None
        return _Run(known.field, MAGIC_V2 if known.version_2 else MAGIC_V1, queue, shares.get(key) or Share(*key))

    def _has_room(self, size: int) -> bool:
        try:
            self._make_room(size)
        except AppendRefusedError:
            return False
        return True
