"""A process with signal handling and a blocked event loop: by Python code or by a long regex match.

Run as ``python blocked_loop.py <python|regex> <seconds>``.
"""

from __future__ import annotations

import re
import sys

from orbitmq.cli.server import signals
from orbitmq.remoting import run


async def wait_blocked(how: str) -> None:
    signals.stop_event()
    sys.stdout.write("blocked\n")
    sys.stdout.flush()
    if how == "regex":
        re.match("(a+)+b", "a" * 64)
    while True:
        pass


if __name__ == "__main__":
    signals.BLOCKED_LOOP_SECONDS = float(sys.argv[2])
    run(wait_blocked(sys.argv[1]))
