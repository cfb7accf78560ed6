"""``orbitmq quickstart``: a cluster of one, a tour of what it does, and then it is yours until Ctrl-C."""

import asyncio
import contextlib
import os
import stat
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.panel import Panel
from rich.text import Text

from orbitmq.cli.broker import settings_of
from orbitmq.cli.console import for_people, safe
from orbitmq.cli.reaching import DEFAULT_NAME_SERVER, client_errors
from orbitmq.cli.serve import DATA, HOST, NAMESERVER_PORT, name_server_at
from orbitmq.cli.stopping import told_to_stop

if TYPE_CHECKING:
    from orbitmq.broker import Broker
    from orbitmq.nameserver import NameServer

MESSAGES = 20_000
LEAST_MESSAGES = 100

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
        typer.Option(help="Where everything is kept. Default: ~/.orbitmq.", show_default=False),
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
    messages: Annotated[int, typer.Option(min=LEAST_MESSAGES, help="How many messages the tour sends.")] = MESSAGES,
    spark: Annotated[
        bool, typer.Option("--spark/--no-spark", help="End the tour with a query in Spark, where that can run.")
    ] = True,
    nameserver_port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            help="The name server's port; 0 for any. Default: 9876, or any if that is taken.",
            show_default=False,
        ),
    ] = None,
    broker_port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            help="The broker's port; 0 for any. Default: 10911, or any if that is taken.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Start a name server and a broker, show a producer and consumers at work, and stay up to be used."""
    with client_errors():
        from orbitmq.remoting import run  # noqa: PLC0415 - help texts do without the server

        run(_quickstart((data or DATA).expanduser(), once, messages, spark, nameserver_port, broker_port))


async def _quickstart(
    data: Path,
    once: bool | None,
    messages: int,
    with_spark: bool,
    nameserver_port: int | None,
    broker_port: int | None,
) -> None:
    from orbitmq.cli.quickstart_tour import Tour  # noqa: PLC0415

    stop = told_to_stop()
    console = for_people()
    async with _one_node(data, nameserver_port, broker_port) as (nameserver, broker):
        tour = Tour(console, nameserver, broker, messages, with_spark=with_spark)
        if not await _until(stop, asyncio.create_task(tour.run())):
            return
        if once or (once is None and not _somebody_is_there()):
            return
        _show(console, nameserver, broker)
        if once is None and not sys.stdin.isatty() and not sys.stdout.isatty():
            stop = told_to_stop(at_end_of_input=True)
        await stop.wait()


async def _until(stop: asyncio.Event, work: asyncio.Task[None]) -> bool:
    """Do the work, unless somebody says stop before its end. Raises what the work raises."""
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


def _somebody_is_there() -> bool:
    """Whether there is a terminal, or at least a standard input that somebody will close."""
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
    """A name server, where it is, and a broker that is registered with it, on this loop."""
    names = await _name_server(data, nameserver_port)
    try:
        nameserver = f"{HOST}:{names.port}"
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

    names = name_server_at(data, HOST, NAMESERVER_PORT if port is None else port)
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

    settings = settings_of(None, nameserver=nameserver, host=HOST, port=port, data=data / "store")
    # Off in RocketMQ unless asked for; the tour shows it.
    settings.broker.enable_property_filter = True
    broker = Broker(settings)
    try:
        await broker.start()
    except ListenError:
        if port is not None:
            raise
        return await _broker(data, 0, nameserver)
    return broker


def _show(console: Console, nameserver: str, broker: "Broker") -> None:
    settings = broker.settings
    text = Text()
    for label, value in (
        ("name server", nameserver),
        ("broker", settings.broker.broker_address),
        ("data", settings.store.store_path_root_dir),
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
