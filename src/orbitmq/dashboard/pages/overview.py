"""Overview: live rates, health, and where messages wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nicegui import ui

from orbitmq.dashboard.history.series import cluster_series
from orbitmq.dashboard.listing import Query
from orbitmq.dashboard.subjects.groups import list_groups
from orbitmq.dashboard.subjects.overview import overview_of
from orbitmq.dashboard.widgets.cards import BAD, GOOD, WARN, Tile, badge, card, tiles
from orbitmq.dashboard.widgets.plots import REFRESH_SECONDS, Plots
from orbitmq.dashboard.widgets.tables import Column, DataTable
from orbitmq.dashboard.widgets.text import number, rate

if TYPE_CHECKING:
    from orbitmq.dashboard.pages.view import View
    from orbitmq.dashboard.subjects.overview import Overview, Problem

MAX_PROBLEMS = 50
TOP_GROUPS = 8


async def build(view: View, buttons: ui.element) -> None:
    """The page."""
    found = await overview_of(view.cluster)
    with tiles():
        figures = {name: Tile(name) for name in ("Stored", "Delivered", "Lag", "Brokers", "Topics", "Groups")}
    _show(figures, found)
    plots = Plots(view.console.history)
    with buttons:
        plots.choice()
    name = view.cluster.name
    with ui.element("div").classes("oq-two"):
        plots.add(
            "Messages per second",
            lambda: {"stored": cluster_series(name, "put_tps"), "delivered": cluster_series(name, "get_tps")},
        )
        plots.add("Lag of all groups", lambda: {"lag": cluster_series(name, "lag")})
        with card("Health"):
            problems = ui.element("div").style("display: flex; flex-direction: column; gap: 8px")
        with card("Groups that lag most"):
            table = DataTable(
                "Groups that lag most",
                [
                    Column("name", "Group"),
                    Column("topics", "Topics", numeric=True),
                    Column("rate", "Consumed", numeric=True, form="value => value"),
                    Column("lag", "Lag", numeric=True),
                ],
                nothing="No group has consumed anything yet.",
                icon="groups",
            )
    _show_problems(problems, found.problems)
    table.show(await _laggards(view))

    async def refresh() -> None:
        now = await overview_of(view.cluster)
        _show(figures, now)
        _show_problems(problems, now.problems)
        table.show(await _laggards(view))
        plots.refresh()

    view.every(REFRESH_SECONDS, refresh)


def _show(figures: dict[str, Tile], found: Overview) -> None:
    figures["Stored"].show(rate(found.put_tps), f"{number(found.puts_today)} today")
    figures["Delivered"].show(rate(found.get_tps), f"{number(found.gets_today)} today")
    figures["Lag"].show(number(found.lag), "messages not consumed")
    figures["Brokers"].show(f"{found.brokers_up} of {found.brokers}", ", ".join(found.clusters)[:60])
    figures["Topics"].show(number(found.topics))
    figures["Groups"].show(number(found.groups))


def _show_problems(place: ui.element, problems: list[Problem]) -> None:
    place.clear()
    with place:
        if not problems:
            with ui.element("div").classes("oq-problem"):
                badge("healthy", GOOD)
                ui.label("All brokers and name servers respond; no disk is filling up, no group is far behind.")
        for problem in problems[:MAX_PROBLEMS]:
            with ui.element("div").classes("oq-problem"):
                badge(problem.severity, BAD if problem.severity == "critical" else WARN)
                ui.label(f"{problem.subject}: {problem.text}")
        if len(problems) > MAX_PROBLEMS:
            ui.label(f"… and {len(problems) - MAX_PROBLEMS} more").classes("oq-muted")


async def _laggards(view: View) -> list[dict[str, Any]]:
    page = await list_groups(view.cluster, Query(size=TOP_GROUPS, sort="lag", descending=True))
    return [
        {
            "id": group.name,
            "name": group.name,
            "topics": len(group.topics),
            "rate": rate(group.consume_tps or 0.0),
            "lag": group.lag or 0,
            "links": {"name": view.link("groups", group.name)},
        }
        for group in page.rows
    ]
