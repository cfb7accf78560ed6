"""Output of a report: on the terminal, as JSON, as Markdown."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from rich.console import Console


class Printable(Protocol):
    """A report of a run."""

    def print(self, console: Console) -> None: ...

    def as_json(self) -> dict[str, Any]: ...

    def as_markdown(self) -> str: ...


def tell(report: Printable, console: Console, *, json_to: str | None, markdown_to: str | None) -> None:
    """Print a report and write it to the files that were named; ``-`` for JSON is standard output."""
    report.print(console)
    if markdown_to is not None:
        Path(markdown_to).write_text(report.as_markdown(), "utf-8")
    if json_to is not None:
        text = json.dumps(report.as_json(), indent=2) + "\n"
        if json_to == "-":
            sys.stdout.write(text)
        else:
            Path(json_to).write_text(text, "utf-8")
