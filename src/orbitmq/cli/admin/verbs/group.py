"""``orbitmq group``: lists, members, lag, settings and offsets of consumer groups."""

import dataclasses
from typing import TYPE_CHECKING, Annotated

import typer

from orbitmq.cli.admin.framework.arguments import AtBroker, Group
from orbitmq.cli.admin.framework.completion import complete_group, complete_topic
from orbitmq.cli.admin.framework.operator import ChangeOptions, Operator, command_of, settings_of, verb
from orbitmq.cli.admin.framework.view import Pairs, Table, View
from orbitmq.cli.admin.verbs.offset import Position, set_offsets, skip_offsets

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orbitmq.admin.group.model import GroupLag, GroupSettings, Member

group_app = typer.Typer(
    help="Consumer groups: list, describe, lag, reset, create, alter, delete.", no_args_is_help=True
)


@verb(group_app, "list")
async def list_groups(
    operator: Operator,
    pattern: Annotated[str, typer.Argument(metavar="[PATTERN]", help="Only names with this in them.")] = "",
    every: Annotated[bool, typer.Option("--all", "-a", help="Also RocketMQ's own groups.")] = False,
    sort: Annotated[str, typer.Option(metavar="name|lag|tps", help="Order of the list.")] = "name",
) -> View:
    """List consumer groups with their lag and rate."""
    orders = {"name": lambda one: one.name, "lag": lambda one: -(one.lag or 0), "tps": lambda one: -one.consume_tps}
    if sort not in orders:
        raise typer.BadParameter(f"--sort is name, lag or tps, not {sort!r}")
    found = await operator.admin.groups.all(with_system=every, with_lag=True)
    rows = [
        (one.name, one.lag, one.inflight, one.consume_tps, one.topics, one.brokers)
        for one in sorted(found, key=orders[sort])
        if pattern in one.name
    ]
    return View.of(Table("name lag> inflight> consumeTps> topics brokers", rows, "there are no groups"))


@verb(group_app, "describe")
async def describe(operator: Operator, group: Group) -> View:
    """Show a group with its settings, members, subscriptions and lag."""
    found = await operator.admin.groups.describe(group)
    online = found.connections
    about = {
        "name": found.name,
        "online": found.is_online,
        "lag": found.lag.lag,
        "inflight": found.lag.inflight,
        "consumeTps": found.lag.consume_tps,
        "deadLetters": found.dead_letters,
        "consumeType": None if online is None else online.consume_type,
        "messageModel": None if online is None else online.message_model,
        "subscriptionsAgree": None if found.check is None else found.check.agree,
    }
    settings = [
        (
            place.broker_name,
            place.config.consume_enable,
            place.config.consume_broadcast_enable,
            place.config.consume_message_orderly,
            place.config.retry_queue_nums,
            place.config.retry_max_times,
            place.config.attributes,
        )
        for place in found.placements
    ]
    return View(
        {
            "": Pairs(about),
            "members": _members(() if online is None else online.members),
            "subscriptions": Table(
                "topic expression type",
                []
                if online is None
                else [(o.topic, o.expression, o.expression_type) for o in online.subscriptions],
            ),
            "settings": Table("broker enabled broadcast orderly retryQueues> maxRetries> attributes", settings),
            "queues": _queues(found.lag),
        }
    )


def _members(members: "Sequence[Member]") -> Table:
    rows = [(one.client_id, one.address, one.language, one.version) for one in members]
    return Table("client address language version", rows, "no member is connected")


def _queues(lag: "GroupLag") -> Table:
    rows = [
        (
            one.topic,
            one.broker_name,
            one.queue_id,
            one.broker_offset,
            one.consumer_offset,
            one.lag,
            one.last_timestamp_ms,
            one.client_id,
        )
        for one in lag.queues
    ]
    return Table("topic broker queue> brokerOffset> consumerOffset> lag> lastConsumedMs@ member", rows)


@verb(group_app, "lag")
async def show_lag(
    operator: Operator,
    group: Annotated[
        str,
        typer.Argument(metavar="[GROUP]", help="Consumer group; all if omitted.", autocompletion=complete_group),
    ] = "",
    topic: Annotated[
        str, typer.Option("--topic", "-t", help="Only of this topic.", autocompletion=complete_topic)
    ] = "",
) -> View:
    """Show the lag of all groups, or of one group queue by queue."""
    if not group:
        rows = [
            (one.group, one.lag, one.inflight, one.consume_tps, sorted(one.by_topic()))
            for one in sorted(await operator.admin.lag.of_all(), key=lambda one: (-one.lag, one.group))
            if not topic or topic in one.by_topic()
        ]
        return View.of(Table("group lag> inflight> consumeTps> topics", rows, "no group has consumed anything"))
    lag = await operator.admin.lag.of_group(group, topic=topic, with_clients=True)
    total = {"group": group, "lag": lag.lag, "inflight": lag.inflight, "consumeTps": lag.consume_tps}
    return View({"": Pairs(total), "queues": _queues(lag)})


@verb(group_app, "members")
async def members(operator: Operator, group: Group) -> View:
    """List the clients that are connected for a group."""
    found = await operator.admin.members.connections(group)
    return View.of(_members(found.members))


@dataclasses.dataclass(frozen=True, slots=True)
class GroupOptions:
    """Settings of a group."""

    max_retries: Annotated[
        int | None, typer.Option(min=-1, help="Deliveries after the first, before a message is a dead letter.")
    ] = None
    retry_queues: Annotated[int | None, typer.Option(min=0, help="Queues of the retry topic per broker.")] = None
    enable: Annotated[bool | None, typer.Option("--enable/--disable", help="Whether the group may consume.")] = None
    broadcast: Annotated[
        bool | None,
        typer.Option("--broadcast/--no-broadcast", help="Whether members may consume in broadcast mode."),
    ] = None
    from_min: Annotated[
        bool | None,
        typer.Option("--from-min/--no-from-min", help="Whether members may begin at the oldest message."),
    ] = None
    orderly: Annotated[
        bool | None,
        typer.Option("--orderly/--no-orderly", help="Whether POP and gRPC consumers get queues in order."),
    ] = None
    consume_timeout: Annotated[
        int | None, typer.Option(min=1, metavar="MINUTES", help="Limit for the consumption of one message.")
    ] = None
    attribute: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Attribute to set; may be repeated.")
    ] = None
    remove_attribute: Annotated[
        list[str] | None, typer.Option(metavar="KEY", help="Attribute to remove; may be repeated.")
    ] = None


def _settings(options: GroupOptions) -> "GroupSettings":
    from orbitmq.admin.group.model import GroupSettings  # noqa: PLC0415

    return GroupSettings(
        consume_enable=options.enable,
        consume_broadcast_enable=options.broadcast,
        consume_from_min_enable=options.from_min,
        consume_message_orderly=options.orderly,
        retry_queue_nums=options.retry_queues,
        retry_max_times=options.max_retries,
        consume_timeout_minute=options.consume_timeout,
        attributes=settings_of(options.attribute or ()),
        remove_attributes=tuple(options.remove_attribute or ()),
    )


@verb(group_app, "create")
async def create(
    operator: Operator, group: Group, options: GroupOptions, change: ChangeOptions, broker: AtBroker = ""
) -> View:
    """Create a group on all masters of a cluster, or alter it where it exists."""
    settings = _settings(options)
    return await operator.change(
        change, lambda dry: operator.admin.groups.create(group, settings, broker=broker, dry_run=dry)
    )


@verb(group_app, "alter")
async def alter(
    operator: Operator, group: Group, options: GroupOptions, change: ChangeOptions, broker: AtBroker = ""
) -> View:
    """Alter the settings of a group at all its brokers, or at one."""
    settings = _settings(options)
    return await operator.change(
        change, lambda dry: operator.admin.groups.alter(group, settings, broker=broker, dry_run=dry)
    )


@verb(group_app, "delete")
async def delete(
    operator: Operator,
    group: Group,
    change: ChangeOptions,
    broker: AtBroker = "",
    keep_offsets: Annotated[bool, typer.Option("--keep-offsets", help="Keep the committed offsets.")] = False,
) -> View:
    """Delete a group with its offsets and its retry and dead letter topics."""
    return await operator.change(
        change,
        lambda dry: operator.admin.groups.delete(
            group, broker=broker, remove_offsets=not keep_offsets, dry_run=dry
        ),
        destroys=f"delete the group {group} with its retry and dead letter topics",
    )


Topics = Annotated[
    list[str] | None,
    typer.Option("--topic", "-t", help="Only this topic; may be repeated.", autocompletion=complete_topic),
]


@verb(group_app, "reset")
async def reset(
    operator: Operator, group: Group, position: Position, change: ChangeOptions, topic: Topics = None
) -> View:
    """Set the offsets of a group in all its topics: to a time, the beginning or the end. Members follow."""
    return await set_offsets(operator, group, topic or [], position, change)


@verb(group_app, "skip")
async def skip(operator: Operator, group: Group, change: ChangeOptions, topic: Topics = None) -> View:
    """Skip everything that a group has not consumed."""
    return await skip_offsets(operator, group, topic or [], change)


groups, lag, reset_offsets = command_of(list_groups), command_of(show_lag), command_of(reset)
