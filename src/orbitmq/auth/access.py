"""Access control of one server: the table of users, the guard, the audit log and the signer of its own requests."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING

from orbitmq.auth.audit import AuditLog
from orbitmq.auth.credentials import credentials_of_json
from orbitmq.auth.guard import Guard
from orbitmq.auth.plain.accounts import imported
from orbitmq.auth.plain.table import PlainTable
from orbitmq.auth.policies import User, UserType
from orbitmq.auth.quotas.quota import Quota
from orbitmq.auth.requests import AuthRequests
from orbitmq.auth.signature import Signer
from orbitmq.auth.store import UserTable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from orbitmq.auth.credentials import Credentials
    from orbitmq.auth.requirements import Environment
    from orbitmq.auth.settings import AuthSettings
    from orbitmq.platform.disk import Disk
    from orbitmq.platform.threads import RunBlocking
    from orbitmq.remoting import Handler


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """Where a server keeps its files, and how it reads clock and disk."""

    disk: Disk
    directory: str
    """``config/`` of the server."""
    run_blocking: RunBlocking
    now_ms: Callable[[], int]


class AccessControl:
    """Access control of a broker or name server."""

    def __init__(self, settings: AuthSettings, place: Place, *, home: str = "") -> None:
        """``home`` is RocketMQ's, where ``conf/plain_acl.yml`` is. Loads nothing yet."""
        self.settings = settings
        self.table: UserTable | PlainTable | None = None
        self.audit: AuditLog | None = None
        self._home = home
        self.user_quota = Quota(lambda: settings.max_requests_per_second_of_user, place.now_ms)
        if getattr(settings, "acl_enable", False):
            self.table = PlainTable(home, place.run_blocking)
        elif settings.authentication_enabled:
            self.table = UserTable(place.disk, place.directory, settings.auth_key_file, place.run_blocking)
        if settings.audit_log:
            self.audit = AuditLog(
                place.disk, place.directory, settings.audit_log_bytes, place.now_ms, place.run_blocking
            )

    @property
    def authorizes(self) -> bool:
        """True if users need rules for their requests."""
        return self.settings.authorization_enabled or isinstance(self.table, PlainTable)

    @property
    def inner_credentials(self) -> Credentials | None:
        """Those of the server itself."""
        text = self.settings.inner_client_authentication_credentials
        return credentials_of_json(text, "innerClientAuthenticationCredentials") if text else None

    @property
    def signer(self) -> Signer | None:
        """Signs the requests of the server itself; None without inner credentials."""
        credentials = self.inner_credentials
        return None if credentials is None else Signer(credentials)

    def secret_of_super_user(self, name: str) -> bytes | None:
        """The secret of an enabled super user; None for everybody else."""
        user = None if self.table is None else self.table.users.get(name)
        return user.secret if user is not None and user.is_super and user.is_enabled else None

    @property
    def allows_native(self) -> bool:
        """True if frames may be served before a guard has seen them: those of users once they are verified."""
        return self.table is None or isinstance(self.table, UserTable)

    def load(self) -> None:
        """Read the users, and create those of the settings. Blocks. Raises StoreError, ConfigError."""
        if self.table is None:
            return
        self.table.load()
        if isinstance(self.table, PlainTable):
            return
        if self.settings.migrate_auth_from_v1_enabled:
            self.table.add_at_start(*imported(os.path.join(self._home or ".", "conf")))
        created = {}
        for key, text in (
            ("initAuthenticationUser", self.settings.init_authentication_user),
            ("innerClientAuthenticationCredentials", self.settings.inner_client_authentication_credentials),
        ):
            if text:
                found = credentials_of_json(text, key)
                created[found.access_key] = User(found.access_key, found.secret_key, UserType.SUPER)
        self.table.add_at_start(created)

    def guarded(self, handlers: Mapping[int, Handler], environment: Environment) -> dict[int, Handler]:
        """The handlers of a server behind the checks, and those for users and rules if there are users."""
        own = AuthRequests(self.table).handlers if isinstance(self.table, UserTable) else {}
        return Guard(self.settings, self.table, environment, self.audit, self.user_quota).guarded(
            {**handlers, **own}
        )

    def start(self) -> None:
        if isinstance(self.table, PlainTable):
            self.table.start()
        if self.audit is not None:
            self.audit.start()

    async def stop(self) -> None:
        if isinstance(self.table, PlainTable):
            await self.table.stop()
        if self.audit is not None:
            await self.audit.stop()
