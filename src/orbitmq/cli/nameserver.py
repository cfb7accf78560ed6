"""``orbitmq nameserver``: a name server in the foreground until it is told to stop."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from orbitmq.cli.collecting import started
from orbitmq.cli.console import complain, plain_errors
from orbitmq.cli.logs import LogFormat, set_up_logs
from orbitmq.cli.server_options import option
from orbitmq.cli.stopping import told_to_stop
from orbitmq.lazily import lazy_module

if TYPE_CHECKING:
    import typer

    from orbitmq.nameserver import NameServerConfig
else:
    typer = lazy_module("typer")

HOST_WITHOUT_A_FILE = "127.0.0.1"
"""Anybody who reaches a name server may change what it says, so other machines have to be asked for."""


def nameserver(
    conf: Annotated[
        Path | None,
        option("--conf", "-c", help="A properties file, as for RocketMQ's own.", show_default=False),
    ] = None,
    host: Annotated[
        str | None,
        option(
            help="The address of the interface to listen on; 0.0.0.0 for all. "
            "\\[default: bindAddress of the file; 127.0.0.1 without a file]",
            show_default=False,
        ),
    ] = None,
    port: Annotated[
        int | None,
        option(
            min=0,
            max=65535,
            help="The port to listen on; 0 for any. \\[default: listenPort of the file; 9876]",
            show_default=False,
        ),
    ] = None,
    print_config: Annotated[bool, option("--print-config", "-p", help="Show all settings and leave.")] = False,
    log_format: Annotated[LogFormat, option(help="How log lines look.")] = LogFormat.TEXT,
) -> None:
    """Run a name server: brokers register with it, clients find them through it."""
    with plain_errors():
        config = _config(conf, host, port)
        if print_config:
            typer.echo(config.as_properties(), nl=False)
            return
        set_up_logs(log_format)
        _run(config)


def _config(conf: Path | None, host: str | None, port: int | None) -> "NameServerConfig":
    # Imported when it is needed: the other verbs do without a network.
    from orbitmq.nameserver import NameServerConfig, load_config  # noqa: PLC0415
    from orbitmq.store import LocalDisk  # noqa: PLC0415

    if conf is None:
        config = NameServerConfig(bind_address=HOST_WITHOUT_A_FILE)
    else:
        config, unknown = load_config(LocalDisk(), str(conf))
        if unknown:
            complain(f"{conf}: not known here and passed over: {', '.join(unknown)}")
    if host is not None:
        config.bind_address = host
    if port is not None:
        config.listen_port = port
    return config


def _run(config: "NameServerConfig") -> None:
    from orbitmq.remoting import RemotingError, run  # noqa: PLC0415

    try:
        run(_serve(config))
    except RemotingError as error:
        complain(str(error))
        raise typer.Exit(1) from None


async def _serve(config: "NameServerConfig") -> None:
    from orbitmq.nameserver import NameServer  # noqa: PLC0415

    stop = told_to_stop()
    server = NameServer(config)
    await server.start()
    try:
        started()
        print(f"The name server listens on {config.bind_address}:{server.port}", flush=True)
        await stop.wait()
    finally:
        await server.stop()
