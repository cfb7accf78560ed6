"""Roles, and the one that each action needs."""

from __future__ import annotations

import dataclasses
import enum

from orbitmq.admin.errors import AdminError


class Role(enum.StrEnum):
    """Each role may do what those before it may."""

    VIEWER = "viewer"
    """Reads everything, message bodies included."""
    OPERATOR = "operator"
    """Creates and alters topics and groups, sends messages, resets offsets."""
    ADMIN = "admin"
    """Deletes, changes settings of servers, and manages users."""

    def includes(self, other: Role) -> bool:
        order = list(Role)
        return order.index(self) >= order.index(other)


class ForbiddenError(AdminError):
    """The user may not do this."""


class NotSignedInError(AdminError):
    """The session does not exist, or has ended."""


@dataclasses.dataclass(frozen=True, slots=True)
class Actor:
    """Actor of a change: a user, from an address."""

    user: str
    role: Role
    address: str
    session: str = ""
    """The key of the session; empty where the console has no login."""

    def check(self, needed: Role, action: str) -> None:
        """Raises ForbiddenError if the role is too low."""
        if not self.role.includes(needed):
            raise ForbiddenError(f"{action} needs the role {needed}; {self.user} is {self.role}")
