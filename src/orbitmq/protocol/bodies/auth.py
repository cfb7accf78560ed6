"""Users and their rights. Names and values that are ``None`` are left as they are by an update."""

import dataclasses

from orbitmq.protocol.bodies.codec import Body


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class UserInfo(Body):
    """A user (3001 to 3005). ``user_type``: ``Super`` or ``Normal``."""

    username: str | None = None
    password: str | None = None
    user_type: str | None = None
    user_status: str | None = None


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class PolicyEntryInfo(Body):
    """One rule: ``resource`` as ``Topic:*``, ``actions`` as ``Pub``, ``decision`` ``Allow`` or ``Deny``."""

    resource: str | None = None
    actions: list[str] | None = None
    source_ips: list[str] | None = None
    decision: str | None = None


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class PolicyInfo(Body):
    """Rules of one kind."""

    policy_type: str | None = None
    entries: list[PolicyEntryInfo] | None = None


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class AclInfo(Body):
    """The rules for a subject, as ``User:name`` (3006 to 3010)."""

    subject: str | None = None
    policies: list[PolicyInfo] | None = None
