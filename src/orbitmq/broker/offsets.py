"""How far the groups have come in the queues: the table in memory, and when it goes to ``consumerOffset.json``."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeAlias

from orbitmq.broker.table_versions import first_version, next_version
from orbitmq.protocol.bodies import ConsumerOffsetSerializeWrapper
from orbitmq.store.config_json import CONSUMER_OFFSETS

if TYPE_CHECKING:
    from orbitmq.broker.config_writer import ConfigWriter
    from orbitmq.store import Clock

log = logging.getLogger("orbitmq.broker")

Offsets: TypeAlias = dict[str, dict[int, int]]
"""By ``topic@group`` and queue id."""

VERSION_STEP = 500
"""RocketMQ's ``consumerOffsetUpdateVersionStep``: after so many commits the table has another version."""


class OffsetTable:
    """Committed and pulled offsets of all groups.

    Consumers commit every few seconds per queue and with every pull, so a commit is two look-ups and no more. A
    group may commit what it likes, forward and back, but never less than 0: some clients say -1 for a queue of
    which they know nothing yet.
    """

    def __init__(self, writer: ConfigWriter, clock: Clock, version_step: int = VERSION_STEP) -> None:
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
        self.pending_resets: Offsets = {}
        """Offsets that were reset and that the group has not pulled from yet. Mostly empty, and then false."""
        self.data_version = first_version(clock)

    # Offsets of one queue

    def commit(self, group: str, topic: str, queue_id: int, offset: int, client: str = "") -> bool:
        """Remember how far a group has come; False if its offset was reset and it has not heard of that yet."""
        key = f"{topic}@{group}"
        if self.pending_resets and queue_id in self.pending_resets.get(key, ()):
            return False
        if offset < 0:
            return True
        offsets = self._offsets.get(key)
        if offsets is None:
            offsets = self._add(key, topic, group)
        before = offsets.get(queue_id, -1)
        if offset != before:
            if offset < before:
                log.info("%s takes queue %d of %s back from %d to %d", client, queue_id, key, before, offset)
            offsets[queue_id] = offset
            self._changed = True
        self._commits += 1
        if self._commits >= self._version_step:
            self._next_version()
        return True

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """How far a group has come in a queue; -1 if it never said."""
        offsets = self._offsets.get(f"{topic}@{group}")
        return -1 if offsets is None else offsets.get(queue_id, -1)

    def commit_pull(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Remember where a group will pull next, which is ahead of what it has consumed."""
        key = f"{topic}@{group}"
        pulled = self._pulled.get(key)
        if pulled is None:
            pulled = self._pulled[key] = {}
        if pulled.get(queue_id) != offset:
            pulled[queue_id] = offset
            self._changed = True

    def pull_offset(self, group: str, topic: str, queue_id: int) -> int:
        """Where a group will pull next; what it has committed if it has not pulled here, and -1 if neither."""
        pulled = self._pulled.get(f"{topic}@{group}")
        offset = None if pulled is None else pulled.get(queue_id)
        return self.query(group, topic, queue_id) if offset is None else offset

    # Resets

    def reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Put a group somewhere else. Until its next pull of the queue nobody can commit anything for it."""
        key = f"{topic}@{group}"
        self.pending_resets.setdefault(key, {})[queue_id] = offset
        offsets = self._offsets.get(key)
        if offsets is None:
            offsets = self._add(key, topic, group)
        offsets[queue_id] = offset
        self._changed = True

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """The offset a pull has to be sent to, once; None if the queue was not reset."""
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
        """What a group has committed for the queues of a topic."""
        return dict(self._offsets.get(f"{topic}@{group}") or {})

    def topics_of(self, group: str) -> set[str]:
        """The topics for which a group has committed anything."""
        return set(self._topics.get(group, ()))

    def groups_of(self, topic: str) -> set[str]:
        """The groups that have committed anything for a topic."""
        return set(self._groups.get(topic, ()))

    def clone(self, source: str, target: str, topic: str | None = None) -> None:
        """Put a group where another one is, in one topic or in all that the other one has."""
        for name in self.topics_of(source) if topic is None else (topic,):
            offsets = self._offsets.get(f"{name}@{source}")
            if offsets is not None:
                self._add(f"{name}@{target}", name, target).update(offsets)
                self._changed = True

    def remove_group(self, group: str) -> None:
        """Forget all that a group has consumed."""
        for topic in self._topics.pop(group, ()):
            _discard(self._groups, topic, group)
            self._offsets.pop(f"{topic}@{group}", None)
        self._forget([key for key in self._pulled.keys() | self.pending_resets if _split(key)[1] == group])

    def remove_topic(self, topic: str) -> None:
        """Forget all that was consumed of a topic."""
        for group in self._groups.pop(topic, ()):
            _discard(self._topics, group, topic)
            self._offsets.pop(f"{topic}@{group}", None)
        self._forget([key for key in self._pulled.keys() | self.pending_resets if _split(key)[0] == topic])

    # The file

    def load(self) -> None:
        """Take over what lies on the disk. Raises StoreError."""
        table = self._writer.load(CONSUMER_OFFSETS)
        self._offsets, self._topics, self._groups = {}, {}, {}
        for key, offsets in table.offset_table.items():
            topic, group = _split(key)
            # RocketMQ keeps the -1 that some clients send, and takes it for nothing when it is asked.
            self._add(key, topic, group).update(
                (queue_id, offset) for queue_id, offset in offsets.items() if offset >= 0
            )
        self._pulled = table.pull_offset_table or {}
        if table.data_version is not None:
            self.data_version = table.data_version
        self._changed = False

    def persist(self) -> None:
        """Have the table written if it has changed since the last time."""
        if self._changed:
            self._changed = False
            self._writer.mark(CONSUMER_OFFSETS, self.as_body)

    def take_changed(self) -> ConsumerOffsetSerializeWrapper | None:
        """A copy of the table as it is now, to be written; None if nothing changed since the last time."""
        if not self._changed:
            return None
        self._changed = False
        body = self.as_body()
        body.offset_table = {key: dict(offsets) for key, offsets in body.offset_table.items()}
        body.pull_offset_table = {key: dict(offsets) for key, offsets in (body.pull_offset_table or {}).items()}
        return body

    def mark_changed(self) -> None:
        """What was taken could not be written."""
        self._changed = True

    def as_body(self) -> ConsumerOffsetSerializeWrapper:
        """The whole table as it lies on the disk and goes to slaves. It is not a copy: encode it at once."""
        return ConsumerOffsetSerializeWrapper(
            offset_table=self._offsets,
            pull_offset_table=self._pulled,
            group_topic_map={group: sorted(topics) for group, topics in self._topics.items()},
            data_version=self.data_version,
        )

    def _add(self, key: str, topic: str, group: str) -> dict[int, int]:
        """A new and empty set of queues for a topic and a group."""
        self._topics.setdefault(group, set()).add(topic)
        self._groups.setdefault(topic, set()).add(group)
        offsets = self._offsets[key] = {}
        return offsets

    def _forget(self, keys: list[str]) -> None:
        for key in keys:
            self._pulled.pop(key, None)
            self.pending_resets.pop(key, None)
        self._changed = True

    def _next_version(self) -> None:
        self._commits = 0
        self.data_version = next_version(self.data_version, self._clock)
        self._changed = True


def _split(key: str) -> tuple[str, str]:
    topic, _, group = key.partition("@")
    return topic, group


def _discard(table: dict[str, set[str]], name: str, member: str) -> None:
    members = table[name]
    members.discard(member)
    if not members:
        del table[name]
