"""Dead letters as the console reads and resends them: the same for pages and REST."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orbitmq.admin.group.model import dead_letter_topic
from orbitmq.admin.message.dead_letters import ALL, DeadLetterFilter
from orbitmq.dashboard.console import Action

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from orbitmq.admin.message.dead_letters import Resent
    from orbitmq.client.message import ReceivedMessage
    from orbitmq.dashboard.auth.roles import Actor
    from orbitmq.dashboard.clusters import ManagedCluster
    from orbitmq.dashboard.console import Console
    from orbitmq.dashboard.jobs import Job

MAX_RESENT = 10_000
"""Dead letters of one resend."""
MAX_EXPORTED = 1_000_000

topic_of = dead_letter_topic


async def read(
    cluster: ManagedCluster,
    group: str,
    *,
    begin_ms: int | None = None,
    end_ms: int | None = None,
    limit: int = 100,
    which: DeadLetterFilter = ALL,
) -> AsyncIterator[ReceivedMessage]:
    """The dead letters of a group. Raises NotFoundError if it never had any."""
    found = cluster.admin.dead_letters.read(group, begin_ms=begin_ms, end_ms=end_ms, limit=limit, which=which)
    async for message in found:
        yield message


async def resend(
    console: Console,
    actor: Actor,
    cluster: ManagedCluster,
    group: str,
    which: Mapping[str, Any],
    *,
    dry_run: bool = False,
) -> list[Resent]:
    """Send dead letters again: ``which`` has the arguments of ``DeadLetters.resend``."""
    work = cluster.admin.dead_letters.resend
    if dry_run:
        return await work(group, **which, dry_run=True)
    action = Action("resend dead letters", f"{group} {which.get('message_id') or ''}".strip())
    return await console.change(actor, cluster, action, lambda: work(group, **which))


def resend_in_background(
    console: Console, actor: Actor, cluster: ManagedCluster, group: str, which: Mapping[str, Any], total: int
) -> Job:
    """The same as a job, for very many. Raises ForbiddenError, InvalidRequestError."""
    action = Action("resend dead letters", group)
    console.check(actor, action)

    async def work(job: Job) -> None:
        async def resend_all() -> None:
            async for one in cluster.admin.dead_letters.resend_each(group, **which):
                job.step(is_good=not one.error)

        await console.change(actor, cluster, action, resend_all)

    return console.jobs.start(actor, cluster.name, (action.name, group), total, work)
