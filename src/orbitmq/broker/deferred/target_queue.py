"""Target queues: validates and maps the queues that deferred messages are delivered to.

The real topic and queue are in the properties of the deferred message. Since it was stored its topic may have lost
queues, and an old store may hold targets that no send could request today.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from orbitmq.broker.metadata.topics import MAX_QUEUES, topic_name_problem
from orbitmq.protocol.names import REVIVE_TOPIC_PREFIX, is_closed_to_clients

if TYPE_CHECKING:
    from orbitmq.broker.fast_path.epoch import RouteEpoch
    from orbitmq.broker.metadata.topics import TopicTable


@functools.lru_cache(maxsize=8192)
def target_problem(topic: str, *, is_timer: bool = False) -> str | None:
    """The reason why nothing is delivered to a topic; None if messages may go there.

    ``is_timer``: POP checkpoints and acks reach the revive topic through the timer, and through nothing else.
    """
    if is_closed_to_clients(topic) and not (is_timer and topic.startswith(REVIVE_TOPIC_PREFIX)):
        return f"topic {topic} belongs to the broker"
    return topic_name_problem(topic)


class TargetQueues:
    """Maps real queues to queues that the topics of this broker have."""

    def __init__(self, topics: TopicTable) -> None:
        self._topics = topics

    @property
    def epoch(self) -> RouteEpoch:
        """Changes with any topic and with the removal of queues."""
        return self._topics.route_epoch

    def queue_for(self, topic: str, queue_id: int) -> int:
        """The target of a message for this queue: the same queue, unless its topic has no such queue.

        Then it is a queue that consumers read. Messages of a deleted topic keep their queue.
        """
        config = self._topics.get(topic)
        if config is None:
            return queue_id if queue_id < MAX_QUEUES else 0
        if queue_id < max(config.write_queue_nums, config.read_queue_nums):
            return queue_id
        if topic.startswith(REVIVE_TOPIC_PREFIX):
            # Its queues change with reviveQueueNum, and all of them are read.
            return queue_id if queue_id < MAX_QUEUES else 0
        queues = config.read_queue_nums or config.write_queue_nums
        return queue_id % queues if queues > 0 else 0
