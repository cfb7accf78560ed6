"""The console: clusters, users, sessions, audit log and history together, and the one way to change something."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from orbitmq.admin.errors import AdminError
from orbitmq.admin.message.body_decoders import BodyDecoders
from orbitmq.dashboard.audit import AuditLog
from orbitmq.dashboard.auth.oidc import Oidc
from orbitmq.dashboard.auth.roles import Actor, ForbiddenError, Role
from orbitmq.dashboard.auth.sessions import Sessions
from orbitmq.dashboard.auth.users import Users
from orbitmq.dashboard.clusters import ClusterSet
from orbitmq.dashboard.history.sampler import Sampler
from orbitmq.dashboard.history.store import HistoryStore
from orbitmq.dashboard.jobs import Jobs
from orbitmq.platform.clock import SYSTEM_CLOCK

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from orbitmq.dashboard.clusters import ManagedCluster
    from orbitmq.dashboard.config import DashboardConfig

T = TypeVar("T")

NO_LOGIN_USER = "local"


@dataclasses.dataclass(frozen=True, slots=True)
class Action:
    """Something that a user does: its name in the audit log, its target there, and the role it needs."""

    name: str
    target: str
    role: Role = Role.OPERATOR


class Console:
    """One console. It belongs to the event loop that it was started on."""

    def __init__(self, config: DashboardConfig) -> None:
        """Reads users, audit log and history. Raises InvalidRequestError, OSError."""
        data = Path(config.data)
        data.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.config = config
        self.clusters = ClusterSet(config)
        self.decoders = BodyDecoders.load(config.decoders) if config.decoders else BodyDecoders()
        self.users = Users(data / "users.json", time.monotonic)
        self.sessions = Sessions(self.users, time.monotonic)
        self.oidc = None if config.oidc is None else Oidc(config.oidc, SYSTEM_CLOCK)
        self.audit = AuditLog(data / "audit.jsonl")
        self.jobs = Jobs(SYSTEM_CLOCK)
        self.history = HistoryStore.open(data / "history.ring", config.history_mib) if config.history_mib else None
        self.sampler = None if self.history is None else Sampler(self.clusters, self.history, config.sample_seconds)

    async def start(self) -> None:
        await self.clusters.start()
        if self.sampler is not None:
            self.sampler.start()

    async def close(self) -> None:
        await self.jobs.close()
        if self.sampler is not None:
            await self.sampler.stop()
        if self.history is not None:
            self.history.close()
        await self.clusters.close()

    # Who may do what

    def local_actor(self, address: str) -> Actor:
        """The user of a console without login."""
        return Actor(NO_LOGIN_USER, Role.ADMIN, address)

    def current(self, actor: Actor) -> Actor:
        """The actor of an open page with today's role. Raises NotSignedInError."""
        return self.sessions.current(actor) if self.config.login else actor

    def still_open(self, actor: Actor) -> None:
        """Check that the session of a page is open, without counting it as used. Raises NotSignedInError."""
        if self.config.login:
            self.sessions.check(actor)

    def may(self, actor: Actor, role: Role) -> bool:
        """True if pages offer an action of a role."""
        return not self.config.read_only and actor.role.includes(role)

    def check(self, actor: Actor, action: Action) -> Actor:
        """The actor with today's role, if it may do something. Raises ForbiddenError, NotSignedInError."""
        actor = self.current(actor)
        actor.check(action.role, action.name)
        if self.config.read_only:
            raise ForbiddenError("this console is read-only")
        return actor

    async def change(
        self, actor: Actor, cluster: ManagedCluster | None, action: Action, work: Callable[[], Awaitable[T]]
    ) -> T:
        """Do something for a user, and record it. Raises ForbiddenError, and the errors of the work."""
        where = "" if cluster is None else cluster.name
        try:
            actor = self.check(actor, action)
            result = await work()
        except AdminError as error:
            self.audit.record(actor.user, actor.address, where, action.name, action.target, str(error))
            raise
        except asyncio.CancelledError:
            self.audit.record(actor.user, actor.address, where, action.name, action.target, "cancelled")
            raise
        finally:
            if cluster is not None:
                cluster.changed()
        self.audit.record(actor.user, actor.address, where, action.name, action.target)
        return result
