"""Consumer groups as the console lists and changes them: the same for pages and REST."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orbitmq.dashboard.auth.roles import Role
from orbitmq.dashboard.console import Action
from orbitmq.dashboard.listing import Page, Query, page_of

if TYPE_CHECKING:
    from orbitmq.admin.changes import Change
    from orbitmq.admin.group.model import GroupDescription, GroupSettings, GroupSummary
    from orbitmq.admin.group.offsets import OffsetChange, ResetTo
    from orbitmq.dashboard.auth.roles import Actor
    from orbitmq.dashboard.clusters import ManagedCluster
    from orbitmq.dashboard.console import Console

SORTS = {
    "name": lambda group: group.name,
    "lag": lambda group: group.lag or 0,
    "inflight": lambda group: group.inflight or 0,
    "consume_tps": lambda group: group.consume_tps or 0.0,
    "topics": lambda group: len(group.topics),
}


async def list_groups(cluster: ManagedCluster, query: Query, *, with_system: bool = False) -> Page[GroupSummary]:
    """A part of the groups. Raises InvalidRequestError."""
    groups = [group for group in await cluster.groups() if with_system or not group.is_system]
    return page_of(groups, query, text=lambda group: group.name, sorts=SORTS)


def settings_of(description: GroupDescription) -> dict[str, dict[str, Any]]:
    """The settings of a group in RocketMQ's names, by broker."""
    return {place.broker_name: place.config.to_json() for place in description.placements}


async def put_group(
    console: Console,
    actor: Actor,
    cluster: ManagedCluster,
    group: str,
    settings: GroupSettings,
    *,
    is_new: bool,
    in_cluster: str = "",
    dry_run: bool = False,
) -> list[Change]:
    """Create a group on the masters of a RocketMQ cluster, or change it where it exists."""

    async def work(*, dry_run: bool = False) -> list[Change]:
        groups = cluster.admin.groups
        if is_new:
            return await groups.create(group, settings, cluster=in_cluster, dry_run=dry_run)
        return await groups.alter(group, settings, dry_run=dry_run)

    if dry_run:
        return await work(dry_run=True)
    return await console.change(actor, cluster, Action("create group" if is_new else "alter group", group), work)


async def delete_group(
    console: Console, actor: Actor, cluster: ManagedCluster, group: str, *, dry_run: bool = False
) -> list[Change]:
    """Delete a group with its offsets, retry topic and dead letters."""

    async def work(*, dry_run: bool = False) -> list[Change]:
        found = []
        for name in await _clusters_of(cluster, group):
            found += await cluster.admin.groups.delete(group, cluster=name, dry_run=dry_run)
        return found

    if dry_run:
        return await work(dry_run=True)
    return await console.change(actor, cluster, Action("delete group", group, Role.ADMIN), work)


async def _clusters_of(cluster: ManagedCluster, group: str) -> list[str]:
    """The RocketMQ clusters with a broker that has the group; all of them if none has, for the error."""
    holders = {place.broker_name for place in await cluster.admin.groups.settings(group)}
    clusters = await cluster.admin.clusters.all()
    return [one.name for one in clusters if holders & set(one.broker_names)] or [one.name for one in clusters]


async def reset_offsets(
    console: Console,
    actor: Actor,
    cluster: ManagedCluster,
    group: str,
    topic: str,
    to: ResetTo,
    *,
    queue: tuple[str, int | None] = ("", None),
    dry_run: bool = False,
) -> list[OffsetChange]:
    """Set the offsets of a group in a topic, or in one queue of it."""
    broker_name, queue_id = queue

    async def work(*, dry_run: bool = False) -> list[OffsetChange]:
        return await cluster.admin.offsets.reset(
            group, topic, to, broker_name=broker_name, queue_id=queue_id, dry_run=dry_run
        )

    if dry_run:
        return await work(dry_run=True)
    return await console.change(actor, cluster, Action("reset offsets", f"{group} in {topic}"), work)
