"""A peer as a process of its own: waited for, stopped or killed, and quoted when something fails."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_TETHER = str(Path(__file__).with_name("tether.py"))
_POLL_SECONDS = 0.05

RUNNING: set[PeerProcess] = set()
"""Every peer that was started and not yet ended: whoever reports a failing test can quote them."""


class PeerError(RuntimeError):
    """A peer did not start, answer or stop as it should. The message ends with what it last said."""


class PeerProcess:
    """A command in a process group of its own, which ends with this process at the latest.

    What it prints goes to ``console.log`` in ``home``, and with ``conversation`` only what it prints as errors:
    its standard input and output are then pipes.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        home: Path,
        environment: Mapping[str, str],
        conversation: bool = False,
    ) -> None:
        self.name = name
        self._log = home / "console.log"
        with open(self._log, "ab") as console:
            self._process = subprocess.Popen(
                tethered(command),
                stdin=subprocess.PIPE if conversation else subprocess.DEVNULL,
                stdout=subprocess.PIPE if conversation else console,
                stderr=console,
                cwd=home,
                env={**os.environ, **environment},
                start_new_session=True,
            )
        RUNNING.add(self)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """Of a process that has ended; negative if a signal ended it."""
        return self._process.poll()

    @property
    def pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        """The process's standard input and output, of a process started for a conversation."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        return self._process.stdin, self._process.stdout

    def wait_until(self, ready: Callable[[], bool], *, what: str, seconds: float) -> None:
        """Poll until the peer is ready. If it ends or takes too long it is quoted, and killed as in any failure."""
        deadline = time.monotonic() + seconds
        try:
            while not ready():
                if not self.running:
                    raise PeerError(f"{self.name} ended before {what}\n{self.quote()}")
                if time.monotonic() > deadline:
                    raise PeerError(f"{self.name}: not {what} within {seconds:g} s\n{self.quote()}")
                time.sleep(_POLL_SECONDS)
        except BaseException:
            self.kill()
            raise

    def stop(self, *, seconds: float) -> None:
        """Ask it to shut down (SIGTERM) and wait for that. It is gone afterwards in any case."""
        if not self.running:
            self.kill()
            return
        self._signal(signal.SIGTERM)
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise PeerError(f"{self.name} did not stop in {seconds:g} s\n{self.quote()}") from None
        finally:
            self.kill()

    def kill(self) -> None:
        """End it and all it started, now (SIGKILL)."""
        self._signal(signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                # A request that never left the buffer is lost with the process it was meant for.
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        RUNNING.discard(self)

    def halt(self, is_halted: bool) -> None:
        """Let it stand still (SIGSTOP), or go on (SIGCONT)."""
        self._signal(signal.SIGSTOP if is_halted else signal.SIGCONT)

    def quote(self, lines: int = 40) -> str:
        """The last lines it logged."""
        logged = self._log.read_text("utf-8", "replace").splitlines()
        return "\n".join((f"--- {self.name}, {self._log}", *logged[-lines:]))

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


def tethered(command: Sequence[str]) -> list[str]:
    """The command line that runs ``command`` for as long as this process lives."""
    return [sys.executable, "-I", "-S", _TETHER, str(os.getpid()), *command]


def run(command: Sequence[str], *, environment: Mapping[str, str], seconds: float) -> str:
    """Run a command to its end and return what it printed; it fails as a ``PeerError``."""
    try:
        done = subprocess.run(
            tethered(command),
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env={**os.environ, **environment},
            timeout=seconds,
            encoding="utf-8",
            errors="replace",
        )
    except subprocess.TimeoutExpired:
        raise PeerError(f"{command[0]} did not end within {seconds:g} s") from None
    if done.returncode:
        raise PeerError(done.stdout + done.stderr)
    return done.stdout
