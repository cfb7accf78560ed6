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
    app = typer.Typer(
        name="orbitmq",
        help=SUMMARY,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"default_map": _defaults(verbs)},
    )
    app.callback()(options)
    for verb, location in verbs.items():
        module, name = location.split(":")
        panel = "Administration" if module.startswith("orbitmq.cli.admin") else None
        action: Any = getattr(importlib.import_module(module), name)
        if isinstance(action, typer.Typer):
            app.add_typer(action, name=verb, rich_help_panel=panel)
        elif verb in servers:
            _add_server(app, verb, action, servers[verb], panel)
        else:
            app.command(verb, rich_help_panel=panel)(action)
    return app


ADDRESSED = ("send", "tail", "find", "trace")
"""Verbs that take the address of name servers and nothing else of a context."""


def _defaults(verbs: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Defaults of options: the address of the current context, which NAMESRV_ADDR and ``-n`` override."""
    chosen = [verb for verb in ADDRESSED if verb in verbs]
    if not chosen:
        return {}
    from orbitmq.cli.admin.framework.contexts import current_name_servers  # noqa: PLC0415 - for these verbs only

    address = current_name_servers()
    return {verb: {"nameserver": address} for verb in chosen} if address else {}


def _add_server(app: typer.Typer, verb: str, action: Any, summary: str, panel: str | None) -> None:
    settings = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}

    @app.command(verb, help=summary, context_settings=settings, rich_help_panel=panel)
    def run(context: typer.Context) -> None:
        from orbitmq.cli.app import operate  # noqa: PLC0415 - it imports this module

        if not operate(verb, context.args):
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
