"""``orbitmq quickstart``: starts a cluster of one broker, gives a tour, and keeps running until Ctrl-C."""

import asyncio
import contextlib
import os
import stat
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer
from rich.console import Console
from rich.panel import Panel
from rich.text import Text

from orbitmq.cli.interrupts import run
from orbitmq.cli.messages.options import DEFAULT_NAME_SERVER, client_errors
from orbitmq.cli.output import for_people, safe
from orbitmq.cli.server.broker import load_broker_settings
from orbitmq.cli.server.listen_address import LOOPBACK
from orbitmq.cli.server.serve import DATA, NAMESERVER_PORT, name_server_at
from orbitmq.cli.server.signals import stop_event

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from orbitmq.broker import Broker
    from orbitmq.nameserver import NameServer

MESSAGES = 20_000
MIN_MESSAGES = 100

SNIPPET = """\
# one program
from orbitmq import Message, Producer

with Producer("{nameserver}") as producer:
    print(producer.send(Message("orders", "hello", tags="paid")))

# another, which gets what is sent from now on
from orbitmq import Consumer

consumer = Consumer("{nameserver}", group="billing")

@consumer.on("orders", tags="paid")
def handle(message):
    print(message.text())

consumer.run()

# and every topic is a table of Spark
from orbitmq.spark import session

orders = session().read.format("orbitmq").options(nameserver="{nameserver}", subscribe="orders").load()
orders.selectExpr("queue_id", "queue_offset", "tags", "string(body)").show()"""


def quickstart(
    data: Annotated[
        Path | None,
        typer.Option(
            help="Directory of the store and the name server's files. Default: ~/.orbitmq.", show_default=False
        ),
    ] = None,
    once: Annotated[
        bool | None,
        typer.Option(
            "--once/--stay",
            envvar="ORBITMQ_QUICKSTART_ONCE",
            help="End after the tour, or stay until Ctrl-C. Default: stay; without a terminal until "
            "standard input ends.",
            show_default=False,
        ),
    ] = None,
    messages: Annotated[
        int, typer.Option(min=MIN_MESSAGES, help="Number of messages that the tour sends.")
    ] = MESSAGES,
    spark: Annotated[
        bool, typer.Option("--spark/--no-spark", help="End the tour with a Spark query, if Spark is installed.")
    ] = True,
    console: Annotated[
        bool,
        typer.Option("--console/--no-console", help="Serve the web console while it stays, if it is installed."),
    ] = True,
    console_port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            help="Port of the console; 0 for any free one. Default: 8280, or a free one if it is in use.",
            show_default=False,
        ),
    ] = None,
    nameserver_port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            help="Port of the name server; 0 for any free one. Default: 9876, or a free one if it is in use.",
            show_default=False,
        ),
    ] = None,
    broker_port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            help="Port of the broker; 0 for any free one. Default: 10911, or a free one if it is in use.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Start a name server and a broker, demonstrate a producer and consumers, and keep running."""
    with client_errors():
        tour = _TourOptions(once, messages, spark)
        console_options = (console, console_port)
        run(_quickstart((data or DATA).expanduser(), tour, console_options, nameserver_port, broker_port))


class _TourOptions(NamedTuple):
    """The tour: whether it ends the command, its messages, and its query in Spark."""

    once: bool | None
    messages: int
    with_spark: bool


async def _quickstart(
    data: Path,
    options: _TourOptions,
    console_options: tuple[bool, int | None],
    nameserver_port: int | None,
    broker_port: int | None,
) -> None:
    from orbitmq.cli.quickstart.tour import Tour  # noqa: PLC0415

    once = options.once
    with_console, console_port = console_options

    stop = stop_event()
    console = for_people()
    async with _one_node(data, nameserver_port, broker_port) as (nameserver, broker):
        tour = Tour(console, nameserver, broker, options.messages, with_spark=options.with_spark)
        if not await _until(stop, asyncio.create_task(tour.run())):
            return
        if once or (once is None and not _can_be_stopped()):
            return
        if once is None and not sys.stdin.isatty() and not sys.stdout.isatty():
            stop = stop_event(at_end_of_input=True)
        async with _console(nameserver, data, console_port) if with_console else _no_console() as web:
            _show(console, nameserver, broker, web)
            await stop.wait()


def _console(nameserver: str, data: Path, port: int | None) -> "AbstractAsyncContextManager[str | None]":
    from orbitmq.cli.quickstart.console import console_beside  # noqa: PLC0415

    return console_beside(nameserver, data, port)


def _no_console() -> "AbstractAsyncContextManager[None]":
    return contextlib.nullcontext()


async def _until(stop: asyncio.Event, work: asyncio.Task[None]) -> bool:
    """Run the work until it ends or ``stop`` is set; False if it was stopped. Raises the work's errors."""
    stopped = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([work, stopped], return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            work.result()
            return True
        return False
    finally:
        work.cancel()
        stopped.cancel()
        await asyncio.gather(work, stopped, return_exceptions=True)


def _can_be_stopped() -> bool:
    """There is a terminal, or a standard input whose end can stop it."""
    if sys.stdout.isatty():
        return True
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, AttributeError, ValueError):
        return False
    return sys.stdin.isatty() or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


# The cluster


@contextlib.asynccontextmanager
async def _one_node(
    data: Path, nameserver_port: int | None, broker_port: int | None
) -> AsyncIterator[tuple[str, "Broker"]]:
    """A name server, its address, and a broker registered with it, on this event loop."""
    names = await _name_server(data, nameserver_port)
    try:
        nameserver = f"{LOOPBACK}:{names.port}"
        broker = await _broker(data, broker_port, nameserver)
        try:
            await broker.registration.settled()
            yield nameserver, broker
        finally:
            await broker.stop()
    finally:
        await names.stop()


async def _name_server(data: Path, port: int | None) -> "NameServer":
    from orbitmq.remoting import ListenError  # noqa: PLC0415

    names = name_server_at(data, LOOPBACK, NAMESERVER_PORT if port is None else port)
    try:
        await names.start()
    except ListenError:
        if port is not None:
            raise
        return await _name_server(data, 0)
    return names


async def _broker(data: Path, port: int | None, nameserver: str) -> "Broker":
    from orbitmq.broker import Broker  # noqa: PLC0415
    from orbitmq.remoting import ListenError  # noqa: PLC0415

    settings = load_broker_settings(
        None, nameserver=nameserver, host=LOOPBACK, port=port, data=data / "store", has_features=True
    )
    broker = Broker(settings)
    try:
        await broker.start()
    except ListenError:
        if port is not None:
            raise
        return await _broker(data, 0, nameserver)
    return broker


def _show(console: Console, nameserver: str, broker: "Broker", web: str | None) -> None:
    settings = broker.settings
    text = Text()
    for label, value in (
        ("name server", nameserver),
        ("broker", settings.broker.broker_address),
        ("data", settings.store.store_path_root_dir),
        *([] if web is None else [("console", web)]),
    ):
        text.append(f"{label:<13}", style="bold").append(f"{value}\n")
    text.append("\n").append(SNIPPET.format(nameserver=nameserver), style="cyan")
    console.print()
    console.print(Panel(text, title="OrbitMQ is up", title_align="left", expand=False))
    where = "" if nameserver == DEFAULT_NAME_SERVER else f" -n {nameserver}"
    console.print(
        "Any RocketMQ client connects to the same address. In another terminal:\n"
        f"  [bold]orbitmq tail orders{safe(where)}[/]\n"
        f"  [bold]orbitmq send orders hello --tag paid{safe(where)}[/]\n"
        "Ctrl-C stops it."
    )
    sys.stdout.flush()
