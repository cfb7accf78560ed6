"""``python -m bench failover``: one failover under load, as a list of events and as a plot."""

from __future__ import annotations

import asyncio
import collections
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from bench.failover.run import SIGNALS, Failover, ServeError, run
from bench.suite.plots import unavailable

BUCKET = 0.1
"""Seconds of a point of the plot."""

_COLOUR, _FAILED, _EVENT = "#2463eb", "#e4572e", "#4a4a4a"
_NEAR = 0.05


def failover(
    fault: Annotated[str, typer.Option(help="What happens to the master: kill (-9) or stop (SIGSTOP).")] = "kill",
    plot: Annotated[Path | None, typer.Option(help="Draw it into this file, .svg or .png.")] = None,
) -> None:
    """Let the master of `orbitmq serve --replicas 3` fail under load, and tell what happens."""
    console = Console(width=None if sys.stdout.isatty() else 150)
    if fault not in SIGNALS:
        raise typer.BadParameter(f"one of {', '.join(SIGNALS)}", param_hint="--fault")
    if plot is not None and (reason := unavailable()) is not None:
        raise typer.BadParameter(reason, param_hint="--plot")
    with tempfile.TemporaryDirectory(prefix="orbitmq-bench-") as folder:
        try:
            found = asyncio.run(run(fault, Path(folder)))
        except ServeError as error:
            console.print(str(error), highlight=False)
            raise typer.Exit(1) from None
    for at, what in found.events:
        console.print(f"{at:+8.3f} s  {what}", highlight=False)
    begin, end = found.outage
    console.print(
        f"{len(found.acknowledged)} sends acknowledged, {len(found.failed)} failed, none for {end - begin:.3f} s",
        highlight=False,
    )
    if plot is not None:
        draw(found, plot)


def draw(found: Failover, file: Path) -> None:
    """Sends in each tenth of a second, with the events."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - not on every machine

    figure = Figure(figsize=(10, 5.5))
    axes = figure.add_subplot()
    _steps(axes, found.acknowledged, "acknowledged", _COLOUR)
    if found.failed:
        _steps(axes, found.failed, "failed", _FAILED)
    top = axes.get_ylim()[1]
    for number, (at, what) in enumerate(_joined(found.events)):
        axes.axvline(at, color=_EVENT, linewidth=0.8, linestyle=":")
        axes.annotate(
            f"{at:+.2f} s  {what}",
            (at, top * (1.02 + 0.06 * number)),
            annotation_clip=False,
            fontsize=8,
            color=_EVENT,
        )
    axes.set_ylim(0, top)
    axes.set_xlabel("seconds from the fault")
    axes.set_ylabel("sends in 100 ms")
    axes.grid(axis="y", alpha=0.3)
    axes.legend(loc="lower right")
    # Without a date the same figures give the same file.
    metadata = {"Date": None} if file.suffix == ".svg" else None
    figure.savefig(file, bbox_inches="tight", metadata=metadata)


def _steps(axes: Any, times: list[float], label: str, colour: str) -> None:
    counts = collections.Counter(int(at // BUCKET) for at in times)
    # The first and the last tenth are not whole.
    numbers = range(min(counts), max(counts) + 1)[1:-1] or list(counts)
    axes.step(
        [number * BUCKET for number in numbers],
        [counts[number] for number in numbers],
        where="post",
        label=label,
        color=colour,
    )


def _joined(events: list[tuple[float, str]]) -> list[tuple[float, str]]:
    """The events, those that are near each other as one."""
    joined: list[tuple[float, str]] = []
    for at, what in events:
        if joined and at - joined[-1][0] < _NEAR:
            joined[-1] = joined[-1][0], f"{joined[-1][1]}; {what}"
        else:
            joined.append((at, what))
    return joined
