"""Counts of what limits refused, one per limit, shared by all servers of a process like the memory budget.

``docs/limits.md`` has the values, settings and answers of the limits under the same names.
"""

from __future__ import annotations

import enum
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class Limit(enum.StrEnum):
    """The limits whose refusals are counted; the value is the label of the metric."""

    MEMORY = "memory"
    FRAME = "frame"
    FRAME_TIME = "frame_time"
    UNREAD_ANSWERS = "unread_answers"
    CONNECTIONS = "connections"
    CONNECTIONS_OF_ADDRESS = "connections_of_address"
    SLAVES = "slaves"
    ADMIN_NETWORKS = "admin_networks"
    GRPC_CLIENTS = "grpc_clients"
    GRPC_CALLS = "grpc_calls"
    SUBSCRIPTION_LENGTH = "subscription_length"
    SUBSCRIPTION_TAGS = "subscription_tags"
    SUBSCRIPTIONS_OF_GROUP = "subscriptions_of_group"
    GROUPS_OF_CONNECTION = "groups_of_connection"
    MEMBERSHIPS = "memberships"
    SQL_SUBSCRIPTIONS = "sql_subscriptions"
    SQL_SUBSCRIPTION_BYTES = "sql_subscription_bytes"
    FILTER_TIME = "filter_time"
    JSON_BODY = "json_body"
    CONSUMER_OFFSETS = "consumer_offsets"
    HELD_PULLS = "held_pulls"
    QUEUE_LOCKS = "queue_locks"
    TOPICS = "topics"
    CONSUMER_GROUPS = "consumer_groups"
    WAITING_SENDS = "waiting_sends"
    REQUESTS_OF_USER = "requests_of_user"
    SENDS_OF_TOPIC = "sends_of_topic"


_counts = dict.fromkeys(Limit, 0)
_lock = threading.Lock()


def count_refusal(limit: Limit) -> None:
    """Count that a limit has refused something, or has cut it short."""
    with _lock:
        _counts[limit] += 1


def refusals() -> Mapping[Limit, int]:
    """The counts since the start of the process, of all limits."""
    return _counts
