"""Deferred messages: delayed and timed ones by level and topic, and transactions that wait for their end."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from nicegui import ui

from orbitmq.admin.errors import AdminError
from orbitmq.admin.message.waiting import DELAY_LEVELS, SCAN
from orbitmq.dashboard.console import Action
from orbitmq.dashboard.history.series import broker_series
from orbitmq.dashboard.widgets.cards import INFO, PLAIN, WARN, Tile, card, error, tiles
from orbitmq.dashboard.widgets.charts import BarChart
from orbitmq.dashboard.widgets.plots import REFRESH_SECONDS, Plots
from orbitmq.dashboard.widgets.tables import Column, DataTable, action
from orbitmq.dashboard.widgets.text import ago, moment, number, size, until
from orbitmq.protocol.names import TRANSACTION_HALF_TOPIC

if TYPE_CHECKING:
    from orbitmq.admin.message.deferred import DeferredCounts
    from orbitmq.admin.message.waiting import OpenTransaction, WaitingMessage, WaitingMessages
    from orbitmq.dashboard.pages.view import View


MAX_ROWS = 500


async def build(view: View, buttons: ui.element) -> None:
    """The page."""
    with tiles():
        figures = {name: Tile(name) for name in ("Timed", "Delayed by level", "Next one", "Open transactions")}
    plots = Plots(view.console.history)
    with buttons:
        plots.choice()
    masters = [status.broker for status in await view.cluster.brokers() if status.broker.is_master]
    cluster = view.cluster.name
    with ui.element("div").classes("oq-two"):
        with card("Due within"):
            spans = BarChart("Deferred messages by the time until their delivery")
        plots.add(
            "Timed messages that wait",
            lambda: {one.broker_name: broker_series(cluster, one.address, "timed") for one in masters},
        )
    with card("Deferred messages, the next first"):
        note = ui.label("").classes("oq-muted")
        messages = _message_table()
    with card("Open transactions, the oldest first"):
        transactions = _transaction_table(view)
    with ui.element("div").classes("oq-two"):
        with card("Timed, by topic"):
            topics = _topic_table()
        with card("Delayed, by level"):
            levels = _level_table()

    async def refresh() -> None:
        counts, waiting = await view.admin.deferred.counts(), await view.cluster.waiting()
        unsettled = await view.cluster.open_transactions()
        now = int(time.time() * 1000)
        _show(figures, counts, waiting, len(unsettled))
        spans.show(waiting.by_time(now))
        note.text = _note(waiting)
        note.set_visibility(bool(note.text))
        messages.show([_message_row(view, one) for one in waiting.messages[:MAX_ROWS]])
        transactions.show([_transaction_row(view, one) for one in unsettled[:MAX_ROWS]])
        topics.show(_topic_rows(view, counts))
        levels.show(_level_rows(counts, await _delays(view)))
        plots.refresh()

    try:
        await refresh()
    except AdminError as failure:
        error(str(failure))
    view.every(REFRESH_SECONDS, refresh)


def _message_table() -> DataTable:
    return DataTable(
        "Deferred messages",
        [
            Column("due", "Delivered at"),
            Column("left", "In"),
            Column("topic", "Topic", sortable=True),
            Column("message", "Message"),
            Column("tags", "Tag"),
            Column("keys", "Keys", clipped=True),
            Column("kind", "Kind"),
            Column("size", "Size", numeric=True, form="value => value"),
        ],
        nothing="No deferred message waits.",
        icon="schedule",
    )


def _message_row(view: View, one: WaitingMessage) -> dict[str, Any]:
    return {
        "id": f"{one.broker_name} {one.message_id}",
        "due": moment(one.due_ms),
        "left": until(one.due_ms),
        "topic": one.topic,
        "message": one.message_id,
        "tags": one.tags or "–",
        "keys": " ".join(one.keys) or "–",
        "kind": f"level {one.delay_level}" if one.delay_level else "timed",
        "size": size(one.body_size),
        "links": {
            "topic": view.link("topics", one.topic),
            "message": view.link("messages", one.offset_message_id),
        },
        "kinds": {"kind": PLAIN, **({"tags": INFO} if one.tags else {})},
    }


def _note(waiting: WaitingMessages) -> str:
    if not waiting.is_complete:
        return f"Of the newest {SCAN:,} stored on each broker; there are more."
    more = len(waiting.messages) - MAX_ROWS
    return f"The next {MAX_ROWS}; {number(more)} more wait." if more > 0 else ""


def _transaction_table(view: View) -> DataTable:
    async def check(_: str, message_id: str) -> None:
        await view.attempt(_check_again(view, message_id))

    return DataTable(
        "Open transactions",
        [
            Column("born", "Begun"),
            Column("age", "Open for"),
            Column("topic", "Topic", sortable=True),
            Column("group", "Producer group", sortable=True),
            Column("keys", "Keys", clipped=True),
            Column("message", "Message"),
            Column("checks", "Checks", numeric=True, sortable=True),
        ],
        nothing="All transactions have ended.",
        icon="handshake",
        on_action=check if view.may_operate else None,
    )


def _transaction_row(view: View, one: OpenTransaction) -> dict[str, Any]:
    return {
        "id": one.offset_message_id,
        "born": moment(one.born_ms),
        "age": ago(one.born_ms).removesuffix(" ago"),
        "topic": one.topic,
        "group": one.producer_group or "–",
        "keys": " ".join(one.keys) or "–",
        "message": one.message_id,
        "checks": one.checks,
        "links": {
            "topic": view.link("topics", one.topic),
            "message": view.link("messages", one.offset_message_id),
        },
        "kinds": {"checks": WARN} if one.checks else {},
        "actions": [action("check", "help_center", "Check again")],
    }


async def _check_again(view: View, offset_message_id: str) -> None:
    found = next(
        (one for one in await view.cluster.open_transactions() if one.offset_message_id == offset_message_id), None
    )
    if found is None:
        ui.notify("The transaction has ended.")
        return
    await view.console.change(
        view.actor,
        view.cluster,
        Action("check transaction", f"{found.topic} {found.message_id}"),
        lambda: view.admin.messages.resume_check(TRANSACTION_HALF_TOPIC, offset_message_id),
    )
    ui.notify("The broker asks a producer of the group for the outcome.", type="positive")


def _topic_table() -> DataTable:
    return DataTable(
        "Timed messages by topic",
        [Column("broker", "Broker"), Column("topic", "Topic"), Column("count", "Waiting", numeric=True)],
        nothing="No timed message waits, or the brokers do not count them by topic.",
        icon="schedule",
    )


def _level_table() -> DataTable:
    return DataTable(
        "Delayed messages by level",
        [
            Column("broker", "Broker"),
            Column("level", "Level", numeric=True),
            Column("delay", "Delay"),
            Column("count", "Waiting", numeric=True),
        ],
        nothing="No message waits for a delay level.",
        icon="schedule",
    )


def _show(figures: dict[str, Tile], counts: list[DeferredCounts], waiting: WaitingMessages, unsettled: int) -> None:
    figures["Timed"].show(number(sum(one.timed for one in counts)), "in the timer wheels")
    figures["Delayed by level"].show(number(sum(sum(one.by_delay_level.values()) for one in counts)))
    following = waiting.messages[0] if waiting.messages else None
    figures["Next one"].show(until(following.due_ms) if following else "–", following.topic if following else "")
    figures["Open transactions"].show(number(unsettled), "neither committed nor rolled back")


async def _delays(view: View) -> list[str]:
    """The delay of each level, as the first master has it set."""
    masters = [status.broker for status in await view.cluster.brokers() if status.broker.is_master]
    if not masters:
        return DELAY_LEVELS.split()

    async def read() -> list[str]:
        settings = await view.admin.brokers.settings(masters[0].address)
        return settings.get("messageDelayLevel", DELAY_LEVELS).split()

    return await view.cluster.cache.get("delay levels", 60.0, read)


def _topic_rows(view: View, counts: list[DeferredCounts]) -> list[dict[str, Any]]:
    return [
        {
            "id": f"{one.broker_name} {topic}",
            "broker": one.broker_name,
            "topic": topic,
            "count": count,
            "links": {"topic": view.link("topics", topic)},
        }
        for one in counts
        for topic, count in one.timed_by_topic.items()
    ]


def _level_rows(counts: list[DeferredCounts], delays: list[str]) -> list[dict[str, Any]]:
    return [
        {
            "id": f"{one.broker_name} {level}",
            "broker": one.broker_name,
            "level": level,
            "delay": delays[level - 1] if 0 < level <= len(delays) else "–",
            "count": count,
        }
        for one in counts
        for level, count in one.by_delay_level.items()
        if count > 0
    ]
