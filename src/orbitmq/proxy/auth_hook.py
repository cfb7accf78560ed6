"""Authentication hook: maps the metadata of a call to the user who makes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Authenticate: TypeAlias = "Callable[[str, Mapping[str, str], object, str], str]"
"""Called with the name of the RPC, the metadata, the request (None for Telemetry) and the caller's address.

It returns the subject, or raises ``StatusError(UNAUTHORIZED)``.
"""


def anonymous(_rpc: str, _metadata: Mapping[str, str], _request: object, _address: str) -> str:
    """Admits every call, as a server without access control does."""
    return ""
