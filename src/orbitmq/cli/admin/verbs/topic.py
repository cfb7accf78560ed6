"""``orbitmq topic``: lists, descriptions, changes of topics."""

import dataclasses
from typing import TYPE_CHECKING, Annotated

import typer

from orbitmq.cli.admin.framework.arguments import AtBroker, Topic
from orbitmq.cli.admin.framework.operator import ChangeOptions, Operator, command_of, settings_of, verb
from orbitmq.cli.admin.framework.view import Pairs, Table, View

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orbitmq.admin.topic.model import QueueStatus, TopicSettings

topic_app = typer.Typer(help="Topics: list, describe, create, alter, delete.", no_args_is_help=True)


@verb(topic_app, "list")
async def list_topics(
    operator: Operator,
    pattern: Annotated[str, typer.Argument(metavar="[PATTERN]", help="Only names with this in them.")] = "",
    every: Annotated[bool, typer.Option("--all", "-a", help="Also system, retry and dead letter topics.")] = False,
) -> View:
    """List topics with their queues, type and permission."""
    from orbitmq.admin.topic.model import TopicKind, perm_text  # noqa: PLC0415 - not imported for help texts

    kinds = tuple(TopicKind) if every else (TopicKind.NORMAL,)
    rows = [
        (
            one.name,
            one.kind,
            one.message_type,
            one.write_queues,
            one.read_queues,
            "/".join(sorted({perm_text(place.perm) for place in one.placements})),
            one.brokers,
        )
        for one in await operator.admin.topics.all(kinds=kinds)
        if pattern in one.name
    ]
    return View.of(Table("name kind type writeQueues> readQueues> perm brokers", rows, "there are no topics"))


@verb(topic_app, "describe")
async def describe(operator: Operator, topic: Topic) -> View:
    """Show a topic with its settings, queues and groups."""
    from orbitmq.admin.topic.model import perm_text  # noqa: PLC0415

    found = await operator.admin.topics.describe(topic)
    about = {
        "name": found.name,
        "kind": found.kind,
        "messages": found.messages,
        "lastUpdateMs@": found.last_update_ms,
        "putTps": found.put_tps,
        "groups": found.groups,
    }
    if found.order_configuration:
        about["orderConfiguration"] = found.order_configuration
    brokers = [
        (
            place.broker_name,
            place.write_queues,
            place.read_queues,
            perm_text(place.perm),
            place.order,
            place.attributes,
            found.addresses.get(place.broker_name, {}).values(),
        )
        for place in found.placements
    ]
    return View(
        {
            "": Pairs(about),
            "brokers": Table(
                "broker writeQueues> readQueues> perm order attributes addresses",
                [(*row[:-1], list(row[-1])) for row in brokers],
            ),
            "queues": _queues(found.queues),
        }
    )


def _queues(queues: "Sequence[QueueStatus]") -> Table:
    rows = [
        (one.broker_name, one.queue_id, one.min_offset, one.max_offset, one.messages, one.last_update_ms)
        for one in queues
    ]
    return Table("broker queue> minOffset> maxOffset> messages> lastUpdateMs@", rows)


@verb(topic_app, "route")
async def route(operator: Operator, topic: Topic) -> View:
    """Show where producers and consumers find a topic."""
    from orbitmq.admin.topic.model import perm_text  # noqa: PLC0415

    found = await operator.admin.topics.route(topic)
    queues = {data.broker_name: data for data in found.queue_datas}
    rows = []
    for data in sorted(found.broker_datas, key=lambda one: one.broker_name or ""):
        here = queues.get(data.broker_name)
        for broker_id, address in sorted(data.broker_addrs.items()):
            rows.append(
                (
                    data.cluster,
                    data.broker_name,
                    broker_id,
                    address,
                    here and here.write_queue_nums,
                    here and here.read_queue_nums,
                    here and perm_text(here.perm),
                )
            )
    return View.of(Table("cluster broker id> address writeQueues> readQueues> perm", rows))


@verb(topic_app, "traffic")
async def traffic(operator: Operator, topic: Topic) -> View:
    """Show how many messages a topic received in the last minute, hour and day."""
    found = await operator.admin.topics.traffic(topic)
    rows = [
        (
            name,
            data.stats_minute and data.stats_minute.sum,
            data.stats_minute and data.stats_minute.tps,
            data.stats_hour and data.stats_hour.sum,
            data.stats_day and data.stats_day.sum,
        )
        for name, data in sorted(found.items())
    ]
    return View.of(
        Table("broker lastMinute> tps> lastHour> lastDay>", rows, "no broker counts traffic of the topic")
    )


@dataclasses.dataclass(frozen=True, slots=True)
class TopicOptions:
    """Settings of a topic."""

    queues: Annotated[
        int | None, typer.Option("--queues", "-q", min=0, help="Queues per broker, for reading and writing.")
    ] = None
    read_queues: Annotated[int | None, typer.Option(min=0, help="Queues for reading per broker.")] = None
    write_queues: Annotated[int | None, typer.Option(min=0, help="Queues for writing per broker.")] = None
    perm: Annotated[str | None, typer.Option(metavar="RW|R|W", help="Permission; also 6, 4, 2 or 0.")] = None
    order: Annotated[
        bool | None, typer.Option("--order/--no-order", help="Ordered: producers use fixed queues.")
    ] = None
    type: Annotated[
        str | None, typer.Option(metavar="TYPE", help="NORMAL, FIFO, DELAY, TRANSACTION, PRIORITY, LITE or MIXED.")
    ] = None
    attribute: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Attribute to set; may be repeated.")
    ] = None
    remove_attribute: Annotated[
        list[str] | None, typer.Option(metavar="KEY", help="Attribute to remove; may be repeated.")
    ] = None


def _settings(options: TopicOptions) -> "TopicSettings":
    from orbitmq.admin.topic.model import MESSAGE_TYPE, TopicSettings  # noqa: PLC0415

    attributes = settings_of(options.attribute or ())
    if options.type:
        attributes[MESSAGE_TYPE] = options.type.upper()
    return TopicSettings(
        read_queues=options.queues if options.read_queues is None else options.read_queues,
        write_queues=options.queues if options.write_queues is None else options.write_queues,
        perm=None if options.perm is None else parse_perm(options.perm),
        order=options.order,
        attributes=attributes,
        remove_attributes=tuple(options.remove_attribute or ()),
    )


_PERMS = {"RW": 6, "WR": 6, "R": 4, "W": 2, "NONE": 0}


def parse_perm(text: str) -> int:
    """The bits of ``RW``, ``R``, ``W`` or a number. Raises BadParameter."""
    if text.isdecimal():
        return int(text)
    letters = text.upper().replace("-", "")
    if letters not in _PERMS:
        raise typer.BadParameter(f"{text!r} is not a permission: give RW, R, W or 6, 4, 2, 0")
    return _PERMS[letters]


@verb(topic_app, "create")
async def create(
    operator: Operator, topic: Topic, options: TopicOptions, change: ChangeOptions, broker: AtBroker = ""
) -> View:
    """Create a topic on all masters of a cluster, or alter it where it exists. 8 queues per broker by default."""
    settings = _settings(options)
    return await operator.change(
        change, lambda dry: operator.admin.topics.create(topic, settings, broker=broker, dry_run=dry)
    )


@verb(topic_app, "alter")
async def alter(
    operator: Operator, topic: Topic, options: TopicOptions, change: ChangeOptions, broker: AtBroker = ""
) -> View:
    """Alter the settings of a topic at all its brokers, or at one."""
    settings = _settings(options)
    return await operator.change(
        change, lambda dry: operator.admin.topics.alter(topic, settings, broker=broker, dry_run=dry)
    )


@verb(topic_app, "delete")
async def delete(operator: Operator, topic: Topic, change: ChangeOptions) -> View:
    """Delete a topic with its messages."""
    return await operator.change(
        change,
        lambda dry: operator.admin.topics.delete(topic, dry_run=dry),
        destroys=f"delete the topic {topic} and all its messages",
    )


topics = command_of(list_topics)
