"""Fast path behind authentication: serves requests whose signatures and rights are verified natively.

The native code passes what it can prove to be allowed: the signature of an enabled user, and a right that was
decided here once. Everything else, refusals included, is for the handlers behind the guard, which is the
specification.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from orbitmq import native
from orbitmq.auth.decision import authorize
from orbitmq.auth.errors import AuthorizationError
from orbitmq.auth.local_only import host_of
from orbitmq.auth.requirements import requirements_of
from orbitmq.auth.settings import codes_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.auth.policies import Acl, User
    from orbitmq.auth.requirements import Environment
    from orbitmq.auth.settings import AuthSettings
    from orbitmq.auth.store import UserTable
    from orbitmq.broker.fast_path.dispatcher import FastPath
    from orbitmq.native.results import MissingGrant
    from orbitmq.remoting import Connection

MAX_GRANTS = 10_000
"""Rights that are remembered: users times addresses times topics times groups. Beyond it they are decided again."""


class SignedRequests:
    """Verifies the requests that received bytes begin with."""

    def __init__(self, settings: AuthSettings, table: UserTable, environment: Environment) -> None:
        self._settings = settings
        self._table = table
        self._environment = environment
        self._without_rule = codes_of("authorizationWhitelist", settings.authorization_whitelist)
        self._verify = native.load().verify_requests
        self._users: Mapping[str, User] | None = None
        self._acls: Mapping[str, Acl] | None = None
        """Those that the keys and the rights are from: a change replaces both tables."""
        self._keys: dict[bytes, bytes] = {}
        self._grants: set[bytes] = set()

    def verified(self, connection: Connection, data: bytes) -> int:
        """The bytes of the frames at the front of ``data`` that may be served without the guard."""
        if self._settings.max_requests_per_second_of_user:
            # The guard counts.
            return 0
        if self._users is not self._table.users or self._acls is not self._table.acls:
            self._take_over()
        source = _source_of(connection.remote_address)
        size, missing = self._verify(data, source, self._keys, self._grants)
        while missing is not None and self._is_granted(missing, connection):
            if len(self._grants) >= MAX_GRANTS:
                self._grants.clear()
            self._grants.add(missing[0])
            more, missing = self._verify(data[size:], source, self._keys, self._grants)
            size += more
        return size

    def _take_over(self) -> None:
        """Forget what the former users and rules allowed."""
        self._users, self._acls = self._table.users, self._table.acls
        authorizes = self._settings.authorization_enabled
        make = native.load().signing_key
        self._keys = {
            name.encode(): make(user.secret, authorizes and not user.is_super)
            for name, user in self._users.items()
            if user.is_enabled
        }
        self._grants.clear()

    def _is_granted(self, missing: MissingGrant, connection: Connection) -> bool:
        """The decision of the guard for such requests."""
        _, name, code, topic, group = missing
        if code in self._without_rule:
            return True
        assert self._users is not None
        assert self._acls is not None
        # Topics of sends have two names; each rule reads its own.
        fields = {"topic": topic.decode(), "b": topic.decode(), "consumerGroup": group.decode()}
        needed = requirements_of(code, fields, b"", self._environment)
        if needed is None:
            return False
        user = name.decode()
        try:
            authorize(self._users[user], self._acls.get(user), needed, host_of(connection.remote_address))
        except AuthorizationError:
            return False
        return True


@functools.lru_cache(4096)
def _source_of(address: str) -> bytes:
    return host_of(address).encode()[:512]


class SignedFastPath:
    """Interceptor that offers verified frames to the fast path. Others go to the handlers, behind the guard."""

    def __init__(self, served: FastPath, requests: SignedRequests) -> None:
        self._served = served
        self._requests = requests

    @property
    def together(self) -> tuple[bytes, ...]:
        return self._served.together

    def take(self, connection: Connection, data: bytes) -> tuple[int, int]:
        """As ``FastPath.take``, of the verified frames that ``data`` begins with."""
        served = self._served
        verified = self._requests.verified(connection, data)
        taken = 0
        if verified:
            taken, others = served.take(connection, data[:verified] if verified < len(data) else data)
            if taken < verified or verified == len(data):
                return taken, others
        if served.is_candidate(data, taken):
            # A refused request is mostly among others like it: offering each of them would be wasted.
            return taken, len(data) - taken
        return taken, served.until_next(data, taken)

    def take_together(self, received: list[tuple[Connection, bytes]]) -> list[int]:
        """As ``FastPath.take_together``, of the verified frames of each connection."""
        verify = self._requests.verified
        sizes = [verify(connection, data) for connection, data in received]
        verified = [
            (connection, data[:size] if size < len(data) else data)
            for (connection, data), size in zip(received, sizes, strict=True)
            if size
        ]
        if not verified:
            return sizes
        taken = iter(self._served.take_together(verified))
        return [next(taken) if size else 0 for size in sizes]
