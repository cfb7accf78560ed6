"""Consumer groups: the list, and one group with members, lag, subscriptions and settings."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from nicegui import ui

from orbitmq.admin.group.model import GroupSettings
from orbitmq.dashboard.history.series import group_series, queue_series
from orbitmq.dashboard.pages.parts.forms import reset_group
from orbitmq.dashboard.pages.parts.member import show_member
from orbitmq.dashboard.subjects.groups import delete_group, list_groups, put_group, settings_of
from orbitmq.dashboard.subjects.live import events
from orbitmq.dashboard.widgets.buttons import flat, primary
from orbitmq.dashboard.widgets.cards import BAD, GOOD, PLAIN, WARN, Tile, badge, card, empty, facts, tiles
from orbitmq.dashboard.widgets.dialogs import Field, ask, confirm_changes
from orbitmq.dashboard.widgets.plots import REFRESH_SECONDS, Plots
from orbitmq.dashboard.widgets.tables import Column, DataTable, PagedTable, action
from orbitmq.dashboard.widgets.text import moment, number, rate
from orbitmq.protocol.names import RETRY_PREFIX

if TYPE_CHECKING:
    from orbitmq.admin.group.model import GroupDescription, GroupSummary, QueueLag
    from orbitmq.dashboard.listing import Query
    from orbitmq.dashboard.pages.view import View

AS_TEXT = "value => value"
MAX_LINES = 4
"""Queues in one plot: those that lag most."""
HISTORY_KINDS = "CONSUMER_JOIN,CONSUMER_LEAVE,REBALANCE,GROUP_CREATE,GROUP_CHANGE,GROUP_DELETE"


async def build(view: View, buttons: ui.element) -> None:
    """The list."""
    with_system = False

    async def fetch(query: Query) -> tuple[list[dict[str, Any]], int]:
        page = await list_groups(view.cluster, query, with_system=with_system)
        return [_row(view, group) for group in page.rows], page.total

    async def choose(event: Any) -> None:
        nonlocal with_system
        with_system = bool(event.value)
        await table.search(search.value or "")

    if view.may_operate:
        with buttons:
            primary("Create group", icon="add", on_click=view.do(lambda: _create(view)))
    with card():
        with ui.element("div").classes("oq-filters"):
            search: ui.input = ui.input("Search groups", on_change=lambda event: table.search(event.value or ""))
            search.props("outlined dense clearable debounce=300").classes("oq-search")
            ui.switch("RocketMQ's own groups", on_change=choose)
        table: PagedTable = PagedTable(
            "Groups",
            [
                Column("name", "Group", sortable=True),
                Column("topics", "Topics", numeric=True, sortable=True),
                Column("consume_tps", "Consumed", numeric=True, sortable=True, form=AS_TEXT),
                Column("inflight", "In flight", numeric=True, sortable=True),
                Column("lag", "Lag", numeric=True, sortable=True),
                Column("brokers", "Brokers", numeric=True),
            ],
            fetch,
            sort="lag",
            descending=True,
            nothing="No group found. A group appears when it is created, or when its first member connects.",
            attempt=view.attempt,
        )
    await table.refresh()
    view.every(REFRESH_SECONDS * 2, table.refresh)


def _row(view: View, group: GroupSummary) -> dict[str, Any]:
    return {
        "id": group.name,
        "name": group.name,
        "topics": len(group.topics),
        "consume_tps": "–" if group.consume_tps is None else rate(group.consume_tps),
        "inflight": group.inflight,
        "lag": group.lag,
        "brokers": len(group.placements),
        "links": {"name": view.link("groups", group.name)},
    }


async def _create(view: View) -> None:
    names = await view.cluster.cluster_names()
    given = await ask(
        "Create a group",
        [
            Field(name="name", label="Name", required=True),
            Field(name="cluster", label="Cluster", kind="select", value=names[0] if names else "", options=names),
            Field(name="retries", label="Maximum of retries", kind="number", value=16),
            Field(name="orderly", label="Consume in order", kind="switch"),
        ],
    )
    if given is None:
        return
    name = str(given["name"]).strip()
    settings = GroupSettings(
        retry_max_times=int(given["retries"]), consume_message_orderly=bool(given["orderly"]) or None
    )
    where = str(given["cluster"] or "")

    def work(*, dry_run: bool = False) -> Any:
        return put_group(
            view.console,
            view.actor,
            view.cluster,
            name,
            settings,
            is_new=True,
            in_cluster=where,
            dry_run=dry_run,
        )

    if await confirm_changes(f"Create {name}?", await work(dry_run=True), work):
        ui.navigate.to(view.link("groups", name))


# One group


async def build_one(view: View, buttons: ui.element) -> None:
    """One group."""
    name = view.parameters["name"]
    group = await view.cluster.group(name)
    if view.console.sampler is not None:
        view.console.sampler.watch(view.cluster.name, name)
    plots = Plots(view.console.history)
    with buttons:
        _buttons(view, group, plots)
    with tiles():
        figures = {label: Tile(label) for label in ("Lag", "Consumed", "In flight", "Members", "Dead letters")}
    latest: list[QueueLag] = []
    cluster = view.cluster.name
    with ui.element("div").classes("oq-two"):
        plots.add("Lag", lambda: {"lag": group_series(cluster, name, "lag")})
        plots.add("Lag of the queues that lag most", lambda: _queue_lines(cluster, name, latest))
    with card("Members"):
        members = _member_table(view, name)
        subscriptions = ui.element("div")
    with card("Progress by queue"):
        queues = _lag_table()
    with ui.element("div").classes("oq-two"):
        with card("Settings at each broker"):
            _settings_table(group)
        with card("History"):
            await _history(view, name)

    async def refresh() -> None:
        now = await view.cluster.group(name)
        count = len(now.connections.members) if now.connections else 0
        figures["Lag"].show(number(now.lag.lag), "messages not consumed")
        figures["Consumed"].show(rate(now.lag.consume_tps))
        figures["In flight"].show(number(now.lag.inflight), "delivered, not confirmed")
        figures["Members"].show(
            number(count), now.connections.message_model.lower() if now.connections else "offline"
        )
        figures["Dead letters"].show(number(now.dead_letters))
        latest[:] = now.lag.queues
        members.show(_member_rows(now))
        queues.show([_lag_row(view, queue) for queue in now.lag.queues])
        subscriptions.clear()
        with subscriptions:
            _subscriptions(now)
        plots.refresh()

    await refresh()
    view.every(REFRESH_SECONDS, refresh)


def _buttons(view: View, group: GroupDescription, plots: Plots) -> None:
    plots.choice()
    name = group.name
    if group.dead_letters:
        flat(
            "Dead letters",
            icon="unsubscribe",
            on_click=lambda: ui.navigate.to(view.link("dead-letters", name)),
        )
    if view.may_operate:

        async def reset() -> None:
            topics = sorted({queue.topic for queue in group.lag.queues})
            await reset_group(view, name, topics)

        flat("Reset offsets", icon="restart_alt", on_click=view.do(reset))
        flat("Alter", icon="edit", on_click=view.do(lambda: _alter(view, group)))
    if view.may_administer:
        flat("Delete", icon="delete", on_click=view.do(lambda: _delete(view, name)), danger=True)


def _queue_lines(cluster: str, group: str, queues: list[QueueLag]) -> dict[str, str]:
    # Those of a topic before those for retries, where all lag the same.
    ordered = sorted(queues, key=lambda queue: (-queue.lag, queue.topic.startswith(RETRY_PREFIX)))
    chosen = ordered[:MAX_LINES]
    only_one = len({one.topic for one in chosen}) == 1
    return {
        f"{'' if only_one else f'{one.topic} '}{one.broker_name}:{one.queue_id}": queue_series(
            cluster, group, (one.topic, one.broker_name, one.queue_id)
        )
        for one in chosen
    }


def _member_table(view: View, group: str) -> DataTable:
    async def look(_: str, client_id: str) -> None:
        await view.attempt(show_member(view, group, client_id))

    return DataTable(
        "Members",
        [
            Column("client", "Client"),
            Column("address", "Address"),
            Column("language", "Language"),
            Column("version", "Version"),
            Column("queues", "Queues", numeric=True),
        ],
        nothing="No member is connected.",
        icon="person_off",
        on_action=look,
    )


def _member_rows(group: GroupDescription) -> list[dict[str, Any]]:
    if group.connections is None:
        return []
    return [
        {
            "id": member.client_id,
            "client": member.client_id,
            "address": member.address,
            "language": member.language,
            "version": member.version,
            "queues": sum(queue.client_id == member.client_id for queue in group.lag.queues),
            "actions": [action("look", "troubleshoot", "Running info of")],
        }
        for member in group.connections.members
    ]


def _subscriptions(group: GroupDescription) -> None:
    if group.connections is None or group.check is None:
        return
    with ui.element("div").classes("oq-problem").style("margin-bottom: 8px"):
        if not group.check.agree:
            badge("members subscribe differently", BAD)
            ui.label("Messages are lost while they do: all members must subscribe to the same topics and filters.")
        elif group.check.unknown and not group.check.by_member:
            badge("not compared", WARN)
            ui.label("No member reported its subscriptions.")
        else:
            badge("subscriptions agree", GOOD)
    if group.check.agree:
        facts({one.topic: f"{one.expression} ({one.expression_type})" for one in group.connections.subscriptions})
        return
    for client, found in group.check.by_member.items():
        facts({client: ", ".join(f"{one.topic}: {one.expression}" for one in found)})


def _lag_table() -> DataTable:
    return DataTable(
        "Progress by queue",
        [
            Column("topic", "Topic", sortable=True),
            Column("broker", "Broker", sortable=True),
            Column("queue", "Queue", numeric=True, sortable=True),
            Column("consumed", "Consumed up to", numeric=True),
            Column("end", "End", numeric=True),
            Column("inflight", "In flight", numeric=True, sortable=True),
            Column("lag", "Lag", numeric=True, sortable=True),
            Column("last", "Last consumed"),
            Column("client", "Member"),
        ],
        nothing="The group has consumed nothing yet.",
        icon="hourglass_empty",
        page_size=50,
    )


def _lag_row(view: View, queue: QueueLag) -> dict[str, Any]:
    return {
        "id": f"{queue.topic} {queue.broker_name}:{queue.queue_id}",
        "topic": queue.topic,
        "broker": queue.broker_name,
        "queue": queue.queue_id,
        "consumed": queue.consumer_offset,
        "end": queue.broker_offset,
        "inflight": queue.inflight,
        "lag": queue.lag,
        "last": moment(queue.last_timestamp_ms),
        "client": queue.client_id or "–",
        "links": {"topic": view.link("topics", queue.topic)},
        "kinds": {"lag": WARN} if queue.lag and not queue.client_id else {},
    }


def _settings_table(group: GroupDescription) -> None:
    by_broker = settings_of(group)
    brokers = sorted(by_broker)
    rows = []
    for name in sorted({name for one in by_broker.values() for name in one}):
        values = [_setting(by_broker[broker].get(name)) for broker in brokers]
        differ = len(set(values)) > 1
        cells = {f"broker-{at}": value for at, value in enumerate(values)}
        rows.append({"id": name, "setting": name, **cells, "kinds": dict.fromkeys(cells, WARN) if differ else {}})
    table = DataTable(
        "Settings",
        [
            Column("setting", "Setting"),
            *(Column(f"broker-{at}", broker, clipped=True) for at, broker in enumerate(brokers)),
        ],
        nothing="No broker has settings of this group.",
    )
    table.show(rows)


def _setting(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return "–" if text in {"", "{}", "null"} else text


async def _history(view: View, group: str) -> None:
    found = await events(view.cluster, kinds=HISTORY_KINDS, limit=1000)
    own = [one for one in found.events if one.subject == group][:100]
    if not own:
        empty("history", found.reason or "No member joined or left lately.")
        return
    table = DataTable(
        "History",
        [Column("time", "Time"), Column("kind", "Event"), Column("detail", "Detail", wrapped=True)],
        page_size=25,
    )
    table.show(
        [
            {
                "id": f"{one.address} {one.sequence}",
                "time": moment(one.timestamp_ms),
                "kind": one.kind.lower().replace("_", " "),
                "detail": one.detail,
                "kinds": {"kind": PLAIN},
            }
            for one in own
        ]
    )


async def _alter(view: View, group: GroupDescription) -> None:
    config = group.placements[0].config if group.placements else None
    given = await ask(
        f"Alter {group.name}",
        [
            Field(
                name="enable",
                label="Consumption enabled",
                kind="switch",
                value=config is None or config.consume_enable,
            ),
            Field(
                name="retries",
                label="Maximum of retries",
                kind="number",
                value=config.retry_max_times if config else 16,
            ),
            Field(
                name="queues", label="Retry queues", kind="number", value=config.retry_queue_nums if config else 1
            ),
            Field(
                name="orderly",
                label="Consume in order",
                kind="switch",
                value=config is not None and config.consume_message_orderly,
            ),
        ],
    )
    if given is None:
        return
    settings = GroupSettings(
        consume_enable=bool(given["enable"]),
        retry_max_times=int(given["retries"]),
        retry_queue_nums=int(given["queues"]),
        consume_message_orderly=bool(given["orderly"]),
    )

    def work(*, dry_run: bool = False) -> Any:
        return put_group(
            view.console, view.actor, view.cluster, group.name, settings, is_new=False, dry_run=dry_run
        )

    if await confirm_changes(f"Alter {group.name}?", await work(dry_run=True), work):
        ui.navigate.reload()


async def _delete(view: View, name: str) -> None:
    changes = await delete_group(view.console, view.actor, view.cluster, name, dry_run=True)
    if await confirm_changes(
        f"Delete {name} with its offsets and dead letters?",
        changes,
        lambda: delete_group(view.console, view.actor, view.cluster, name),
        typed=name,
    ):
        ui.navigate.to(view.link("groups"))
