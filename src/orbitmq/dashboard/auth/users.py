"""Users: names, roles and password hashes in one file, and the check of a sign-in."""

from __future__ import annotations

import asyncio
import dataclasses
import re
from typing import TYPE_CHECKING

import orjson

from orbitmq.admin.errors import InvalidRequestError, NotFoundError
from orbitmq.dashboard.auth.passwords import (
    MAX_LENGTH,
    MIN_LENGTH,
    hash_password,
    random_password,
    verify_password,
)
from orbitmq.dashboard.auth.roles import NotSignedInError, Role

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MAX_USERS = 1000
MAX_FAILURES = 5
MAX_FAILURES_OF_ADDRESS = 50
"""Wrong passwords of a name from one address, and of an address, before it has to wait. A name alone is not
counted: anyone could lock its owner out."""
WAIT_SECONDS = 60.0
MAX_WATCHED = 10_000
"""Names and addresses with failures that are remembered."""
FIRST_USER = "admin"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")


@dataclasses.dataclass(frozen=True, slots=True)
class User:
    """One user. ``password`` is the hash."""

    name: str
    role: Role
    password: str = dataclasses.field(repr=False)


class Users:
    """The users of a console. The file belongs to the user of the process alone."""

    def __init__(self, path: Path, now: Callable[[], float]) -> None:
        """Raises InvalidRequestError for a file that cannot be read."""
        self._path = path
        self._now = now
        self._users = _read(path)
        self._failures: dict[str, tuple[int, float]] = {}
        self._checks = asyncio.Semaphore(2)
        # An unknown name takes as long as a known one.
        self._nothing = "scrypt$16384$8$5$AAAAAAAAAAAAAAAAAAAAAA==$AAAA"

    def create_first(self) -> str | None:
        """The random password of a new administrator if there is no user yet, else None."""
        if self._users:
            return None
        password = random_password()
        self._users[FIRST_USER] = User(FIRST_USER, Role.ADMIN, hash_password(password))
        self._write()
        return password

    def all(self) -> list[User]:
        return [self._users[name] for name in sorted(self._users)]

    def get(self, name: str) -> User | None:
        return self._users.get(name)

    async def sign_in(self, name: str, password: str, address: str) -> User:
        """The user with this name and password. Raises NotSignedInError, without telling which is wrong."""
        limits = {f"{address} {name[:64]}": MAX_FAILURES, address: MAX_FAILURES_OF_ADDRESS}
        for key, limit in limits.items():
            count, until = self._failures.get(key, (0, 0.0))
            if count >= limit and self._now() < until:
                raise NotSignedInError("too many wrong passwords: try again in a minute")
        user = self._users.get(name)
        stored = self._nothing if user is None else user.password
        async with self._checks:
            is_right = await asyncio.to_thread(verify_password, password[: MAX_LENGTH + 1], stored)
        if user is None or not is_right:
            for key, limit in limits.items():
                self._count_failure(key, limit)
            raise NotSignedInError("the name or the password is wrong")
        for key in limits:
            self._failures.pop(key, None)
        return user

    def _count_failure(self, key: str, limit: int) -> None:
        count, until = self._failures.pop(key, (0, 0.0))
        if count >= limit and self._now() >= until:
            count = 0
        self._failures[key] = (count + 1, self._now() + WAIT_SECONDS)
        while len(self._failures) > MAX_WATCHED:
            del self._failures[next(iter(self._failures))]

    async def put(self, name: str, role: Role, password: str | None) -> None:
        """Add a user, or change its role or password. Raises InvalidRequestError."""
        before = self._users.get(name)
        if not _NAME.fullmatch(name):
            raise InvalidRequestError(f"the name of a user has letters, digits and ._@-, not {name!r}")
        if before is None and password is None:
            raise InvalidRequestError("a new user needs a password")
        if before is None and len(self._users) >= MAX_USERS:
            raise InvalidRequestError(f"a console has at most {MAX_USERS} users")
        if password is not None and not MIN_LENGTH <= len(password) <= MAX_LENGTH:
            raise InvalidRequestError(f"a password has {MIN_LENGTH} to {MAX_LENGTH} characters")
        if before is not None and before.role is Role.ADMIN and role is not Role.ADMIN:
            self._check_not_last(name)
        stored = before.password if before is not None else ""
        if password is not None:
            async with self._checks:
                stored = await asyncio.to_thread(hash_password, password)
        self._users[name] = User(name, role, stored)
        self._write()

    def delete(self, name: str) -> None:
        """Raises NotFoundError, and InvalidRequestError for the last administrator."""
        if name not in self._users:
            raise NotFoundError("user", name)
        if self._users[name].role is Role.ADMIN:
            self._check_not_last(name)
        del self._users[name]
        self._write()

    def _check_not_last(self, name: str) -> None:
        if not any(user.role is Role.ADMIN and user.name != name for user in self._users.values()):
            raise InvalidRequestError(f"{name} is the last administrator: make another one first")

    def _write(self) -> None:
        table = {user.name: {"role": user.role.value, "password": user.password} for user in self.all()}
        partial = self._path.with_suffix(".tmp")
        partial.touch(0o600)
        partial.write_bytes(orjson.dumps({"users": table}, option=orjson.OPT_INDENT_2))
        partial.replace(self._path)


def _read(path: Path) -> dict[str, User]:
    try:
        table = orjson.loads(path.read_bytes())["users"]
        return {name: User(name, Role(entry["role"]), str(entry["password"])) for name, entry in table.items()}
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidRequestError(f"the users in {path} cannot be read: {error}") from error
