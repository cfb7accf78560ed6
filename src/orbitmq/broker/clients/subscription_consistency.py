"""Consistency of subscriptions: a warning when the members of a group subscribe differently.

The group has one subscription, that of the last heartbeat. With different ones, each member gets only what the
group's current filter passes, and messages are lost for the group without an error anywhere.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from orbitmq.filter import is_tag_type
from orbitmq.protocol.names import RETRY_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orbitmq.broker.clients.consumer_group import ClientChannel, ConsumerGroup
    from orbitmq.protocol.bodies import SubscriptionData

log = logging.getLogger("orbitmq.broker")

MAX_NAMED = 5
"""Members and topics that a warning names."""


def check_member(group: ConsumerGroup, member: ClientChannel, subscriptions: Iterable[SubscriptionData]) -> None:
    """Compare a member's subscription with those of the others, if it is new or has changed."""
    texts = sorted(_text(one) for one in subscriptions if not one.topic.startswith(RETRY_PREFIX))
    key = hash(tuple(texts))
    if member.subscription_key == key:
        return
    member.subscription_key = key
    others = [one for one in group.members.values() if one is not member and one.subscription_key is not None]
    differing = [one.client_id for one in others if one.subscription_key != key]
    if differing and not group.is_broadcasting:
        log.warning(
            "clients: members of group %s subscribe differently: %s subscribes %s, otherwise than %s: messages "
            "will be lost for the group",
            *(group.name, member.client_id, "; ".join(text[:200] for text in texts[:MAX_NAMED]) or "nothing"),
            ", ".join(differing[:MAX_NAMED]) + ("" if len(differing) <= MAX_NAMED else " and others"),
        )


def _text(one: SubscriptionData) -> str:
    if is_tag_type(one.expression_type):
        return f"{one.topic} by {' || '.join(sorted(one.tags_set)) or one.sub_string}"
    return f"{one.topic} by {one.expression_type} {one.sub_string}"
