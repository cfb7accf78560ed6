"""A run of the servers and its results: as a table for people, as JSON for programs, as Markdown for documents."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from rich.table import Table

from bench.report import formatted
from bench.server.measures import compare, total_failures

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

    from bench.figures import Figure
    from bench.machine import Machine
    from bench.server.measures import Row, Sample

ADVANTAGE = "times better"
_READING = (
    "A cell is the median of the rounds, with the lowest and the highest in brackets. “Times better” is OrbitMQ "
    "against the other, taken round by round: above 1 it is ahead, whether more or less of a thing is wanted. "
    "A range that holds 1 decides nothing."
)


@dataclasses.dataclass(slots=True)
class ServerReport:
    """Everything one run found out."""

    machine: Machine
    size: str
    systems: Sequence[str]
    skipped: Sequence[str]
    """What was not measured, and why."""
    load_before: float
    load_after: float = 0.0
    source_after: str = ""
    """Differs from the revision before if the code changed during the run."""
    seconds: float = 0.0
    samples: Mapping[str, Mapping[str, Sequence[Sample]]] = dataclasses.field(default_factory=dict)

    def rows(self) -> list[Row]:
        return [row for load, systems in self.samples.items() for row in compare(load, systems)]

    def remarks(self) -> list[str]:
        """Notes that a reader of the figures needs."""
        found = [f"not measured: {reason}" for reason in self.skipped]
        for load, systems in self.samples.items():
            for name, samples in systems.items():
                count, message = total_failures(samples)
                if count:
                    found.append(f"{load}: {name} failed {count:,} requests, the first with {message}")
        if self.source_after != self.machine.source:
            found.append(f"the code changed during the run, it is now {self.source_after}")
        return found

    def as_json(self) -> dict[str, Any]:
        return {
            "machine": dataclasses.asdict(self.machine),
            "size": self.size,
            "systems": list(self.systems),
            "load_before": self.load_before,
            "load_after": self.load_after,
            "source_after": self.source_after,
            "seconds": round(self.seconds, 1),
            "remarks": self.remarks(),
            "rows": [row.as_json() for row in self.rows()],
        }

    def print(self, console: Console) -> None:
        for line in self._heading():
            console.print(line, highlight=False)
        for load, rows in _by_load(self.rows()).items():
            console.print()
            console.print(f"[bold]{load}[/bold]", highlight=False)
            table = Table(box=None, pad_edge=False)
            table.add_column("measure", min_width=36, overflow="fold")
            table.add_column("unit", min_width=11, no_wrap=True)
            for name in self._columns():
                table.add_column(name, justify="right", min_width=28, no_wrap=True)
            for row in rows:
                table.add_row(row.measure.name, row.measure.unit, *self._cells(row))
            console.print(table)
        console.print()
        for line in (*self.remarks(), _READING):
            console.print(line, highlight=False)

    def as_markdown(self) -> str:
        names = self._columns()
        lines = ["```", *self._heading(), "```", ""]
        for load, rows in _by_load(self.rows()).items():
            lines += [f"### {load}", "", f"| measure | unit | {' | '.join(names)} |"]
            lines.append(f"|---|---|{'---:|' * len(names)}")
            lines += [
                f"| {row.measure.name} | {row.measure.unit} | {' | '.join(self._cells(row))} |" for row in rows
            ]
            lines.append("")
        lines += [f"- {remark}" for remark in self.remarks()]
        lines += ["", _READING]
        return "\n".join(lines) + "\n"

    def _heading(self) -> list[str]:
        facts = {name.replace("_", " "): value for name, value in dataclasses.asdict(self.machine).items()}
        facts |= {
            "load": f"{self.load_before} before, {self.load_after} after",
            "run": f"{self.size}, {self.seconds:.0f} s, {' and '.join(self.systems)}",
        }
        return [f"{name:12} {value}" for name, value in facts.items()]

    def _columns(self) -> list[str]:
        return [*self.systems, ADVANTAGE] if len(self.systems) == 2 else [*self.systems]

    def _cells(self, row: Row) -> list[str]:
        cells = [spread_of(row.figures.get(name)) for name in self.systems]
        return [*cells, spread_of(row.advantage)] if len(self.systems) == 2 else cells


def _by_load(rows: Sequence[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row.load, []).append(row)
    return found


def spread_of(figure: Figure | None) -> str:
    """A cell: the median, with the lowest and the highest in brackets."""
    if figure is None:
        return "–"
    if len(figure.values) == 1:
        return formatted(figure.median)
    return f"{formatted(figure.median)} ({formatted(figure.low)}–{formatted(figure.high)})"
