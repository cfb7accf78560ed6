"""Users and the audit log, for pages and REST. Both work in read-only mode too: no cluster changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.admin.errors import AdminError, InvalidRequestError
from orbitmq.dashboard.auth.roles import Role
from orbitmq.dashboard.console import Action
from orbitmq.dashboard.listing import Page, Query, page_of

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from orbitmq.dashboard.audit import AuditEntry
    from orbitmq.dashboard.auth.roles import Actor
    from orbitmq.dashboard.auth.users import User
    from orbitmq.dashboard.console import Console
    from orbitmq.dashboard.jobs import Job

MANAGE_USERS = "managing users"


def list_audit(console: Console, actor: Actor, query: Query) -> Page[AuditEntry]:
    """A part of the audit log, newest first. Raises ForbiddenError."""
    actor.check(Role.OPERATOR, "the audit log")
    sorts = {"time_ms": lambda entry: entry.time_ms, "user": lambda entry: entry.user}
    return page_of(
        console.audit.entries(),
        query,
        text=lambda entry: f"{entry.user} {entry.action} {entry.target} {entry.cluster} {entry.result}",
        sorts=sorts,
    )


def list_jobs(console: Console, actor: Actor) -> list[Job]:
    """The newest jobs first. Raises ForbiddenError."""
    console.current(actor).check(Role.OPERATOR, "the list of jobs")
    return console.jobs.all()


async def cancel_job(console: Console, actor: Actor, number: int) -> Job:
    """Raises ForbiddenError, NotFoundError."""

    async def work() -> Job:
        return console.jobs.cancel(number)

    return await console.change(actor, None, Action("cancel job", str(number)), work)


def list_users(console: Console, actor: Actor) -> list[User]:
    """All users. Raises ForbiddenError."""
    actor.check(Role.ADMIN, MANAGE_USERS)
    return console.users.all()


async def put_user(console: Console, actor: Actor, name: str, role: Role, password: str | None) -> None:
    """Add a user, or change role or password; a new password ends the user's sessions."""
    await _recorded(console, actor, "put user", f"{name} as {role}", _put(console, actor, name, role, password))


async def _put(console: Console, actor: Actor, name: str, role: Role, password: str | None) -> None:
    _check_manager(console, actor)
    await console.users.put(name, role, password)
    if password is not None:
        console.sessions.end_of_user(name)


async def delete_user(console: Console, actor: Actor, name: str) -> None:
    """Delete a user and end its sessions."""
    await _recorded(console, actor, "delete user", name, _delete(console, actor, name))


async def _delete(console: Console, actor: Actor, name: str) -> None:
    _check_manager(console, actor)
    console.users.delete(name)
    console.sessions.end_of_user(name)


async def change_password(console: Console, actor: Actor, old: str, new: str) -> None:
    """Change the own password; all sessions of the user end."""
    await _recorded(console, actor, "change password", actor.user, _change_password(console, actor, old, new))


async def _change_password(console: Console, actor: Actor, old: str, new: str) -> None:
    actor = console.current(actor)
    if not console.config.login:
        raise InvalidRequestError("this console has no login")
    user = await console.users.sign_in(actor.user, old, actor.address)
    await console.users.put(user.name, user.role, new)
    console.sessions.end_of_user(user.name)


def _check_manager(console: Console, actor: Actor) -> None:
    console.current(actor).check(Role.ADMIN, MANAGE_USERS)


async def _recorded(console: Console, actor: Actor, action: str, target: str, work: Awaitable[None]) -> None:
    try:
        await work
    except AdminError as error:
        console.audit.record(actor.user, actor.address, "", action, target, str(error))
        raise
    console.audit.record(actor.user, actor.address, "", action, target)
