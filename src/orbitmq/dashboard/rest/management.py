"""The console itself: users and the audit log."""

from typing import Annotated

from fastapi import APIRouter
from pydantic import BaseModel, Field

from orbitmq.dashboard.audit import AuditEntry
from orbitmq.dashboard.auth.roles import Role
from orbitmq.dashboard.listing import Page
from orbitmq.dashboard.rest.context import ActorDep, ConsoleDep, ListingDep, PageView, View
from orbitmq.dashboard.subjects import management

router = APIRouter(tags=["console"])


class UserView(View):
    """A user of the console."""

    name: str
    role: Role


class UserChange(BaseModel):
    """The role of a user, and a new password if one is given."""

    role: Role
    password: Annotated[str | None, Field(max_length=256)] = None


class PasswordChange(BaseModel):
    """A new password for the own user."""

    old: Annotated[str, Field(max_length=256)]
    new: Annotated[str, Field(max_length=256)]


class AuditView(View):
    """One action."""

    time_ms: int
    user: str
    address: str
    cluster: str
    action: str
    target: str
    result: str


@router.get("/audit", summary="The audit log, newest first", response_model=PageView[AuditView])
async def audit(console: ConsoleDep, actor: ActorDep, listing: ListingDep) -> Page[AuditEntry]:
    return management.list_audit(console, actor, listing)


class JobView(View):
    """A job. ``state`` is running, done, cancelled, or the error that ended it."""

    number: int
    user: str
    cluster: str
    action: str
    target: str
    begun_ms: int
    total: int
    done: int
    failed: int
    ended_ms: int
    state: str


@router.get("/jobs", summary="Jobs, newest first", response_model=list[JobView])
async def list_jobs(console: ConsoleDep, actor: ActorDep) -> object:
    return management.list_jobs(console, actor)


@router.delete("/jobs/{number}", summary="Cancel a job", response_model=JobView)
async def cancel_job(console: ConsoleDep, actor: ActorDep, number: int) -> object:
    return await management.cancel_job(console, actor, number)


@router.get("/users", summary="Users", response_model=list[UserView])
async def users(console: ConsoleDep, actor: ActorDep) -> object:
    return management.list_users(console, actor)


@router.put("/users/{name}", summary="Add or change a user", status_code=204)
async def put_user(console: ConsoleDep, actor: ActorDep, name: str, given: UserChange) -> None:
    await management.put_user(console, actor, name, given.role, given.password)


@router.delete("/users/{name}", summary="Delete a user", status_code=204)
async def delete_user(console: ConsoleDep, actor: ActorDep, name: str) -> None:
    await management.delete_user(console, actor, name)


@router.post("/password", summary="Change the own password", status_code=204)
async def change_password(console: ConsoleDep, actor: ActorDep, given: PasswordChange) -> None:
    await management.change_password(console, actor, given.old, given.new)
