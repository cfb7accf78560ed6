"""``orbitmq context``: named clusters, so that their addresses and keys are not typed."""

import dataclasses
import sys
from typing import Annotated

import typer

from orbitmq.cli.admin.framework import contexts
from orbitmq.cli.admin.framework.completion import complete_context
from orbitmq.cli.admin.framework.view import Output, Pairs, Table, View
from orbitmq.cli.output import complain, plain_errors

context_app = typer.Typer(help="Contexts, named clusters: add, use, list, show, remove.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the context.", autocompletion=complete_context)]
Format = Annotated[Output, typer.Option("--output", "-o", help="Format of the output.")]


@context_app.command("add")
def add(
    name: Name,
    nameserver: Annotated[
        str, typer.Option("--nameserver", "-n", metavar="ADDR", help="Name servers, separated by ';'.")
    ],
    cluster: Annotated[str, typer.Option("--cluster", "-c", help="Cluster that commands mean.")] = "",
    access_key: Annotated[
        str, typer.Option(metavar="KEY", help="The secret key is read from standard input.")
    ] = "",
    tls: Annotated[bool, typer.Option("--tls", help="Connect with TLS.")] = False,
    tls_ca: Annotated[str, typer.Option(metavar="FILE", help="Authorities that servers are verified with.")] = "",
) -> None:
    """Add a context, or replace it. The first one becomes the current one."""
    with plain_errors():
        secret = _read_secret() if access_key else ""
        known = contexts.load()
        made = contexts.Context(nameserver, cluster, access_key, secret, tls or bool(tls_ca), tls_ca)
        current = known.current if known.current in known.known else name
        contexts.save(contexts.Contexts({**known.known, name: made}, current))
        if current == name:
            complain(f"commands mean {nameserver} now")


def _read_secret() -> str:
    """The secret key: typed without an echo, or the first line of standard input."""
    if sys.stdin.isatty():
        return str(typer.prompt("Secret key", hide_input=True, err=True))
    secret = sys.stdin.readline().rstrip("\n")
    if not secret:
        raise typer.BadParameter("--access-key needs the secret key on standard input")
    return secret


@context_app.command("use")
def use(name: Name) -> None:
    """Make a context the current one; `-` for none."""
    with plain_errors():
        known = contexts.load()
        if name != "-":
            known.named(name)
        contexts.save(dataclasses.replace(known, current="" if name == "-" else name))


@context_app.command("list")
def list_contexts(output: Format = Output.TABLE) -> None:
    """List the contexts."""
    with plain_errors():
        known = contexts.load()
        rows = [
            (name, name == known.current, one.name_servers, one.cluster, one.access_key, one.tls)
            for name, one in sorted(known.known.items())
        ]
        table = Table("name current nameServers cluster accessKey tls", rows, "no context yet: orbitmq context add")
        View.of(table).show(output)


@context_app.command("show")
def show(name: Name, output: Format = Output.TABLE) -> None:
    """Show a context, without its secret key."""
    with plain_errors():
        one = contexts.load().named(name)
        about = {"name": name, "nameServers": one.name_servers, "cluster": one.cluster, "accessKey": one.access_key}
        View.of(Pairs({**about, "tls": one.tls, "tlsCa": one.tls_ca, "file": str(contexts.path())})).show(output)


@context_app.command("remove")
def remove(name: Name) -> None:
    """Remove a context with its keys."""
    with plain_errors():
        known = contexts.load()
        known.named(name)
        left = {other: one for other, one in known.known.items() if other != name}
        contexts.save(contexts.Contexts(left, "" if known.current == name else known.current))
