"""porcupine, a linearizability checker in Go, as a judge of histories: fetched and built once."""

from __future__ import annotations

import functools
import subprocess
from pathlib import Path

from peers.go_client import program, why_not_built
from peers.process import PeerError

_MODULE = Path(__file__).parent
_CHECK_SECONDS = 120


@functools.cache
def available() -> str | None:
    """None if histories can be checked here, otherwise the reason in one sentence."""
    return why_not_built(_MODULE, "porcupine")


def is_linearizable(history: Path) -> bool:
    """The verdict on the requests to a controller in a file of ``--calls``. Raises PeerError without one."""
    command = [str(program(_MODULE)), str(history)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_CHECK_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PeerError(f"porcupine: {error}") from None
    if done.returncode not in {0, 1}:
        raise PeerError(f"porcupine: {done.stdout}{done.stderr}")
    return done.returncode == 0
