"""The prompt of ``orbitmq sql``: statements up to a semicolon, from a terminal with history or from a pipe."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import typer

from orbitmq.cli.sql.split_statements import statements

FIRST, MORE = "orbitmq> ", "      -> "
HISTORY = 1000

HELP = """\
  select …;          a query, over several lines up to the semicolon
  describe TOPIC;    the columns of a topic
  show topics        list the topics (also \\d)
  help               print this help (also \\?)
  quit               exit (also \\q, Ctrl-D)
Names with other characters than letters, digits and _ need backticks: `order-events`.
Ctrl-C cancels a running query and clears the typed lines."""

_QUIT = {"quit", "exit", "\\q"}
_HELP = {"help", "\\?", "\\h"}
_TOPICS = {"show topics", "\\d", "\\dt"}


class Prompt:
    """Reads statements and executes them one by one."""

    def __init__(self, *, ask: Callable[[str], None], show_topics: Callable[[], None], words: list[str]) -> None:
        """``ask`` executes a statement and prints its error; ``words`` are completed."""
        self._ask = ask
        self._show_topics = show_topics
        self._words = words

    def run(self) -> None:
        """Read until the end of the input, or ``quit``."""
        is_interactive = sys.stdin.isatty()
        with self._edited() if is_interactive else contextlib.nullcontext():
            typed = ""
            while True:
                try:
                    line = self._line(typed, is_interactive)
                    if line is None:
                        break
                    command = line.strip().rstrip(";").strip().lower()
                    if not typed and command in _QUIT:
                        return
                    if not typed and self._is_own(command):
                        continue
                    ready, typed = statements(typed + line)
                    for statement in ready:
                        self._ask(statement)
                except KeyboardInterrupt:
                    if not is_interactive:
                        raise
                    typed = ""
                    typer.echo("", err=True)
            if typed.strip():
                # A file need not end in a semicolon.
                self._ask(typed.strip())

    def _line(self, typed: str, is_interactive: bool) -> str | None:
        if not is_interactive:
            return sys.stdin.readline() or None
        try:
            return input(MORE if typed else FIRST) + "\n"
        except EOFError:
            typer.echo()
            return None

    def _is_own(self, command: str) -> bool:
        if command in _HELP:
            typer.echo(HELP)
        elif " ".join(command.split()) in _TOPICS:
            self._show_topics()
        else:
            return not command
        return True

    @contextlib.contextmanager
    def _edited(self) -> Iterator[None]:
        """Enable editing, completion and a history that is saved."""
        try:
            import readline  # noqa: PLC0415 - not everywhere
        except ImportError:
            yield
            return
        path = history_path()
        with contextlib.suppress(OSError):
            readline.read_history_file(path)
        readline.set_completer_delims(" \t\n`,();=<>")
        readline.set_completer(self._completed)
        readline.parse_and_bind("tab: complete")
        try:
            yield
        finally:
            readline.set_history_length(HISTORY)
            with contextlib.suppress(OSError):
                path.parent.mkdir(parents=True, exist_ok=True)
                readline.write_history_file(path)

    def _completed(self, text: str, state: int) -> str | None:
        found = [word for word in self._words if word.startswith(text)]
        return found[state] if state < len(found) else None


def history_path() -> Path:
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "orbitmq" / "sql_history"
