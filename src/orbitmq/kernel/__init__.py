"""The compiled kernel, where it was built: plain sends from the bytes of a connection into the log in one pass.

It is the twin of the general path (``broker.send``, ``store.appending``, ``store.dispatch``): for the messages that
come in numbers it makes the same records, queue units, index entries and answers, to the byte, and it leaves every
other message to that path. Without it everything works the same, only slower.

``SendRuns`` is None where it is not there, or where the environment says ``ORBITMQ_KERNEL=off``.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orbitmq.kernel._native import SendRuns as NativeRuns

SWITCH = "ORBITMQ_KERNEL"


def load() -> type[NativeRuns] | None:
    """The compiled type; None if there is none or it is not wanted."""
    if os.environ.get(SWITCH, "").lower() in {"off", "0", "false"}:
        return None
    try:
        from orbitmq.kernel import _native  # noqa: PLC0415 - it may not be there
    except ImportError:
        return None
    return _native.SendRuns


SendRuns: type[NativeRuns] | None = load()

__all__ = ["SendRuns", "load"]
