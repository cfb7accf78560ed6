"""The summary of an audit for the terminal and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orbitmq.spark.pipelines.audit.tables import counted
from orbitmq.spark.pipelines.progress import Summary

if TYPE_CHECKING:
    from orbitmq.spark.pipelines.audit.plan import AuditPlan
    from orbitmq.spark.pipelines.audit.report import Report
    from orbitmq.spark.pipelines.audit.tables import Row, Table
    from orbitmq.spark.pipelines.audit.writer import ReportDirectory

MAX_SENTENCES = 20
"""Findings of each kind that the summary lists; the tables of the report have all."""
MAX_NAMED = 3


def audited(plan: AuditPlan, queues: list[Row]) -> str:
    """The topics by name if they are few."""
    topics = sorted(set(plan.topics) | {row["topic"] for row in queues})
    return ", ".join(topics) if 0 < len(topics) <= MAX_NAMED else counted(len(topics), "topic")


def summary_of(report: Report, directory: ReportDirectory | None) -> Summary:
    """Numbers first, then what was found, then what was measured."""
    facts: dict[str, Any] = {name.replace(" ", "_"): value for name, value in report.facts.items()}
    found = [*report.faults, *report.warnings]
    facts |= {table.check.name: max(table.messages, table.count) for table in found}
    facts["findings"] = [sentence for table in found for sentence in _sentences(table)]
    for name in ("transactions", "dead_letters_by_reason", "latency"):
        facts[name] = report.measures[name].sentences(MAX_SENTENCES)
    facts["lag"] = _lags(report.measures["lag"])
    facts["report"] = None if directory is None else directory.page
    verdict = "nothing is wrong" if report.is_good else "something is wrong"
    fields = {name: value for name, value in facts.items() if value not in ([], {}, None)}
    return Summary(f"{report.title}: {verdict}", fields, report.is_good)


def _sentences(table: Table) -> list[str]:
    sentences = [f"{table.check.title.lower()}: {sentence}" for sentence in table.sentences(MAX_SENTENCES)]
    if table.count > len(sentences):
        sentences.append(f"{table.check.title.lower()}: … and {table.count - len(sentences):,} more")
    return sentences


def _lags(table: Table) -> dict[str, int]:
    """By group and topic, the largest first."""
    found: dict[str, int] = {}
    for row in table.rows:
        name = f"{row['group']} on {row['topic']}"
        found[name] = found.get(name, 0) + row["lag"]
    return dict(sorted(found.items(), key=lambda one: -one[1])[:MAX_SENTENCES])
