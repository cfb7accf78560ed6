"""Guard: checks every request before its handler sees it.

With authentication on, all handlers are guarded; frames are served in front of them only after the native extension
has verified the same (``broker/fast_path/signed.py``). With authentication off, only administrative requests are
guarded, by the address that they come from.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Protocol

from orbitmq.auth.audit import name_of
from orbitmq.auth.decision import authorize
from orbitmq.auth.errors import AccessError, AuthenticationError, AuthorizationError, QuotaError
from orbitmq.auth.local_only import ADMINISTRATIVE, check_source, host_of, networks_of
from orbitmq.auth.plain.table import PlainTable
from orbitmq.auth.quotas.of_users import charge
from orbitmq.auth.requirements import requirements_of
from orbitmq.auth.settings import codes_of
from orbitmq.auth.signature import ACCESS_KEY, is_signed_by
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.command.header import CODE, EXT_FIELDS, VERSION
from orbitmq.remoting.error_responses import remark_response
from orbitmq.remoting.identity import CERTIFIED_USER, IN_PROCESS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.auth.audit import AuditLog
    from orbitmq.auth.policies import Acl, User
    from orbitmq.auth.quotas.quota import Quota
    from orbitmq.auth.requirements import Environment
    from orbitmq.auth.settings import AuthSettings
    from orbitmq.protocol.command.header import Header
    from orbitmq.remoting import Answer, Connection, Handler


class Users(Protocol):
    """A table of users and their rules, by name."""

    users: Mapping[str, User]
    acls: Mapping[str, Acl]


class Guard:
    """Authenticates and authorizes requests. Connections inside this process are trusted."""

    def __init__(
        self,
        settings: AuthSettings,
        table: Users | None,
        environment: Environment,
        audit: AuditLog | None,
        quota: Quota | None = None,
    ) -> None:
        """``table`` is None while authentication is off. ``quota`` is that of each user."""
        self._settings = settings
        self._quota = quota
        self._table = table
        self._environment = environment
        self._audit = audit
        self._plain = table if isinstance(table, PlainTable) else None
        self._authorizes = settings.authorization_enabled or self._plain is not None
        self._unsigned = codes_of("authenticationWhitelist", settings.authentication_whitelist)
        self._without_rule = codes_of("authorizationWhitelist", settings.authorization_whitelist)
        self._admin_networks = networks_of(settings.admin_networks)

    def guarded(self, handlers: Mapping[int, Handler]) -> dict[int, Handler]:
        """The handlers, behind the checks."""
        return {
            code: self._guarded(handler) if self._table is not None or code in ADMINISTRATIVE else handler
            for code, handler in handlers.items()
        }

    def _guarded(self, handler: Handler) -> Handler:
        @functools.wraps(handler)
        def handle(connection: Connection, header: Header, body: bytes, serialize_type: int) -> Answer:
            try:
                user = self.check(connection, header, body)
            except AccessError as error:
                if self._audit is not None:
                    self._audit.refused(header, connection.remote_address, str(error))
                return self._refusal(header, serialize_type, error)
            except QuotaError as error:
                return remark_response(header, serialize_type, ResponseCode.SYSTEM_BUSY, str(error))
            answer = handler(connection, header, body, serialize_type)
            if self._audit is not None and header[CODE] in ADMINISTRATIVE:
                self._audit.served(header, user, connection.remote_address, answer)
            return answer

        return handle

    def check(self, connection: Connection, header: Header, body: bytes) -> str:
        """Check one request; the name of its user. Raises AccessError, QuotaError, ProtocolError."""
        code, fields = header[CODE], header[EXT_FIELDS]
        if IN_PROCESS in connection.attributes:
            return IN_PROCESS
        if self._table is None:
            if code in ADMINISTRATIVE:
                check_source(
                    connection.remote_address, connection.local_address, self._admin_networks, name_of(code)
                )
            return fields.get(ACCESS_KEY, "")
        if self._plain is not None and self._plain.trusts(
            host_of(connection.remote_address), fields.get(ACCESS_KEY)
        ):
            return fields.get(ACCESS_KEY, "")
        user = self._authenticated(self._table, connection, header, body)
        if user is not None and self._quota is not None:
            charge(self._quota, user, code, self._settings.max_requests_per_second_of_user)
        if self._authorizes and code not in self._without_rule:
            self._authorize(self._table, user, connection, header, body)
        return "" if user is None else user.name

    def _refusal(self, header: Header, serialize_type: int, error: AccessError) -> bytes:
        if self._plain is None:
            return remark_response(header, serialize_type, ResponseCode.NO_PERMISSION, str(error))
        # What RocketMQ's first access control answers.
        remark = f"org.apache.rocketmq.acl.common.AclException: {error}"
        return remark_response(header, serialize_type, ResponseCode.SYSTEM_ERROR, remark)

    def _authenticated(self, table: Users, connection: Connection, header: Header, body: bytes) -> User | None:
        """The user who sent a request; None if the request may come from everyone. Raises AuthenticationError."""
        fields = header[EXT_FIELDS]
        try:
            name = fields.get(ACCESS_KEY)
            if not name:
                return self._certified(table, connection, fields)
            user = table.users.get(name)
            if user is None and self._plain is not None:
                raise AuthenticationError(f"No acl config for {name}")
            if user is None:
                raise AuthenticationError(f"User:{name} is not found.")
            if not user.is_enabled:
                raise AuthenticationError(f"User:{name} is disabled.")
            if not is_signed_by(user.secret, fields, body, header[VERSION]):
                known = f"Check signature failed for accessKey={name}"
                raise AuthenticationError("check signature failed." if self._plain is None else known)
        except AuthenticationError:
            if header[CODE] in self._unsigned:
                # Handlers take it for that of a verified user.
                fields.pop(ACCESS_KEY, None)
                return None
            raise
        return user

    @staticmethod
    def _certified(table: Users, connection: Connection, fields: dict[str, str]) -> User:
        """The user whom the certificate of the connection names. Raises AuthenticationError."""
        user = table.users.get(connection.attributes.get(CERTIFIED_USER, ""))
        if user is None or not user.is_enabled:
            is_plain = isinstance(table, PlainTable)
            raise AuthenticationError("No accessKey is configured" if is_plain else "username cannot be null.")
        fields[ACCESS_KEY] = user.name
        return user

    def _authorize(
        self, table: Users, user: User | None, connection: Connection, header: Header, body: bytes
    ) -> None:
        if user is not None and user.is_super:
            return
        code = header[CODE]
        needed = requirements_of(code, header[EXT_FIELDS], body, self._environment)
        if needed is None:
            raise AuthorizationError(f"the request {name_of(code)} is for super users only")
        acl = None if user is None else table.acls.get(user.name)
        authorize(user, acl, needed, host_of(connection.remote_address))
