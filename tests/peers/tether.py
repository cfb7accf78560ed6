"""Runs a command that cannot outlive the process that asked for it: ``tether.py PARENT COMMAND...``.

A test run can end without a chance to clean up (killed, or past its time limit), and a broker left behind
would hold its ports and a core. So the kernel is asked to kill the command when its parent dies; the request
survives ``exec``. The thread that starts this must live as long as the command, for it is that thread the
kernel watches.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1

if __name__ == "__main__":
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    # The parent may have died before the request was made, and then nobody will ask again.
    if os.getppid() != int(sys.argv[1]):
        sys.exit(f"{sys.argv[2]} was not started: the process that asked for it is gone")
    os.execvp(sys.argv[2], sys.argv[2:])
