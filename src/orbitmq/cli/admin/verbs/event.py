"""``orbitmq event``: the history that brokers keep of themselves."""

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from orbitmq.cli.admin.framework.arguments import AtBroker
from orbitmq.cli.admin.framework.operator import Operator, command_of, verb
from orbitmq.cli.admin.framework.view import Output, Table, View
from orbitmq.cli.output import print_json_line, printable, time_text
from orbitmq.cli.time_expressions import TIME_HELP, parse_time

if TYPE_CHECKING:
    from orbitmq.admin.cluster.events import Event

event_app = typer.Typer(help="Events of brokers: joins, leaves, rebalances, role changes, refused requests.")

POLL_SECONDS = 1.0


@verb(event_app, "list")
async def list_events(
    operator: Operator,
    since: Annotated[str, typer.Option(metavar="TIME", help=f"Only events since TIME: {TIME_HELP}.")] = "0",
    kind: Annotated[
        list[str] | None, typer.Option(help="Only of this kind, REBALANCE for example; repeatable.")
    ] = None,
    count: Annotated[int, typer.Option(min=1, max=1000, help="Maximum number: the newest.")] = 100,
    follow: Annotated[bool, typer.Option("--follow", "-F", help="Print new events until Ctrl-C.")] = False,
    broker: AtBroker = "",
) -> View | None:
    """List events of brokers by time. Apache's brokers keep no history."""
    begin, kinds = parse_time(since), tuple(kind or ())
    found = await operator.admin.events.read(broker=broker, since_ms=begin, kinds=kinds, limit=count)
    if not follow:
        rows = [(one.timestamp_ms, one.broker_name, one.kind, one.subject, one.detail) for one in found]
        return View.of(Table("timeMs@ broker kind subject detail", rows, "no event of that time"))
    seen: dict[str, int] = {}
    while True:
        for one in found:
            seen[one.address] = max(seen.get(one.address, 0), one.sequence)
            _print(one, operator.output)
        await asyncio.sleep(POLL_SECONDS)
        found = await operator.admin.events.read(broker=broker, since_ms=begin, kinds=kinds, after=seen)


def _print(one: "Event", output: Output) -> None:
    if output is Output.TABLE:
        words = (time_text(one.timestamp_ms), one.broker_name, one.kind, one.subject, one.detail)
        print("  ".join(printable(word) for word in words if word), flush=True)
    else:
        print_json_line(
            {
                "timeMs": one.timestamp_ms,
                "broker": one.broker_name,
                "kind": one.kind,
                "subject": one.subject,
                "detail": one.detail,
            }
        )


events = command_of(list_events)
