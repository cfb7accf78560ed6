"""SIGTERM while the event loop is blocked: the process ends and prints where it was blocked."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.remoting_harness import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator

NEVER = 3600


by_each = pytest.mark.parametrize("how", ["python", "regex"])


@contextlib.contextmanager
def blocked(how: str, seconds: float) -> Iterator[subprocess.Popen[str]]:
    """A process with a blocked event loop; killed at the end if it still runs."""
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("blocked_loop.py")), how, str(seconds)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "blocked\n"
            yield process
        finally:
            process.kill()


@by_each
def test_a_process_with_a_blocked_loop_ends_after_a_grace_period(how: str) -> None:
    with blocked(how, 0.2) as process:
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=PATIENCE)

    assert process.returncode == 1
    assert "wait_blocked" in errors


@by_each
def test_a_second_signal_ends_a_process_with_a_blocked_loop(how: str) -> None:
    with blocked(how, NEVER) as process:
        process.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.2)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=PATIENCE)

    assert process.returncode == 128 + signal.SIGTERM
    assert "second signal" in errors
    assert "wait_blocked" in errors
