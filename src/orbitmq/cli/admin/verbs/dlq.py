"""``orbitmq dlq``: dead letters of groups, listed, shown and sent again."""

from typing import Annotated

import typer

from orbitmq.cli.admin.framework.arguments import Format, From, Group, To
from orbitmq.cli.admin.framework.formats import message_format
from orbitmq.cli.admin.framework.operator import FAILED, ChangeOptions, Operator, confirm, verb
from orbitmq.cli.admin.framework.view import Table, View
from orbitmq.cli.admin.verbs.message import show_messages
from orbitmq.cli.time_expressions import parse_time

dlq_app = typer.Typer(help="Dead letters: list, show, resend.", no_args_is_help=True)

Count = Annotated[int | None, typer.Option(min=1, help="Maximum number of messages.")]


@verb(dlq_app, "list")
async def list_queues(operator: Operator) -> View:
    """List groups with dead letters."""
    found = await operator.admin.dead_letters.all()
    rows = [(one.group, one.messages, one.last_update_ms) for one in found]
    return View.of(Table("group messages> lastUpdateMs@", rows, "no group has dead letters"))


@verb(dlq_app, "kinds")
async def kinds(operator: Operator, group: Group, begin: From = "", end: To = "") -> View:
    """Count the dead letters of a group by topic, tag and retries."""
    found = await operator.admin.dead_letters.kinds(
        group, begin_ms=parse_time(begin) if begin else None, end_ms=parse_time(end) if end else None
    )
    rows = [(one.origin, one.tag, one.retries, one.count, one.first_ms, one.last_ms) for one in found]
    empty = f"the group {group} has no dead letters of that time"
    return View.of(Table("topic tag retries> messages> firstMs@ lastMs@", rows, empty))


@verb(dlq_app, "show")
async def show(
    operator: Operator, group: Group, begin: From = "", end: To = "", count: Count = None, layout: Format = ""
) -> View | None:
    """Print the dead letters of a group."""
    message_format(layout)
    found = operator.admin.dead_letters.read(
        group,
        begin_ms=parse_time(begin) if begin else None,
        end_ms=parse_time(end) if end else None,
        limit=count,
    )
    return await show_messages(operator, found, layout, f"the group {group} has no dead letters of that time")


@verb(dlq_app, "resend")
async def resend(
    operator: Operator,
    group: Group,
    change: ChangeOptions,
    message_id: Annotated[
        str, typer.Option("--id", metavar="MSGID", help="Only this message; also its id before it was retried.")
    ] = "",
    target: Annotated[str, typer.Option("--to", help="Topic to send to; by default the original one.")] = "",
    begin: From = "",
    end: To = "",
    count: Count = None,
) -> View:
    """Send dead letters of a group again: one, those of a time, or all. They stay among the dead letters too."""
    if not change.dry_run and not change.yes:
        confirm(f"send the dead letters of the group {group} again")
    results = await operator.admin.dead_letters.resend(
        group,
        message_id=message_id,
        topic=target,
        begin_ms=parse_time(begin) if begin else None,
        end_ms=parse_time(end) if end else None,
        limit=count,
        dry_run=change.dry_run,
    )
    failed = sum(bool(one.error) for one in results)
    note = "dry run: nothing was sent" if change.dry_run else f"{failed} could not be sent" if failed else ""
    rows = [(one.offset_message_id, one.topic, one.message_id, one.error) for one in results]
    table = Table("deadLetter topic newMessage error", rows, f"the group {group} has no dead letters of that time")
    return View({"": table}, note, FAILED if failed else 0)
