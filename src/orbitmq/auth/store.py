"""User table: users and their rules in memory, and on disk in ``config/auth.json``."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
from dataclasses import field
from typing import TYPE_CHECKING

from orbitmq.auth.errors import AccessError
from orbitmq.auth.policies import USER_PREFIX, Acl, User, UserStatus, UserType, acl_of, user_status_of, user_type_of
from orbitmq.auth.secret_box import SecretBox, make_private, new_key, read_key
from orbitmq.platform.errors import StoreDamagedError
from orbitmq.platform.json_files import ConfigFile
from orbitmq.protocol.bodies import AclInfo  # noqa: TC001  # the codec reads the annotations
from orbitmq.protocol.bodies.codec import Body

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from orbitmq.platform.disk import Disk
    from orbitmq.platform.threads import RunBlocking

log = logging.getLogger("orbitmq.auth")

MAX_USERS = 10_000
MAX_ENTRIES_OF_USER = 1_000
"""Limits of the table, which administrators fill."""


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class StoredUser(Body):
    """A user in the file; ``secret`` is the encrypted password."""

    username: str = ""
    secret: str = ""
    user_type: str = UserType.NORMAL.value
    user_status: str = UserStatus.ENABLE.value


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class AuthTable(Body):
    """The file."""

    users: list[StoredUser] = field(default_factory=list)
    acls: list[AclInfo] = field(default_factory=list)


AUTH_FILE = ConfigFile("auth.json", AuthTable)


class UserTable:
    """Users and rules. A change is visible when it is on disk."""

    def __init__(self, disk: Disk, directory: str, key_file: str, run_blocking: RunBlocking) -> None:
        self.users: Mapping[str, User] = {}
        self.acls: Mapping[str, Acl] = {}
        """By user name."""
        self._disk = disk
        self._directory = directory
        self._key_file = key_file or os.path.join(os.path.dirname(directory), "auth.key")
        self._run = run_blocking
        self._box: SecretBox | None = None
        self._changing = asyncio.Lock()

    # Loading

    def load(self) -> None:
        """Read the file. Raises StoreError."""
        table = AUTH_FILE.load(self._disk, self._directory)
        key = read_key(self._disk, self._key_file)
        if key is None:
            if table.users:
                raise StoreDamagedError(
                    f"{self._key_file} is missing: it has the key of {AUTH_FILE.name}; restore it, or remove "
                    f"{AUTH_FILE.name} and its .bak to start without users"
                )
            key = new_key(self._disk, self._key_file)
        box = self._box = SecretBox(key)
        self.users = {user.username: _user_of(user, box) for user in table.users}
        try:
            self.acls = {_name_of(acl): acl for acl in (acl_of(info, "") for info in table.acls)}
        except AccessError as error:
            raise StoreDamagedError(f"{AUTH_FILE.name} has a rule that is malformed: {error}") from error

    def add_at_start(self, users: Mapping[str, User], acls: Mapping[str, Acl] | None = None) -> None:
        """Add those users, and their rules, that do not exist. Blocks. Raises StoreError."""
        added = {name: user for name, user in users.items() if name not in self.users}
        if not added:
            return
        rules = {name: acl for name, acl in (acls or {}).items() if name in added}
        self._become({**self.users, **added}, {**self.acls, **rules})
        for user in added.values():
            log.info("auth: user %s created at start, type %s", user.name, user.type.value)

    # Changes

    async def change(self, work: Callable[[dict[str, User], dict[str, Acl]], None]) -> None:
        """Apply a change to copies of both tables, persist them, and make them visible. Raises what it raises."""
        async with self._changing:
            users, acls = dict(self.users), dict(self.acls)
            work(users, acls)
            if len(users) > MAX_USERS:
                raise AccessError(f"limit of {MAX_USERS} users reached")
            if any(
                sum(len(policy.entries) for policy in acl.policies) > MAX_ENTRIES_OF_USER for acl in acls.values()
            ):
                raise AccessError(f"limit of {MAX_ENTRIES_OF_USER} rules of one user reached")
            await self._run(lambda: self._write(users, acls))
            self.users, self.acls = users, acls

    def _become(self, users: dict[str, User], acls: dict[str, Acl]) -> None:
        self._write(users, acls)
        self.users, self.acls = users, acls

    def _write(self, users: Mapping[str, User], acls: Mapping[str, Acl]) -> None:
        box = self._box
        assert box is not None, "not loaded"
        stored = [
            StoredUser(user.name, box.lock(user.password, user.name), user.type.value, user.status.value)
            for user in users.values()
        ]
        make_private(self._disk, os.path.join(self._directory, AUTH_FILE.name + ".tmp"))
        AUTH_FILE.persist(self._disk, self._directory, AuthTable(stored, [acl.to_info() for acl in acls.values()]))


def _user_of(stored: StoredUser, box: SecretBox) -> User:
    # A type or status that was damaged must not give rights.
    kind = user_type_of(stored.user_type) or UserType.NORMAL
    status = user_status_of(stored.user_status) or UserStatus.DISABLE
    return User(stored.username, box.unlock(stored.secret, stored.username), kind, status)


def _name_of(acl: Acl) -> str:
    return acl.subject.removeprefix(USER_PREFIX)
