"""Users and access rules: their values, validation, and the forms of RocketMQ's requests."""

from __future__ import annotations

import dataclasses
import enum
import ipaddress
from typing import TYPE_CHECKING, TypeAlias

from orbitmq.auth.errors import AuthenticationError, AuthorizationError
from orbitmq.auth.resources import Action, Resource, action_of, resource_of
from orbitmq.protocol.bodies import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo

if TYPE_CHECKING:
    from collections.abc import Iterable

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

USER_PREFIX = "User:"


class UserType(enum.Enum):
    """A super user may do everything."""

    SUPER = "Super"
    NORMAL = "Normal"


class UserStatus(enum.Enum):
    """A disabled user is refused like an unknown one."""

    ENABLE = "enable"
    DISABLE = "disable"


class PolicyType(enum.Enum):
    """The entries of a default policy count only where no custom one matches."""

    CUSTOM = "Custom"
    DEFAULT = "Default"


class Decision(enum.Enum):
    """Decision of an entry."""

    ALLOW = "Allow"
    DENY = "Deny"


@dataclasses.dataclass(frozen=True, slots=True)
class User:
    """A user, who is at the same time the subject of rules. The password is the secret of signatures."""

    name: str
    password: str = dataclasses.field(repr=False)
    type: UserType = UserType.NORMAL
    status: UserStatus = UserStatus.ENABLE
    secret: bytes = dataclasses.field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "secret", self.password.encode())

    @property
    def is_super(self) -> bool:
        return self.type is UserType.SUPER

    @property
    def is_enabled(self) -> bool:
        return self.status is UserStatus.ENABLE


@dataclasses.dataclass(frozen=True, slots=True)
class PolicyEntry:
    """One rule: these actions on this resource, from these addresses, are allowed or denied."""

    resource: Resource
    actions: tuple[Action, ...]
    sources: tuple[str, ...] = ()
    """Addresses or CIDR blocks; empty: from everywhere."""
    decision: Decision = Decision.ALLOW
    networks: tuple[Network, ...] = dataclasses.field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        networks = tuple(ipaddress.ip_network(source, strict=False) for source in self.sources)
        object.__setattr__(self, "networks", networks)


@dataclasses.dataclass(frozen=True, slots=True)
class Policy:
    """The entries of one kind."""

    type: PolicyType
    entries: tuple[PolicyEntry, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Acl:
    """The rules of one subject, ``User:name``."""

    subject: str
    policies: tuple[Policy, ...] = ()
    is_plain: bool = False
    """Of an account of ``plain_acl.yml``: a custom entry for a resource is all that counts there."""

    def entries(self, kind: PolicyType) -> tuple[PolicyEntry, ...]:
        return next((policy.entries for policy in self.policies if policy.type is kind), ())

    def merged(self, other: Acl) -> Acl:
        """These rules with those of another: an entry for the same resource is replaced, the others are added."""
        tables = {policy.type: {entry.resource: entry for entry in policy.entries} for policy in self.policies}
        for policy in other.policies:
            tables.setdefault(policy.type, {}).update((entry.resource, entry) for entry in policy.entries)
        return self._of(tables)

    def without(self, kind: PolicyType, resource: Resource) -> Acl:
        """These rules without the entry for one resource."""
        tables = {policy.type: {entry.resource: entry for entry in policy.entries} for policy in self.policies}
        tables.get(kind, {}).pop(resource, None)
        return self._of(tables)

    def _of(self, tables: dict[PolicyType, dict[Resource, PolicyEntry]]) -> Acl:
        policies = (Policy(kind, tuple(entries.values())) for kind, entries in tables.items() if entries)
        return Acl(self.subject, tuple(policies))

    def to_info(self) -> AclInfo:
        return AclInfo(self.subject, [_policy_info(policy) for policy in self.policies])


def user_type_of(text: str | None) -> UserType | None:
    return next((kind for kind in UserType if text is not None and kind.value.lower() == text.lower()), None)


def user_status_of(text: str | None) -> UserStatus | None:
    return next((status for status in UserStatus if text is not None and status.value == text.lower()), None)


def policy_type_of(text: str | None) -> PolicyType:
    """The kind of a policy; custom where none is given."""
    return PolicyType.DEFAULT if text is not None and text.lower() == "default" else PolicyType.CUSTOM


def user_info(user: User) -> UserInfo:
    return UserInfo(user.name, user.password, user.type.value, user.status.value)


def new_user(info: UserInfo, name: str) -> User:
    """The user of a request that creates one. Raises AuthenticationError."""
    if not name.strip():
        raise AuthenticationError("username can not be blank")
    if not (info.password or "").strip():
        raise AuthenticationError("password can not be blank")
    kind = user_type_of(info.user_type) or UserType.NORMAL
    return User(name, info.password or "", kind, user_status_of(info.user_status) or UserStatus.ENABLE)


def acl_of(info: AclInfo, subject: str) -> Acl:
    """The rules of a request, for a subject unless they name one. Raises AuthorizationError."""
    policies = [
        Policy(policy_type_of(policy.policy_type), tuple(entry_of(entry) for entry in policy.entries))
        for policy in info.policies or ()
        if policy.entries
    ]
    if not policies:
        raise AuthorizationError("The policies is empty.")
    return Acl(checked_subject(info.subject or subject), tuple(policies))


def checked_subject(subject: str | None) -> str:
    """A subject of the form ``User:name``. Raises AuthorizationError."""
    kind, _, name = (subject or "").partition(":")
    if kind.lower() != "user":
        raise AuthorizationError("The subject type is null." if subject else "The subject is null.")
    return USER_PREFIX + name


def entry_of(info: PolicyEntryInfo) -> PolicyEntry:
    """An entry, validated as RocketMQ does. Raises AuthorizationError."""
    resource = resource_of(info.resource or "")
    if resource is None:
        raise AuthorizationError("The resource is null.")
    actions = tuple(dict.fromkeys(action for text in info.actions or () if (action := action_of(text))))
    if not actions:
        raise AuthorizationError("The actions is empty.")
    if Action.ANY in actions:
        raise AuthorizationError("The actions can not be Any.")
    decisions = {one.value.lower(): one for one in Decision}
    decision = decisions.get((info.decision or "").lower())
    if decision is None:
        raise AuthorizationError("The decision is null or illegal.")
    return PolicyEntry(resource, actions, _sources(info.source_ips or ()), decision)


def _sources(given: Iterable[str]) -> tuple[str, ...]:
    sources = tuple(given)
    for source in sources:
        if not source.strip():
            raise AuthorizationError("The source ip is empty.")
        try:
            ipaddress.ip_network(source, strict=False)
        except ValueError:
            raise AuthorizationError("The source ip is invalid.") from None
    return sources


def _policy_info(policy: Policy) -> PolicyInfo:
    entries = [
        PolicyEntryInfo(
            str(entry.resource),
            [action.value for action in entry.actions],
            list(entry.sources) or None,
            entry.decision.value,
        )
        for entry in policy.entries
    ]
    return PolicyInfo(policy.type.value, entries)
