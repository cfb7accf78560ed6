"""A run and its results: as a table for people, as JSON for programs."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from rich.table import Table

from bench.catalog import BARS, SCENARIOS

if TYPE_CHECKING:
    from rich.console import Console

    from bench.catalog import Verdict
    from bench.figures import Figure
    from bench.machine import Machine


@dataclasses.dataclass(slots=True)
class Report:
    """Everything one run found out."""

    machine: Machine
    size: str
    load_before: float
    load_after: float = 0.0
    source_after: str = ""
    """Differs from the revision before if the code changed meanwhile: figures then belong to different code."""
    seconds: dict[str, float] = dataclasses.field(default_factory=dict)
    results: dict[str, list[Figure]] = dataclasses.field(default_factory=dict)

    def verdicts(self) -> list[Verdict]:
        return [bar.judge(self.results) for bar in BARS]

    def as_json(self) -> dict[str, Any]:
        return {
            "machine": dataclasses.asdict(self.machine),
            "size": self.size,
            "load_before": self.load_before,
            "load_after": self.load_after,
            "source_after": self.source_after,
            "scenarios": {
                name: {"seconds": round(self.seconds[name], 2), "figures": [figure.as_json() for figure in figures]}
                for name, figures in self.results.items()
            },
            "bars": [verdict.as_json() for verdict in self.verdicts()],
        }

    def print(self, console: Console) -> None:
        """Facts of the machine, a table of figures, and the bars."""
        for name, value in dataclasses.asdict(self.machine).items():
            console.print(f"{name.replace('_', ' '):12} {value}", highlight=False)
        console.print(f"{'load':12} {self.load_before} before, {self.load_after} after", highlight=False)
        console.print(f"{'run':12} {self.size}", highlight=False)
        if self.source_after != self.machine.source:
            console.print(f"the code changed during the run, it is now {self.source_after}", highlight=False)
        for scenario in SCENARIOS:
            if scenario.name in self.results:
                console.print()
                console.print(f"[bold]{scenario.name}[/bold]: {scenario.title}", highlight=False)
                console.print(_table(self.results[scenario.name]))
        console.print()
        for verdict in self.verdicts():
            if verdict.bar.scenario in self.results:
                console.print(_sentence(verdict), highlight=False)


def _table(figures: list[Figure]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("subject", min_width=44, overflow="fold")
    table.add_column("measure", min_width=38, overflow="fold")
    for heading in ("min", "median", "max"):
        table.add_column(heading, justify="right", min_width=11, no_wrap=True)
    table.add_column("unit", min_width=9, no_wrap=True)
    table.add_column("rounds", justify="right")
    for figure in figures:
        cells = (formatted(value) for value in (figure.low, figure.median, figure.high))
        table.add_row(figure.subject, figure.measure, *cells, figure.unit, str(len(figure.values)))
    return table


def spread_table(subject: str, figures: list[Figure]) -> Table:
    """Medians with their spread; ``subject`` heads the column of what was measured."""
    table = Table(subject, "measure", "median", "low … high")
    for each in figures:
        spread = f"{formatted(each.low)} … {formatted(each.high)} {each.unit}"
        table.add_row(each.subject, each.measure, formatted(each.median), spread)
    return table


def formatted(value: float) -> str:
    """A number with three significant digits, or as an integer from 100 on."""
    size = abs(value)
    if size >= 100 or value == int(value):
        return f"{value:,.0f}"
    if size >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if size >= 1 else f"{value:.3f}"


def _sentence(verdict: Verdict) -> str:
    if verdict.value is None:
        return f"not measured  {verdict.bar.statement}"
    word = "met" if verdict.met else "missed"
    return f"{word:12}  {verdict.bar.statement}: {verdict.value:,.4g} {verdict.unit}"
