"""Brokers: roles, versions, rates, disks; one broker with replication, settings and all its figures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nicegui import ui

from orbitmq.admin.errors import AdminError
from orbitmq.dashboard.auth.roles import Role
from orbitmq.dashboard.console import Action
from orbitmq.dashboard.history.series import broker_series
from orbitmq.dashboard.pages.parts.settings import settings_table
from orbitmq.dashboard.subjects.brokers import check_broker
from orbitmq.dashboard.widgets.cards import BAD, GOOD, INFO, PLAIN, WARN, Tile, badge, card, empty, facts, tiles
from orbitmq.dashboard.widgets.charts import PERCENT
from orbitmq.dashboard.widgets.plots import REFRESH_SECONDS, Plots
from orbitmq.dashboard.widgets.tables import Column, DataTable
from orbitmq.dashboard.widgets.text import ago, moment, number, rate, share, size

if TYPE_CHECKING:
    from orbitmq.admin.changes import Change
    from orbitmq.admin.cluster.runtime import BrokerRuntime, BrokerStatus, ReplicationStatus
    from orbitmq.dashboard.pages.view import View

AS_TEXT = "value => value"


async def build(view: View, _: ui.element) -> None:
    """The list of brokers, by cluster."""
    tables: dict[str, DataTable] = {}
    for description in await view.cluster.clusters():
        with card(description.summary.name):
            tables[description.summary.name] = _broker_table(description.summary.name)
    if not tables:
        with card():
            empty("dns", "No broker is registered at the name servers.")

    async def refresh() -> None:
        for description in await view.cluster.clusters():
            if description.summary.name in tables:
                tables[description.summary.name].show([_row(view, one) for one in description.brokers])

    await refresh()
    view.every(REFRESH_SECONDS, refresh)


def _broker_table(cluster: str) -> DataTable:
    return DataTable(
        f"Brokers of {cluster}",
        [
            Column("name", "Broker", sortable=True),
            Column("role", "Role"),
            Column("address", "Address"),
            Column("version", "Version"),
            Column("state", "State"),
            Column("put", "Stored", numeric=True, form=AS_TEXT),
            Column("get", "Delivered", numeric=True, form=AS_TEXT),
            Column("today", "Stored today", numeric=True),
            Column("disk", "Disk used", numeric=True, form=AS_TEXT),
            Column("behind", "Dispatch behind", numeric=True, form=AS_TEXT),
            Column("up", "Running since", form=AS_TEXT),
        ],
        nothing="No broker is registered.",
        icon="dns",
    )


def _row(view: View, status: BrokerStatus) -> dict[str, Any]:
    broker, runtime = status.broker, status.runtime
    row: dict[str, Any] = {
        "id": broker.address,
        "name": broker.broker_name,
        "role": "master" if broker.is_master else f"slave {broker.broker_id}",
        "address": broker.address,
        "state": "up" if runtime is not None else "no response",
        "links": {"name": view.link("brokers", broker.address)},
        "kinds": {
            "role": INFO if broker.is_master else PLAIN,
            "state": GOOD if runtime is not None else BAD,
        },
    }
    if runtime is not None:
        row |= {
            "version": runtime.version,
            "put": rate(runtime.put_tps),
            "get": rate(runtime.get_tps),
            "today": runtime.puts_today,
            "disk": share(runtime.disk_ratio),
            "behind": size(runtime.dispatch_behind_bytes),
            "up": moment(runtime.boot_ms),
        }
    return row


async def build_one(view: View, buttons: ui.element) -> None:
    """One broker, named by its address."""
    address = await check_broker(view.cluster, view.parameters["name"])
    runtime = await view.admin.brokers.runtime(address)
    await _describe(view, address, runtime)
    with tiles():
        figures = {
            name: Tile(name) for name in ("Stored", "Delivered", "Disk used", "Log", "Dispatch behind", "Timed")
        }
    _show(figures, runtime)
    plots = Plots(view.console.history)
    with buttons:
        plots.choice()
    name = view.cluster.name
    with ui.tabs().props("align=left dense no-caps") as tabs:
        for tab in ("Live", "Replication", "Settings", "Runtime"):
            ui.tab(tab)
    with ui.tab_panels(tabs, value="Live").props("keep-alive").style("background: transparent; width: 100%"):
        with ui.tab_panel("Live").style("padding: 0"), ui.element("div").classes("oq-two"):
            plots.add(
                "Messages per second",
                lambda: {
                    "stored": broker_series(name, address, "put_tps"),
                    "delivered": broker_series(name, address, "get_tps"),
                },
            )
            plots.add(
                "Disk used",
                lambda: {"used": broker_series(name, address, "disk")},
                form=PERCENT,
            )
        with ui.tab_panel("Replication").style("padding: 0"):
            await _replication(view, address)
        with ui.tab_panel("Settings").style("padding: 0"):
            await _settings(view, address)
        with ui.tab_panel("Runtime").style("padding: 0"), card("All figures, by RocketMQ's names"):
            table = DataTable(
                "Runtime information",
                [Column("name", "Name", sortable=True), Column("value", "Value", wrapped=True)],
                page_size=200,
            )
            table.show([{"id": key, "name": key, "value": text} for key, text in sorted(runtime.table.items())])

    async def refresh() -> None:
        _show(figures, await view.admin.brokers.runtime(address))
        plots.refresh()

    view.every(REFRESH_SECONDS, refresh)


async def _describe(view: View, address: str, runtime: BrokerRuntime) -> None:
    known = {one.broker.address: one.broker for one in await view.cluster.brokers()}
    with ui.element("div").classes("oq-actions"):
        if (broker := known.get(address)) is not None:
            badge(broker.broker_name)
            badge("master" if broker.is_master else f"slave {broker.broker_id}", INFO)
            badge(f"cluster {broker.cluster}")
        badge(runtime.version)
        ui.label(f"running since {moment(runtime.boot_ms)}").classes("oq-muted")


def _show(figures: dict[str, Tile], runtime: BrokerRuntime) -> None:
    figures["Stored"].show(rate(runtime.put_tps), f"{number(runtime.puts_today)} today")
    figures["Delivered"].show(rate(runtime.get_tps), f"{number(runtime.gets_today)} today")
    figures["Disk used"].show(share(runtime.disk_ratio), f"queues: {share(runtime.queue_disk_ratio)}")
    length = max(runtime.log_max_offset - max(runtime.log_min_offset, 0), 0)
    figures["Log"].show(size(length), f"oldest message {ago(runtime.earliest_message_ms)}")
    figures["Dispatch behind"].show(size(runtime.dispatch_behind_bytes))
    figures["Timed"].show(number(runtime.timer_messages), "messages that wait")


async def _replication(view: View, address: str) -> None:
    try:
        found = await view.admin.brokers.replication(address)
    except AdminError as error:
        with card("Replication"):
            empty("sync_disabled", f"Not reported: {error}")
        return
    with card("Replication"):
        _show_replication(found)


def _show_replication(found: ReplicationStatus) -> None:
    if not found.is_master:
        facts(
            {
                "Master": found.master_address,
                "Behind its flushed log": size(max(found.master_flush_offset - found.log_max_offset, 0)),
                "Receives": f"{size(found.bytes_per_second)}/s",
                "Last read": ago(found.last_read_ms),
            }
        )
        return
    facts({"End of the log": number(found.log_max_offset), "Slaves in sync": found.in_sync_slaves})
    table = DataTable(
        "Slaves",
        [
            Column("address", "Slave"),
            Column("state", "State"),
            Column("lag", "Lag", numeric=True, form=AS_TEXT),
            Column("ack", "Acknowledged offset", numeric=True),
            Column("rate", "Sent", numeric=True, form=AS_TEXT),
        ],
        nothing="No slave is connected.",
        icon="sync",
    )
    table.show(
        [
            {
                "id": slave.address,
                "address": slave.address,
                "state": "in sync" if slave.is_in_sync else "behind",
                "lag": size(slave.lag_bytes),
                "ack": slave.ack_offset,
                "rate": f"{size(slave.bytes_per_second)}/s",
                "kinds": {"state": GOOD if slave.is_in_sync else WARN},
            }
            for slave in found.slaves
        ]
    )


async def _settings(view: View, address: str) -> None:
    async def read() -> dict[str, str]:
        return await view.admin.brokers.settings(address)

    async def change(values: dict[str, str], *, dry_run: bool) -> list[Change]:
        if dry_run:
            return await view.admin.brokers.alter_settings(values, broker=address, dry_run=True)
        action = Action("alter broker settings", f"{address}: {', '.join(sorted(values))}", Role.ADMIN)
        return await view.console.change(
            view.actor,
            view.cluster,
            action,
            lambda: view.admin.brokers.alter_settings(values, broker=address),
        )

    await settings_table(view, "Settings", read, change)
