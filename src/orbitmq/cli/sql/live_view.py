"""A running query on the terminal: its result as it changes, or its rows as they arrive."""

from typing import TYPE_CHECKING

from rich.console import Group
from rich.live import Live
from rich.text import Text

from orbitmq.cli.output import for_people, many, print_json_line
from orbitmq.cli.sql.output import count_line, plain, print_table, table_of
from orbitmq.spark.pipelines.interruptible import run_in_thread

if TYPE_CHECKING:
    import contextlib

    from rich.console import Console

    from orbitmq.spark.pipelines.progress import JobProgress
    from orbitmq.spark.pipelines.sql.stream import Batch, RunningQuery


def watch(running: "RunningQuery", progress: "JobProgress", *, as_json: bool) -> None:
    """Show the results of a query until its end or Ctrl-C. Raises QueryError."""
    console = for_people()
    try:
        if as_json:
            for batch in running:
                _print_line(batch)
        elif console.is_terminal:
            _live(running, console)
        else:
            for batch in running:
                _print_batch(batch, console)
    except KeyboardInterrupt:
        progress.say("stopped")
    finally:
        # Ctrl-C may have cut a request of this thread to Spark. Another thread has a connection of its own.
        run_in_thread(running.stop).result()
    progress.say(f"{many(run_in_thread(running.read).result(), 'message')} in batches that were finished")


def _print_line(batch: "Batch") -> None:
    names = [name for name, _ in batch.columns]
    rows = [{name: plain(value) for name, value in zip(names, row, strict=True)} for row in batch.rows]
    if rows or batch.is_all:
        print_json_line({"batch": batch.number, "rows": rows})
        _flush()


def _print_batch(batch: "Batch", console: "Console") -> None:
    if batch.rows or batch.is_all:
        names, types = _split(batch)
        console.print(Text(f"batch {batch.number}", style="bold"))
        print_table(console, names, types, batch.rows, has_more=batch.has_more)
        _flush()


def _live(running: "RunningQuery", console: "Console") -> None:
    """One table that is redrawn, if each batch has the whole result; otherwise one table per batch."""
    live: contextlib.AbstractContextManager[Live] | None = None
    display = None
    try:
        for batch in running:
            if not batch.is_all:
                _print_batch(batch, console)
                continue
            names, types = _split(batch)
            line = f"batch {batch.number}: {count_line(len(batch.rows), has_more=batch.has_more)}; Ctrl-C stops"
            table = Group(table_of(names, types, batch.rows), Text(line, style="dim"))
            if display is None:
                live = Live(table, console=console, auto_refresh=False)
                display = live.__enter__()
            display.update(table, refresh=True)
    finally:
        if live is not None:
            live.__exit__(None, None, None)


def _split(batch: "Batch") -> tuple[list[str], list[str]]:
    return [name for name, _ in batch.columns], [kind for _, kind in batch.columns]


def _flush() -> None:
    import sys  # noqa: PLC0415

    sys.stdout.flush()
