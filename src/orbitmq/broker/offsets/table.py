"""Consumer offsets (RocketMQ: ConsumerOffsetManager): committed and pulled offsets of all groups, in memory."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeAlias

from orbitmq.broker.clients.shares import ClientShares
from orbitmq.broker.config.broker_config import BrokerConfig
from orbitmq.broker.metadata.data_version import first_version, next_version
from orbitmq.broker.time_slices import in_slices
from orbitmq.platform.limit_counts import Limit
from orbitmq.protocol.bodies import ConsumerOffsetSerializeWrapper
from orbitmq.protocol.names import GROUPS_OF_SERVICES
from orbitmq.store.config_tables import CONSUMER_OFFSETS

if TYPE_CHECKING:
    from orbitmq.broker.config.persistence import ConfigWriter
    from orbitmq.store import Clock

log = logging.getLogger("orbitmq.broker")

Offsets: TypeAlias = dict[str, dict[int, int]]
"""By ``topic@group`` and queue id."""

VERSION_STEP = 500
"""RocketMQ's ``consumerOffsetUpdateVersionStep``: after so many commits the table has another version."""


class OffsetTable:
    """Committed and pulled offsets of all groups.

    Consumers commit every few seconds per queue and with every pull, so a commit is two look-ups. A group may
    commit any offset, forward and back, but not a negative one: some clients send -1 for a queue without an offset.
    """

    def __init__(
        self,
        writer: ConfigWriter,
        clock: Clock,
        version_step: int = VERSION_STEP,
        config: BrokerConfig | None = None,
    ) -> None:
        config = config or BrokerConfig()
        self._count = 0
        self._client_of: dict[str, str] = {}
        """By ``topic@group``, the client that committed its first offset."""
        self._shares = ClientShares(
            "consumer offsets",
            config,
            lambda: config.max_consumer_offsets,
            lambda: self._count,
            "maxConsumerOffsets",
            counted=Limit.CONSUMER_OFFSETS,
        )
        self._is_full_logged = False
        self._writer = writer
        self._clock = clock
        self._version_step = max(version_step, 1)
        self._offsets: Offsets = {}
        self._pulled: Offsets = {}
        self._topics: dict[str, set[str]] = {}
        """By group."""
        self._groups: dict[str, set[str]] = {}
        """By topic."""
        self._commits = 0
        self._changed = False
        self.revision = 0
        """Advanced when a map of ``table_of`` was replaced or removed."""
        self.pending_resets: Offsets = {}
        """Offsets that were reset and not pulled from yet. Usually empty, and then false."""
        self.unsent: Offsets | None = None
        """On a slave, commits of clients that the master does not have yet."""
        self.data_version = first_version(clock)

    def __len__(self) -> int:
        """The number of committed and pulled offsets."""
        return self._count

    # Offsets of one queue

    def problem(self, group: str, topic: str, queue_id: int, client: str) -> str | None:
        """The reason why a client may not commit an offset of a group in a queue; None if it may."""
        key = f"{topic}@{group}"
        if group in GROUPS_OF_SERVICES:
            return f"the offsets of group {group} belong to the broker: use another group"
        if queue_id in self._offsets.get(key, ()):
            return None
        return self._shares.refusal(self._client_of.get(key, client))

    def _admit(self, key: str, client: str) -> bool:
        """Count a new offset; False if a client is over its share. The broker's own commits are always accepted."""
        owner = self._client_of.get(key, client)
        if client and (problem := self._shares.refusal(owner)) is not None:
            if not self._is_full_logged:
                log.warning("offsets: dropped a first offset of %s: %s", key, problem)
            self._is_full_logged = True
            return False
        self._is_full_logged = False
        self._count += 1
        if owner:
            self._client_of[key] = owner
            self._shares.add(owner)
        return True

    def _uncount(self, key: str, count: int) -> None:
        """Subtract removed offsets of a topic and group."""
        self._count -= count
        self._shares.remove(self._client_of.get(key, ""), count)
        if key not in self._offsets and key not in self._pulled:
            self._client_of.pop(key, None)

    def commit(self, group: str, topic: str, queue_id: int, offset: int, client: str = "") -> bool:
        """Set the offset of a group; False if it was reset and the group has not pulled since.

        A client's first offset of a queue is dropped if the table is full, and any offset of a group of the
        broker's services; ``problem`` returns the reason beforehand.
        """
        key = f"{topic}@{group}"
        if self.pending_resets and queue_id in self.pending_resets.get(key, ()):
            return False
        if offset < 0:
            return True
        offsets = self._offsets.get(key)
        before = -1 if offsets is None else offsets.get(queue_id, -1)
        if offset != before:
            if client and group in GROUPS_OF_SERVICES:
                return True
            if before < 0 and not self._admit(key, client):
                return True
            if offsets is None:
                offsets = self._add(key, topic, group)
            if offset < before:
                log.info(
                    "offsets: %s moved queue %d of %s back from %d to %d",
                    client or "the broker",
                    queue_id,
                    key,
                    before,
                    offset,
                )
            offsets[queue_id] = offset
            self._changed = True
            if self.unsent is not None and client:
                self.unsent.setdefault(key, {})[queue_id] = offset
        self._commits += 1
        if self._commits >= self._version_step:
            self._next_version()
        return True

    def on_commits(self, count: int, *, is_changed: bool) -> None:
        """Record commits that the fast path entered into the maps of ``table_of``, or that changed nothing."""
        self._changed |= is_changed
        self._commits += count
        while self._commits >= self._version_step:
            left = self._commits - self._version_step
            self._next_version()
            self._commits = left

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """The committed offset of a group in a queue; -1 if there is none."""
        offsets = self._offsets.get(f"{topic}@{group}")
        return -1 if offsets is None else offsets.get(queue_id, -1)

    def table_of(self, group: str, topic: str) -> dict[int, int] | None:
        """The committed offsets of a group in a topic, by queue id.

        To be read at once and not changed. Only the fast path keeps it, as long as ``revision`` stays the same, and
        raises offsets that are in it.
        """
        return self._offsets.get(f"{topic}@{group}")

    def commit_pull(self, group: str, topic: str, queue_id: int, offset: int, client: str = "") -> None:
        """Set the next pull offset of a group, which is ahead of the committed offset."""
        key = f"{topic}@{group}"
        pulled = self._pulled.get(key)
        before = None if pulled is None else pulled.get(queue_id)
        if before != offset:
            if before is None and not self._admit(key, client):
                return
            if pulled is None:
                pulled = self._pulled[key] = {}
            pulled[queue_id] = offset
            self._changed = True

    def pull_offset(self, group: str, topic: str, queue_id: int) -> int:
        """The next pull offset of a group; without one the committed offset, and -1 without either."""
        pulled = self._pulled.get(f"{topic}@{group}")
        offset = None if pulled is None else pulled.get(queue_id)
        return self.query(group, topic, queue_id) if offset is None else offset

    # Resets

    def reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Reset the offset of a group. Until its next pull of the queue, commits are refused."""
        key = f"{topic}@{group}"
        self.pending_resets.setdefault(key, {})[queue_id] = offset
        offsets = self._offsets.get(key)
        if offsets is None:
            offsets = self._add(key, topic, group)
        if queue_id not in offsets:
            self._admit(key, "")
        offsets[queue_id] = offset
        self._changed = True

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """The reset offset for a pull, once; None if the queue was not reset."""
        key = f"{topic}@{group}"
        pending = self.pending_resets.get(key)
        if pending is None:
            return None
        offset = pending.pop(queue_id, None)
        if not pending:
            del self.pending_resets[key]
        return offset

    # Groups and topics

    def of_group(self, group: str, topic: str) -> dict[int, int]:
        """The committed offsets of a group in a topic, by queue id."""
        return dict(self._offsets.get(f"{topic}@{group}") or {})

    def topics_of(self, group: str) -> set[str]:
        """The topics with committed offsets of a group."""
        return set(self._topics.get(group, ()))

    def groups(self) -> list[str]:
        """The groups with committed offsets."""
        return list(self._topics)

    def groups_of(self, topic: str) -> set[str]:
        """The groups with committed offsets in a topic."""
        return set(self._groups.get(topic, ()))

    def clone(self, source: str, target: str, topic: str | None = None) -> None:
        """Copy the offsets of a group to another one, of one topic or of all."""
        for name in self.topics_of(source) if topic is None else (topic,):
            offsets = self._offsets.get(f"{name}@{source}")
            if offsets is not None:
                key = f"{name}@{target}"
                self._uncount(key, len(self._offsets.get(key, ())))
                self._add(key, name, target).update(offsets)
                self._count += len(offsets)
                self._shares.add(self._client_of.get(key, ""), len(offsets))
                self._changed = True

    def remove_group(self, group: str) -> None:
        """Remove all offsets of a group."""
        for topic in self._topics.pop(group, ()):
            _discard(self._groups, topic, group)
            self._drop(f"{topic}@{group}")
        self._remove([key for key in self._pulled.keys() | self.pending_resets if _split(key)[1] == group])

    def remove_topic(self, topic: str) -> None:
        """Remove all offsets in a topic."""
        for group in self._groups.pop(topic, ()):
            _discard(self._topics, group, topic)
            self._drop(f"{topic}@{group}")
        self._remove([key for key in self._pulled.keys() | self.pending_resets if _split(key)[0] == topic])

    # Copies on slaves

    def adopt(self, key: str, offsets: dict[int, int]) -> None:
        """Replace the committed offsets of a topic and group, ``topic@group``, by those of the master."""
        before = self._offsets.get(key)
        if before == offsets or not (before or offsets):
            return
        self._uncount(key, len(before or ()))
        self._add(key, *_split(key)).update(offsets)
        self._count += len(offsets)
        self._shares.add(self._client_of.get(key, ""), len(offsets))
        self._changed = True

    def forget(self, key: str) -> None:
        """Remove the offsets of a topic and group that the master no longer has."""
        topic, group = _split(key)
        if group in self._groups.get(topic, ()):
            _discard(self._groups, topic, group)
            _discard(self._topics, group, topic)
        self._remove([key])

    # Persistence

    def load(self) -> None:
        """Load the persisted table. Raises StoreError."""
        table = self._writer.load(CONSUMER_OFFSETS)
        self._offsets, self._topics, self._groups = {}, {}, {}
        self.revision += 1
        for key, offsets in table.offset_table.items():
            topic, group = _split(key)
            # RocketMQ stores the -1 that some clients send, and treats it as no offset.
            self._add(key, topic, group).update(
                (queue_id, offset) for queue_id, offset in offsets.items() if offset >= 0
            )
        self._pulled = table.pull_offset_table or {}
        self._count = sum(map(len, self._offsets.values())) + sum(map(len, self._pulled.values()))
        if table.data_version is not None:
            self.data_version = table.data_version
        self._changed = False

    def persist(self) -> None:
        """Schedule a write of the table if it has changed."""
        if self._changed:
            self._changed = False
            self._writer.mark(CONSUMER_OFFSETS, self.copy, is_copy=True)

    async def take_changed(self) -> ConsumerOffsetSerializeWrapper | None:
        """A copy of the table to persist; None if nothing has changed.

        Commits that arrive during the copy may be in it or not. Each of them marks the table as changed.
        """
        if not self._changed:
            return None
        self._changed = False
        return await self.copy()

    def mark_changed(self) -> None:
        """Mark the table as changed again after a failed write."""
        self._changed = True

    async def copy(self) -> ConsumerOffsetSerializeWrapper:
        """A copy of the whole table, made in slices. It may be encoded by a thread."""
        body = ConsumerOffsetSerializeWrapper(data_version=self.data_version)
        body.offset_table = await _copied(self._offsets)
        body.pull_offset_table = await _copied(self._pulled)
        topics: dict[str, list[str]] = {}
        async for group in in_slices(list(self._topics)):
            topics[group] = sorted(self._topics.get(group, ()))
        body.group_topic_map = topics
        return body

    def as_body(self) -> ConsumerOffsetSerializeWrapper:
        """The whole table as it is persisted and sent to slaves. It is not a copy: encode it at once."""
        return ConsumerOffsetSerializeWrapper(
            offset_table=self._offsets,
            pull_offset_table=self._pulled,
            group_topic_map={group: sorted(topics) for group, topics in self._topics.items()},
            data_version=self.data_version,
        )

    def _add(self, key: str, topic: str, group: str) -> dict[int, int]:
        """A new and empty offset map for a topic and a group."""
        self._topics.setdefault(group, set()).add(topic)
        self._groups.setdefault(topic, set()).add(group)
        offsets = self._offsets[key] = {}
        self.revision += 1
        return offsets

    def _remove(self, keys: list[str]) -> None:
        for key in keys:
            self._drop(key)
            self.pending_resets.pop(key, None)
        self._changed = True

    def _drop(self, key: str) -> None:
        if self.unsent is not None:
            self.unsent.pop(key, None)
        self.revision += 1
        count = len(self._offsets.pop(key, ())) + len(self._pulled.pop(key, ()))
        self._uncount(key, count)

    def _next_version(self) -> None:
        self._commits = 0
        self.data_version = next_version(self.data_version, self._clock)
        self._changed = True


async def _copied(table: Offsets) -> Offsets:
    copy: Offsets = {}
    async for key in in_slices(list(table)):
        offsets = table.get(key)
        if offsets is not None:
            copy[key] = dict(offsets)
    return copy


def _split(key: str) -> tuple[str, str]:
    topic, _, group = key.partition("@")
    return topic, group


def _discard(table: dict[str, set[str]], name: str, member: str) -> None:
    members = table[name]
    members.discard(member)
    if not members:
        del table[name]
