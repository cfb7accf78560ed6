"""``orbitmq broker``: a broker in the foreground until it is told to stop."""

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

    from orbitmq.broker import BrokerSettings
else:
    typer = lazy_module("typer")

HOST_WITHOUT_A_FILE = "127.0.0.1"
"""Anybody who reaches a broker may read and write its topics, so other machines have to be asked for."""


def broker(
    conf: Annotated[
        Path | None,
        option("--conf", "-c", help="A broker.conf, as for RocketMQ's own.", show_default=False),
    ] = None,
    nameserver: Annotated[
        str | None,
        option(
            "--nameserver",
            "-n",
            help="Name servers to register with: host:port;host:port. \\[default: namesrvAddr of the file]",
            show_default=False,
        ),
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
            help="The port to listen on; 0 for any. The VIP port is two below. \\[default: listenPort of the file; "
            "10911]",
            show_default=False,
        ),
    ] = None,
    name: Annotated[
        str | None,
        option(help="The broker's name. \\[default: brokerName of the file; the host's]", show_default=False),
    ] = None,
    data: Annotated[
        Path | None,
        option(help="Where the store lies. \\[default: storePathRootDir of the file; ~/store]", show_default=False),
    ] = None,
    print_config: Annotated[bool, option("--print-config", "-p", help="Show all settings and leave.")] = False,
    print_important: Annotated[
        bool, option("--print-important", "-m", help="Show the important settings and leave.")
    ] = False,
    log_format: Annotated[LogFormat, option(help="How log lines look.")] = LogFormat.TEXT,
    until_eof: Annotated[bool, option("--until-eof", hidden=True)] = False,
) -> None:
    """Run a broker: it stores messages and serves producers, consumers and tools."""
    with plain_errors():
        settings = settings_of(
            # Whoever started it and ends it has read the same file, and said what is wrong with it.
            conf, nameserver=nameserver, host=host, port=port, name=name, data=data, warns=not until_eof
        )  # fmt: skip
        if print_config:
            typer.echo(settings.as_properties(), nl=False)
        elif print_important:
            typer.echo(settings.important_properties(), nl=False)
        else:
            set_up_logs(log_format)
            _run(settings, until_eof)


def settings_of(
    conf: Path | None,
    *,
    nameserver: str | None = None,
    host: str | None = None,
    port: int | None = None,
    name: str | None = None,
    data: Path | None = None,
    warns: bool = True,
) -> "BrokerSettings":
    """The settings of a broker: those of the file, then what the command line says. Unknown keys are told."""
    # Imported when it is needed: other verbs do without a broker.
    from orbitmq.broker import load_settings  # noqa: PLC0415
    from orbitmq.store import LocalDisk  # noqa: PLC0415

    said = {
        "namesrvAddr": nameserver,
        "bindAddress": host if host is not None or conf is not None else HOST_WITHOUT_A_FILE,
        "listenPort": None if port is None else str(port),
        "brokerName": name,
        "storePathRootDir": None if data is None else str(data),
    }
    settings, unknown = load_settings(
        LocalDisk(),
        None if conf is None else str(conf),
        {key: value for key, value in said.items() if value is not None},
    )
    if unknown and warns:
        complain(f"{conf}: not known here and passed over: {', '.join(sorted(unknown))}")
    return settings


def _run(settings: "BrokerSettings", until_eof: bool) -> None:
    from orbitmq.remoting import RemotingError, run  # noqa: PLC0415

    try:
        run(_serve(settings, until_eof))
    except RemotingError as error:
        complain(str(error))
        raise typer.Exit(1) from None


async def _serve(settings: "BrokerSettings", until_eof: bool) -> None:
    from orbitmq.broker import Broker  # noqa: PLC0415

    stop = told_to_stop(at_end_of_input=until_eof)
    server = Broker(settings)
    await server.start()
    started()
    try:
        config = settings.broker
        registered = config.namesrv_addr or "no name server"
        print(
            f"The broker {config.broker_name} listens on {config.bind_address}:{server.port}, "
            f"is known as {config.broker_address} and registers with {registered}",
            flush=True,
        )
        await stop.wait()
    finally:
        await server.stop()
