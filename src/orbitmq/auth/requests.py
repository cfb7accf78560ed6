"""Requests of administrators for users and rules (3001 to 3010), with RocketMQ's answers and remarks."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, NoReturn

from orbitmq.auth.errors import AccessError, AuthenticationError, AuthorizationError
from orbitmq.auth.policies import (
    USER_PREFIX,
    Acl,
    Policy,
    User,
    UserType,
    acl_of,
    checked_subject,
    new_user,
    policy_type_of,
    user_info,
    user_status_of,
    user_type_of,
)
from orbitmq.auth.resources import resource_of
from orbitmq.auth.signature import ACCESS_KEY
from orbitmq.platform.errors import StoreError
from orbitmq.protocol.bodies import AclInfo, UserInfo
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.fastjson import dumps
from orbitmq.protocol.remarks import hide_paths
from orbitmq.remoting.processor import RequestRefusedError, fields_of, handler_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from orbitmq.auth.store import UserTable
    from orbitmq.protocol.bodies.codec import Body
    from orbitmq.protocol.command.command import Command
    from orbitmq.remoting import Connection, Handler

_ONLY_SUPER = "The super user can only be {} by super user"


class AuthRequests:
    """Processors of a server with a table of users.

    RocketMQ answers passwords in clear; here a request for users answers none, unless a super user asks.
    """

    def __init__(self, table: UserTable) -> None:
        self._table = table

    @property
    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.AUTH_CREATE_USER: handler_of(self.create_user),
            RequestCode.AUTH_UPDATE_USER: handler_of(self.update_user),
            RequestCode.AUTH_DELETE_USER: handler_of(self.delete_user),
            RequestCode.AUTH_GET_USER: handler_of(self.get_user),
            RequestCode.AUTH_LIST_USER: handler_of(self.list_users),
            RequestCode.AUTH_CREATE_ACL: handler_of(self.put_acl),
            RequestCode.AUTH_UPDATE_ACL: handler_of(self.put_acl),
            RequestCode.AUTH_DELETE_ACL: handler_of(self.delete_acl),
            RequestCode.AUTH_GET_ACL: handler_of(self.get_acl),
            RequestCode.AUTH_LIST_ACL: handler_of(self.list_acls),
        }

    # Users

    async def create_user(self, request: Command, _: Connection) -> Command:
        name, info = self._user_of(request)
        if user_type_of(info.user_type) is UserType.SUPER and not self._is_super(request):
            raise RequestRefusedError(_ONLY_SUPER.format("create"))

        def work(users: dict[str, User], _: dict[str, Acl]) -> None:
            user = new_user(info, name)
            if name in users:
                raise AuthenticationError("The user is existed")
            users[name] = user

        await self._change(work)
        return request.response(ResponseCode.SUCCESS)

    async def update_user(self, request: Command, _: Connection) -> Command:
        name, info = self._user_of(request)
        if user_type_of(info.user_type) is UserType.SUPER and not self._is_super(request):
            raise RequestRefusedError(_ONLY_SUPER.format("update"))

        def work(users: dict[str, User], _: dict[str, Acl]) -> None:
            old = users.get(name)
            if old is None:
                raise AuthenticationError("The user is not exist")
            if old.is_super and not self._is_super(request):
                raise AuthenticationError(_ONLY_SUPER.format("update"))
            password = info.password if (info.password or "").strip() else old.password
            users[name] = dataclasses.replace(
                old,
                password=password or "",
                type=user_type_of(info.user_type) or old.type,
                status=user_status_of(info.user_status) or old.status,
            )

        await self._change(work)
        return request.response(ResponseCode.SUCCESS)

    async def delete_user(self, request: Command, _: Connection) -> Command:
        """Delete a user, and the user's rules."""
        name = _text(request, "username")

        def work(users: dict[str, User], acls: dict[str, Acl]) -> None:
            old = users.pop(name, None)
            if old is not None and old.is_super and not self._is_super(request):
                raise AuthenticationError(_ONLY_SUPER.format("update"))
            acls.pop(name, None)

        await self._change(work)
        return request.response(ResponseCode.SUCCESS)

    def get_user(self, request: Command, _: Connection) -> Command:
        name = _required_name(request)
        user = self._table.users.get(name)
        body = None if user is None else self._shown(user, request).encode()
        return request.response(ResponseCode.SUCCESS, body=body)

    def list_users(self, request: Command, _: Connection) -> Command:
        wanted = _text(request, "filter").strip()
        found = [self._shown(user, request) for user in self._table.users.values() if wanted in user.name]
        return request.response(ResponseCode.SUCCESS, body=_array(found))

    # Rules

    async def put_acl(self, request: Command, _: Connection) -> Command:
        """Create or update rules: both add them to those that the subject has."""
        info = AclInfo.decode(request.body or b"{}")
        if not info.policies:
            raise RequestRefusedError("The body of acl is null")
        try:
            acl = acl_of(info, _text(request, "subject"))
        except AccessError as error:
            _refuse(error)
        name = acl.subject.removeprefix(USER_PREFIX)

        def work(users: dict[str, User], acls: dict[str, Acl]) -> None:
            if name not in users:
                raise AuthorizationError(f"The subject of {acl.subject} is not exist.")
            self._check_rank(users[name], request)
            old = acls.get(name)
            acls[name] = Acl(acl.subject).merged(acl) if old is None else old.merged(acl)

        await self._change(work)
        return request.response(ResponseCode.SUCCESS)

    async def delete_acl(self, request: Command, _: Connection) -> Command:
        """Delete all rules of a subject, or the one for a resource."""
        name = self._subject_of(request)
        resource = resource_of(_text(request, "resource"))
        kind = policy_type_of(_text(request, "policyType"))

        def work(users: dict[str, User], acls: dict[str, Acl]) -> None:
            if name not in users:
                raise AuthorizationError("The subject is not exist.")
            self._check_rank(users[name], request)
            old = acls.pop(name, None)
            if old is None:
                raise AuthorizationError("The acl is not exist.")
            rest = Acl(old.subject) if resource is None else old.without(kind, resource)
            if rest.policies:
                acls[name] = rest

        await self._change(work)
        return request.response(ResponseCode.SUCCESS)

    def get_acl(self, request: Command, _: Connection) -> Command:
        name = self._subject_of(request)
        if name not in self._table.users:
            _refuse(AuthorizationError("The subject is not exist."))
        acl = self._table.acls.get(name)
        return request.response(ResponseCode.SUCCESS, body=None if acl is None else acl.to_info().encode())

    def list_acls(self, request: Command, _: Connection) -> Command:
        """The rules whose subject and resource contain these texts."""
        of_subject, of_resource = _text(request, "subjectFilter").strip(), _text(request, "resourceFilter").strip()
        found = [
            shown.to_info()
            for acl in self._table.acls.values()
            if of_subject in acl.subject and (shown := _with_resource(acl, of_resource)).policies
        ]
        return request.response(ResponseCode.SUCCESS, body=_array(found))

    # What they have in common

    async def _change(self, work: Callable[[dict[str, User], dict[str, Acl]], None]) -> None:
        try:
            await self._table.change(work)
        except AccessError as error:
            _refuse(error)
        except StoreError as error:
            raise RequestRefusedError(hide_paths(str(error))) from error

    def _user_of(self, request: Command) -> tuple[str, UserInfo]:
        return _required_name(request), UserInfo.decode(request.body or b"{}")

    def _subject_of(self, request: Command) -> str:
        try:
            return checked_subject(_text(request, "subject")).removeprefix(USER_PREFIX)
        except AccessError as error:
            _refuse(error)

    def _is_super(self, request: Command) -> bool:
        """True for a super user: the guard leaves the access key of a verified sender only."""
        user = self._table.users.get(request.ext_fields.get(ACCESS_KEY, ""))
        return user is not None and user.is_super

    def _check_rank(self, user: User, request: Command) -> None:
        if user.is_super and not self._is_super(request):
            raise AuthorizationError(_ONLY_SUPER.format("update"))

    def _shown(self, user: User, request: Command) -> UserInfo:
        info = user_info(user)
        if not self._is_super(request):
            info.password = None
        return info


def _required_name(request: Command) -> str:
    name = _text(request, "username")
    if not name.strip():
        raise RequestRefusedError("The username is blank", ResponseCode.INVALID_PARAMETER)
    return name


def _text(request: Command, field: str) -> str:
    value = fields_of(request).get(field)
    return value if isinstance(value, str) else ""


def _refuse(error: AccessError) -> NoReturn:
    raise RequestRefusedError(str(error), ResponseCode.NO_PERMISSION) from error


def _array(bodies: Iterable[Body]) -> bytes | None:
    """A JSON array; none where RocketMQ answers no body for an empty list."""
    found = [body.to_json() for body in bodies]
    return dumps(found) if found else None


def _with_resource(acl: Acl, text: str) -> Acl:
    policies = (
        Policy(policy.type, tuple(entry for entry in policy.entries if text in str(entry.resource)))
        for policy in acl.policies
    )
    return Acl(acl.subject, tuple(policy for policy in policies if policy.entries))
