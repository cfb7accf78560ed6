"""Topic recovery: at start, creates topics that have messages in the log but are missing in ``topics.json``."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from orbitmq.broker.metadata.attributes import BATCH_QUEUES, QUEUE_TYPE
from orbitmq.broker.metadata.topics import MAX_QUEUES, topic_name_problem
from orbitmq.protocol.bodies import TopicConfig
from orbitmq.protocol.message.flags import PERM_READ_WRITE
from orbitmq.protocol.names import LMQ_PREFIX, SYSTEM_TOPIC_PREFIX

if TYPE_CHECKING:
    from orbitmq.broker.metadata.topics import TopicTable
    from orbitmq.store import MessageStore

log = logging.getLogger("orbitmq.broker")


def recover_topics(topics: TopicTable, store: MessageStore, *, is_table_lost: bool) -> list[str]:
    """Create topics that the log has messages of and the table lacks; returns their names.

    The log only yields the number of queues. A topic that was deleted on purpose stays deleted, even if a delayed
    message reached it afterwards; unless the table itself is lost, when only the log has evidence that the topic
    was created again.
    """
    found: list[TopicConfig] = []
    for name in store.queues.names():
        if name in topics.configs or name.startswith((LMQ_PREFIX, SYSTEM_TOPIC_PREFIX)):
            continue
        if name in store.deleted.ends and not is_table_lost:
            continue
        queue_ids = [queue_id for queue_id in readable_queues(store, name) if queue_id < MAX_QUEUES]
        if not queue_ids or topic_name_problem(name) is not None:
            continue
        count = max(queue_ids) + 1
        attributes = {QUEUE_TYPE: BATCH_QUEUES} if name in store.queues.batch_topics else {}
        found.append(TopicConfig(name, count, count, PERM_READ_WRITE, attributes=attributes))
    if found:
        topics.update(*found)
        for config in found:
            log.warning(
                "topics: recovered %s with %d queues: the log has its messages, config/topics.json lacks it",
                config.topic_name,
                config.read_queue_nums,
            )
    return [config.topic_name for config in found]


def holds_messages(store: MessageStore, topic: str) -> bool:
    return bool(readable_queues(store, topic))


def readable_queues(store: MessageStore, topic: str) -> list[int]:
    """Queues of a topic that have a readable message."""
    readable = []
    for queue_id in store.queues.queue_ids(topic):
        queue = store.queues.get(topic, queue_id)
        if queue.max_offset > max(queue.min_offset, 0):
            readable.append(queue_id)
    return readable
