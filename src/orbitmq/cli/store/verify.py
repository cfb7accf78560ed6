"""``orbitmq store verify``: checks a store and lists damaged places."""

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.table import Table

from orbitmq.cli.output import for_people, for_progress, many, plain_errors, print_json, safe, size_text
from orbitmq.cli.store.options import AsJson, Conf, Directory, holder_of, open_layout
from orbitmq.store.tools.findings import Finding
from orbitmq.store.tools.verify import Report, State, verify

UNWRITTEN = "no record was written here"
"""End reason of a log without damage."""

PLACES = 20
"""Maximum number of damaged places printed, without ``--all``."""


def verify_command(
    directory: Directory,
    conf: Conf = None,
    everything: Annotated[bool, typer.Option("--all", "-a", help="List all damaged places.")] = False,
    json: AsJson = False,
) -> None:
    """Check every CRC, record, queue unit and index entry. Reads only. Exit code 1 for a damaged store."""
    with plain_errors():
        disk, layout = open_layout(directory, conf)
        root = layout.config.store_path_root_dir
        is_open = holder_of(root) is not None
        began = time.perf_counter()
        with _progress(show=not json) as progress:
            report = verify(disk, layout, is_open=is_open, progress=progress)
        seconds = time.perf_counter() - began
        if json:
            print_json(_as_json(root, report, seconds))
        else:
            _show(for_people(), root, report, seconds, None if everything else PLACES)
    if not report.is_sound:
        raise typer.Exit(1)


@contextlib.contextmanager
def _progress(*, show: bool) -> Iterator[Callable[[int, int], None]]:
    console = for_progress()
    if not show or not console.is_terminal:
        yield lambda _done, _all: None
        return
    columns = (
        TextColumn("log"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("log")
        yield lambda done, total: progress.update(task, completed=done, total=total)


# Text


def _show(console: Console, root: str, report: Report, seconds: float, places: int | None) -> None:
    state = {
        State.CLOSED: "[green]closed properly[/]",
        State.CRASHED: "[yellow]not closed properly[/]",
        State.OPEN: "[cyan]open in another process[/]",
    }[report.state]
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    table.add_row("store", f"{safe(root)}, {state}")
    table.add_row(
        "log",
        f"{many(report.records, 'record')} in {many(report.log_files, 'file')}, offsets {report.log_start} to "
        f"{report.log_end}",
    )
    table.add_row("queues", f"{many(report.units, 'unit')} in {many(report.queues, 'queue')}")
    table.add_row("index", f"{many(report.index_entries, 'key')} in {many(report.index_files, 'file')}")
    speed = f", {size_text(report.record_bytes / seconds)}/s" if seconds > 0 else ""
    table.add_row("took", f"{seconds:.2f} s{speed}")
    console.print(table)
    for note in report.notes:
        console.print(f"[dim]{safe(note[0].upper() + note[1:])}.[/]")
    if report.recovery_start is not None:
        console.print(_forecast(report))
    if report.is_sound:
        rest = " that the next start does not repair" if report.state is State.CRASHED else ""
        console.print(f"[bold green]Sound.[/] Nothing is damaged{rest}.")
        return
    console.print("[bold red]Damaged.[/]")
    counts = Table(box=None, show_header=False, pad_edge=False)
    counts.add_column(justify="right", style="red")
    counts.add_column()
    for kind, count in report.findings.counts.items():
        counts.add_row(f"{count:,}", kind.meaning)
    console.print(counts)
    console.print()
    named = report.findings.named
    for finding in named[:places]:
        _show_finding(console, root, finding)
    if len(named) > len(named[:places]):
        console.print(f"[dim]… and {many(len(named) - len(named[:places]), 'place')} more, see --all[/]")


def _forecast(report: Report) -> str:
    """The recovery of the next start, in a sentence."""
    if report.state is State.OPEN:
        waiting = report.units_to_write + report.keys_to_write
        return f"[cyan]The store is being written to: {waiting:,} units and keys are not in their files yet.[/]"
    reason = f" ({safe(report.end_reason)})" if report.end_reason not in {"", UNWRITTEN} else ""
    parts = [f"scan the log from offset {report.recovery_start} and end it at {report.log_end}{reason}"]
    if report.units_to_write:
        parts.append(f"write {many(report.units_to_write, 'queue unit')}")
    if report.units_to_drop:
        parts.append(f"drop {many(report.units_to_drop, 'queue unit')}")
    if report.index_files_to_drop or report.keys_to_write:
        again = f"build {many(len(report.index_files_to_drop), 'index file')} again"
        parts.append(again + (f" with {many(report.keys_to_write, 'key')} more" if report.keys_to_write else ""))
    sentence = f"The next start will {', '.join(parts)}."
    if report.units_to_drop:
        lost = (
            "message that was in its queue is" if report.units_to_drop == 1 else "messages that were in queues are"
        )
        sentence += (
            f" {report.units_to_drop:,} {lost} not in the log any more: the crash took what was not on disk."
        )
    return f"[yellow]{sentence}[/]"


def _show_finding(console: Console, root: str, finding: Finding) -> None:
    where = os.path.relpath(finding.path, root)
    console.print(f"[red]●[/] {safe(finding.message)}", soft_wrap=True)
    queue = "" if finding.topic is None else f", {finding.topic} queue {finding.queue_id}"
    console.print(f"  [dim]{safe(where + queue)}[/]", soft_wrap=True)


# JSON


def _as_json(root: str, report: Report, seconds: float) -> dict[str, Any]:
    recovery = None
    if report.recovery_start is not None:
        recovery = {
            "startOffset": report.recovery_start,
            "logEnd": report.log_end,
            "unitsToWrite": report.units_to_write,
            "unitsToDrop": report.units_to_drop,
            "keysToWrite": report.keys_to_write,
            "indexFilesToDrop": report.index_files_to_drop,
        }
    return {
        "root": root,
        "state": report.state.value,
        "isSound": report.is_sound,
        "log": {
            "minOffset": report.log_start,
            "maxOffset": report.log_end,
            "endReason": report.end_reason,
            "files": report.log_files,
            "records": report.records,
            "bytes": report.record_bytes,
        },
        "queues": {"queues": report.queues, "units": report.units},
        "index": {"files": report.index_files, "entries": report.index_entries},
        "counts": {kind.value: count for kind, count in report.findings.counts.items()},
        "findings": [_finding_json(finding) for finding in report.findings.named],
        "notes": report.notes,
        "recovery": recovery,
        "seconds": round(seconds, 3),
    }


def _finding_json(finding: Finding) -> dict[str, Any]:
    fields = {
        "kind": finding.kind.value,
        "message": finding.message,
        "path": finding.path,
        "count": finding.count,
        "physicalOffset": finding.physical_offset,
        "topic": finding.topic,
        "queueId": finding.queue_id,
        "queueOffset": finding.queue_offset,
    }
    return {name: value for name, value in fields.items() if value is not None}
