"""Tables of a slave that are copies of its master's: topics, groups, request modes, delay levels and the timer."""

from __future__ import annotations

import dataclasses
import logging
from typing import TYPE_CHECKING

from orbitmq.broker.metadata.subscription_groups import group_name_problem
from orbitmq.broker.metadata.topics import topic_problem
from orbitmq.protocol.names import GROUPS_OF_A_NEW_BROKER
from orbitmq.store.config_tables import SUBSCRIPTION_GROUPS, TOPICS
from orbitmq.store.consumequeue.consume_queue import ConsumeQueue
from orbitmq.store.recovery.deleted_topics import DELETED_TOPICS

if TYPE_CHECKING:
    from orbitmq.broker.pop.assignment import PopAssignments
    from orbitmq.broker.runtime import BrokerRuntime, DeferredServices, Metadata
    from orbitmq.broker.slave_sync.master_client import MasterClient
    from orbitmq.protocol.bodies import (
        DataVersion,
        SubscriptionGroupWrapper,
        TopicConfig,
        TopicConfigSerializeWrapper,
    )

log = logging.getLogger("orbitmq.broker")


class FollowedTables:
    """Takes over the tables of a master."""

    def __init__(
        self, runtime: BrokerRuntime, metadata: Metadata, deferred: DeferredServices, assignments: PopAssignments
    ) -> None:
        self._store = runtime.store
        self._writer = runtime.writer
        self._topics = metadata.topics
        self._groups = metadata.groups
        self._offsets = metadata.offsets
        self.deferred = deferred
        self.assignments = assignments
        self._topics_version: DataVersion | None = metadata.topics.data_version
        self._groups_version: DataVersion | None = metadata.groups.data_version
        self._vanished: set[str] = set()
        """Topics that the master deleted and whose queues are still here."""

    def forget_master(self) -> None:
        """Compare all tables again: the slave has another master."""
        self._topics_version = self._groups_version = None

    # Topics

    async def follow_topics(self, master: MasterClient) -> bool:
        """Take over the master's topics; True if they had changed. Raises what MasterClient raises, StoreError."""
        log_end = self._store.log.end
        table = await master.topics(self._topics_version, len(self._topics.configs))
        if table is not None:
            self._take_topics(table)
            await self._writer.saved(TOPICS)
            self._topics_version = dataclasses.replace(table.data_version)
        await self._remove_queues(log_end)
        return table is not None

    def _take_topics(self, table: TopicConfigSerializeWrapper) -> None:
        topics = self._topics
        wanted = {name: config for name, config in table.topic_config_table.items() if _is_sound(name, config)}
        changed = [config for name, config in wanted.items() if topics.configs.get(name) != config]
        vanished = [name for name in topics.configs if name not in wanted and not topics.is_system_topic(name)]
        if changed:
            topics.update(*changed)
        for name in vanished:
            topics.delete(name)
        topics.follow_version(dataclasses.replace(table.data_version))
        self._vanished = (self._vanished | set(vanished)) - wanted.keys()
        if changed or vanished:
            log.info("slave_sync: %d topics changed and %d deleted by the master", len(changed), len(vanished))

    async def _remove_queues(self, log_end: int) -> None:
        """Remove the queues of topics that the master deleted before it answered.

        ``log_end``: the end of this slave's log when it asked. Records before it are of the deleted topic. If a
        queue has later ones, they may be of a new topic of that name: it is decided at the next answer.
        """
        names = [name for name in self._vanished if self._last_record(name) < log_end]
        deleted = self._store.deleted
        if not names or deleted.is_full:
            return
        deleted.follow_log(self._store.log.files.start, self._store.log.end)
        deleted.ends.update(dict.fromkeys(names, log_end))
        self._writer.mark(DELETED_TOPICS, deleted.table)
        await self._writer.saved(DELETED_TOPICS)
        for name in names:
            if name in self._topics.configs or self._last_record(name) >= log_end:
                continue
            self._vanished.discard(name)
            self._offsets.remove_topic(name)
            try:
                self._store.remove_queues(name)
            except OSError as error:
                log.warning("slave_sync: queues of deleted topic %s were not removed: %s", name, error)
            self._store.queues.batch_topics.discard(name)

    def _last_record(self, topic: str) -> int:
        """The log offset of the newest record in the queues of a topic; -1 if there is none."""
        last = -1
        queues = self._store.queues
        for queue_id in queues.queue_ids(topic):
            queue = queues.get(topic, queue_id)
            if queue.end <= 0:
                continue
            if isinstance(queue, ConsumeQueue):
                unit = queue.unit(queue.end - 1)
                last = max(last, -1 if unit is None else unit[0])
            else:
                batch = queue.unit(queue.end - 1)
                last = max(last, -1 if batch is None else batch.physical_offset)
        return last

    # Groups

    async def follow_groups(self, master: MasterClient) -> bool:
        """Take over the master's groups; True if they had changed. Raises what MasterClient raises, StoreError."""
        table = await master.groups(self._groups_version, len(self._groups.configs))
        if table is None:
            return False
        self._take_groups(table)
        await self._writer.saved(SUBSCRIPTION_GROUPS)
        self._groups_version = dataclasses.replace(table.data_version)
        return True

    def _take_groups(self, table: SubscriptionGroupWrapper) -> None:
        groups = self._groups
        wanted = {
            name: config
            for name, config in table.subscription_group_table.items()
            if name == config.group_name and group_name_problem(name) is None
        }
        changed = [config for name, config in wanted.items() if groups.configs.get(name) != config]
        vanished = [name for name in groups.configs if name not in wanted and name not in GROUPS_OF_A_NEW_BROKER]
        if changed:
            groups.update(*changed)
        for name in vanished:
            groups.delete(name)
        groups.follow_version(dataclasses.replace(table.data_version), table.forbidden_table)
        if changed or vanished:
            log.info("slave_sync: %d groups changed and %d deleted by the master", len(changed), len(vanished))


def _is_sound(name: str, config: TopicConfig) -> bool:
    """False for an entry that no master of RocketMQ has."""
    problem = topic_problem(config) if name == config.topic_name else "listed under another name"
    if problem is not None:
        log.warning("slave_sync: topic %r of the master ignored: %s", name[:100], problem)
    return problem is None
