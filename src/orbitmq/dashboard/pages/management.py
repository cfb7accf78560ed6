"""The console itself: audit log, users, the own password."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nicegui import ui

from orbitmq.dashboard import jobs
from orbitmq.dashboard.auth.roles import Role
from orbitmq.dashboard.subjects import management
from orbitmq.dashboard.widgets.buttons import primary
from orbitmq.dashboard.widgets.cards import BAD, GOOD, INFO, PLAIN, card
from orbitmq.dashboard.widgets.dialogs import Field, ask, confirm
from orbitmq.dashboard.widgets.tables import Column, DataTable, PagedTable, action
from orbitmq.dashboard.widgets.text import moment, number

if TYPE_CHECKING:
    from orbitmq.dashboard.jobs import Job
    from orbitmq.dashboard.listing import Query
    from orbitmq.dashboard.pages.view import View

ROLE_NOTES = {
    Role.VIEWER.value: "viewer: reads everything",
    Role.OPERATOR.value: "operator: creates, alters, sends, resets",
    Role.ADMIN.value: "admin: deletes, changes servers and users",
}
KEEP = "leave empty to keep it"


async def build_audit(view: View, _: ui.element) -> None:
    """The audit log."""

    async def fetch(query: Query) -> tuple[list[dict[str, Any]], int]:
        page = management.list_audit(view.console, view.actor, query)
        first = (query.page - 1) * query.size
        rows = [
            {
                "id": first + at,
                "time_ms": moment(entry.time_ms),
                "user": entry.user,
                "address": entry.address,
                "cluster": entry.cluster or "–",
                "action": entry.action,
                "target": entry.target or "–",
                "result": entry.result,
                "kinds": {"result": GOOD} if entry.result == "ok" else {},
            }
            for at, entry in enumerate(page.rows)
        ]
        return rows, page.total

    with card():
        search = ui.input("Search", on_change=lambda event: table.search(event.value or ""))
        search.props("outlined dense clearable debounce=300").classes("oq-search")
        table: PagedTable = PagedTable(
            "Audit log",
            [
                Column("time_ms", "Time", sortable=True),
                Column("user", "User", sortable=True),
                Column("address", "From"),
                Column("cluster", "Cluster"),
                Column("action", "Action"),
                Column("target", "Target", wrapped=True),
                Column("result", "Result", wrapped=True),
            ],
            fetch,
            sort="time_ms",
            descending=True,
            nothing="Nothing was done yet.",
            attempt=view.attempt,
        )
    await table.refresh()


async def build_jobs(view: View, _: ui.element) -> None:
    """The jobs."""

    async def cancel(_: str, number: str) -> None:
        if await view.attempt(management.cancel_job(view.console, view.actor, int(number))):
            await refresh()

    with card():
        table = DataTable(
            "Jobs",
            [
                Column("begun", "Begun"),
                Column("user", "User"),
                Column("cluster", "Cluster"),
                Column("action", "Action"),
                Column("target", "Target", wrapped=True),
                Column("progress", "Progress"),
                Column("failed", "Failed", numeric=True),
                Column("state", "State", wrapped=True),
            ],
            nothing="No job has run since the console was started. Resending many dead letters is one.",
            icon="pending_actions",
            on_action=cancel,
        )

    async def refresh() -> None:
        table.show([_job_row(job) for job in management.list_jobs(view.console, view.actor)])

    await refresh()
    view.every(2.0, refresh)


def _job_row(job: Job) -> dict[str, Any]:
    state = {jobs.RUNNING: INFO, jobs.DONE: GOOD, jobs.CANCELLED: PLAIN}.get(job.state, BAD)
    return {
        "id": job.number,
        "begun": moment(job.begun_ms),
        "user": job.user,
        "cluster": job.cluster,
        "action": job.action,
        "target": job.target,
        "progress": f"{number(job.done)} of {number(job.total)}",
        "failed": job.failed,
        "state": job.state,
        "kinds": {"state": state, **({"failed": BAD} if job.failed else {})},
        "actions": [action("cancel", "cancel", "Cancel job")] if job.state == jobs.RUNNING else [],
    }


async def build_users(view: View, buttons: ui.element) -> None:
    """The users."""

    table: DataTable

    async def on_action(name: str, user: str) -> None:
        await view.attempt(_put(view, table, user) if name == "edit" else _delete(view, table, user))

    with buttons:
        primary("Add user", icon="person_add", on_click=view.do(lambda: _put(view, table, "")))
    with card():
        table = DataTable(
            "Users",
            [Column("name", "User", sortable=True), Column("role", "Role", sortable=True)],
            on_action=on_action,
        )
    _show_users(view, table)


def _show_users(view: View, table: DataTable) -> None:
    table.show(
        [
            {
                "id": user.name,
                "name": user.name,
                "role": user.role.value,
                "kinds": {
                    "role": BAD if user.role is Role.ADMIN else INFO if user.role is Role.OPERATOR else PLAIN
                },
                "actions": [action("edit", "edit", "Change"), action("delete", "delete", "Delete")],
            }
            for user in management.list_users(view.console, view.actor)
        ]
    )


async def _put(view: View, table: DataTable, name: str) -> None:
    user = view.console.users.get(name)
    given = await ask(
        f"Change {name}" if user else "Add a user",
        [
            *([] if user else [Field(name="name", label="Name", required=True)]),
            Field(
                name="role",
                label="Role",
                kind="select",
                value=user.role.value if user else Role.VIEWER.value,
                options=ROLE_NOTES,
            ),
            Field(
                name="password", label="Password", kind="password", hint=KEEP if user else "8 characters or more"
            ),
        ],
        button="Save",
    )
    if given is None:
        return
    chosen = name or str(given["name"]).strip()
    password = str(given["password"] or "") or None
    await management.put_user(view.console, view.actor, chosen, Role(given["role"]), password)
    _show_users(view, table)


async def _delete(view: View, table: DataTable, name: str) -> None:
    if await confirm(f"Delete the user {name}?", ["Its sessions end at once."], button="Delete"):
        await management.delete_user(view.console, view.actor, name)
        _show_users(view, table)


async def build_password(view: View, _: ui.element) -> None:
    """The own password."""
    with card():
        old = ui.input("Current password", password=True).props("outlined dense autocomplete=current-password")
        new = ui.input("New password", password=True).props("outlined dense autocomplete=new-password")
        again = ui.input("New password again", password=True).props("outlined dense autocomplete=new-password")
        for field in (old, new, again):
            field.style("max-width: 360px")

        async def change() -> None:
            if new.value != again.value:
                raise ValueError("the two new passwords differ")
            await management.change_password(view.console, view.actor, old.value or "", new.value or "")
            ui.navigate.to("/login")

        primary("Change password", on_click=view.do(change)).style("width: fit-content")
        ui.label("All your sessions end; sign in with the new password.").classes("oq-muted")
