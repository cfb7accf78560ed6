"""Memory budget: the bytes that a process buffers for its peers, by category, and the limit of their sum.

Connections charge bytes received and not yet processed ("received") and bytes that peers have not read yet
("unsent"). Everything else that a peer can make grow, such as a cache, is charged under a name of its own. Charging
takes a lock, so it belongs where a buffer or a cache changes, not where a message passes.

The budget enforces nothing: ``remoting`` stops reading and closes connections when it is tight or exceeded, and a
cache evicts.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_MAX = 1 << 30
"""1 GiB: the default limit on a machine with 4 GiB or more. Pages of the log are page cache and not counted."""

DEFAULT_SHARE = 4
"""On a smaller machine the default is its memory divided by this."""

MIN_BUDGET = 32 << 20
"""Two frames of the maximum size: with less, a single client could not send what the protocol allows."""

TIGHT_PART = 3 / 4
"""Above this part of the limit the budget is tight: the connections with most bytes are not read from."""

RECEIVED = "received"
UNSENT = "unsent"


class MemoryBudget:
    """Bytes that a process buffers for its peers."""

    def __init__(self, limit: int = 0) -> None:
        """``limit`` is in bytes; 0 is the default for this machine."""
        self.limit = limit or default_limit()
        self.tight_from = int(self.limit * TIGHT_PART)
        self.used = 0
        self._peak = 0
        self._categories: dict[str, int] = {}
        self._lock = threading.Lock()
        self.members: weakref.WeakSet[Any] = weakref.WeakSet()
        """Endpoints of connections that share the budget."""

    @property
    def categories(self) -> Mapping[str, int]:
        """Bytes by category."""
        return self._categories

    @property
    def is_tight(self) -> bool:
        """True if a cache should evict and a connection with many bytes should wait."""
        return self.used > self.tight_from

    @property
    def is_exceeded(self) -> bool:
        return self.used > self.limit

    def charge(self, category: str, size: int) -> None:
        """Add bytes to a category; ``size`` may be negative."""
        with self._lock:
            self.used = used = self.used + size
            self._peak = max(self._peak, used)
            self._categories[category] = self._categories.get(category, 0) + size

    def take_peak(self) -> int:
        """The maximum of ``used`` since the last call."""
        with self._lock:
            peak, self._peak = self._peak, self.used
        return peak

    def release(self, category: str, size: int) -> None:
        """Remove bytes from a category."""
        self.charge(category, -size)


def default_limit() -> int:
    """1 GiB, or a quarter of the usable memory if that is less."""
    return max(MIN_BUDGET, min(DEFAULT_MAX, usable_memory() // DEFAULT_SHARE))


def usable_memory() -> int:
    """The memory of the machine, or the limit of the process's control group if that is less."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            with open(path, encoding="ascii") as file:
                text = file.read().strip()
        except OSError:
            continue
        if text.isdigit():
            memory = min(memory, int(text))
    return memory


_of_process: MemoryBudget | None = None


def process_budget() -> MemoryBudget:
    """The budget shared by all servers of this process that have none of their own."""
    global _of_process  # noqa: PLW0603 - there is one process
    if _of_process is None:
        _of_process = MemoryBudget()
    return _of_process


def budget_of(limit: int) -> MemoryBudget:
    """The budget for a server's setting; 0 is that of the process."""
    return MemoryBudget(limit) if limit else process_budget()
