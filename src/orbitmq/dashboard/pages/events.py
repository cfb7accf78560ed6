"""Events: the history that OrbitMQ's brokers keep of themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nicegui import ui

from orbitmq.dashboard.subjects.live import Events, events, is_internal
from orbitmq.dashboard.widgets.cards import BAD, GOOD, INFO, PLAIN, WARN, card
from orbitmq.dashboard.widgets.tables import Column, DataTable
from orbitmq.dashboard.widgets.text import moment
from orbitmq.protocol.broker_events import EventKind

if TYPE_CHECKING:
    from orbitmq.dashboard.pages.view import View

LIMIT = 1000
CLIENT_KINDS = frozenset(
    {EventKind.CONSUMER_JOIN, EventKind.CONSUMER_LEAVE, EventKind.PRODUCER_JOIN, EventKind.PRODUCER_LEAVE}
)
COLORS = {
    EventKind.FLUSH_FAILED: BAD,
    EventKind.SENDS_REFUSED: BAD,
    EventKind.SLOW_FLUSH: WARN,
    EventKind.REQUEST_REFUSED: WARN,
    EventKind.CONSUMER_LEAVE: WARN,
    EventKind.PRODUCER_LEAVE: WARN,
    EventKind.ROLE_CHANGE: INFO,
    EventKind.REBALANCE: INFO,
    EventKind.BROKER_START: GOOD,
    EventKind.SENDS_ACCEPTED: GOOD,
}


def kind_text(kind: str) -> str:
    return kind.lower().replace("_", " ")


async def build(view: View, _: ui.element) -> None:
    """The page."""
    with card():
        with ui.element("div").classes("oq-filters"):
            search = ui.input("Search events").props("outlined dense clearable debounce=300")
            search.classes("oq-search")
            options = {kind.value: kind_text(kind) for kind in EventKind}
            kinds = ui.select(options, label="Kinds", multiple=True, clearable=True)
            kinds.props("outlined dense")
            internal = ui.switch("RocketMQ's own clients")
        note = ui.label("").classes("oq-muted")
        table = DataTable(
            "Events",
            [
                Column("time", "Time"),
                Column("kind", "Event"),
                Column("broker", "Broker"),
                Column("subject", "Subject", wrapped=True),
                Column("detail", "Detail", wrapped=True),
            ],
            nothing="No events. Brokers of OrbitMQ keep a history of joins, leaves, changes and faults.",
            icon="history",
            page_size=50,
        )
    found = Events([], "")

    async def load() -> None:
        nonlocal found
        chosen = kinds.value or []
        found = await events(view.cluster, kinds=",".join(chosen), limit=LIMIT)
        note.text = found.reason
        show()

    def show() -> None:
        wanted = (search.value or "").lower()
        table.show(
            [
                {
                    "id": f"{one.address} {one.sequence}",
                    "time": moment(one.timestamp_ms),
                    "kind": kind_text(one.kind),
                    "broker": one.broker_name,
                    "subject": one.subject or "–",
                    "detail": one.detail or "–",
                    "kinds": {"kind": _color(one.kind)},
                }
                for one in found.events
                if (internal.value or one.kind not in CLIENT_KINDS or not is_internal(one.subject))
                and wanted in f"{one.kind} {one.broker_name} {one.subject} {one.detail}".lower()
            ]
        )

    search.on_value_change(show)
    internal.on_value_change(show)
    kinds.on_value_change(view.do(load))
    await load()
    view.every(10.0, load)


def _color(kind: str) -> str:
    known: dict[Any, str] = {**COLORS}
    return known.get(kind, PLAIN)
