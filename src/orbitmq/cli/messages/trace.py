"""``orbitmq trace``: prints the trace of one message, from its producer to its consumers."""

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.tree import Tree

from orbitmq.cli.interrupts import run
from orbitmq.cli.messages.options import DEFAULT_NAME_SERVER, NameServers, client_errors
from orbitmq.cli.output import complain, for_people, print_json, safe, size_text, time_text
from orbitmq.cli.time_expressions import TIME_HELP, parse_time
from orbitmq.protocol.names import TRACE_TOPIC

if TYPE_CHECKING:
    from orbitmq.client.trace.query import Attempt, MessageTrace, TraceEvent

MAX_PER_BROKER = 64


def trace(
    message_id: Annotated[str, typer.Argument(metavar="MSGID", help="Message id that the producer received.")],
    nameserver: NameServers = DEFAULT_NAME_SERVER,
    topic: Annotated[str, typer.Option("--topic", "-t", help="Trace topic of the clients.")] = TRACE_TOPIC,
    begin: Annotated[
        str,
        typer.Option("--from", metavar="TIME", help=f"Only traces stored since TIME: {TIME_HELP}."),
    ] = "0",
    count: Annotated[
        int, typer.Option(min=1, help="Maximum number of trace messages read per broker.")
    ] = MAX_PER_BROKER,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show the producer and consumers of a message, with times, durations and results.

    Producers and consumers write traces with `enable_trace`.
    """
    since = parse_time(begin)
    with client_errors():
        from orbitmq.client.trace.query import trace_message  # noqa: PLC0415 - not imported for help texts

        found = run(trace_message(nameserver, message_id, topic=topic, most=count, begin_ms=since))
        if json:
            print_json(_as_json(found))
        elif found:
            for_people().print(_drawn(found))
        if not found:
            complain(
                f"no trace of {message_id} in topic {topic}; traces need enable_trace at the producer and the "
                "consumers, and arrive some seconds after the message"
            )
            raise typer.Exit(1)


# JSON


def _as_json(found: "MessageTrace") -> dict[str, Any]:
    return {
        "messageId": found.message_id,
        "published": [_fields_of(one) for one in found.published],
        "transactions": [_fields_of(one) for one in found.ended],
        "recalled": [_fields_of(one) for one in found.recalled],
        "attempts": [
            {
                "group": attempt.group,
                "requestId": attempt.request_id,
                "clientHost": attempt.client_host,
                "beganAt": attempt.began_ms,
                "retryTimes": attempt.retry_times,
                "hasEnded": attempt.ended is not None,
                "costMs": None if attempt.ended is None else attempt.ended.cost_ms,
                "outcome": None if attempt.ended is None else attempt.ended.outcome.name,
                "succeeded": None if attempt.ended is None else attempt.ended.succeeded,
            }
            for attempt in found.attempts
        ],
    }


def _fields_of(one: "TraceEvent") -> dict[str, Any]:
    row = {_camel(name): value for name, value in dataclasses.asdict(one.record).items()}
    if "kind" in row:
        row["kind"] = row["kind"].name
    return {**row, "clientHost": one.client_host}


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.title() for word in rest)


# Text


def _drawn(found: "MessageTrace") -> Tree:
    tree = Tree(f"[bold]{safe(found.message_id)}[/]", guide_style="dim")
    began = min((one.record.timestamp for one in found.published), default=0)
    for one in found.published:
        tree.add(_sent(one))
    for one in found.ended:
        tree.add(_decided(one, began))
    for one in found.recalled:
        tree.add(f"{_after(one.record.timestamp, began)}  recalled by {safe(one.record.group)}")
    for group, attempts in found.groups().items():
        branch = tree.add(f"group [bold]{safe(group) or '(unknown)'}[/]")
        for attempt in attempts:
            branch.add(_consumed(attempt, began))
    if not found.attempts:
        tree.add("[yellow]no traced consumer has received it[/]")
    return tree


def _sent(one: "TraceEvent") -> str:
    from orbitmq.client.trace.encoding import Published  # noqa: PLC0415

    record = one.record
    assert isinstance(record, Published)
    words = [
        f"[dim]{time_text(record.timestamp)}[/]",
        f"sent to [bold]{safe(record.topic)}[/] by group {safe(record.group)}",
        _mark(record.succeeded, "stored" if record.succeeded else "stored, but not SEND_OK"),
        f"in {record.cost_ms} ms",
    ]
    details = [f"from {safe(one.client_host)} to {safe(record.store_host)}", size_text(record.body_length)]
    details.append(record.kind.name.lower().replace("_", " "))
    details += [f"tag {safe(record.tags)}"] if record.tags else []
    details += [f"keys {safe(record.keys)}"] if record.keys else []
    return "  ".join(words) + f"\n[dim]{', '.join(details)}[/]"


def _decided(one: "TraceEvent", began: int) -> str:
    from orbitmq.client.trace.encoding import TransactionEnded  # noqa: PLC0415

    record = one.record
    assert isinstance(record, TransactionEnded)
    state = record.state.removesuffix("_MESSAGE").lower()
    how = "after a check" if record.from_check else "by the producer"
    return f"{_after(record.timestamp, began)}  transaction {safe(state)} by group {safe(record.group)}, {how}"


def _consumed(attempt: "Attempt", began: int) -> str:
    number = "attempt" if attempt.retry_times is None else f"attempt {attempt.retry_times + 1}"
    words = [_after(attempt.began_ms, began), number]
    if attempt.ended is None:
        words.append("[yellow]no end recorded yet[/]")
    else:
        words += [_mark(attempt.ended.succeeded, _outcome(attempt)), f"in {attempt.ended.cost_ms} ms"]
    words.append(f"[dim]at {safe(attempt.client_host)}[/]")
    return "  ".join(words)


def _outcome(attempt: "Attempt") -> str:
    assert attempt.ended is not None
    return "consumed" if attempt.ended.succeeded else attempt.ended.outcome.name.lower().replace("_", " ")


def _mark(is_good: bool, text: str) -> str:
    return f"[green]✓ {text}[/]" if is_good else f"[red]✗ {text}[/]"


def _after(ms: int, began: int) -> str:
    """Time since the message was sent, or the time of day if that is unknown."""
    if not began or not ms:
        return f"[dim]{time_text(ms)}[/]"
    distance = ms - began
    sign = "-" if distance < 0 else "+"
    distance = abs(distance)
    return f"[dim]{sign}{distance} ms[/]" if distance < 10_000 else f"[dim]{sign}{distance / 1000:.1f} s[/]"
