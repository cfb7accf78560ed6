"""PlainTable: the users of ``plain_acl.yml`` (``aclEnable``), read again when a file changes."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
from typing import TYPE_CHECKING, NamedTuple

from orbitmq.auth.plain.accounts import (
    accounts_as_users,
    plain_files,
    read_plain_access,
)
from orbitmq.auth.plain.addresses import AddressPattern, is_any_of, read_patterns
from orbitmq.platform.settings import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.auth.policies import Acl, User
    from orbitmq.platform.threads import RunBlocking

log = logging.getLogger("orbitmq.auth")

RELOAD_SECONDS = 5.0
"""Interval at which the files are compared, as in RocketMQ."""


class _Read(NamedTuple):
    """The contents of the files."""

    seen: bytes
    users: Mapping[str, User]
    acls: Mapping[str, Acl]
    trusted: tuple[AddressPattern, ...]
    trusted_of: dict[str, tuple[AddressPattern, ...]]


class PlainTable:
    """Users, their rules, and the addresses that need neither."""

    def __init__(self, home: str, run_blocking: RunBlocking) -> None:
        """``home`` is RocketMQ's; the files are in its ``conf``."""
        self.users: Mapping[str, User] = {}
        self.acls: Mapping[str, Acl] = {}
        self._conf = os.path.join(home or ".", "conf")
        self._run = run_blocking
        self._trusted: tuple[AddressPattern, ...] = ()
        self._trusted_of: dict[str, tuple[AddressPattern, ...]] = {}
        self._seen = b""
        self._trouble = ""
        self._task: asyncio.Task[None] | None = None

    def load(self) -> None:
        """Read the files. Blocks. Raises ConfigError."""
        self._become(self._read())

    def _read(self) -> _Read:
        """Raises ConfigError."""
        seen = self._fingerprint()
        if not plain_files(self._conf):
            raise ConfigError(
                f"aclEnable=true: {self._conf} has no plain_acl.yml; set rocketmqHome to the directory above it"
            )
        access = read_plain_access(self._conf)
        trusted_of = {
            account.access_key: read_patterns([account.white_address], f"account {account.access_key}")
            for account in access.accounts
        }
        users, acls = accounts_as_users(access)
        return _Read(
            seen, users, acls, read_patterns(access.white_addresses, "globalWhiteRemoteAddresses"), trusted_of
        )

    def _become(self, read: _Read) -> None:
        self._seen, self.users, self.acls, self._trusted, self._trusted_of = read

    def trusts(self, host: str, name: str | None) -> bool:
        """True if requests from this address, in the name of this user, are served without a signature."""
        return is_any_of(self._trusted, host) or (
            name is not None and is_any_of(self._trusted_of.get(name, ()), host)
        )

    # Reloading

    def start(self) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._watch())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(RELOAD_SECONDS)
            await self._reload()

    async def _reload(self) -> None:
        """Read the files again if one has changed. Those that cannot be used leave the former accounts in use."""
        try:
            if await self._run(self._fingerprint) == self._seen:
                return
            self._become(await self._run(self._read))
        except Exception as error:
            # Any error: the accounts must not stop being read.
            if str(error) != self._trouble:
                self._trouble = str(error)
                log.error("auth: reloading the accounts failed, the former ones stay in use: %s", error)
            return
        self._trouble = ""
        log.info("auth: %d accounts reloaded from %s", len(self.users), self._conf)

    def _fingerprint(self) -> bytes:
        """A hash of names and contents. Raises ConfigError."""
        found = hashlib.sha256()
        for path in plain_files(self._conf):
            try:
                with open(path, "rb") as file:
                    found.update(f"{path}\0".encode() + hashlib.file_digest(file, "sha256").digest())
            except OSError as error:
                raise ConfigError(f"cannot read {path}: {error.strerror or error}") from error
        return found.digest()
