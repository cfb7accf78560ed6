"""Deferred messages: delayed and timed ones by level and topic, and transactions that wait for their end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orbitmq.admin.errors import AdminError
from orbitmq.dashboard.history.series import broker_series
from orbitmq.dashboard.widgets.cards import WARN, Tile, card, error, tiles
from orbitmq.dashboard.widgets.plots import REFRESH_SECONDS, Plots
from orbitmq.dashboard.widgets.tables import Column, DataTable
from orbitmq.dashboard.widgets.text import number

if TYPE_CHECKING:
    from nicegui import ui

    from orbitmq.admin.message.deferred import DeferredCounts, OpenTransactions
    from orbitmq.dashboard.pages.view import View

DEFAULT_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"


async def build(view: View, buttons: ui.element) -> None:
    """The page."""
    with tiles():
        figures = {name: Tile(name) for name in ("Timed", "Delayed by level", "Open transactions")}
    plots = Plots(view.console.history)
    with buttons:
        plots.choice()
    masters = [status.broker for status in await view.cluster.brokers() if status.broker.is_master]
    cluster = view.cluster.name
    plots.add(
        "Timed messages that wait",
        lambda: {one.broker_name: broker_series(cluster, one.address, "timed") for one in masters},
    )
    with card("By topic"):
        topics = DataTable(
            "Timed messages by topic",
            [Column("broker", "Broker"), Column("topic", "Topic"), Column("count", "Waiting", numeric=True)],
            nothing="No timed message waits, or the brokers do not count them by topic.",
            icon="schedule",
        )
    with card("By delay level"):
        levels = DataTable(
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
    with card("Transactions that wait for their end"):
        transactions = DataTable(
            "Transactions",
            [
                Column("broker", "Broker"),
                Column("halves", "Half messages stored", numeric=True),
                Column("open", "Not settled, at most", numeric=True),
            ],
            nothing="No broker has stored a half message.",
            icon="handshake",
        )

    async def refresh() -> None:
        counts = await view.admin.deferred.counts()
        waiting = await view.admin.deferred.transactions()
        delays = await _delays(view)
        _show(figures, counts, waiting)
        topics.show(_topic_rows(view, counts))
        levels.show(_level_rows(counts, delays))
        transactions.show(_transaction_rows(waiting))
        plots.refresh()

    try:
        await refresh()
    except AdminError as failure:
        error(str(failure))
    view.every(REFRESH_SECONDS, refresh)


def _show(figures: dict[str, Tile], counts: list[DeferredCounts], waiting: list[OpenTransactions]) -> None:
    figures["Timed"].show(number(sum(one.timed for one in counts)), "in the timer wheels")
    figures["Delayed by level"].show(number(sum(sum(one.by_delay_level.values()) for one in counts)))
    figures["Open transactions"].show(number(sum(one.unsettled for one in waiting)), "at most")


async def _delays(view: View) -> list[str]:
    """The delay of each level, as the first master has it set."""
    masters = [status.broker for status in await view.cluster.brokers() if status.broker.is_master]
    if not masters:
        return DEFAULT_LEVELS.split()

    async def read() -> list[str]:
        settings = await view.admin.brokers.settings(masters[0].address)
        return settings.get("messageDelayLevel", DEFAULT_LEVELS).split()

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


def _transaction_rows(waiting: list[OpenTransactions]) -> list[dict[str, Any]]:
    return [
        {
            "id": one.broker_name,
            "broker": one.broker_name,
            "halves": one.half_messages,
            "open": one.unsettled,
            "kinds": {"open": WARN} if one.unsettled else {},
        }
        for one in waiting
    ]
