"""Rows of results as a table, CSV or JSON."""

import base64
import csv
import datetime
import decimal
import io
import math
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from orbitmq.cli.output import many, print_json_line, printable

MAX_CELL = 200
"""Characters of a value in a table."""
BASE64_MARK = "base64:"
"""Before the base64 of bytes that are not text."""
NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")


def print_table(
    console: Console,
    names: Sequence[str],
    types: Sequence[str],
    rows: Sequence[Sequence[Any]],
    *,
    has_more: bool = False,
    took: str = "",
) -> None:
    """Print a table, and below it the number of rows."""
    if names:
        console.print(table_of(names, types, rows))
    console.print(Text(count_line(len(rows), has_more=has_more) + (f" in {took}" if took else ""), style="dim"))


def count_line(rows: int, *, has_more: bool) -> str:
    return f"the first {many(rows, 'row')}; --limit shows more" if has_more else many(rows, "row")


def table_of(names: Sequence[str], types: Sequence[str], rows: Sequence[Sequence[Any]]) -> Table:
    table = Table()
    for name, kind in zip(names, types, strict=True):
        table.add_column(Text(printable(name)), justify="right" if kind.startswith(NUMBERS) else "left")
    for row in rows:
        table.add_row(*(_cell(value) for value in row))
    return table


def _cell(value: Any) -> Text:
    if value is None:
        return Text("null", style="dim")
    if isinstance(value, bytes | bytearray):
        text = bytes_text(bytes(value))
    elif isinstance(value, datetime.datetime):
        text = value.isoformat(" ", "milliseconds")
    elif isinstance(value, str):
        text = value
    elif isinstance(value, dict | list | tuple):
        text = json_text(value)
    else:
        text = str(value)
    text = printable(text)
    return Text(text if len(text) <= MAX_CELL else text[: MAX_CELL - 1] + "…")


def bytes_text(data: bytes) -> str:
    """Bytes as text if they are UTF-8, otherwise ``base64:`` and their base64.

    A text that begins with the mark is given in base64 as well, so that each output means one value.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = BASE64_MARK
    return BASE64_MARK + base64.b64encode(data).decode() if text.startswith(BASE64_MARK) else text


def json_text(value: Any) -> str:
    import orjson  # noqa: PLC0415 - for nested values only

    return orjson.dumps(plain(value)).decode()


def plain(value: Any) -> Any:
    """A value of Spark as a value of JSON. Bytes become text, and times get their zone."""
    if isinstance(value, bytes | bytearray):
        return bytes_text(bytes(value))
    if isinstance(value, datetime.datetime):
        return value.astimezone().isoformat()
    if isinstance(value, datetime.date | datetime.timedelta | decimal.Decimal):
        return str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if hasattr(value, "asDict"):
        return {name: plain(one) for name, one in value.asDict().items()}
    if isinstance(value, dict):
        return {name if isinstance(name, str) else str(name): plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return value if isinstance(value, str | int | bool | None) else str(value)


def print_json_rows(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> int:
    """Print one object per line; returns the number of rows."""
    count = 0
    for row in rows:
        print_json_line({name: plain(value) for name, value in zip(names, row, strict=True)})
        count += 1
    return count


def print_csv(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> int:
    """Print a header and rows; nested values are JSON, null is empty. Returns the number of rows."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(names)
    count = 0
    for row in rows:
        writer.writerow([_field(value) for value in row])
        count += 1
        typer.echo(out.getvalue(), nl=False)
        out.seek(0)
        out.truncate()
    if not count:
        typer.echo(out.getvalue(), nl=False)
    sys.stdout.flush()
    return count


def _field(value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, dict | list | tuple):
        return json_text(value)
    return plain(value)
