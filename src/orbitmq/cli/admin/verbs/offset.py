"""``orbitmq offset``: committed offsets of groups, read and set."""

import dataclasses
from typing import TYPE_CHECKING, Annotated

import typer

from orbitmq.cli.admin.framework.arguments import Group, Topic
from orbitmq.cli.admin.framework.operator import ChangeOptions, Operator, verb
from orbitmq.cli.admin.framework.view import Table, View
from orbitmq.cli.time_expressions import TIME_HELP, parse_time
from orbitmq.protocol.names import DLQ_PREFIX, RETRY_PREFIX

if TYPE_CHECKING:
    from orbitmq.admin.group.offsets import OffsetChange, ResetTo

offset_app = typer.Typer(
    help="Offsets of groups: list, reset, skip, clone; offsets of a time.", no_args_is_help=True
)


@dataclasses.dataclass(frozen=True, slots=True)
class Position:
    """The position of a reset, and its queues."""

    to: Annotated[
        str, typer.Option(metavar="earliest|latest|TIME|offset:N", help=f"A TIME is {TIME_HELP}; or offset:17.")
    ]
    broker: Annotated[str, typer.Option("--broker", "-b", help="Only queues of this broker name.")] = ""
    queue: Annotated[int | None, typer.Option("--queue", "-q", min=0, help="Only this queue of the broker.")] = None
    only_back: Annotated[bool, typer.Option("--only-back", help="Leave offsets that would move forward.")] = False

    def target(self) -> "ResetTo":
        from orbitmq.admin.group.offsets import ResetTo  # noqa: PLC0415 - not imported for help texts

        if self.to in {"earliest", "beginning"}:
            return ResetTo(earliest=True)
        if self.to in {"latest", "end", "now"}:
            return ResetTo(latest=True)
        if self.to.startswith("offset:"):
            number = self.to.removeprefix("offset:")
            if not number.isdecimal():
                raise typer.BadParameter(f"{self.to!r} is not an offset: give offset:17")
            return ResetTo(offset=int(number))
        return ResetTo(time_ms=parse_time(self.to))


async def set_offsets(
    operator: Operator, group: str, topics: list[str], position: Position, change: ChangeOptions
) -> View:
    """Reset offsets in some topics of a group, or in all."""
    to = position.target()
    chosen = topics or await _topics_of(operator, group)

    async def make(dry: bool) -> "list[OffsetChange]":
        found = []
        for topic in chosen:
            found += await operator.admin.offsets.reset(
                group,
                topic,
                to,
                broker_name=position.broker,
                queue_id=position.queue,
                force=not position.only_back,
                dry_run=dry,
            )
        return [one for one in found if one.before != one.after]

    return await operator.change(change, make, destroys=f"set the offsets of the group {group}")


async def skip_offsets(operator: Operator, group: str, topics: list[str], change: ChangeOptions) -> View:
    """Move a group behind everything that has accumulated."""
    return await set_offsets(operator, group, topics, Position("latest"), change)


async def _topics_of(operator: Operator, group: str) -> list[str]:
    """The topics that a group consumes. Raises NotFoundError."""
    from orbitmq.admin.errors import NotFoundError  # noqa: PLC0415

    found = [
        one for one in await operator.admin.members.topics(group) if not one.startswith((RETRY_PREFIX, DLQ_PREFIX))
    ]
    if not found:
        raise NotFoundError("group", group, "it has no offsets: name a topic with --topic")
    return found


@verb(offset_app, "list")
async def list_offsets(operator: Operator, group: Group, topic: Topic) -> View:
    """List the committed offsets of a group in a topic."""
    found = await operator.admin.offsets.committed(group, topic)
    rows = [(queue.broker_name, queue.queue_id, offset) for queue, offset in sorted(found.items())]
    return View.of(Table("broker queue> offset>", rows, f"the group {group} has no offsets of the topic {topic}"))


@verb(offset_app, "at")
async def at_time(
    operator: Operator, topic: Topic, when: Annotated[str, typer.Argument(metavar="TIME", help=TIME_HELP)]
) -> View:
    """List the offsets of the first messages of a topic that were stored at or after a time."""
    from orbitmq.admin.group.offsets import queues_in  # noqa: PLC0415
    from orbitmq.admin.topic.topics import readers_of  # noqa: PLC0415

    time_ms = parse_time(when)
    route = await operator.admin.topics.route(topic)
    addresses = readers_of(route)
    rows = []
    for queue in queues_in(topic, route):
        offset = await operator.admin.offsets.at_time(addresses[queue.broker_name], queue, time_ms)
        rows.append((queue.broker_name, queue.queue_id, offset))
    return View.of(Table("broker queue> offset>", rows))


@verb(offset_app, "reset")
async def reset(operator: Operator, group: Group, topic: Topic, position: Position, change: ChangeOptions) -> View:
    """Set the offsets of a group in a topic, or in one queue of it. Members follow."""
    return await set_offsets(operator, group, [topic], position, change)


@verb(offset_app, "skip")
async def skip(operator: Operator, group: Group, topic: Topic, change: ChangeOptions) -> View:
    """Skip everything of a topic that a group has not consumed."""
    return await skip_offsets(operator, group, [topic], change)


@verb(offset_app, "clone")
async def clone(
    operator: Operator,
    source: Annotated[str, typer.Argument(metavar="FROM", help="Group whose offsets are copied.")],
    target: Annotated[str, typer.Argument(metavar="TO", help="Group that gets them.")],
    topic: Topic,
    change: ChangeOptions,
) -> View:
    """Copy the offsets of a group to another one. Members of that must be stopped."""
    return await operator.change(
        change,
        lambda dry: operator.admin.offsets.clone(source, target, topic, dry_run=dry),
        destroys=f"replace the offsets of the group {target}",
    )
