"""``orbitmq dashboard``: serves the web console until Ctrl-C."""

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orbitmq.cli.messages.options import DEFAULT_NAME_SERVER
from orbitmq.cli.option_groups import option_groups
from orbitmq.cli.output import complain, for_people, plain_errors, safe
from orbitmq.cli.server.log_setup import LogFormat, set_up_server
from orbitmq.cli.server.signals import stop_event

if TYPE_CHECKING:
    from orbitmq.dashboard.config import DashboardConfig

DATA = Path("~/.orbitmq/dashboard")
PORT = 8280


@dataclasses.dataclass
class Where:
    """Clusters, and where to serve."""

    nameserver: Annotated[
        list[str] | None,
        typer.Option(
            "--nameserver",
            "-n",
            metavar="[NAME=]ADDR",
            help="Name servers of a cluster, as host:port, separated by ';'. Repeat it, with names, for several "
            f"clusters: -n prod=ns1:9876 -n test=ns2:9876. Default: $NAMESRV_ADDR, else {DEFAULT_NAME_SERVER}.",
            show_default=False,
        ),
    ] = None
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for the network.")] = "127.0.0.1"
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 for any free one.")] = PORT
    data: Annotated[
        Path | None,
        typer.Option(
            help=f"Directory of users, audit log and history. Default: {DATA}.",
            show_default=False,
        ),
    ] = None
    decoders: Annotated[
        Path | None,
        typer.Option(
            envvar="ORBITMQ_DECODERS",
            metavar="FILE",
            help="TOML file with the schemas of topics whose bodies are Avro or Protobuf: see docs/console.md.",
            show_default=False,
        ),
    ] = None
    pipeline: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=DIR",
            help="An archive, or the checkpoint of a streaming query, to show with its progress. May be repeated; "
            "with several clusters CLUSTER/NAME=DIR.",
            show_default=False,
        ),
    ] = None
    history_size: Annotated[
        int, typer.Option(min=0, max=4096, help="MiB of the file behind the plots; 0 for no history.")
    ] = 64


@dataclasses.dataclass
class Protection:
    """Who may do what."""

    login: Annotated[
        bool,
        typer.Option(
            "--login/--no-login",
            help="Whether users sign in. Without it, everybody on this machine is an administrator.",
        ),
    ] = True
    read_only: Annotated[bool, typer.Option("--read-only", help="Refuse every change of a cluster.")] = False
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Name in the address bar of browsers, for a console behind a proxy. May be repeated.",
            show_default=False,
        ),
    ] = None
    secure_cookies: Annotated[
        bool, typer.Option("--secure-cookies", help="Send cookies over HTTPS only, behind a proxy with TLS.")
    ] = False
    tls_cert: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Certificate in PEM: serve the console over HTTPS.", show_default=False),
    ] = None
    tls_key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Key of the certificate in PEM.", show_default=False)
    ] = None
    access_key: Annotated[
        str,
        typer.Option(envvar="ORBITMQ_ACCESS_KEY", help="Access key of the clusters.", show_default=False),
    ] = ""
    secret_key: Annotated[
        str,
        typer.Option(envvar="ORBITMQ_SECRET_KEY", help="Secret key of the clusters.", show_default=False),
    ] = ""


@dataclasses.dataclass
class SingleSignOn:
    """A provider of OpenID Connect, besides the console's own users."""

    oidc_issuer: Annotated[
        str,
        typer.Option(metavar="URL", help="Issuer of OpenID Connect at which users sign in.", show_default=False),
    ] = ""
    oidc_client_id: Annotated[str, typer.Option(help="Client id of the console there.", show_default=False)] = ""
    oidc_client_secret: Annotated[
        str,
        typer.Option(
            envvar="ORBITMQ_OIDC_CLIENT_SECRET", help="Client secret; none for a public client.", show_default=False
        ),
    ] = ""
    oidc_claim: Annotated[str, typer.Option(help="Claim with the groups or roles of a user.")] = "groups"
    oidc_role: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ROLE=GROUP",
            help="The role that a value of the claim gives; '*' for everybody. May be repeated. Default: viewer=*.",
            show_default=False,
        ),
    ] = None


@dataclasses.dataclass
class Process:
    """How it runs."""

    log_format: Annotated[LogFormat, typer.Option(help="Format of the log lines on standard error.")] = (
        LogFormat.TEXT
    )
    until_eof: Annotated[
        bool, typer.Option("--until-eof", hidden=True, help="Stop at the end of standard input.")
    ] = False


@option_groups
def dashboard(where: Where, protection: Protection, single_sign_on: SingleSignOn, process: Process) -> None:
    """Serve the web console: overview, topics, groups, messages, dead letters, brokers, and a REST interface.

    At the first start it prints the password of the user admin. Users, the audit log and the plots are kept in the
    data directory.
    """
    # The extra may be missing: that must fail before anything is set up.
    from orbitmq.admin.errors import AdminError  # noqa: PLC0415
    from orbitmq.dashboard.server import serve  # noqa: PLC0415
    from orbitmq.platform.event_loop import run  # noqa: PLC0415

    set_up_server(process.log_format)
    with plain_errors():
        try:
            run(_serve(serve, _config(where, protection, single_sign_on), process.until_eof))
        except AdminError as error:
            complain(str(error))
            raise typer.Exit(1) from None


def _config(where: Where, protection: Protection, single_sign_on: SingleSignOn) -> "DashboardConfig":
    from orbitmq.dashboard.auth.oidc import OidcConfig, parse_roles  # noqa: PLC0415
    from orbitmq.dashboard.config import DashboardConfig, parse_pipelines, parse_targets  # noqa: PLC0415

    given = where.nameserver or [os.environ.get("NAMESRV_ADDR") or DEFAULT_NAME_SERVER]
    targets = parse_targets(given)
    return DashboardConfig(
        targets=targets,
        pipelines=parse_pipelines(where.pipeline or (), targets),
        data=str((where.data or DATA).expanduser()),
        host=where.host,
        port=where.port,
        login=protection.login,
        read_only=protection.read_only,
        allowed_hosts=tuple(name.lower() for name in protection.allow_host or ()),
        secure_cookies=protection.secure_cookies or protection.tls_cert is not None,
        tls_certificate="" if protection.tls_cert is None else str(protection.tls_cert.expanduser()),
        tls_key="" if protection.tls_key is None else str(protection.tls_key.expanduser()),
        oidc=OidcConfig(
            issuer=single_sign_on.oidc_issuer,
            client_id=single_sign_on.oidc_client_id,
            client_secret=single_sign_on.oidc_client_secret,
            claim=single_sign_on.oidc_claim,
            roles=parse_roles(single_sign_on.oidc_role or ()),
        )
        if single_sign_on.oidc_issuer
        else None,
        access_key=protection.access_key,
        secret_key=protection.secret_key,
        decoders="" if where.decoders is None else str(where.decoders.expanduser()),
        history_mib=where.history_size,
    )


async def _serve(serve: Callable[..., object], config: "DashboardConfig", until_eof: bool) -> None:
    from orbitmq.dashboard.console import Console  # noqa: PLC0415

    stop = stop_event(at_end_of_input=until_eof)
    console = Console(config)
    out = for_people()
    password = console.users.create_first() if config.login else None

    def ready(port: int) -> None:
        scheme = "https" if config.tls_certificate else "http"
        host = f"[{config.host}]" if ":" in config.host else config.host
        out.print(f"[bold]console[/]      {scheme}://{safe(host)}:{port}", soft_wrap=True)
        if password is not None:
            out.print(
                f"[bold]first user[/]   admin, password {safe(password)}\n"
                "             (printed this once: change it in the console)",
                soft_wrap=True,
            )
        out.file.flush()

    await serve(console, stop, ready)  # type: ignore[misc]
