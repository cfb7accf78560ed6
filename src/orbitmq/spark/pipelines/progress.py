"""The progress of a job on standard error, and the summary at its end."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import time
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from collections.abc import Iterator

LINE_SECONDS = 10.0
"""The time between two lines of progress without a terminal."""


@dataclasses.dataclass(slots=True)
class Summary:
    """The result of a job: a title, and named facts in the order in which they are printed.

    Values are plain (text, numbers, lists and dictionaries of those), so that the same summary is printed as a
    table and as JSON. ``is_good`` decides the exit code of the command.
    """

    title: str
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)
    is_good: bool = True


class JobProgress:
    """The progress of one job: a bar on a terminal, lines elsewhere, nothing if it is quiet."""

    def __init__(self, *, is_quiet: bool = False) -> None:
        self._console = Console(stderr=True, highlight=False, quiet=is_quiet)
        self._progress: Progress | None = None
        self._task: Any = None
        self._text = ""
        self._done = 0
        self._total: int | None = None
        self._line_at = 0.0

    @contextlib.contextmanager
    def step(self, text: str, total: int | None = None) -> Iterator[None]:
        """One step of the job; ``total`` is its size, if that is known."""
        self._text, self._done, self._total = text, 0, total
        if not self._console.is_terminal:
            self._line_at = time.monotonic()
            self._console.print(f"{text} …", markup=False, soft_wrap=True)
            yield
            return
        columns = [SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn()]
        if total is not None:
            columns[2:2] = [BarColumn(), MofNCompleteColumn()]
        with Progress(*columns, console=self._console, transient=True) as progress:
            self._progress, self._task = progress, progress.add_task(text, total=total)
            try:
                yield
            finally:
                self._progress = None

    def at(self, done: int, text: str | None = None) -> None:
        """Report how much of the step is done; ``text`` replaces its description."""
        self._done = done
        self._text = text or self._text
        if self._progress is not None:
            self._progress.update(self._task, completed=done, description=self._text)
        elif not self._console.is_terminal and time.monotonic() - self._line_at >= LINE_SECONDS:
            self._line_at = time.monotonic()
            of = "" if self._total is None else f" of {self._total:,}"
            self._console.print(f"{self._text}: {done:,}{of}", markup=False, soft_wrap=True)

    def say(self, text: str) -> None:
        """Print a line that stays."""
        self._console.print(text, markup=False, soft_wrap=True)


def silent() -> JobProgress:
    """A progress without output, for jobs that are called as functions."""
    return JobProgress(is_quiet=True)


def is_watched() -> bool:
    """True if standard error is a terminal."""
    return sys.stderr.isatty()
