"""Bulk append: many messages of many queues at once, used by delivery of deferred messages.

A single append costs several times as much per message, most of it for calls: clock, log, queue, index. Here
records are encoded into one write, and each queue and its listeners are notified once. The result is byte-identical
to single appends.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import TYPE_CHECKING

from orbitmq.protocol.java import tags_code
from orbitmq.protocol.message.crc import MASK, crc32
from orbitmq.protocol.message.flags import BORN_HOST_V6, INNER_BATCH, STORE_HOST_V6
from orbitmq.protocol.message.properties import index_fields
from orbitmq.protocol.message.record import HEADS, MAGIC_V1, MAGIC_V2
from orbitmq.store.consumequeue.consume_queue import UNIT, ConsumeQueue
from orbitmq.store.dispatch.dispatcher import MULTI_DISPATCH, NOT_QUEUED
from orbitmq.store.errors import AppendRefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from orbitmq.store.append.stored_message import StoredMessage
    from orbitmq.store.commitlog.commit_log import CommitLog
    from orbitmq.store.consumequeue.table import QueueTable
    from orbitmq.store.dispatch.dispatcher import Dispatcher
    from orbitmq.store.index.pending import Pending

_GONE_HOSTS = ~(BORN_HOST_V6 | STORE_HOST_V6)
_V6_BITS = {8: 0, 20: BORN_HOST_V6}
_NOT_PLAIN = NOT_QUEUED | INNER_BATCH


@dataclasses.dataclass(slots=True)
class Share:
    """Records of one call that went to one queue."""

    topic: str
    queue_id: int
    count: int = 0
    size: int = 0
    """Bytes of their records."""


@dataclasses.dataclass(frozen=True, slots=True)
class Bulk:
    """Result of a bulk append: how many of the given messages were appended, and to which queues."""

    count: int
    shares: list[Share]


class _Run:
    """Records of one queue in one batch."""

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
    """Appends plain messages, up to the first that needs a single append."""

    def __init__(
        self,
        log: CommitLog,
        queues: QueueTable,
        dispatcher: Dispatcher,
        make_room: Callable[[int], None],
        *,
        max_body: int,
        max_properties: int,
        dispatches_at_once: bool,
        multi_dispatch: bool,
    ) -> None:
        """``make_room`` reserves contiguous space for this many bytes of records in one file, if possible."""
        self._log = log
        self._queues = queues
        self._dispatcher = dispatcher
        self._make_room = make_room
        self._max_body = max_body
        self._max_properties = max_properties
        self._dispatches_at_once = dispatches_at_once
        self._multi_dispatch = multi_dispatch
        self._store_host_bit = STORE_HOST_V6 if len(log.store_host) == 20 else 0

    def append(self, messages: Sequence[StoredMessage], now: int) -> Bulk:
        """Append messages until one needs ``append``, because it is special or will be refused."""
        shares: dict[tuple[str, int], Share] = {}
        count = 0
        while count < len(messages):
            taken = self._append_piece(messages, count, now, shares)
            if not taken:
                break
            count += taken
        return Bulk(count, list(shares.values()))

    def _append_piece(
        self, messages: Sequence[StoredMessage], start: int, now: int, shares: dict[tuple[str, int], Share]
    ) -> int:
        """Append messages from ``start`` on that fit into the rest of the file; returns how many."""
        log, dispatcher = self._log, self._dispatcher
        is_caught_up = self._dispatches_at_once and dispatcher.position == log.end
        store_host, store_host_bit = log.store_host, self._store_host_bit
        max_body, max_properties, multi_dispatch = self._max_body, self._max_properties, self._multi_dispatch
        offset, room = log.end, log.room
        runs: dict[tuple[str, int], _Run] = {}
        parts: list[bytes | memoryview] = []
        indexed: list[Pending] = []
        count = 0
        for (
            topic, queue_id, body, properties, flag, sys_flag, born_timestamp, born_host, reconsume_times, prepared,
        ) in itertools.islice(messages, start, None):  # fmt: skip
            key = (topic, queue_id)
            run = runs.get(key)
            if run is None:
                run = self._new_run(key, shares, is_caught_up=is_caught_up)
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
            if is_caught_up:
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
            if is_caught_up:
                dispatcher.enter_run(run.queue, run.first, b"".join(run.units), run.stop, run.code, now)
        if is_caught_up:
            dispatcher.index_many(indexed)
            dispatcher.position = offset
        return count

    def _new_run(
        self, key: tuple[str, int], shares: dict[tuple[str, int], Share], *, is_caught_up: bool
    ) -> _Run | None:
        """A batch for a queue; None if messages to this queue must be appended one by one."""
        try:
            queue = self._queues.get(*key)
        except (AppendRefusedError, OSError):
            return None
        known = self._queues.topics[key[0]]
        if not isinstance(queue, ConsumeQueue) or known.is_schedule:
            return None
        if is_caught_up and (queue.end != queue.next_offset or queue.max_physical > self._log.end):
            return None
        return _Run(known.field, MAGIC_V2 if known.version_2 else MAGIC_V1, queue, shares.get(key) or Share(*key))

    def _has_room(self, size: int) -> bool:
        try:
            self._make_room(size)
        except AppendRefusedError:
            return False
        return True
