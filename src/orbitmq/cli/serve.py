"""``orbitmq serve``: a name server and brokers with one command, and where they are."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from orbitmq.cli.broker import settings_of
from orbitmq.cli.collecting import started
from orbitmq.cli.console import complain, for_people, plain_errors
from orbitmq.cli.logs import LogFormat, set_up_logs
from orbitmq.cli.server_options import option
from orbitmq.cli.stopping import told_to_stop
from orbitmq.lazily import lazy_module

if TYPE_CHECKING:
    import typer

    from orbitmq.broker import BrokerSettings
    from orbitmq.cli.supervising import Child
    from orbitmq.nameserver import NameServer
else:
    typer = lazy_module("typer")

DATA = Path("~/.orbitmq")
HOST = "127.0.0.1"
NAMESERVER_PORT = 9876
MOST_BROKERS = 64
PORTS_PER_BROKER = 10
"""Brokers of one machine listen this far apart; each takes its port and the VIP port two below."""

SNIPPET = """\
// any RocketMQ client, in Java for instance
DefaultMQProducer producer = new DefaultMQProducer("my-group");
producer.setNamesrvAddr("{nameserver}");
producer.start();
producer.send(new Message("orders", "hello".getBytes()));"""


def serve(
    data: Annotated[
        Path | None,
        option(help="Where everything is kept. \\[default: ~/.orbitmq]", show_default=False),
    ] = None,
    host: Annotated[
        str | None,
        option(
            help="The address of the interface to listen on; 0.0.0.0 for all. "
            "\\[default: bindAddress of the file; 127.0.0.1]",
            show_default=False,
        ),
    ] = None,
    nameserver_port: Annotated[
        int, option(min=0, max=65535, help="The name server's port; 0 for any.")
    ] = NAMESERVER_PORT,
    broker_port: Annotated[
        int | None,
        option(
            min=0,
            max=65535,
            help="The broker's port; 0 for any. The VIP port is two below. "
            "\\[default: listenPort of the file; 10911]",
            show_default=False,
        ),
    ] = None,
    conf: Annotated[
        Path | None,
        option(
            "--conf",
            "-c",
            help="A broker.conf, as for RocketMQ's own. What the command line says as well wins.",
            show_default=False,
        ),
    ] = None,
    brokers: Annotated[
        int,
        option(min=1, max=MOST_BROKERS, help="How many brokers to run; several have a process each."),
    ] = 1,
    log_format: Annotated[LogFormat, option(help="How log lines look.")] = LogFormat.TEXT,
) -> None:
    """Run a name server and a broker, or several, until Ctrl-C: a whole cluster on this machine."""
    from orbitmq.remoting import RemotingError, run  # noqa: PLC0415

    if conf is None:
        host = host or HOST
        data = data or DATA
    data = None if data is None else data.expanduser()
    with plain_errors():
        set_up_logs(log_format)
        try:
            if brokers == 1:
                run(_serve_one(data, host, nameserver_port, broker_port, conf))
            else:
                run(_serve_many(data, host, nameserver_port, broker_port, conf, brokers, log_format))
        except RemotingError as error:
            complain(str(error))
            raise typer.Exit(1) from None


async def _serve_one(
    data: Path | None, host: str | None, nameserver_port: int, broker_port: int | None, conf: Path | None
) -> None:
    """Name server and broker on one loop."""
    from orbitmq.broker import Broker  # noqa: PLC0415

    stop = told_to_stop()
    settings = settings_of(conf, host=host, port=broker_port, data=None if data is None else data / "store")
    names = name_server_at(data, host or settings.broker.bind_address, nameserver_port)
    await names.start()
    try:
        address = _address(names)
        settings.broker.namesrv_addr = ";".join(filter(None, (address, settings.broker.namesrv_addr)))
        broker = Broker(settings)
        await broker.start()
        try:
            started()
            _show(address, [settings.broker.broker_address], settings.store.store_path_root_dir)
            await stop.wait()
        finally:
            await broker.stop()
    finally:
        await names.stop()


async def _serve_many(
    data: Path | None,
    host: str | None,
    nameserver_port: int,
    broker_port: int | None,
    conf: Path | None,
    count: int,
    log_format: LogFormat,
) -> None:
    """The name server here, each broker in a process that is started again if it dies."""
    from orbitmq.cli.supervising import Supervisor  # noqa: PLC0415

    stop = told_to_stop()
    settings = settings_of(conf, host=host, port=broker_port, data=None if data is None else data / "store")
    _refuse_one_log_for_all(settings)
    names = name_server_at(data, host or settings.broker.bind_address, nameserver_port)
    await names.start()
    try:
        address = _address(names)
        known = ";".join(filter(None, (address, settings.broker.namesrv_addr)))
        first = settings.broker.listen_port
        root = Path(settings.store.store_path_root_dir)
        ports = [first and first + PORTS_PER_BROKER * number for number in range(count)]
        same = ["-n", known, "--host", settings.broker.bind_address, "--log-format", log_format]
        children = [
            _child(number, settings.broker.broker_name, root, port, same, conf) for number, port in enumerate(ports)
        ]
        supervisor = Supervisor(children)
        supervisor.start()
        started()
        try:
            ip = settings.broker.broker_ip1
            shown = [f"{ip}:{port}" if port else f"{ip}, any port" for port in ports]
            _show(address, shown, str(root.parent))
            await stop.wait()
        finally:
            await supervisor.stop()
    finally:
        await names.stop()


def _refuse_one_log_for_all(settings: "BrokerSettings") -> None:
    """The data of each broker lies in a directory of its own, unless a file says where a part of it lies."""
    from orbitmq.settings import ConfigError  # noqa: PLC0415

    for key, path in (
        ("storePathCommitLog", settings.store.store_path_commit_log),
        ("readOnlyCommitLogStorePaths", settings.store.read_only_commit_log_store_paths),
    ):
        if path:
            raise ConfigError(f"{key}={path}: several brokers cannot have one log; leave it out, or run one broker")


def _child(number: int, name: str, root: Path, port: int, same: list[str], conf: Path | None) -> "Child":
    """The first broker is the one that runs alone otherwise, with its name and data; the others stand beside it."""
    from orbitmq.cli.supervising import Child  # noqa: PLC0415

    if number:
        name, root = f"{name}-{number}", root.with_name(f"{root.name}-{number}")
    arguments = ["broker", "--until-eof", *same, "--port", str(port), "--name", name, "--data", str(root)]
    return Child(name, arguments if conf is None else [*arguments, "-c", str(conf)])


def name_server_at(data: Path | None, host: str, port: int) -> "NameServer":
    """A name server that keeps what it has to keep beside the brokers' data."""
    from orbitmq.nameserver import NameServer, NameServerConfig  # noqa: PLC0415

    place = (data or DATA.expanduser()) / "namesrv"
    return NameServer(
        NameServerConfig(
            bind_address=host,
            listen_port=port,
            kv_config_path=str(place / "kvConfig.json"),
            config_store_path=str(place / "namesrv.properties"),
        )
    )


def _address(names: "NameServer") -> str:
    """Where the brokers of this machine find the name server."""
    host = names.config.bind_address
    reached = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, host)  # noqa: S104
    return f"{reached}:{names.port}"


def _show(nameserver: str, brokers: list[str], place: str) -> None:
    from rich.panel import Panel  # noqa: PLC0415 - when it listens already
    from rich.text import Text  # noqa: PLC0415

    text = Text()
    text.append("name server  ", style="bold").append(f"{nameserver}\n")
    for address in brokers:
        text.append("broker       ", style="bold").append(f"{address}\n")
    text.append("data         ", style="bold").append(f"{place}\n\n")
    text.append(SNIPPET.format(nameserver=nameserver), style="cyan")
    console = for_people()
    console.print(Panel(text, title="OrbitMQ", title_align="left", expand=False))
    console.print("Ctrl-C stops it.")
