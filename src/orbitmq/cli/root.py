"""The Typer application: global options and the verbs."""

import importlib
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from orbitmq import __version__

SUMMARY = "OrbitMQ: a message queue that speaks RocketMQ's protocol, formats and tools."


def make_app(verbs: Mapping[str, str], servers: Mapping[str, str]) -> typer.Typer:
    """The application with these verbs, each given as ``module:name``.

    Those in ``servers``, where their one-line help is, get their arguments unparsed: they have their own parser.
    """
    app = typer.Typer(name="orbitmq", help=SUMMARY, no_args_is_help=True, pretty_exceptions_enable=False)
    app.callback()(options)
    for verb, location in verbs.items():
        module, name = location.split(":")
        action: Any = getattr(importlib.import_module(module), name)
        if isinstance(action, typer.Typer):
            app.add_typer(action, name=verb)
        elif verb in servers:
            _add_server(app, verb, action, servers[verb])
        else:
            app.command(verb)(action)
    return app


def _add_server(app: typer.Typer, verb: str, action: Any, summary: str) -> None:
    settings = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}

    @app.command(verb, help=summary, context_settings=settings)
    def run(context: typer.Context) -> None:
        action(context.args)


def _show_version(is_set: bool) -> None:
    if is_set:
        from orbitmq import native  # noqa: PLC0415 - for this option only

        typer.echo(f"orbitmq {__version__}\nnative extension: {native.status()}")
        raise typer.Exit


def options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """OrbitMQ: a message queue that speaks RocketMQ's protocol, formats and tools."""
