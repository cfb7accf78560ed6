"""``orbitmq message``: look-ups by id, key, queue and time; tracks, traces and resending."""

import dataclasses
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from orbitmq.cli.admin.framework.arguments import Format, From, To, Topic
from orbitmq.cli.admin.framework.formats import message_format
from orbitmq.cli.admin.framework.operator import NOT_FOUND, ChangeOptions, Operator, confirm, verb
from orbitmq.cli.admin.framework.view import Output, Pairs, Table, View
from orbitmq.cli.messages.message_json import line_of
from orbitmq.cli.messages.trace import trace
from orbitmq.cli.messages.writer import message_writer
from orbitmq.cli.output import complain, print_json, print_json_line
from orbitmq.cli.time_expressions import parse_time

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from orbitmq.client.message import ReceivedMessage

BODIES = ("body", "bodyHex", "bodyError", "bodyFormat", "bodyDecoded")

message_app = typer.Typer(
    help="Messages: show, query, deferred, transactions, track, trace, resend.", no_args_is_help=True
)
message_app.command("trace")(trace)


def writer(operator: Operator, layout: str) -> "Callable[[ReceivedMessage], None]":
    """The function that prints messages: by a format, as lines of JSON, or as lines for people."""
    if layout:
        write = message_format(layout)

        def write_bytes(message: "ReceivedMessage") -> None:
            sys.stdout.buffer.write(write(message))

        return write_bytes
    if operator.output is Output.TABLE:
        return message_writer(False)
    return lambda message: print_json_line(line_of(message))


async def show_messages(
    operator: Operator, found: "AsyncIterator[ReceivedMessage]", layout: str, empty: str
) -> View | None:
    """Print messages as they are read."""
    write = writer(operator, layout)
    count = 0
    async for message in found:
        write(message)
        count += 1
    sys.stdout.flush()
    if not count:
        complain(empty)
        raise typer.Exit(NOT_FOUND)
    return None


MessageId = Annotated[
    str, typer.Argument(metavar="MSGID", help="Message id: the producer's, or the broker's (offsetMsgId).")
]


@verb(message_app, "show")
async def show(
    operator: Operator,
    topic: Topic,
    message_id: MessageId,
    layout: Format = "",
    decoders: Annotated[
        str,
        typer.Option(
            envvar="ORBITMQ_DECODERS", metavar="FILE", help="TOML file with schemas of Avro and Protobuf bodies."
        ),
    ] = "",
) -> View | None:
    """Show a message with all its fields, and what each group of its topic did with it."""
    from orbitmq.admin.message.body_decoders import BodyDecoders  # noqa: PLC0415 - not imported for help texts

    rules = BodyDecoders.load(decoders) if decoders else BodyDecoders()
    message = await operator.admin.messages.by_id(topic, message_id)
    if layout:
        writer(operator, layout)(message)
        return None
    tracks = await operator.admin.delivery.track(message)
    line = line_of(message)
    if (decoded := rules.decode_message(message)) is not None:
        line["bodyFormat"] = decoded.format
        line["bodyDecoded"] = decoded.text or decoded.error
    if operator.output is Output.JSON:
        groups = [{"group": one.group, "track": one.track, "reason": one.reason} for one in tracks]
        print_json({**line, "groups": groups})
        return None
    body: dict[str, object] = {name: line.pop(name) for name in BODIES if name in line}
    times = ("bornTimestamp", "storeTimestamp")
    about = {f"{name}@" if name in times else name: value for name, value in line.items() if name != "properties"}
    return View(
        {
            "": Pairs(about | body),
            "properties": Pairs(line["properties"], is_verbatim=True),
            "groups": Table("group track reason", [(one.group, one.track, one.reason) for one in tracks]),
        }
    )


@dataclasses.dataclass(frozen=True, slots=True)
class Query:
    """Messages of a topic to look for."""

    key: Annotated[str, typer.Option("--key", "-k", help="Only messages with this key: uses the index.")] = ""
    begin: From = ""
    end: To = ""
    broker: Annotated[str, typer.Option("--broker", "-b", help="Only of this broker name.")] = ""
    queue: Annotated[int | None, typer.Option("--queue", "-q", min=0, help="Only of this queue.")] = None
    offset: Annotated[int | None, typer.Option(min=0, help="The message at this offset of the queue.")] = None
    tag: Annotated[str, typer.Option(help="Only messages with this tag; `a || b` for several.")] = "*"
    sql: Annotated[str, typer.Option(help="Only messages that match this SQL92 filter, at the broker.")] = ""
    count: Annotated[int, typer.Option(min=1, help="Maximum number of messages.")] = 100


@verb(message_app, "query")
async def query(operator: Operator, topic: Topic, options: Query, layout: Format = "") -> View | None:
    """Print messages of a topic: by key, by time, by queue and offset, with a filter."""
    if options.tag != "*" and options.sql:
        raise typer.BadParameter("give --tag or --sql, not both")
    if options.offset is not None and (not options.broker or options.queue is None):
        raise typer.BadParameter("--offset is of one queue: give --broker and --queue")
    message_format(layout)
    return await show_messages(
        operator, _found(operator, topic, options), layout, f"no message of the topic {topic} matches"
    )


async def _found(operator: Operator, topic: str, options: Query) -> "AsyncIterator[ReceivedMessage]":
    messages = operator.admin.messages
    begin = parse_time(options.begin) if options.begin else None
    end = parse_time(options.end) if options.end else None
    if options.offset is not None:
        assert options.queue is not None
        yield await messages.by_offset(topic, options.broker, options.queue, options.offset)
    elif options.key:
        limits = {} if end is None else {"end_ms": end}
        found = await messages.by_key(topic, options.key, begin_ms=begin or 0, limit=options.count, **limits)
        for message in found[: options.count]:
            yield message
    else:
        async for message in messages.read(
            topic,
            begin_ms=begin,
            end_ms=end,
            broker_name=options.broker,
            queue_id=options.queue,
            tags=options.tag,
            sql=options.sql,
            limit=options.count,
        ):
            yield message


Scan = Annotated[int, typer.Option(min=1, help="Stored messages that are looked at on each broker.")]


@verb(message_app, "deferred")
async def deferred(operator: Operator, scan: Scan = 2000) -> View:
    """List timed and delayed messages that wait, the next first."""
    found = await operator.admin.waiting.deferred(scan=scan)
    rows = [
        (one.due_ms, one.topic, one.message_id, one.tags or "", " ".join(one.keys), one.broker_name)
        for one in found.messages
    ]
    note = "" if found.is_complete else "there are more: see --scan"
    return View.of(Table("dueMs@ topic message tag keys broker", rows, "no deferred message waits"), note)


@verb(message_app, "transactions")
async def transactions(operator: Operator, scan: Scan = 2000) -> View:
    """List the half messages of open transactions, the oldest first."""
    found = await operator.admin.waiting.transactions(scan=scan)
    rows = [
        (one.born_ms, one.topic, one.producer_group, one.message_id, " ".join(one.keys), one.checks)
        for one in found
    ]
    return View.of(Table("begunMs@ topic producerGroup message keys checks>", rows, "no transaction is open"))


@verb(message_app, "track")
async def track(operator: Operator, topic: Topic, message_id: MessageId) -> View:
    """Show what each group of a topic did with a message."""
    message = await operator.admin.messages.by_id(topic, message_id)
    rows = [(one.group, one.track, one.reason) for one in await operator.admin.delivery.track(message)]
    return View.of(Table("group track reason", rows, f"no group consumes the topic {topic}"))


@verb(message_app, "resend")
async def resend(
    operator: Operator,
    topic: Topic,
    message_id: MessageId,
    change: ChangeOptions,
    target: Annotated[str, typer.Option("--to", help="Topic to send it to; by default the original one.")] = "",
    body: Annotated[str | None, typer.Option(help="A new body.")] = None,
    tag: Annotated[str | None, typer.Option(help="A new tag.")] = None,
    key: Annotated[str | None, typer.Option(help="New keys.")] = None,
) -> View:
    """Send a stored message again as a new one, with some of it replaced."""
    from orbitmq.admin.message.delivery import original_topic  # noqa: PLC0415 - not imported for help texts

    message = await operator.admin.messages.by_id(topic, message_id)
    goal = target or original_topic(message)
    if change.dry_run:
        return View.of(Pairs({"topic": goal, "message": message_id}), "dry run: nothing was sent")
    if not change.yes:
        confirm(f"send the message {message_id} again to {goal}")
    receipt = await operator.admin.delivery.resend(
        message, topic=target, body=None if body is None else body.encode(), tags=tag, keys=key
    )
    return View.of(Pairs({"topic": goal, "message": message_id, "newMessage": receipt.message_id}))


@verb(message_app, "consume")
async def consume(
    operator: Operator,
    topic: Topic,
    message_id: MessageId,
    group: Annotated[str, typer.Option("--group", "-g", help="Consumer group.")],
    client: Annotated[str, typer.Option(help="Client id of the member.")],
) -> View:
    """Have one member of a group consume a message now, and show the result."""
    message = await operator.admin.messages.by_id(topic, message_id)
    found = await operator.admin.messages.consume_directly(message, group, client)
    return View.of(
        Pairs({"result": found.consume_result, "remark": found.remark, "spentMs": found.spent_time_mills})
    )
