"""One member of a group: what it runs with, what it holds, and the stacks of its threads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nicegui import ui

from orbitmq.dashboard.widgets.buttons import primary
from orbitmq.dashboard.widgets.cards import card, code, heading
from orbitmq.dashboard.widgets.tables import Column, DataTable
from orbitmq.dashboard.widgets.text import moment

if TYPE_CHECKING:
    from orbitmq.dashboard.pages.view import View
    from orbitmq.protocol.bodies import ConsumerRunningInfo


async def show_member(view: View, group: str, client_id: str) -> None:
    """A dialog with the running info of a client."""
    info = await view.admin.members.running_info(group, client_id, with_stacks=True)
    with ui.dialog() as dialog, ui.element("div").classes("oq-dialog").style("width: 1000px"):
        dialog.props["aria-label"] = f"Running info of {client_id}"
        heading(client_id)
        _content(info)
        with ui.element("div").classes("oq-dialog-buttons"):
            primary("Close", on_click=dialog.close)
    dialog.on("hide", dialog.delete)
    dialog.open()


def _content(info: ConsumerRunningInfo) -> None:
    with card("Queues that it holds"):
        table = DataTable(
            "Queues",
            [
                Column("queue", "Queue"),
                Column("cached", "In memory", numeric=True),
                Column("commit", "Commits up to", numeric=True),
                Column("last", "Last pull"),
            ],
            nothing="It holds no queue.",
        )
        table.show(
            [
                {
                    "id": f"{queue.topic} {queue.broker_name}:{queue.queue_id}",
                    "queue": f"{queue.topic} {queue.broker_name}:{queue.queue_id}",
                    "cached": one.cached_msg_count,
                    "commit": one.commit_offset,
                    "last": moment(one.last_pull_timestamp),
                }
                for queue, one in info.mq_table.items()
            ]
        )
    with card("Rates by topic"):
        table = DataTable(
            "Rates",
            [
                Column("topic", "Topic"),
                Column("pull", "Pulled/s", numeric=True),
                Column("ok", "Consumed/s", numeric=True),
                Column("failed", "Failed/s", numeric=True),
                Column("time", "Time each, ms", numeric=True),
            ],
            nothing="It has consumed nothing yet.",
        )
        table.show(
            [
                {
                    "id": topic,
                    "topic": topic,
                    "pull": one.pull_tps,
                    "ok": one.consume_ok_tps,
                    "failed": one.consume_failed_tps,
                    "time": one.consume_rt,
                }
                for topic, one in info.status_table.items()
            ]
        )
    with card("Properties"):
        code("\n".join(f"{name} = {value}" for name, value in sorted(info.properties.items())))
    with card("Stacks of its threads"):
        code(info.jstack or "The client sent none.", wide=True)
