"""``orbitmq bench``: load tests of a cluster with the client that applications use."""

import dataclasses
import enum
from typing import TYPE_CHECKING, Annotated

import typer

from orbitmq.cli.bench.suite import run_suite
from orbitmq.cli.interrupts import run
from orbitmq.cli.messages.live_counters import LiveCounters
from orbitmq.cli.messages.options import client_errors
from orbitmq.cli.output import complain, for_people, for_progress, many, print_json, safe, size_text
from orbitmq.cli.server.signals import stop_event

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable
    from typing import TypeAlias

    from orbitmq.cli.bench.load import Limit, Outcome, Task
    from orbitmq.cli.messages.live_counters import Counter

    Load: TypeAlias = Callable[[str, Task, Counter, asyncio.Event], Awaitable[Outcome]]

bench_app = typer.Typer(
    help="Run a load test against a cluster and report throughput and latency.",
    no_args_is_help=True,
)

TOPIC = "BenchmarkTest"
"""The one that RocketMQ's own benchmark programs use."""

SECONDS = 10.0
FILLED = 200_000
"""Default number of messages to consume in a temporary cluster."""

FILLING_BATCH = 100
QUANTILES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999, "max": 1.0}

MAX_BODY_BYTES = 4 << 20
MAX_IN_FLIGHT = 65535
MAX_IN_BATCH = 1024


class Beginning(enum.StrEnum):
    """Start position of a new consumer group."""

    FIRST = "beginning"
    LAST = "now"


NameServers = Annotated[
    str | None,
    typer.Option(
        "--nameserver",
        "-n",
        envvar="NAMESRV_ADDR",
        metavar="ADDR",
        help="Name servers of the cluster, as host:port, separated by ';'. Without one, a temporary "
        "cluster is started: a broker in a process of its own, with its data in a temporary folder.",
        show_default=False,
    ),
]
Topic = Annotated[str, typer.Option(help="Topic of the load; created if the cluster creates topics automatically.")]
Size = Annotated[int, typer.Option(min=1, max=MAX_BODY_BYTES, help="Size of a message body in bytes.")]
Messages = Annotated[int | None, typer.Option(min=1, help="End after this many messages.", show_default=False)]
Seconds = Annotated[
    float | None,
    typer.Option(
        min=0.001,
        help=f"End after this many seconds. \\[default: {SECONDS:g}, without --messages]",
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@bench_app.command()
def send(
    nameserver: NameServers = None,
    topic: Topic = TOPIC,
    size: Size = 128,
    messages: Messages = None,
    seconds: Seconds = None,
    in_flight: Annotated[int, typer.Option(min=1, max=MAX_IN_FLIGHT, help="Messages in flight at a time.")] = 1024,
    batch: Annotated[
        int, typer.Option(min=1, max=MAX_IN_BATCH, help="Messages per request; 1 sends each one separately.")
    ] = 1,
    json: Json = False,
) -> None:
    """Send as fast as the cluster accepts: reports throughput and latency.

    With a batch, the latency is that of a whole one. Ctrl-C ends it sooner. Exit code 1 if any was not sent.
    """
    with client_errors():
        from orbitmq.cli.bench.load import Task, send_load  # noqa: PLC0415 - not imported for help texts

        task = Task(topic, size=size, batch=batch, in_flight=in_flight, limit=_limit(messages, seconds))
        outcome = _run(send_load, nameserver, task, "sent", filled=0)
    _tell("send", outcome, task, nameserver, json, latency="answer after")


@bench_app.command()
def consume(
    nameserver: NameServers = None,
    topic: Topic = TOPIC,
    size: Annotated[
        int,
        typer.Option(min=1, max=MAX_BODY_BYTES, help="Body size of the messages in a temporary cluster, in bytes."),
    ] = 128,
    messages: Messages = None,
    seconds: Seconds = None,
    batch: Annotated[int, typer.Option(min=1, max=MAX_IN_BATCH, help="Maximum number of messages per pull.")] = 32,
    group: Annotated[
        str | None, typer.Option(help="Consumer group. \\[default: a new one]", show_default=False)
    ] = None,
    begin: Annotated[
        Beginning, typer.Option("--from", help="Start position of a new consumer group.")
    ] = Beginning.FIRST,
    json: Json = False,
) -> None:
    """Consume a topic: reports throughput and the age of the messages.

    A temporary cluster is filled first, with --messages. Time counts from the first message. Ctrl-C ends it sooner.
    Exit code 1 if fewer than --messages came.
    """
    with client_errors():
        from orbitmq.cli.bench.load import Task, consume_load  # noqa: PLC0415

        filled = 0
        if nameserver is None:
            filled = messages = messages or FILLED
        task = Task(
            topic,
            size=size,
            batch=batch,
            limit=_limit(messages, seconds),
            group=group,
            from_first=begin is Beginning.FIRST,
        )
        outcome = _run(consume_load, nameserver, task, "consumed", filled=filled)
    _tell("consume", outcome, task, nameserver, json, latency="born before")


@bench_app.command(
    add_help_option=False, context_settings={"allow_extra_args": True, "ignore_unknown_options": True}
)
def suite(context: typer.Context) -> None:
    """Run the benchmark suite of the source tree against other systems; all options are passed to it."""
    run_suite(context.args)


def _limit(messages: int | None, seconds: float | None) -> "Limit":
    from orbitmq.cli.bench.load import Limit  # noqa: PLC0415

    return Limit(messages, SECONDS if messages is None and seconds is None else seconds)


def _run(load: "Load", nameserver: str | None, task: "Task", label: str, *, filled: int) -> "Outcome":
    """Run a load in the given or a temporary cluster with this many messages, and show progress."""
    counters = LiveCounters()
    return run(_run_with_progress(load, nameserver, task, counters, label, filled))


async def _run_with_progress(
    load: "Load", nameserver: str | None, task: "Task", counters: LiveCounters, label: str, filled: int
) -> "Outcome":
    from orbitmq.cli.bench.load import Limit, send_load  # noqa: PLC0415

    stop = stop_event()
    with counters.displayed(for_progress()):
        if nameserver is not None:
            return await load(nameserver, task, counters.counter(label, with_rate=True), stop)
        from orbitmq.cli.bench.cluster import temporary_cluster  # noqa: PLC0415

        async with temporary_cluster() as here:
            if filled:
                filling = dataclasses.replace(task, batch=FILLING_BATCH, limit=Limit(filled, None))
                await send_load(here, filling, counters.counter("filled in", with_rate=True), stop)
            return await load(here, task, counters.counter(label, with_rate=True), stop)


def _tell(what: str, outcome: "Outcome", task: "Task", nameserver: str | None, json: bool, *, latency: str) -> None:
    quantiles = {name: outcome.latencies.quantile(part) / 1000 for name, part in QUANTILES.items()}
    if json:
        print_json(
            {
                "load": what,
                "nameserver": nameserver,
                "topic": task.topic,
                "batch": task.batch,
                "messages": outcome.messages,
                "bytes": outcome.bytes,
                "seconds": outcome.seconds,
                "rate": outcome.rate,
                "latencyMs": quantiles,
                "failures": outcome.failures,
                "failure": outcome.failure or None,
            }
        )
    else:
        console = for_people()
        per_second = size_text(outcome.bytes / max(outcome.seconds, 1e-9))
        where = safe(nameserver) if nameserver else "a temporary cluster"
        console.print(
            f"[bold]{outcome.rate:,.0f}[/] messages/s, {per_second}/s: {what} {safe(task.topic)} at {where}"
        )
        console.print(f"{'messages':14}{outcome.messages:,} in {outcome.seconds:.2f} s")
        summary = ", ".join(f"{name} {value:,.2f}" for name, value in quantiles.items())
        console.print(f"{latency:14}{summary} ms")
        console.print(f"{'failed':14}{outcome.failures:,}")
    if outcome.failures:
        complain(f"{many(outcome.failures, 'message')} failed, the first: {outcome.failure}")
        raise typer.Exit(1)
