"""How a job tells of itself: a line of progress on standard error while it runs, a summary when it is done."""

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
"""Between two lines of progress where there is no terminal to draw on."""


@dataclasses.dataclass(slots=True)
class Summary:
    """What a job has done: a title, and names with what they are, in the order in which people read them.

    Values are plain (text, numbers, lists and dictionaries of those), so that the same summary is printed for
    people and written as JSON for machines. ``is_good`` is what the command's exit code says.
    """

    title: str
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)
    is_good: bool = True


class Telling:
    """The progress of one job. Quiet where nobody wants to hear it."""

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
        """Something that takes a while begins; ``total`` is how much of it there is, where that is known."""
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
        """So much of the step is done; ``text`` says more of it."""
        self._done = done
        self._text = text or self._text
        if self._progress is not None:
            self._progress.update(self._task, completed=done, description=self._text)
        elif not self._console.is_terminal and time.monotonic() - self._line_at >= LINE_SECONDS:
            self._line_at = time.monotonic()
            of = "" if self._total is None else f" of {self._total:,}"
            self._console.print(f"{self._text}: {done:,}{of}", markup=False, soft_wrap=True)

    def say(self, text: str) -> None:
        """One line that stays."""
        self._console.print(text, markup=False, soft_wrap=True)


def silent() -> Telling:
    """For those who call a job as a function."""
    return Telling(is_quiet=True)


def is_watched() -> bool:
    """Whether somebody looks at the terminal while the job runs."""
    return sys.stderr.isatty()
