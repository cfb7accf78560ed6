"""The compiled kernel, where it was built: what is done for every message, without a step of Python for each.

``SendRuns`` takes plain sends from the bytes of a connection into the log in one pass. It is the twin of the
general path (``broker.send``, ``store.appending``, ``store.dispatch``): for the messages that come in numbers it
makes the same records, queue units, index entries and answers, to the byte, and it leaves every other message to
that path. ``gather`` collects records for one answer, and has its twin in ``gathering``.

Without the kernel everything works the same, only slower: ``SendRuns`` is then None, and ``gather`` the plain one.
So it is where the environment says ``ORBITMQ_KERNEL=off``.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from orbitmq.kernel import gathering

if TYPE_CHECKING:
    from types import ModuleType

    from orbitmq.kernel import _native

SWITCH = "ORBITMQ_KERNEL"


def load() -> ModuleType | None:
    """The compiled module; None if there is none or it is not wanted."""
    if os.environ.get(SWITCH, "").lower() in {"off", "0", "false"}:
        return None
    try:
        from orbitmq.kernel import _native as native  # noqa: PLC0415 - it may not be there
    except ImportError:
        return None
    return native


_compiled = load()
SendRuns: type[_native.SendRuns] | None = None if _compiled is None else _compiled.SendRuns
gather = gathering.gather if _compiled is None else _compiled.gather

__all__ = ["SendRuns", "gather"]
