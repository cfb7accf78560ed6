"""Decision: whether the rules of a user allow what a request needs."""

from __future__ import annotations

import functools
import ipaddress
from typing import TYPE_CHECKING, NamedTuple

from orbitmq.auth.errors import AuthorizationError
from orbitmq.auth.policies import USER_PREFIX, Decision, PolicyEntry, PolicyType
from orbitmq.auth.resources import Action, Pattern, Resource, ResourceType

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orbitmq.auth.policies import Acl, User

CACHED_ADDRESSES = 10_000


class Requirement(NamedTuple):
    """Need of a request: any one of these actions on a resource."""

    resource: Resource
    actions: tuple[Action, ...]


def authorize(user: User | None, acl: Acl | None, needed: Iterable[Requirement], source: str) -> None:
    """Check all requirements of a request. Raises AuthorizationError for the first that is not met.

    ``source`` is the IP address of the sender. No user is one that has no rights.
    """
    if user is not None and user.is_super:
        return
    for requirement in needed:
        entry = None if acl is None else deciding_entry(acl, requirement, source)
        if entry is None or entry.decision is Decision.DENY:
            detail = "no matched policies." if entry is None else "the decision is deny."
            name = "" if user is None else user.name
            raise AuthorizationError(
                f"{USER_PREFIX}{name} has no permission to access {requirement.resource} from {source}, {detail}"
            )


def deciding_entry(acl: Acl, requirement: Requirement, source: str) -> PolicyEntry | None:
    """The entry that decides: of those that match the most specific one, and Deny before Allow."""
    for kind in (PolicyType.CUSTOM, PolicyType.DEFAULT):
        matching = [entry for entry in acl.entries(kind) if _matches(entry, requirement, source)]
        if matching:
            return min(matching, key=_precedence)
        if acl.is_plain and any(entry.resource.covers(requirement.resource) for entry in acl.entries(kind)):
            return None
    return None


def _matches(entry: PolicyEntry, requirement: Requirement, source: str) -> bool:
    if not entry.resource.covers(requirement.resource):
        return False
    actions = requirement.actions
    if (
        Action.ANY not in actions
        and Action.ALL not in entry.actions
        and not any(a in entry.actions for a in actions)
    ):
        return False
    if not entry.networks:
        return True
    address = ip_address_of(source)
    return address is not None and any(
        address.version == network.version and address in network for network in entry.networks
    )


def _precedence(entry: PolicyEntry) -> tuple[bool, Pattern, int, bool]:
    resource = entry.resource
    length = len(resource.name) if resource.pattern is Pattern.PREFIXED else 0
    return resource.type is ResourceType.ANY, resource.pattern, -length, entry.decision is Decision.ALLOW


@functools.lru_cache(CACHED_ADDRESSES)
def ip_address_of(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """An address, that of IPv4 where IPv6 carries one; None for what is none."""
    try:
        address = ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address
