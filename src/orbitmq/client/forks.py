"""Whether this process is a copy of the one in which something was made.

Asking for the process id is a system call, too dear for each message; a fork is told to us instead.
"""

from __future__ import annotations

import os

count = 0
"""How many forks there are between this process and the first one that loaded this module."""


def _count() -> None:
    global count  # noqa: PLW0603 - it is the state of the process
    count += 1


os.register_at_fork(after_in_child=_count)
