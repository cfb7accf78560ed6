"""The root of the command: its options and its groups of verbs."""

from typing import Annotated

import typer

from orbitmq import __version__
from orbitmq.cli.broker import broker
from orbitmq.cli.nameserver import nameserver
from orbitmq.cli.serve import serve
from orbitmq.cli.store import store_app
from orbitmq.cli.tour import tour

app = typer.Typer(
    name="orbitmq",
    help="OrbitMQ: a message queue that is RocketMQ at every seam.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(store_app, name="store")
app.command()(tour)
app.command()(serve)
app.command()(nameserver)
app.command()(broker)


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"orbitmq {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and leave."),
    ] = False,
) -> None:
    """OrbitMQ: a message queue that is RocketMQ at every seam."""
