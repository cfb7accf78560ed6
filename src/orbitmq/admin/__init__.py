"""The operator's client: clusters, topics, groups, offsets, messages and settings as functions that return values.

``AdminClient`` is for asyncio, ``SyncAdminClient`` for plain code; both have the same subjects. They work on
OrbitMQ's and on Apache RocketMQ's clusters, and import no server.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orbitmq.admin.changes import Change
    from orbitmq.admin.client import AdminClient
    from orbitmq.admin.config import AdminConfig
    from orbitmq.admin.errors import (
        AdminError,
        ClientOfflineError,
        InvalidRequestError,
        NotFoundError,
        PartialFailureError,
        RefusedError,
        UnreachableError,
        UnsupportedError,
    )
    from orbitmq.admin.sync import SyncAdminClient

_MODULES = {
    "AdminClient": "client",
    "AdminConfig": "config",
    "Change": "changes",
    "SyncAdminClient": "sync",
    **dict.fromkeys(
        (
            "AdminError",
            "ClientOfflineError",
            "InvalidRequestError",
            "NotFoundError",
            "PartialFailureError",
            "RefusedError",
            "UnreachableError",
            "UnsupportedError",
        ),
        "errors",
    ),
}

__all__ = [
    "AdminClient",
    "AdminConfig",
    "AdminError",
    "Change",
    "ClientOfflineError",
    "InvalidRequestError",
    "NotFoundError",
    "PartialFailureError",
    "RefusedError",
    "SyncAdminClient",
    "UnreachableError",
    "UnsupportedError",
]


def __getattr__(name: str) -> object:
    """The public names, imported when they are used: a command that lists topics needs no more than topics."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib  # noqa: PLC0415

    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
