"""Topics as the console lists, changes and fills them: the same for pages and REST."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.admin.errors import InvalidRequestError
from orbitmq.admin.topic.model import TopicKind
from orbitmq.client.errors import OrbitMQError
from orbitmq.client.message import Message
from orbitmq.dashboard.auth.roles import Role
from orbitmq.dashboard.console import Action
from orbitmq.dashboard.listing import Page, Query, page_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from orbitmq.admin.changes import Change
    from orbitmq.admin.topic.model import TopicSettings, TopicSummary
    from orbitmq.client.message import Receipt
    from orbitmq.dashboard.auth.roles import Actor
    from orbitmq.dashboard.clusters import ManagedCluster
    from orbitmq.dashboard.console import Console

ALL_KINDS = "all"
SORTS = {
    "name": lambda topic: topic.name,
    "message_type": lambda topic: topic.message_type,
    "write_queues": lambda topic: topic.write_queues,
    "read_queues": lambda topic: topic.read_queues,
    "brokers": lambda topic: len(topic.placements),
}


async def list_topics(cluster: ManagedCluster, query: Query, kind: str = TopicKind.NORMAL) -> Page[TopicSummary]:
    """A part of the topics of a kind, or of all kinds. Raises InvalidRequestError."""
    kinds = [one.value for one in TopicKind]
    if kind not in {ALL_KINDS, *kinds}:
        raise InvalidRequestError(f"a kind of topics is one of {', '.join((*kinds, ALL_KINDS))}, not {kind!r}")
    topics = [topic for topic in await cluster.topics() if kind in {ALL_KINDS, topic.kind.value}]
    return page_of(topics, query, text=lambda topic: topic.name, sorts=SORTS)


async def create_topic(
    console: Console,
    actor: Actor,
    cluster: ManagedCluster,
    topic: str,
    settings: TopicSettings,
    *,
    where: tuple[str, str] = ("", ""),
    dry_run: bool = False,
) -> list[Change]:
    """Create a topic; ``where`` is the RocketMQ cluster or the broker."""
    in_cluster, broker = where
    if dry_run:
        return await cluster.admin.topics.create(topic, settings, cluster=in_cluster, broker=broker, dry_run=True)
    action = Action("create topic", topic)
    return await console.change(
        actor,
        cluster,
        action,
        lambda: cluster.admin.topics.create(topic, settings, cluster=in_cluster, broker=broker),
    )


async def alter_topic(
    console: Console,
    actor: Actor,
    cluster: ManagedCluster,
    topic: str,
    settings: TopicSettings,
    *,
    dry_run: bool = False,
) -> list[Change]:
    """Change a topic at all its brokers."""
    if dry_run:
        return await cluster.admin.topics.alter(topic, settings, dry_run=True)
    action = Action("alter topic", topic)
    return await console.change(actor, cluster, action, lambda: cluster.admin.topics.alter(topic, settings))


async def delete_topic(
    console: Console, actor: Actor, cluster: ManagedCluster, topic: str, *, dry_run: bool = False
) -> list[Change]:
    """Delete a topic with its messages, in all RocketMQ clusters that have it."""
    if dry_run:
        return await _delete(cluster, topic, dry_run=True)
    action = Action("delete topic", topic, Role.ADMIN)
    return await console.change(actor, cluster, action, lambda: _delete(cluster, topic, dry_run=False))


async def _delete(cluster: ManagedCluster, topic: str, *, dry_run: bool) -> list[Change]:
    found = []
    for name in await cluster.admin.topics.clusters(topic):
        found += await cluster.admin.topics.delete(topic, cluster=name, dry_run=dry_run)
    return found


async def send(
    cluster: ManagedCluster,
    topic: str,
    *,
    body: str | bytes,
    tags: str = "",
    keys: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
    sharding_key: str = "",
    delay_seconds: float | None = None,
) -> Receipt:
    """Send one message. Raises InvalidRequestError, NotFoundError, RefusedError."""
    try:
        message = Message(
            topic,
            body,
            tags=tags or None,
            keys=list(keys),
            properties=properties,
            sharding_key=sharding_key or None,
            delay=delay_seconds,
        )
    except OrbitMQError as error:
        raise InvalidRequestError(str(error)) from error
    return await cluster.admin.delivery.send(message)
