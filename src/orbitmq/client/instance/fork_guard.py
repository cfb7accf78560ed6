"""Fork counter: detects use of a client in a forked process.

A comparison of process ids would cost a system call for each message; the counter changes in the fork hook.
"""

from __future__ import annotations

import os

count = 0
"""Number of forks between the process that loaded this module first and this one."""


def _count() -> None:
    global count  # noqa: PLW0603 - it is the state of the process
    count += 1


os.register_at_fork(after_in_child=_count)
