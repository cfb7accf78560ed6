"""Output of a command: tables and pairs as values, printed as aligned text, JSON or YAML."""

import dataclasses
import enum
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from orbitmq.cli.admin.framework.yaml_text import yaml_text
from orbitmq.cli.output import complain, print_json, printable, size_text, time_text


class Output(enum.StrEnum):
    """Formats of output."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


@dataclasses.dataclass(frozen=True, slots=True)
class Column:
    """A column: its key in JSON, and how its cells are written."""

    key: str
    kind: str = ""
    """``>`` a number, ``@`` milliseconds since 1970, ``%`` a share, ``B`` bytes; empty is text."""

    @property
    def title(self) -> str:
        words = re.sub(
            r"(?<=[a-z0-9])(?=[A-Z])", " ", self.key.removesuffix("Ms") if self.kind == "@" else self.key
        )
        return words.upper()

    @property
    def is_right(self) -> bool:
        return self.kind in {">", "%", "B"}

    def text(self, value: Any) -> str:
        return cell_text(value, self.kind)


@dataclasses.dataclass(frozen=True, slots=True)
class Table:
    """Rows under columns. ``spec`` names the columns: ``name queues> lastUpdateMs@``."""

    spec: str
    rows: Sequence[Sequence[Any]]
    empty: str = ""
    """The sentence for a table without rows."""

    @property
    def columns(self) -> list[Column]:
        return [
            Column(word.rstrip(">@%*"), word[-1]) if word[-1] in ">@%" else Column(word)
            for word in self.spec.split()
        ]

    def value(self) -> list[dict[str, Any]]:
        keys = [column.key for column in self.columns]
        return [dict(zip(keys, map(plain, row), strict=True)) for row in self.rows]

    def lines(self) -> list[str]:
        if not self.rows:
            return []
        columns = self.columns
        cells = [[column.title for column in columns]]
        cells += [[column.text(value) for column, value in zip(columns, row, strict=True)] for row in self.rows]
        widths = [max(len(row[number]) for row in cells) for number in range(len(columns))]
        lines = [
            "  ".join(
                text.rjust(width) if column.is_right else text.ljust(width)
                for text, width, column in zip(row, widths, columns, strict=True)
            ).rstrip()
            for row in cells
        ]
        return [emphasized(lines[0]), *lines[1:]]


@dataclasses.dataclass(frozen=True, slots=True)
class Pairs:
    """Names and values. A name may end like a column: ``lastUpdateMs@``."""

    values: Mapping[str, Any]
    is_verbatim: bool = False
    """The names are a server's own, and are printed as they are."""

    def value(self) -> dict[str, Any]:
        if self.is_verbatim:
            return {key: plain(value) for key, value in self.values.items()}
        return {key.rstrip(">@%"): plain(value) for key, value in self.values.items()}

    def lines(self) -> list[str]:
        rows = []
        for key, value in self.values.items():
            kind = "" if self.is_verbatim or key[-1] not in "@%>" else key[-1]
            title = key if self.is_verbatim else Column(key.rstrip(">@%"), kind).title.capitalize()
            rows.append((f"{printable(title)}:", cell_text(value, kind)))
        width = max((len(title) for title, _ in rows), default=0)
        return [f"{title.ljust(width)}  {text}".rstrip() for title, text in rows]


Part = Table | Pairs


@dataclasses.dataclass(frozen=True, slots=True)
class View:
    """The result of a command: one part, or several under keys."""

    parts: Mapping[str, Part]
    """The part with the empty key is the root: its names stand beside the other keys."""
    note: str = ""
    """A sentence for people, printed to standard error."""
    exit_code: int = 0

    @classmethod
    def of(cls, part: Part, note: str = "", exit_code: int = 0) -> "View":
        return cls({"": part}, note, exit_code)

    def value(self) -> Any:
        if list(self.parts) == [""]:
            return self.parts[""].value()
        found: dict[str, Any] = {}
        for key, part in self.parts.items():
            value = part.value()
            if key or isinstance(value, list):
                found[key or "rows"] = value
            else:
                found.update(value)
        return found

    def show(self, output: Output) -> None:
        """Print it. Notes go to standard error, so that standard output can be piped."""
        if output is Output.JSON:
            print_json(self.value())
        elif output is Output.YAML:
            sys.stdout.write(yaml_text(self.value()))
        else:
            self._show_text()
        if self.note:
            complain(self.note)

    def _show_text(self) -> None:
        is_first = True
        for key, part in self.parts.items():
            lines = part.lines()
            if not lines:
                if isinstance(part, Table) and part.empty and len(self.parts) == 1:
                    complain(part.empty)
                continue
            if not is_first:
                print()
            if key:
                print(emphasized(Column(key).title.capitalize()))
            print("\n".join(lines))
            is_first = False


def plain(value: Any) -> Any:
    """A cell as JSON has it."""
    if isinstance(value, enum.Enum):
        return value.value if isinstance(value, str) else value.name
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    return value


def cell_text(value: Any, kind: str = "") -> str:
    """A cell as text: on one line, without control characters."""
    if kind == "@":
        return time_text(value).replace("—", "-")
    if value is None or value == "":
        return "-"
    if kind == "%":
        return "-" if value < 0 else f"{value:.1%}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.2f}"
    if isinstance(value, Mapping):
        return printable(",".join(f"{key}={cell_text(item)}" for key, item in value.items())) or "-"
    if isinstance(value, list | tuple | set | frozenset):
        return printable(",".join(cell_text(item) for item in value)) or "-"
    return printable(str(plain(value)))


def bytes_text(size: float) -> str:
    return size_text(size)


def emphasized(text: str) -> str:
    """Bold on a terminal, unless NO_COLOR is set."""
    if sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb":
        return f"\033[1m{text}\033[0m"
    return text


def joined(values: Iterable[object]) -> str:
    return ",".join(str(value) for value in values)
