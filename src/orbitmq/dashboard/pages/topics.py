"""Topics: the list, and one topic with its queues, route, groups, settings, and sending."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from nicegui import ui

from orbitmq.admin.topic.model import MESSAGE_TYPE, TopicKind, TopicSettings, perm_text
from orbitmq.dashboard.history.series import topic_series
from orbitmq.dashboard.listing import MAX_PAGE_SIZE, Query
from orbitmq.dashboard.pages.parts.forms import send_message
from orbitmq.dashboard.subjects.topics import ALL_KINDS, alter_topic, create_topic, delete_topic, list_topics
from orbitmq.dashboard.widgets.buttons import flat, primary
from orbitmq.dashboard.widgets.cards import INFO, PLAIN, WARN, Tile, card, code, tiles
from orbitmq.dashboard.widgets.dialogs import Field, ask, confirm_changes
from orbitmq.dashboard.widgets.plots import REFRESH_SECONDS, Plots
from orbitmq.dashboard.widgets.tables import Column, DataTable, PagedTable
from orbitmq.dashboard.widgets.text import ago, moment, number, rate

if TYPE_CHECKING:
    from orbitmq.admin.topic.model import TopicDescription, TopicPlacement, TopicSummary
    from orbitmq.dashboard.pages.view import View

TYPES = ("NORMAL", "FIFO", "DELAY", "TRANSACTION", "PRIORITY", "UNSPECIFIED")
PERMS = {"6": "read and write", "4": "read only", "2": "write only"}
KINDS = {kind.value: f"{kind.value} topics" for kind in TopicKind} | {ALL_KINDS: "all topics"}
UNCHANGED = "leave as it is"


async def build(view: View, buttons: ui.element) -> None:
    """The list."""
    kind = TopicKind.NORMAL.value

    async def fetch(query: Query) -> tuple[list[dict[str, Any]], int]:
        page = await list_topics(view.cluster, query, kind)
        return [_row(view, topic) for topic in page.rows], page.total

    async def choose(event: Any) -> None:
        nonlocal kind
        kind = str(event.value)
        await table.search(search.value or "")

    if view.may_operate:
        with buttons:
            primary("Create topic", icon="add", on_click=view.do(lambda: _create(view)))
    with card():
        with ui.element("div").classes("oq-filters"):
            search: ui.input = ui.input("Search topics", on_change=lambda event: table.search(event.value or ""))
            search.props("outlined dense clearable debounce=300").classes("oq-search")
            ui.select(KINDS, value=kind, label="Kind", on_change=choose).props("outlined dense")
        table: PagedTable = PagedTable(
            "Topics",
            [
                Column("name", "Topic", sortable=True),
                Column("message_type", "Messages", sortable=True),
                Column("perm", "Access"),
                Column("write_queues", "Write queues", numeric=True, sortable=True),
                Column("read_queues", "Read queues", numeric=True, sortable=True),
                Column("brokers", "Brokers", numeric=True, sortable=True),
                Column("state", "Settings"),
            ],
            fetch,
            sort="name",
            nothing="No topic has this in its name.",
            attempt=view.attempt,
        )
    await table.refresh()


def _row(view: View, topic: TopicSummary) -> dict[str, Any]:
    return {
        "id": topic.name,
        "name": topic.name,
        "message_type": topic.message_type,
        "perm": _access(topic.placements[0].perm) if topic.placements else "–",
        "write_queues": topic.write_queues,
        "read_queues": topic.read_queues,
        "brokers": len(topic.placements),
        "state": "same on all brokers" if topic.is_consistent else "differ between brokers",
        "links": {"name": view.link("topics", topic.name)},
        "kinds": {
            "message_type": PLAIN if topic.message_type == "NORMAL" else INFO,
            **({} if topic.is_consistent else {"state": WARN}),
        },
    }


def _access(perm: int) -> str:
    return PERMS.get(str(perm), perm_text(perm))


async def _create(view: View) -> None:
    names = await view.cluster.cluster_names()
    given = await ask(
        "Create a topic",
        [
            Field(name="name", label="Name", required=True, hint="letters, digits, _ and -, at most 127"),
            Field(name="cluster", label="Cluster", kind="select", value=names[0] if names else "", options=names),
            Field(name="type", label="Messages", kind="select", value="NORMAL", options=TYPES),
            Field(name="queues", label="Queues on each broker", kind="number", value=8),
            Field(name="order", label="Ordered across broker failures (order configuration)", kind="switch"),
        ],
    )
    if given is None:
        return
    name, count = str(given["name"]).strip(), _whole(given["queues"])
    settings = TopicSettings(
        read_queues=count,
        write_queues=count,
        order=bool(given["order"]) or None,
        attributes={} if given["type"] == "NORMAL" else {MESSAGE_TYPE: str(given["type"])},
    )
    where = (str(given["cluster"] or ""), "")
    changes = await create_topic(view.console, view.actor, view.cluster, name, settings, where=where, dry_run=True)
    if await confirm_changes(
        f"Create {name}?",
        changes,
        lambda: create_topic(view.console, view.actor, view.cluster, name, settings, where=where),
    ):
        ui.navigate.to(view.link("topics", name))


def _whole(value: Any) -> int | None:
    return None if value is None or value == "" else int(value)


# One topic


async def build_one(view: View, buttons: ui.element) -> None:
    """One topic."""
    name = view.parameters["name"]
    topic = await view.cluster.topic(name)
    plots = Plots(view.console.history)
    with buttons:
        _buttons(view, topic, plots)
    with tiles():
        figures = {label: Tile(label) for label in ("Messages", "Stored", "Queues", "Last message", "Groups")}
    with ui.element("div").classes("oq-two"):
        plots.add(
            "Messages stored per second",
            lambda: {"stored": topic_series(view.cluster.name, name, "put_tps")},
        )
        with card("Groups that consume it"):
            groups = DataTable(
                "Groups",
                [
                    Column("name", "Group"),
                    Column("rate", "Consumed", numeric=True, form="value => value"),
                    Column("lag", "Lag of the group", numeric=True),
                ],
                nothing="No group consumes this topic.",
                icon="groups",
            )
    with card("Queues"):
        queues = _queue_table()
    with ui.element("div").classes("oq-two"):
        with card("Settings at each broker"):
            _placement_table().show([_placement_row(place) for place in topic.placements])
        with card("Route"):
            route = await view.admin.topics.route(name)
            code(json.dumps(route.to_json(), indent=2, ensure_ascii=False))

    async def refresh() -> None:
        now = await view.cluster.topic(name)
        first = await view.cluster.first_times(name)
        figures["Stored"].show(rate(now.put_tps))
        figures["Queues"].show(number(len(now.queues)), _count(len(now.addresses), "broker"))
        oldest = min((one for one in first.values() if one > 0), default=0)
        figures["Messages"].show(number(now.messages), f"oldest {ago(oldest)}" if oldest else "stored now")
        figures["Last message"].show(ago(now.last_update_ms), moment(now.last_update_ms))
        figures["Groups"].show(number(len(now.groups)))
        queues.show([_queue_row(view, now, at, first) for at in range(len(now.queues))])
        groups.show(await _group_rows(view, now.groups))
        plots.refresh()

    await refresh()
    view.every(REFRESH_SECONDS, refresh)


def _count(count: int, thing: str) -> str:
    return f"on {number(count)} {thing}{'' if count == 1 else 's'}"


def _buttons(view: View, topic: TopicDescription, plots: Plots) -> None:
    plots.choice()
    flat("Messages", icon="mail", on_click=lambda: ui.navigate.to(view.link("messages", topic=topic.name)))
    if view.may_operate:
        flat("Send", icon="send", on_click=view.do(lambda: send_message(view, topic.name)))
        flat("Alter", icon="edit", on_click=view.do(lambda: _alter(view, topic)))
    if view.may_administer:
        flat("Delete", icon="delete", on_click=view.do(lambda: _delete(view, topic.name)), danger=True)


def _queue_table() -> DataTable:
    return DataTable(
        "Queues",
        [
            Column("broker", "Broker", sortable=True),
            Column("queue", "Queue", numeric=True, sortable=True),
            Column("min", "First offset", numeric=True),
            Column("max", "Next offset", numeric=True),
            Column("messages", "Messages", numeric=True, sortable=True),
            Column("first", "First message"),
            Column("last", "Last message"),
            Column("look", ""),
        ],
        nothing="No broker that responds has queues of this topic.",
        page_size=50,
    )


def _queue_row(view: View, topic: TopicDescription, at: int, first: dict[tuple[str, int], int]) -> dict[str, Any]:
    queue = topic.queues[at]
    search = view.link("messages", topic=topic.name, broker=queue.broker_name, queue=queue.queue_id)
    return {
        "id": f"{queue.broker_name}:{queue.queue_id}",
        "broker": queue.broker_name,
        "queue": queue.queue_id,
        "min": queue.min_offset,
        "max": queue.max_offset,
        "messages": queue.messages,
        "first": moment(first.get((queue.broker_name, queue.queue_id), 0)) if queue.messages else "–",
        "last": moment(queue.last_update_ms),
        "look": "messages",
        "links": {"look": search},
    }


def _placement_table() -> DataTable:
    return DataTable(
        "Settings",
        [
            Column("broker", "Broker"),
            Column("perm", "Access"),
            Column("read", "Read queues", numeric=True),
            Column("write", "Write queues", numeric=True),
            Column("order", "Ordered"),
            Column("attributes", "Attributes", wrapped=True),
        ],
        nothing="No broker has settings of this topic.",
    )


def _placement_row(place: TopicPlacement) -> dict[str, Any]:
    return {
        "id": place.broker_name,
        "broker": place.broker_name,
        "perm": _access(place.perm),
        "read": place.read_queues,
        "write": place.write_queues,
        "order": "yes" if place.order else "no",
        "attributes": ", ".join(f"{name}={value}" for name, value in sorted(place.attributes.items())) or "–",
    }


async def _group_rows(view: View, names: tuple[str, ...]) -> list[dict[str, Any]]:
    wanted = set(names[:MAX_PAGE_SIZE])
    known = {group.name: group for group in await view.cluster.groups()} if wanted else {}
    rows = []
    for name in sorted(wanted):
        group = known.get(name)
        rows.append(
            {
                "id": name,
                "name": name,
                "rate": rate(group.consume_tps or 0.0) if group else "–",
                "lag": group.lag if group else None,
                "links": {"name": view.link("groups", name)},
            }
        )
    return rows


async def _alter(view: View, topic: TopicDescription) -> None:
    place = topic.placements[0] if topic.placements else None
    given = await ask(
        f"Alter {topic.name}",
        [
            Field(name="read", label="Read queues", kind="number", value=place.read_queues if place else None),
            Field(name="write", label="Write queues", kind="number", value=place.write_queues if place else None),
            Field(
                name="perm",
                label="Access",
                kind="select",
                value=str(place.perm) if place and str(place.perm) in PERMS else "6",
                options=PERMS,
            ),
            Field(
                name="type",
                label="Messages",
                kind="select",
                value=UNCHANGED,
                options=(UNCHANGED, *TYPES),
            ),
        ],
        text="On each broker that has the topic. Fewer read queues hide the messages in the others.",
    )
    if given is None:
        return
    settings = TopicSettings(
        read_queues=_whole(given["read"]),
        write_queues=_whole(given["write"]),
        perm=int(given["perm"]),
        attributes={} if given["type"] == UNCHANGED else {MESSAGE_TYPE: str(given["type"])},
    )
    changes = await alter_topic(view.console, view.actor, view.cluster, topic.name, settings, dry_run=True)
    if await confirm_changes(
        f"Alter {topic.name}?",
        changes,
        lambda: alter_topic(view.console, view.actor, view.cluster, topic.name, settings),
    ):
        ui.navigate.reload()


async def _delete(view: View, name: str) -> None:
    changes = await delete_topic(view.console, view.actor, view.cluster, name, dry_run=True)
    if await confirm_changes(
        f"Delete {name} with its messages?",
        changes,
        lambda: delete_topic(view.console, view.actor, view.cluster, name),
        typed=name,
    ):
        ui.navigate.to(view.link("topics"))
