"""The log file of a job's Spark: standard error of its JVM and of the Python processes that the JVM starts.

Spark prints the Java stack of each failed task, and its Python daemon prints a traceback for each worker whose
connection the JVM closed first, which happens on a busy machine and does no harm. On a terminal that hides the one
sentence of the job.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import time

MAX_FILES = 20
"""Older files in the folder of logs are removed."""


class SparkLog:
    """A file for Spark to write to. ``descriptor`` is open until ``close``."""

    def __init__(self, name: str, path: str | None = None) -> None:
        """A new file of its own in the folder of logs, or ``path``, which is appended to. Raises OSError."""
        if path is None:
            folder = log_folder()
            folder.mkdir(parents=True, exist_ok=True)
            _remove_old(folder)
            started = time.strftime("%Y%m%d-%H%M%S")
            path = str(folder / f"{name.replace(' ', '-').replace('/', '-')}-{started}-{os.getpid()}.log")
        self.path = path
        self.descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._is_open = True

    @property
    def has_stack(self) -> bool:
        """True if there is more to read in it than the sentence of a job has."""
        try:
            return os.path.getsize(self.path) > 0
        except OSError:
            return False

    def close(self) -> None:
        """Called when the JVM has the file, or will never have it."""
        if self._is_open:
            self._is_open = False
            os.close(self.descriptor)

    def remove_if_empty(self) -> None:
        if not self.has_stack:
            with contextlib.suppress(OSError):
                os.unlink(self.path)


def log_folder() -> pathlib.Path:
    home = os.environ.get("XDG_STATE_HOME") or pathlib.Path.home() / ".local" / "state"
    return pathlib.Path(home) / "orbitmq" / "spark"


def _remove_old(folder: pathlib.Path) -> None:
    for path in sorted(folder.glob("*.log"), key=_modified)[:-MAX_FILES]:
        with contextlib.suppress(OSError):
            path.unlink()


def _modified(path: pathlib.Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
