"""The trace of a message as a graph: sent, stored, and each group's attempts to consume it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nicegui import ui

from orbitmq.admin.errors import AdminError
from orbitmq.dashboard.subjects.messages import trace_of
from orbitmq.dashboard.widgets.cards import empty
from orbitmq.dashboard.widgets.charts import graph
from orbitmq.dashboard.widgets.tables import Column, DataTable
from orbitmq.dashboard.widgets.text import moment

if TYPE_CHECKING:
    from orbitmq.client.trace.query import Attempt, MessageTrace
    from orbitmq.dashboard.pages.view import View

BLUE, GREEN, ORANGE, RED = "#2f5be0", "#12806f", "#a8630b", "#b42318"
MAX_GROUPS = 12


async def show_trace(view: View, message_id: str) -> None:
    """The trace, or why there is none."""
    try:
        trace = await trace_of(view.cluster, message_id)
    except AdminError as error:
        empty("route", f"No trace: {error}")
        return
    if not trace:
        empty("route", "No trace of this message: its producer and consumers did not record one.")
        return
    with ui.element("div").style("overflow-x: auto"):
        _draw(trace)
    if trace.attempts:
        _attempts(trace)


def _draw(trace: MessageTrace) -> None:
    nodes: list[dict[str, Any]] = []
    edges: list[tuple[str, str, str]] = []
    groups = list(trace.groups().items())[:MAX_GROUPS]
    middle = max((len(groups) - 1) // 2, 0)
    record: Any = trace.published[0].record if trace.published else None
    if record is not None:
        nodes.append(_node("producer", f"{record.group}\n{trace.published[0].client_host}", 0, middle, BLUE))
        edges.append(("producer", "topic", f"{record.cost_ms} ms"))
    name = record.topic if record is not None else "message"
    nodes.append(_node("topic", f"{name}\n{record.store_host if record is not None else ''}", 1, middle, GREEN))
    for row, (group, attempts) in enumerate(groups):
        last = attempts[-1]
        is_done = last.ended is not None and last.ended.succeeded
        color = GREEN if is_done else ORANGE if last.ended is None else RED
        nodes.append(_node(f"group {group}", f"{group}\n{_count(attempts)}", 2, row, color))
        edges.append(("topic", f"group {group}", _outcome(last)))
    graph("Trace of the message", nodes, edges)


def _node(name: str, text: str, column: int, row: int, color: str) -> dict[str, Any]:
    return {"name": name, "text": text, "column": column, "row": row, "color": color}


def _count(attempts: list[Attempt]) -> str:
    return "1 attempt" if len(attempts) == 1 else f"{len(attempts)} attempts"


def _outcome(attempt: Attempt) -> str:
    if attempt.ended is None:
        return "not ended"
    return f"{attempt.ended.outcome.name.lower()}, {attempt.ended.cost_ms} ms"


def _attempts(trace: MessageTrace) -> None:
    table = DataTable(
        "Attempts",
        [
            Column("group", "Group"),
            Column("client", "Client"),
            Column("began", "Began"),
            Column("retries", "Retry", numeric=True),
            Column("outcome", "Outcome"),
        ],
    )
    table.show(
        [
            {
                "id": f"{at} {attempt.request_id}",
                "group": attempt.group,
                "client": attempt.client_host,
                "began": moment(attempt.began_ms),
                "retries": attempt.retry_times,
                "outcome": _outcome(attempt),
            }
            for at, attempt in enumerate(trace.attempts)
        ]
    )
