"""Retry or dead letter: how many retries a message of a group gets, and where it goes after the last one.

A consumer returns a message by CONSUMER_SEND_MSG_BACK, or sends it to its retry topic itself if that failed. Both
follow this rule.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.protocol.message.flags import PERM_READ_WRITE
from orbitmq.protocol.names import DLQ_PREFIX

if TYPE_CHECKING:
    from orbitmq.broker.metadata.topics import TopicTable
    from orbitmq.protocol.bodies import SubscriptionGroupConfig

CLIENT_LIMIT_SINCE = 121
"""Clients from 3.4.9 on set ``maxReconsumeTimes``; what older ones send in that field is ignored."""

DLQ_QUEUES = 1


def max_retries(group: SubscriptionGroupConfig, version: int, requested: int | None) -> int:
    """The retry limit of a message: the client's if it sets one, otherwise that of its group."""
    return group.retry_max_times if requested is None or version < CLIENT_LIMIT_SINCE else requested


def is_exhausted(retries: int, limit: int) -> bool:
    """True if a message that was retried so often becomes a dead letter."""
    return retries >= limit


def dead_letter_topic(topics: TopicTable, group: str) -> str:
    """The name of a group's dead-letter queue (DLQ), which is created if it does not exist."""
    name = DLQ_PREFIX + group
    topics.create_for_send_back(name, DLQ_QUEUES, PERM_READ_WRITE)
    return name
