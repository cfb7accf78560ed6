"""Order info of orderly pops (RocketMQ: ConsumerOrderInfoManager): a pop blocks its queue until it is acknowledged.

One entry per queue and group: the offsets of the last pop, which of them were acknowledged, until when each of the
others is invisible, and how often each was delivered before. It is persisted in ``consumerOrderInfo.json``.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from orbitmq.protocol.message.pop_receipt import topic_kind
from orbitmq.store.config_tables import CONSUMER_ORDER_INFO, ConsumerOrderInfoTable, OrderInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from orbitmq.broker.config.persistence import ConfigWriter
    from orbitmq.broker.metadata.subscription_groups import GroupTable
    from orbitmq.broker.metadata.topics import TopicTable
    from orbitmq.store import Clock

IDLE_MS = 24 * 3_600_000
"""Entries without a pop for so long are dropped when the table is written."""

ILLEGAL = -1
IGNORED = -2


class PopOrders:
    """The order info of all queues and groups."""

    def __init__(self, writer: ConfigWriter, topics: TopicTable, groups: GroupTable, clock: Clock) -> None:
        self._writer = writer
        self._topics = topics
        self._groups = groups
        self._clock = clock
        self._table: dict[str, dict[int, OrderInfo]] = {}
        self._free_times: list[tuple[int, str, str, int]] = []
        self._has_changed = False

    # Popping

    def is_blocked(self, topic: str, group: str, queue_id: int, attempt_id: str | None, invisible_ms: int) -> bool:
        """True if a queue has messages that are neither acknowledged nor visible again.

        It is not blocked for the same attempt, whose response was lost.
        """
        info = self._find(topic, group, queue_id)
        if info is None or not info.offset_list:
            return False
        if info.attempt_id is not None and info.attempt_id == attempt_id:
            return False
        if not info.invisible_time or info.invisible_time <= 0:
            info.invisible_time = invisible_ms
        now = self._clock.now_ms()
        return any(now < _visible_at(info, offset) for offset in _open_offsets(info))

    def note(
        self,
        topic: str,
        group: str,
        queue_id: int,
        attempt_id: str | None,
        pop_time: int,
        invisible_ms: int,
        offsets: Sequence[int],
        *,
        keeps_acknowledged: bool = False,
    ) -> list[str]:
        """Record a pop of these offsets; returns its items of ``orderCountInfo``.

        With ``keeps_acknowledged`` those that were acknowledged after the pop before remain so.
        """
        queues = self._table.setdefault(f"{topic}@{group}", {})
        before = queues.get(queue_id)
        info = queues[queue_id] = OrderInfo(
            pop_time=pop_time,
            invisible_time=invisible_ms,
            offset_list=(offsets[0], *(offset - offsets[0] for offset in offsets[1:])),
            last_consume_timestamp=self._clock.now_ms(),
            attempt_id=attempt_id,
        )
        counts = None
        if before is not None:
            counts = info.offset_consumed_count = _counts_after(before, info)
            if keeps_acknowledged and before.commit_offset_bit:
                done = set(_offsets(before)).difference(_open_offsets(before))
                info.commit_offset_bit = sum(1 << at for at, offset in enumerate(offsets) if offset in done)
        self._changed(topic, group, queue_id, info)
        kind = topic_kind(topic)
        items = [f"{kind} qo{queue_id}%{offset} {count}" for offset, count in (counts or {}).items()]
        least = min(counts.values()) if counts and len(counts) == len(offsets) else 0
        # For clients that read counts by queue only.
        return [*items, f"{kind} {queue_id} {least}"]

    def counts(self, topic: str, group: str, queue_id: int, offsets: Sequence[int]) -> list[int]:
        """How often each of these messages, of the last pop, was delivered before."""
        info = self._find(topic, group, queue_id)
        counts = None if info is None else info.offset_consumed_count
        return [0 if counts is None else counts.get(offset, 0) for offset in offsets]

    def unacknowledged(self, topic: str, group: str, queue_id: int) -> list[int]:
        """The offsets of the last pop of a queue that were not acknowledged."""
        info = self._find(topic, group, queue_id)
        return [] if info is None else list(_open_offsets(info))

    def is_known(self, topic: str, group: str, queue_id: int) -> bool:
        """True if the last pop of a queue is known."""
        return self._find(topic, group, queue_id) is not None

    def __len__(self) -> int:
        """The number of queues and groups with a pop."""
        return sum(map(len, self._table.values()))

    # Acknowledgement

    def acknowledge(self, topic: str, group: str, queue_id: int, offset: int, pop_time: int) -> int:
        """Acknowledge a message; returns the new offset of the group, ILLEGAL or IGNORED."""
        info = self._find(topic, group, queue_id)
        if info is None:
            return offset + 1
        offsets = _offsets(info)
        if not offsets:
            return ILLEGAL
        if pop_time != info.pop_time:
            return IGNORED
        if offset not in offsets:
            return ILLEGAL
        info.commit_offset_bit |= 1 << offsets.index(offset)
        self._changed(topic, group, queue_id, info)
        return next(_open_offsets(info), offsets[-1] + 1)

    def hide_until(self, topic: str, group: str, queue_id: int, offset: int, pop_time: int, time_ms: int) -> None:
        """Change the time at which a message is visible again."""
        info = self._find(topic, group, queue_id)
        if info is None or info.pop_time != pop_time:
            return
        info.offset_next_visible_time = {**(info.offset_next_visible_time or {}), offset: time_ms}
        self._changed(topic, group, queue_id, info)

    def suspend(self, topic: str, group: str, queue_id: int, pop_time: int, time_ms: int) -> None:
        """Make all messages of a pop visible again at a time, without counting their delivery."""
        info = self._find(topic, group, queue_id)
        if info is None or info.pop_time != pop_time:
            return
        counts = info.offset_consumed_count or {}
        info.offset_consumed_count = {offset: counts.get(offset, 0) - 1 for offset in _offsets(info)}
        info.offset_next_visible_time = None
        info.invisible_time = time_ms - pop_time
        self._changed(topic, group, queue_id, info)

    def clear(self, topic: str, group: str, queue_id: int) -> None:
        """Drop the entry of a queue."""
        key = f"{topic}@{group}"
        queues = self._table.get(key)
        if queues is not None and queues.pop(queue_id, None) is not None:
            self._has_changed = True
            if not queues:
                del self._table[key]

    def clear_acknowledged(self, topic: str, group: str, queue_id: int) -> None:
        """Drop the entry of a queue all of whose messages were acknowledged."""
        info = self._find(topic, group, queue_id)
        if info is not None and next(_open_offsets(info), None) is None:
            self.clear(topic, group, queue_id)

    def retain(self, is_wanted: Callable[[str, str], bool]) -> None:
        """Drop the entries of other topics and groups."""
        for key in [key for key in self._table if not is_wanted(*key.split("@", 1))]:
            del self._table[key]
            self._has_changed = True

    def freed(self, now: int) -> list[tuple[str, str, int]]:
        """Topic, group and queue of entries whose messages became visible since the last call."""
        found = []
        while self._free_times and self._free_times[0][0] <= now:
            found.append(heapq.heappop(self._free_times)[1:])
        return found

    def _find(self, topic: str, group: str, queue_id: int) -> OrderInfo | None:
        queues = self._table.get(f"{topic}@{group}")
        return None if queues is None else queues.get(queue_id)

    def _changed(self, topic: str, group: str, queue_id: int, info: OrderInfo) -> None:
        self._has_changed = True
        times = [_visible_at(info, offset) for offset in _open_offsets(info)]
        if times:
            heapq.heappush(self._free_times, (max(times), topic, group, queue_id))

    # The file

    def load(self) -> None:
        """Load the persisted table. Raises StoreError."""
        self._table = self._writer.load(CONSUMER_ORDER_INFO).table
        for key, queues in self._table.items():
            topic, _, group = key.partition("@")
            for queue_id, info in queues.items():
                self._changed(topic, group, queue_id, info)
        self._has_changed = False

    def persist(self) -> None:
        """Schedule a write of the table if it has changed."""
        if self._has_changed:
            self._has_changed = False
            self._writer.mark(CONSUMER_ORDER_INFO, self._wrapped)

    def _wrapped(self) -> ConsumerOrderInfoTable:
        oldest = self._clock.now_ms() - IDLE_MS
        remaining = {}
        for key, queues in self._table.items():
            topic, _, group = key.partition("@")
            config = self._topics.get(topic)
            if config is None or group not in self._groups.configs:
                continue
            left = {
                queue_id: info
                for queue_id, info in queues.items()
                if queue_id < config.read_queue_nums and info.last_consume_timestamp >= oldest
            }
            if left:
                remaining[key] = left
        self._table = remaining
        return ConsumerOrderInfoTable(remaining)


def _offsets(info: OrderInfo) -> list[int]:
    if not info.offset_list:
        return []
    first, *others = info.offset_list
    return [first, *(first + other for other in others)]


def _open_offsets(info: OrderInfo) -> Iterator[int]:
    """The offsets that were not acknowledged."""
    return (offset for at, offset in enumerate(_offsets(info)) if not info.commit_offset_bit >> at & 1)


def _visible_at(info: OrderInfo, offset: int) -> int:
    visible = (info.offset_next_visible_time or {}).get(offset)
    return info.pop_time + (info.invisible_time or 0) if visible is None else visible


def _counts_after(before: OrderInfo, info: OrderInfo) -> dict[int, int]:
    """Earlier deliveries of each offset; the same attempt counts once."""
    counts = before.offset_consumed_count or {}
    if before.attempt_id is not None and before.attempt_id == info.attempt_id:
        return counts
    seen = set(_offsets(before))
    return {offset: counts.get(offset, 0) + 1 for offset in _offsets(info) if offset in seen}
