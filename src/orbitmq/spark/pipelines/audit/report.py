"""The HTML page of an audit, self-contained so that it can be mailed and stored."""

from __future__ import annotations

import dataclasses
import datetime
import html
from typing import TYPE_CHECKING, Any

from orbitmq.spark.pipelines.audit import plots
from orbitmq.spark.pipelines.audit.page_style import STYLE
from orbitmq.spark.pipelines.audit.tables import Table, counted, place_text, time_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from orbitmq.spark.pipelines.audit.tables import Row

MAX_ROWS = 200
"""Rows of a table on the page; all of them are in the Parquet files beside it."""

_NUMBERS = (
    "_ms",
    "_offset",
    "messages",
    "copies",
    "elsewhere",
    "attempts",
    "lag",
    "committed",
    "end",
    "checks",
    "transactions",
)
_WORDS = ("kind", "reason")
_LABELS = {"p50_ms": "p50", "p90_ms": "p90", "p99_ms": "p99", "p999_ms": "p99.9", "max_ms": "max"}


@dataclasses.dataclass(slots=True)
class Report:
    """The content of the page."""

    title: str
    facts: Mapping[str, int | str]
    """What was audited, and when."""
    settings: Mapping[str, Any]
    """What the rules of checks name."""
    faults: Sequence[Table]
    warnings: Sequence[Table]
    measures: Mapping[str, Table]
    buckets: Sequence[Row] = ()
    """Messages over time."""

    @property
    def is_good(self) -> bool:
        return not any(table.count for table in self.faults)


def page(report: Report) -> str:
    """The whole page."""
    verdict = "Nothing is wrong" if report.is_good else _verdict(report)
    parts = [
        f'<header><p class="brand">OrbitMQ audit</p><h1>{_text(report.title)}</h1>{_facts(report.facts)}</header>',
        f'<p class="verdict {"good" if report.is_good else "bad"}">{_text(verdict)}</p>',
        _cards([*report.faults, *report.warnings]),
        _picture("Messages over time", plots.traffic(report.buckets)),
        *(_section(table, report.settings) for table in report.faults),
        *(_section(table, report.settings) for table in report.warnings),
        *_measured(report),
        f"<footer>Written {_text(_now())}. All rows are in the Parquet tables beside this page.</footer>",
    ]
    body = "\n".join(part for part in parts if part)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{_text(report.title)}</title><style>{STYLE}</style></head>\n"
        f"<body><main>\n{body}\n</main></body></html>\n"
    )


def _verdict(report: Report) -> str:
    found = [table.check.title.lower() for table in report.faults if table.count]
    return f"Something is wrong: {', '.join(found)}"


def _facts(facts: Mapping[str, int | str]) -> str:
    fields = {name: f"{value:,}" if isinstance(value, int) else value for name, value in facts.items()}
    rows = "".join(f"<div><dt>{_text(name)}</dt><dd>{_text(value)}</dd></div>" for name, value in fields.items())
    return f"<dl>{rows}</dl>"


def _cards(tables: Sequence[Table]) -> str:
    cards = []
    for table in tables:
        mood = "none" if not table.count else "bad" if table.check.is_fault else "warn"
        number = max(table.messages, table.count)
        cards.append(
            f'<a class="card {mood}" href="#{table.check.name}"><b>{number:,}</b>'
            f"<span>{_text(table.check.title)}</span></a>"
        )
    return f'<nav class="cards">{"".join(cards)}</nav>'


def _section(table: Table, settings: Mapping[str, Any], picture: str = "") -> str:
    check = table.check
    rule = check.rule.format(**settings)
    found = _table(table) if table.count else '<p class="nothing">None found.</p>'
    return (
        f'<section id="{check.name}"><h2>{_text(check.title)}<small>{_count(table)}</small></h2>'
        f'<p class="rule">{_text(rule)}</p>{picture and f"<figure>{picture}</figure>"}{found}</section>'
    )


def _count(table: Table) -> str:
    if not table.count:
        return "none"
    if table.messages > table.count:
        return f"{counted(table.messages, 'message')} in {counted(table.count, 'row')}"
    return counted(table.count, "row")


def _measured(report: Report) -> list[str]:
    measures, settings = report.measures, report.settings
    lags: dict[str, int] = {}
    for row in measures["lag"].rows:
        name = f"{row['group']} · {row['topic']}"
        lags[name] = lags.get(name, 0) + row["lag"]
    outcomes = {f"{row['topic']} · {row['outcome']}": row["transactions"] for row in measures["transactions"].rows}
    reasons = {
        f"{row['group']} · {row['reason']}": row["messages"] for row in measures["dead_letters_by_reason"].rows
    }
    pictures = {
        "latency": plots.latencies(measures["latency"].rows),
        "lag": plots.bars(lags, "messages behind", "Messages behind, by group and topic"),
        "transactions": plots.bars(outcomes, "transactions", "Transactions by outcome"),
        "dead_letters_by_reason": plots.bars(reasons, "messages", "Dead letters by reason"),
    }
    return [_section(table, settings, pictures.get(name, "")) for name, table in measures.items() if table.count]


def _picture(title: str, picture: str) -> str:
    rule = "By the time at which they were stored, in UTC."
    return (
        f'<section><h2>{title}</h2><p class="rule">{rule}</p><figure>{picture}</figure></section>'
        if picture
        else ""
    )


def _table(table: Table) -> str:
    columns = [name for name in table.check.columns if any(row[name] is not None for row in table.rows)]
    head = "".join(f'<th class="{_kind(name)}">{_text(_label(name))}</th>' for name in columns)
    body = "".join(
        "<tr>" + "".join(f'<td class="{_kind(name)}">{_cell(row[name])}</td>' for name in columns) + "</tr>"
        for row in table.rows[:MAX_ROWS]
    )
    hidden = table.count - min(len(table.rows), MAX_ROWS)
    more = f'<p class="more">… and {counted(hidden, "row")} more, in {table.check.name}.</p>' if hidden > 0 else ""
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{more}'


def _label(name: str) -> str:
    return _LABELS.get(name) or (name.removesuffix("_ms") + (", ms" if name.endswith("_ms") else "")).replace(
        "_", " "
    )


def _kind(name: str) -> str:
    if name.endswith(_NUMBERS):
        return "number"
    if name in _WORDS:
        return "words"
    return "id" if name.endswith("_id") and name != "queue_id" else "text"


def _cell(value: Any) -> str:
    if value is None:
        return '<span class="nothing">—</span>'
    if isinstance(value, datetime.datetime):
        return f"<time>{_text(time_text(value))}</time>"
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "<br>".join(_text(place_text(one)) for one in value)
    if isinstance(value, list):
        return _text(", ".join(map(str, value)))
    return _text(str(value))


def _text(value: str) -> str:
    return html.escape(value)


def _now() -> str:
    return time_text(datetime.datetime.now(datetime.UTC)) + " UTC"
