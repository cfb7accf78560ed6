"""``orbitmq client``: connected producers and consumers, and what one consumer is doing."""

from typing import Annotated

import typer

from orbitmq.cli.admin.framework.arguments import AtBroker, Group
from orbitmq.cli.admin.framework.completion import complete_group
from orbitmq.cli.admin.framework.operator import Operator, verb
from orbitmq.cli.admin.framework.view import Pairs, Table, View

client_app = typer.Typer(help="Clients: list, describe.", no_args_is_help=True)


@verb(client_app, "list")
async def list_clients(
    operator: Operator,
    group: Annotated[
        str, typer.Option("--group", "-g", help="Only of this group.", autocompletion=complete_group)
    ] = "",
    broker: AtBroker = "",
) -> View:
    """List connected consumers and producers."""
    from orbitmq.admin import ClientOfflineError  # noqa: PLC0415 - not imported for help texts

    rows = []
    names = [group] if group else [one.name for one in await operator.admin.groups.all()]
    for name in names:
        try:
            found = await operator.admin.members.connections(name, broker=broker)
        except ClientOfflineError:
            continue
        rows += [("consumer", name, one.client_id, one.address, one.language, one.version) for one in found.members]
    producers = await operator.admin.members.all_producers(broker=broker)
    for name, members in producers.items():
        if group in {"", name}:
            rows += [("producer", name, one.client_id, one.address, one.language, one.version) for one in members]
    return View.of(Table("role group client address language version", rows, "no client is connected"))


@verb(client_app, "describe")
async def describe(
    operator: Operator,
    group: Group,
    client: Annotated[str, typer.Argument(metavar="CLIENT", help="Client id.")],
    stacks: Annotated[bool, typer.Option("--stacks", help="Also the stacks of its threads.")] = False,
) -> View:
    """Show what a consumer is doing: its queues, rates and settings."""
    info = await operator.admin.members.running_info(group, client, with_stacks=stacks)
    queues = [
        (
            queue.topic,
            queue.broker_name,
            queue.queue_id,
            held.commit_offset,
            held.cached_msg_count,
            held.last_pull_timestamp,
            held.last_consume_timestamp,
        )
        for queue, held in sorted(info.mq_table.items())
    ]
    rates = [
        (topic, one.pull_tps, one.pull_rt, one.consume_ok_tps, one.consume_rt, one.consume_failed_tps)
        for topic, one in sorted(info.status_table.items())
    ]
    parts: dict[str, Pairs | Table] = {
        "settings": Pairs(dict(sorted(info.properties.items())), is_verbatim=True),
        "subscriptions": Table(
            "topic expression", [(one.topic, one.sub_string) for one in sorted(info.subscription_set, key=str)]
        ),
        "queues": Table("topic broker queue> commitOffset> cached> lastPullMs@ lastConsumeMs@", queues),
        "rates": Table("topic pullTps> pullMs> consumeTps> consumeMs> failedTps>", rates),
    }
    if info.jstack:
        parts["stacks"] = Table("line", [(line,) for line in info.jstack.splitlines()])
    return View(parts)
