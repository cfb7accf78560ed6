"""Pipelines: archives and streaming queries of Spark, with what they ran and how far they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nicegui import ui

from orbitmq.dashboard.subjects.pipelines import ARCHIVE, STREAM, Pipeline, Run, TopicProgress, pipelines
from orbitmq.dashboard.widgets.cards import BAD, GOOD, INFO, PLAIN, WARN, badge, card, empty, heading
from orbitmq.dashboard.widgets.tables import Column, DataTable
from orbitmq.dashboard.widgets.text import ago, moment, number, share, size

if TYPE_CHECKING:
    from orbitmq.dashboard.pages.view import View

KINDS = {ARCHIVE: "archive", STREAM: "streaming query"}
RECENT_RUNS = 10
AS_TEXT = "value => value"


async def build(view: View, _: ui.element) -> None:
    """The page."""
    found = await pipelines(view.console.config, view.cluster)
    if not found:
        with card():
            empty(
                "account_tree",
                "No pipeline is configured. Start the console with --pipeline NAME=DIR to see an archive, or the "
                "checkpoint of a streaming query, with its progress.",
            )
        return
    parts = [_Part(view, one) for one in found]

    async def refresh() -> None:
        for part, one in zip(parts, await pipelines(view.console.config, view.cluster), strict=True):
            part.show(one)

    view.every(10.0, refresh)


class _Part:
    """One pipeline."""

    def __init__(self, view: View, found: Pipeline) -> None:
        self._view = view
        with ui.element("section").classes("oq-card"):
            with ui.element("div").classes("oq-card-head"):
                heading(found.name)
                self._badges = ui.element("div").classes("oq-actions")
            self._line = ui.label("").classes("oq-muted")
            with ui.element("div").classes("oq-two"):
                self._topics = _topic_table()
                self._runs = _run_table(found.kind)
        self.show(found)

    def show(self, found: Pipeline) -> None:
        self._badges.clear()
        with self._badges:
            if found.kind:
                badge(KINDS[found.kind], INFO)
            badge(*_state(found))
        self._line.text = found.problem or _summary(found)
        self._topics.show([_topic_row(self._view, one) for one in found.topics])
        self._runs.show([_run_row(one) for one in found.runs[:RECENT_RUNS]])


def _state(found: Pipeline) -> tuple[str, str]:
    if found.problem:
        return "cannot be read", BAD
    if found.held_by:
        return "running", GOOD
    if found.kind == STREAM and found.runs and not found.runs[0].is_done:
        return "in a batch, or stopped in it", WARN
    return ("caught up", GOOD) if found.left == 0 else ("idle", PLAIN)


def _summary(found: Pipeline) -> str:
    parts = [found.place, f"last {'segment' if found.kind == ARCHIVE else 'batch'} {ago(found.last_ms)}"]
    if found.kind == ARCHIVE:
        parts.append(f"{number(found.run_count)} segments, {number(found.messages)} messages, {size(found.bytes)}")
    if found.held_by:
        parts.append(f"written by {found.held_by}")
    return " · ".join(parts)


def _topic_table() -> DataTable:
    return DataTable(
        "Progress by topic",
        [
            Column("topic", "Topic"),
            Column("queues", "Queues", numeric=True),
            Column("done", "Read", numeric=True),
            Column("left", "Left", numeric=True),
            Column("share", "Done", numeric=True, form=AS_TEXT),
        ],
        nothing="It has read nothing yet.",
        icon="topic",
    )


def _topic_row(view: View, one: TopicProgress) -> dict[str, Any]:
    known = one.left is not None and one.done + one.left > 0
    return {
        "id": one.topic,
        "topic": one.topic,
        "queues": one.queues,
        "done": one.done,
        "left": one.left,
        # Not 100% while something is left.
        "share": share(min(one.done / (one.done + (one.left or 0)), 1.0 if one.left == 0 else 0.99))
        if known
        else "–",
        "links": {"topic": view.link("topics", one.topic)},
        "kinds": {"left": WARN} if one.left else {},
    }


def _run_table(kind: str) -> DataTable:
    what = "Segment" if kind == ARCHIVE else "Batch"
    return DataTable(
        f"Newest {what.lower()}s",
        [
            Column("number", what, numeric=True),
            Column("time", "Time"),
            Column("messages", "Messages", numeric=True),
            *([Column("size", "Size", numeric=True, form=AS_TEXT)] if kind == ARCHIVE else []),
            Column("state", "State"),
        ],
        nothing="Nothing ran yet.",
        icon="history",
    )


def _run_row(one: Run) -> dict[str, Any]:
    return {
        "id": one.number,
        "number": one.number,
        "time": moment(one.time_ms),
        "messages": one.messages,
        "size": size(one.bytes) if one.bytes else "–",
        "state": "done" if one.is_done else "not finished",
        "kinds": {"state": GOOD if one.is_done else WARN},
    }
