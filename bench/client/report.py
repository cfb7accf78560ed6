"""A run of the clients and its results: as a table for people, as JSON for programs, as Markdown for documents."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from rich.table import Table

from bench.client.measures import CORES, CPU, verdicts
from bench.report import formatted
from bench.server.measures import AVERAGE, P50, P99, RATE, compare, total_failures

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

    from bench.figures import Figure
    from bench.machine import Machine
    from bench.server.measures import Row, Sample

_HEADINGS = {
    RATE: "msgs/s",
    CPU: "CPU, µs/msg",
    CORES: "cores",
    P50: "half within, ms",
    P99: "99 % within, ms",
    AVERAGE: "average, ms",
}
_READING = (
    "A cell is the median of the rounds, with the lowest and the highest in brackets. Client and server share the "
    "machine. CPU and cores are those of the client's process alone, all its threads."
)


@dataclasses.dataclass(slots=True)
class ClientReport:
    """Everything one run found out."""

    machine: Machine
    size: str
    skipped: Sequence[str]
    """What was not measured, and why."""
    load_before: float
    load_after: float = 0.0
    source_after: str = ""
    """Differs from the revision before if the code changed during the run."""
    seconds: float = 0.0
    samples: Mapping[str, Mapping[str, Sequence[Sample]]] = dataclasses.field(default_factory=dict)

    def remarks(self) -> list[str]:
        """Notes that a reader of the figures needs."""
        found = [f"not measured: {reason}" for reason in self.skipped]
        for load, clients in self.samples.items():
            for name, samples in clients.items():
                count, message = total_failures(samples)
                if count:
                    found.append(f"{load}: {name} failed {count:,} times, the first with {message}")
        if self.source_after != self.machine.source:
            found.append(f"the code changed during the run, it is now {self.source_after}")
        return found

    def as_json(self) -> dict[str, Any]:
        return {
            "machine": dataclasses.asdict(self.machine),
            "size": self.size,
            "load_before": self.load_before,
            "load_after": self.load_after,
            "source_after": self.source_after,
            "seconds": round(self.seconds, 1),
            "remarks": self.remarks(),
            "rows": [row.as_json() for load, clients in self.samples.items() for row in compare(load, clients)],
            "bars": [verdict.as_json() for verdict in verdicts(self.samples)],
        }

    def print(self, console: Console) -> None:
        for line in self._heading():
            console.print(line, highlight=False)
        for load, (headings, lines) in self._tables().items():
            console.print()
            console.print(f"[bold]{load}[/bold]", highlight=False)
            table = Table(box=None, pad_edge=False)
            table.add_column("client → server", min_width=50, overflow="fold")
            for heading in headings:
                table.add_column(heading, justify="right", min_width=15, no_wrap=True)
            for cells in lines:
                table.add_row(*cells)
            console.print(table)
        console.print()
        for line in (*self.remarks(), *self._bars(), _READING):
            console.print(line, highlight=False)

    def as_markdown(self) -> str:
        lines = ["```", *self._heading(), "```", ""]
        for load, (headings, rows) in self._tables().items():
            lines += [f"### {load}", "", f"| client → server | {' | '.join(headings)} |"]
            lines.append(f"|---|{'---:|' * len(headings)}")
            lines += [f"| {' | '.join(row)} |" for row in rows]
            lines.append("")
        lines += [f"- {remark}" for remark in (*self.remarks(), *self._bars())]
        lines += ["", _READING]
        return "\n".join(lines) + "\n"

    def _bars(self) -> list[str]:
        return [verdict.sentence for verdict in verdicts(self.samples)]

    def _heading(self) -> list[str]:
        facts = {name.replace("_", " "): value for name, value in dataclasses.asdict(self.machine).items()}
        facts |= {
            "load": f"{self.load_before} before, {self.load_after} after",
            "run": f"{self.size}, {self.seconds:.0f} s",
        }
        return [f"{name:12} {value}" for name, value in facts.items()]

    def _tables(self) -> dict[str, tuple[list[str], list[list[str]]]]:
        """By load, the headings and, of each client, a line of cells."""
        return {load: _table(compare(load, clients), list(clients)) for load, clients in self.samples.items()}


def _table(rows: Sequence[Row], names: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    headings = [_HEADINGS.get(row.measure, f"{row.measure.name}, {row.measure.unit}") for row in rows]
    return headings, [[name, *(_spread(row.figures.get(name)) for row in rows)] for name in names]


def _spread(figure: Figure | None) -> str:
    if figure is None:
        return "–"
    if len(figure.values) == 1:
        return formatted(figure.median)
    return f"{formatted(figure.median)} ({formatted(figure.low)}–{formatted(figure.high)})"
