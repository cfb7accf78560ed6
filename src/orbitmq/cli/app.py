"""The root of the command: its options, and its verbs, of which the one that is typed is loaded."""

import importlib
import sys
from collections.abc import Iterable
from typing import Annotated, Any

import typer

from orbitmq import __version__

VERBS = {
    "quickstart": "orbitmq.cli.quickstart:quickstart",
    "serve": "orbitmq.cli.serve:serve",
    "send": "orbitmq.cli.send:send",
    "tail": "orbitmq.cli.tail:tail",
    "find": "orbitmq.cli.find:find",
    "trace": "orbitmq.cli.trace:trace",
    "nameserver": "orbitmq.cli.nameserver:nameserver",
    "broker": "orbitmq.cli.broker:broker",
    "store": "orbitmq.cli.store:store_app",
    "outbox": "orbitmq.cli.outbox:outbox_app",
    "pipeline": "orbitmq.cli.pipeline:pipeline_app",
    "sql": "orbitmq.cli.sql:sql",
}
"""What is behind each verb. A broker need not wait for the code that verifies stores, nor the other way round."""


def app_with(verbs: Iterable[str]) -> typer.Typer:
    """The command, with these verbs."""
    app = typer.Typer(
        name="orbitmq",
        help="OrbitMQ: a message queue that is RocketMQ at every seam.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
    )
    app.callback()(options)
    for verb in verbs:
        module, name = VERBS[verb].split(":")
        action: Any = getattr(importlib.import_module(module), name)
        if isinstance(action, typer.Typer):
            app.add_typer(action, name=verb)
        else:
            app.command(verb)(action)
    return app


def main() -> None:
    """What the ``orbitmq`` command runs."""
    typed = next((word for word in sys.argv[1:] if not word.startswith("-")), "")
    # A word that is no verb gets the list of those there are.
    app_with([typed] if typed in VERBS else VERBS)()


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
