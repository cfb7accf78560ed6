"""A run of the suite and its results: as tables for people, as JSON for programs, as Markdown for documents."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

from rich.table import Table

from bench.server.measures import RATE, compare, spread, times_better, total_failures
from bench.server.report import spread_of
from bench.suite.scenario import System

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from rich.console import Console

    from bench.figures import Figure
    from bench.machine import Machine
    from bench.server.measures import Row, Sample
    from bench.suite.scenario import Found

_FIRST = System.ORBITMQ.title
READING = (
    "A cell is the median of the rounds, with the lowest and the highest in brackets. “× NAME” is how many times "
    f"better {_FIRST} is than NAME, taken round by round: above 1 it is ahead, whether more or less of a thing is "
    "wanted. A range that holds 1 decides nothing."
)


@dataclasses.dataclass(frozen=True, slots=True)
class Compared:
    """One measure of one load: a figure per system, and how many times better the first is than each other."""

    row: Row
    advantages: Mapping[str, Figure]

    def as_json(self) -> dict[str, Any]:
        return {
            "load": self.row.load,
            "measure": self.row.measure.name,
            "unit": self.row.measure.unit,
            "more_is_better": self.row.measure.more_is_better,
            "systems": {name: spread(each) for name, each in self.row.figures.items()},
            "times_better_than": {name: spread(each) for name, each in self.advantages.items()},
        }


def compare_all(load: str, samples: Mapping[str, Sequence[Sample]]) -> list[Compared]:
    """The rows of one load, with the first system compared with all others."""
    rows = []
    for row in compare(load, samples):
        ours = row.figures.get(_FIRST)
        advantages = {
            name: better
            for name, theirs in row.figures.items()
            if ours is not None
            and name != _FIRST
            and (better := times_better(load, row.measure, ours.values, theirs.values))
        }
        rows.append(Compared(row, advantages))
    return rows


@dataclasses.dataclass(slots=True)
class SuiteReport:
    """Everything one run found out, as far as it got."""

    machine: Machine
    size: str
    rounds: int
    seconds_of_round: float
    load_before: float
    load_after: float = 0.0
    source_after: str = ""
    """Differs from the revision before if the code changed during the run."""
    seconds: float = 0.0
    skipped: list[str] = dataclasses.field(default_factory=list)
    """What was not measured at all, and why."""
    found: dict[str, Found] = dataclasses.field(default_factory=dict)
    """By scenario."""
    took: dict[str, float] = dataclasses.field(default_factory=dict)
    plots: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    """The files of each scenario's plots; those of the whole run have an empty name."""

    def systems(self) -> list[str]:
        """Those that were measured, in the order of their columns; a ceiling is none."""
        names = {name for found in self.found.values() for each in found.samples.values() for name in each}
        return [system.title for system in System if system.title in names]

    def rows(self, scenario: str) -> list[Compared]:
        return [row for load, each in self.found[scenario].samples.items() for row in compare_all(load, each)]

    def remarks(self) -> list[str]:
        """Notes that a reader of the figures needs."""
        remarks = [f"not measured: {why}" for why in self.skipped]
        for scenario, found in self.found.items():
            remarks += [f"not measured: {scenario}: {why}" for why in found.skipped]
            for load, systems in found.samples.items():
                for name, samples in systems.items():
                    count, failure = total_failures(samples)
                    if count:
                        remarks.append(f"{load}: {name} failed {count:,} requests, the first with {failure}")
        if self.source_after and self.source_after != self.machine.source:
            remarks.append(f"the code changed during the run, it is now {self.source_after}")
        return remarks

    def as_json(self) -> dict[str, Any]:
        return {
            "machine": dataclasses.asdict(self.machine),
            "size": self.size,
            "rounds": self.rounds,
            "seconds_of_round": self.seconds_of_round,
            "systems": self.systems(),
            "load_before": self.load_before,
            "load_after": self.load_after,
            "source_after": self.source_after,
            "seconds": round(self.seconds, 1),
            "remarks": self.remarks(),
            "scenarios": {
                name: {
                    "seconds": round(self.took.get(name, 0.0), 1),
                    "rows": [row.as_json() for row in self.rows(name)],
                    "lines": [dataclasses.asdict(line) for line in found.lines],
                    "plots": self.plots.get(name, []),
                }
                for name, found in self.found.items()
            },
        }

    def print(self, console: Console) -> None:
        for line in self._heading():
            console.print(line, highlight=False)
        for scenario, found in self.found.items():
            for load, samples in found.samples.items():
                rows = compare_all(load, samples)
                names = _columns(rows)
                console.print()
                console.print(f"[bold]{scenario}[/bold]: {load}", highlight=False)
                table = Table(box=None, pad_edge=False)
                table.add_column("measure", min_width=30, overflow="fold")
                table.add_column("unit", min_width=7, no_wrap=True)
                for name in names:
                    table.add_column(name, justify="right", min_width=20, overflow="fold")
                for row in rows:
                    table.add_row(row.row.measure.name, row.row.measure.unit, *_cells(row, names))
                console.print(table)
        console.print()
        for line in (*self.remarks(), READING):
            console.print(line, highlight=False, markup=False)

    def as_markdown(self) -> str:
        lines = ["# Benchmark suite", "", "```", *self._heading(), "```", "", READING, ""]
        lines += [f"- {remark}" for remark in self.remarks()]
        lines += ["", "## Messages per second", "", *self._summary(), *_pictures(self.plots.get("", []))]
        for scenario, found in self.found.items():
            lines += ["", f"## {scenario}", *_pictures(self.plots.get(scenario, []))]
            for load, samples in found.samples.items():
                rows = compare_all(load, samples)
                names = _columns(rows)
                lines += ["", f"### {load}", "", *_table_head(["measure", "unit"], names)]
                lines += [_line(row.row.measure.name, row.row.measure.unit, *_cells(row, names)) for row in rows]
        return "\n".join(lines) + "\n"

    def write(self, folder: Path) -> None:
        """Both forms for files."""
        (folder / "report.json").write_text(json.dumps(self.as_json(), indent=2) + "\n", "utf-8")
        (folder / "report.md").write_text(self.as_markdown(), "utf-8")

    def rates(self) -> list[tuple[str, Compared]]:
        """The rate of every load that has one, with the name of its scenario."""
        return [(name, row) for name in self.found for row in self.rows(name) if row.row.measure == RATE]

    def _summary(self) -> list[str]:
        rows = self.rates()
        names = _columns([row for _, row in rows])
        lines = [_line(scenario, row.row.load, *_cells(row, names)) for scenario, row in rows]
        return [*_table_head(["scenario", "load"], names), *lines]

    def _heading(self) -> list[str]:
        facts = {name.replace("_", " "): value for name, value in dataclasses.asdict(self.machine).items()}
        facts |= {
            "load": f"{self.load_before} before, {self.load_after} after",
            "run": f"{self.size}, {self.seconds:.0f} s; {self.rounds} rounds of {self.seconds_of_round:g} s each",
            "systems": ", ".join(self.systems()) or "none",
        }
        return [f"{name:12} {value}" for name, value in facts.items()]


def _ordered(names: Iterable[str]) -> list[str]:
    """The systems in their order, and behind them what is none."""
    known = [system.title for system in System]
    return sorted(dict.fromkeys(names), key=lambda name: known.index(name) if name in known else len(known))


def _columns(rows: Sequence[Compared]) -> list[str]:
    """The systems that any of the rows has, and those that the first is compared with."""
    systems = _ordered(name for row in rows for name in row.row.figures)
    against = _ordered(name for row in rows for name in row.advantages)
    return [*systems, *(f"× {name}" for name in against)]


def _cells(row: Compared, names: Sequence[str]) -> list[str]:
    return [
        spread_of(row.advantages.get(name[2:]) if name.startswith("× ") else row.row.figures.get(name))
        for name in names
    ]


def _table_head(texts: Sequence[str], numbers: Sequence[str]) -> list[str]:
    return [_line(*texts, *numbers), f"|{'---|' * len(texts)}{'---:|' * len(numbers)}"]


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _pictures(files: Sequence[str]) -> list[str]:
    return [text for name in files for text in ("", f"![{name.rpartition('.')[0]}]({name})")]
