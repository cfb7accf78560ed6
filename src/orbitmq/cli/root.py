"""The command as Typer reads it: its own options, and the verbs that are asked for."""

import importlib
from collections.abc import Iterable
from typing import Annotated, Any

import typer

from orbitmq import __version__
from orbitmq.cli.server_options import for_typer


def make_app(verbs: Iterable[tuple[str, str]]) -> typer.Typer:
    """The command, with verbs of which each is told where its action is."""
    app = typer.Typer(
        name="orbitmq",
        help="OrbitMQ: a message queue that is RocketMQ at every seam.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
    )
    app.callback()(options)
    for verb, place in verbs:
        module, name = place.split(":")
        action: Any = getattr(importlib.import_module(module), name)
        if isinstance(action, typer.Typer):
            app.add_typer(action, name=verb)
        else:
            app.command(verb)(for_typer(action))
    return app


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"orbitmq {__version__}")
        raise typer.Exit


def options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and leave."),
    ] = False,
) -> None:
    """OrbitMQ: a message queue that is RocketMQ at every seam."""
