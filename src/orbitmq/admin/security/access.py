"""Users and rules of access, where brokers authenticate (RocketMQ 5.3 and later)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.admin.changes import Change, differences
from orbitmq.admin.cluster.topology import addresses
from orbitmq.admin.errors import InvalidRequestError, NotFoundError, RefusedError
from orbitmq.admin.session import decode
from orbitmq.protocol.bodies import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.fastjson import loads

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orbitmq.admin.cluster.brokers import Brokers
    from orbitmq.admin.session import AdminSession
    from orbitmq.protocol.command.command import Command

HIDDEN = "(hidden)"


class Access:
    """Users and rules. Reads come from one broker, changes go to all masters of a cluster."""

    def __init__(self, session: AdminSession, brokers: Brokers) -> None:
        self._session = session
        self._brokers = brokers

    # Users

    async def users(self, *, broker: str = "", name_filter: str = "") -> list[UserInfo]:
        """The users of a broker, by default of the first."""
        address = await self._reader(broker)
        answer = await self._session.call(address, RequestCode.AUTH_LIST_USER, {"filter": name_filter or None})
        return [UserInfo.from_json(item) for item in _array(answer, address)]

    async def user(self, name: str, *, broker: str = "") -> UserInfo:
        """One user. Raises NotFoundError."""
        address = await self._reader(broker)
        answer = await self._session.call(address, RequestCode.AUTH_GET_USER, {"username": name})
        if not answer.body:
            raise NotFoundError("user", name)
        return decode(UserInfo, answer, address)

    async def create_user(
        self, name: str, password: str, *, user_type: str = "Normal", cluster: str = "", broker: str = ""
    ) -> list[str]:
        """Create a user. Returns the addresses of the brokers."""
        if user_type not in {"Super", "Normal"}:
            raise InvalidRequestError(f"the type of a user is Super or Normal, not {user_type!r}")
        body = UserInfo(name, password, user_type).encode()
        return await self._change(RequestCode.AUTH_CREATE_USER, {"username": name}, body, cluster, broker)

    async def alter_user(
        self,
        name: str,
        *,
        password: str | None = None,
        user_type: str | None = None,
        status: str | None = None,
        cluster: str = "",
        broker: str = "",
    ) -> list[str]:
        """Alter a user; None leaves a value as it is."""
        body = UserInfo(name, password, user_type, status).encode()
        return await self._change(RequestCode.AUTH_UPDATE_USER, {"username": name}, body, cluster, broker)

    async def put_user(self, address: str, user: UserInfo, *, exists: bool) -> None:
        """Write a user at one broker as it is, for copies."""
        code = RequestCode.AUTH_UPDATE_USER if exists else RequestCode.AUTH_CREATE_USER
        await self._session.call(address, code, {"username": user.username}, user.encode())

    async def delete_user(self, name: str, *, cluster: str = "", broker: str = "") -> list[str]:
        return await self._change(RequestCode.AUTH_DELETE_USER, {"username": name}, None, cluster, broker)

    async def user_changes(
        self, name: str, after: UserInfo | None, *, cluster: str = "", broker: str = ""
    ) -> list[Change]:
        """The changes that writing a user would make; None deletes it. Passwords are not compared, and not shown.

        Raises NotFoundError for the deletion of a user that no broker has.
        """
        found = []
        for one in await self._brokers.targets(cluster, broker):
            known = {user.username: user for user in await self.users(broker=one.address)}
            old = known.get(name)
            target = f"user {name} at {one.broker_name}"
            if after is None:
                found += [] if old is None else [Change(target, "user", "exists", None)]
                continue
            if after.password:
                found.append(Change(target, "password", None if old is None else HIDDEN, HIDDEN))
            found += [
                Change(target, label, before, value)
                for label, before, value in (
                    ("type", old and old.user_type, after.user_type),
                    ("status", old and old.user_status, after.user_status),
                )
                if value is not None and before != value
            ]
        if after is None and not found:
            raise NotFoundError("user", name)
        return found

    # Rules

    async def rule_changes(
        self,
        subject: str,
        entries: Iterable[PolicyEntryInfo] | None,
        *,
        resource: str = "",
        cluster: str = "",
        broker: str = "",
    ) -> list[Change]:
        """The changes that writing rules of a subject would make; None deletes them, or those of one resource."""
        wanted = None if entries is None else {entry.resource or "": _rule_text(entry) for entry in entries}
        found: list[Change] = []
        for one in await self._brokers.targets(cluster, broker):
            known = {
                entry.resource or "": _rule_text(entry)
                for rules in await self.rules(broker=one.address, subject=subject)
                if rules.subject == subject
                for policy in rules.policies or ()
                for entry in policy.entries or ()
            }
            chosen = {name for name in known if resource in {"", name}} if wanted is None else set(wanted)
            found += differences(
                f"rules of {subject} at {one.broker_name}", known, wanted or {}, only=sorted(chosen)
            )
        if wanted is None and not found:
            raise NotFoundError("rule for the subject", subject)
        return found

    async def rules(self, *, broker: str = "", subject: str = "", resource: str = "") -> list[AclInfo]:
        """The rules of a broker, by default of the first."""
        address = await self._reader(broker)
        fields = {"subjectFilter": subject or None, "resourceFilter": resource or None}
        answer = await self._session.call(address, RequestCode.AUTH_LIST_ACL, fields)
        return [AclInfo.from_json(item) for item in _array(answer, address)]

    async def rules_of(self, subject: str, *, broker: str = "") -> AclInfo:
        """The rules of one subject, ``User:name``. Raises NotFoundError."""
        address = await self._reader(broker)
        answer = await self._session.call(address, RequestCode.AUTH_GET_ACL, {"subject": subject})
        if not answer.body:
            raise NotFoundError("rule for the subject", subject)
        return decode(AclInfo, answer, address)

    async def create_rules(
        self, subject: str, entries: Iterable[PolicyEntryInfo], *, cluster: str = "", broker: str = ""
    ) -> list[str]:
        """Add rules for a subject. Returns the addresses of the brokers."""
        body = _acl(subject, entries).encode()
        return await self._change(RequestCode.AUTH_CREATE_ACL, {"subject": subject}, body, cluster, broker)

    async def alter_rules(
        self, subject: str, entries: Iterable[PolicyEntryInfo], *, cluster: str = "", broker: str = ""
    ) -> list[str]:
        body = _acl(subject, entries).encode()
        return await self._change(RequestCode.AUTH_UPDATE_ACL, {"subject": subject}, body, cluster, broker)

    async def put_rules(self, address: str, rules: AclInfo, *, exists: bool) -> None:
        """Write the rules of a subject at one broker as they are, for copies."""
        code = RequestCode.AUTH_UPDATE_ACL if exists else RequestCode.AUTH_CREATE_ACL
        await self._session.call(address, code, {"subject": rules.subject}, rules.encode())

    async def delete_rules(
        self, subject: str, *, resource: str = "", cluster: str = "", broker: str = ""
    ) -> list[str]:
        """Delete the rules of a subject, or those for one resource."""
        fields = {"subject": subject, "resource": resource or None}
        return await self._change(RequestCode.AUTH_DELETE_ACL, fields, None, cluster, broker)

    async def _reader(self, broker: str) -> str:
        return (await self._brokers.targets("", broker, for_change=False))[0].address

    async def _change(
        self,
        code: int,
        fields: dict[str, str] | dict[str, str | None],
        body: bytes | None,
        cluster: str,
        broker: str,
    ) -> list[str]:
        chosen = addresses(await self._brokers.targets(cluster, broker))
        await self._session.at_all(
            "the change of access", chosen, lambda address: self._session.call(address, code, fields, body)
        )
        return chosen


def _rule_text(entry: PolicyEntryInfo) -> str:
    """``Allow Pub,Sub from 10.0.0.0/8``."""
    source = f" from {','.join(entry.source_ips)}" if entry.source_ips else ""
    return f"{entry.decision} {','.join(sorted(entry.actions or ()))}{source}"


def _acl(subject: str, entries: Iterable[PolicyEntryInfo]) -> AclInfo:
    return AclInfo(subject, [PolicyInfo(None, list(entries))])


def _array(answer: Command, address: str) -> list[object]:
    if not answer.body:
        return []
    try:
        found = loads(answer.body)
    except ProtocolError as error:
        raise RefusedError(ResponseCode.SYSTEM_ERROR, f"its response cannot be read: {error}", address) from error
    return found if isinstance(found, list) else []
