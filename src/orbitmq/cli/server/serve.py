"""``orbitmq serve``: runs a whole cluster, a name server and one or more brokers, with one command."""

import argparse
import asyncio
import contextlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from orbitmq.cli.output import complain, plain_errors
from orbitmq.cli.server.arguments import ServerParser, bounded_number, port
from orbitmq.cli.server.broker import METRICS_HELP, load_broker_settings, metrics_line
from orbitmq.cli.server.gc_tuning import enable_gc_after_start
from orbitmq.cli.server.grpc_port import start_grpc
from orbitmq.cli.server.listen_address import HOST_HELP, reachable_from
from orbitmq.cli.server.log_setup import set_up_server
from orbitmq.cli.server.signals import stop_event

if TYPE_CHECKING:
    from orbitmq.auth.access import AccessControl
    from orbitmq.auth.settings import AuthSettings
    from orbitmq.broker import BrokerSettings
    from orbitmq.cli.server.secure import Security
    from orbitmq.cli.server.supervisor import Child
    from orbitmq.controller import ControllerConfig
    from orbitmq.nameserver import NameServer, NameServerConfig

DATA = Path("~/.orbitmq")
NAMESERVER_PORT = 9876
GRPC_PORT = 8081
MAX_BROKERS = 64
MAX_REPLICAS = 4
CONTROLLER_PORT = 9878
CONTROLLER_DIRECTORY = "controller"
FAILOVER_REPLICAS = 3
"""From so many replicas on, a controller decides which is the master: two of three go on without the third."""
START_SECONDS = 15.0
"""Time for the first elections before the banner is printed without masters."""

START_LOOK_SECONDS = 0.05
HANGS_MS = 4500
"""Time without a heartbeat after which another master is elected; RocketMQ's default is 10 s.

Clients of RocketMQ wait 3 s for an answer: the second time-out in a row then finds the new master.
"""

PORTS_PER_BROKER = 10
"""Distance between the ports of the brokers of one machine; each uses its port and the VIP port two below."""

SNIPPET = """\
// any RocketMQ client, in Java for instance
DefaultMQProducer producer = new DefaultMQProducer("my-group");
producer.setNamesrvAddr("{nameserver}");
producer.start();
producer.send(new Message("orders", "hello".getBytes()));"""

FAILOVER_HINT = """
Which broker is the master, and what happens when you kill -9 it:
  orbitmq controller replicas {name} -a {controller}"""


def parser() -> ServerParser:
    parser = ServerParser(
        "serve", "Run a name server and one or more brokers until Ctrl-C: a whole cluster on this machine."
    )
    add = parser.add_argument
    add(
        "--data",
        type=Path,
        metavar="DIR",
        help="Directory of the message stores and of the name server's files. [default: ~/.orbitmq, or "
        "storePathRootDir of the settings file if one is given]",
    )
    add("--host", metavar="ADDRESS", help=HOST_HELP)
    add(
        "--nameserver-port",
        type=port,
        metavar="PORT",
        default=NAMESERVER_PORT,
        help=f"Port of the name server; 0 for any free one. [default: {NAMESERVER_PORT}]",
    )
    add(
        "--broker-port",
        type=port,
        metavar="PORT",
        help="Port of the broker; 0 for any free one. The VIP port is two below. [default: listenPort of the "
        "settings file, else 10911]",
    )
    add(
        "--grpc-port",
        type=port,
        metavar="PORT",
        help="Port for clients of the gRPC protocol; 0 for none. [default: grpcServerPort of the settings file, "
        f"else {GRPC_PORT} if it is free]",
    )
    add(
        "--conf",
        "-c",
        type=Path,
        metavar="FILE",
        help="Settings file of the brokers, in the format of RocketMQ's broker.conf. Options override its values.",
    )
    add(
        "--brokers",
        type=_broker_count,
        metavar="N",
        default=1,
        help=f"Number of brokers, 1 to {MAX_BROKERS}. If there are several, each has a process of its own. "
        "[default: 1]",
    )
    add(
        "--replicas",
        type=_replica_count,
        metavar="N",
        default=1,
        help=f"Number of brokers of each name, 1 to {MAX_REPLICAS}: a master and slaves that copy its messages, "
        "each a process. With two of them and --set brokerRole=SYNC_MASTER --set inSyncReplicas=2 sends wait for "
        f"the slave; from {FAILOVER_REPLICAS} on see --failover. [default: 1]",
    )
    add(
        "--failover",
        action=argparse.BooleanOptionalAction,
        help="A controller in this process elects another master when one dies, and sends wait for the replicas "
        f"in sync. [default: with {FAILOVER_REPLICAS} replicas and more]",
    )
    add(
        "--controller-port",
        type=port,
        metavar="PORT",
        default=CONTROLLER_PORT,
        help=f"Port of the controller, with failover; 0 for any free one. [default: {CONTROLLER_PORT}]",
    )
    add(
        "--metrics-port",
        type=port,
        metavar="PORT",
        help=f"{METRICS_HELP} Of several brokers each uses the next port.",
    )
    add(
        "--secure",
        action="store_true",
        help="Make certificates and an administrator, and switch access control and TLS on. The secret of the "
        "administrator is printed at the first start.",
    )
    parser.add_setting_option()
    parser.add_tls_options()
    parser.add_common_options()
    return parser


def _broker_count(text: str) -> int:
    return bounded_number(text, 1, MAX_BROKERS)


def _replica_count(text: str) -> int:
    return bounded_number(text, 1, MAX_REPLICAS)


def main(arguments: Sequence[str]) -> None:
    """Run the command with these arguments."""
    from orbitmq.metrics.http_endpoint import MetricsEndpointError  # noqa: PLC0415
    from orbitmq.remoting import RemotingError, run  # noqa: PLC0415

    given = parser().parse_args(arguments)
    data: Path | None = given.data
    if data is None and given.conf is None:
        data = DATA
    data = None if data is None else data.expanduser()
    with plain_errors():
        set_up_server(given.log_format)
        if data is not None and not _has_failover(given):
            _check_was_without_failover(data)
        settings = _settings(given, data, given.set)
        security = _secured(given, data, settings) if given.secure else None
        if security is not None:
            settings = _settings(given, data, [*security.settings.items(), *given.set])
        access = _shared_access(settings) if given.brokers == given.replicas == 1 else None
        names = name_server_at(
            *(data, settings.broker.bind_address, given.nameserver_port, settings.broker, access),
            controller_port=given.controller_port if _has_failover(given) else None,
        )
        try:
            if given.brokers == given.replicas == 1:
                run(_serve_one(settings, names, given.grpc_port, security))
            else:
                if given.grpc_port:
                    complain("--grpc-port has no effect with several brokers: run `orbitmq proxy` beside them")
                _check_stores_are_separate(settings)
                run(_serve_many(settings, names, given))
        except (RemotingError, MetricsEndpointError) as error:
            complain(str(error))
            sys.exit(1)


def _has_failover(given: argparse.Namespace) -> bool:
    """True if a controller decides which broker is the master. Raises ConfigError."""
    from orbitmq.platform.settings import ConfigError  # noqa: PLC0415

    if given.failover and given.replicas == 1:
        raise ConfigError("--failover needs another broker that takes over: give --replicas 3")
    return bool(given.replicas >= FAILOVER_REPLICAS if given.failover is None else given.failover)


def _check_was_without_failover(root: Path) -> None:
    """Raise ConfigError for data of a group whose master was elected: the first store may lack messages."""
    from orbitmq.platform.settings import ConfigError  # noqa: PLC0415

    directory = root / CONTROLLER_DIRECTORY
    if directory.exists():
        raise ConfigError(
            f"the brokers in {root} had a controller, and any of them may have been the master: give --failover "
            f"and as many --replicas as before, or, if the first one has everything, remove {directory}"
        )


def _settings(given: argparse.Namespace, data: Path | None, sets: "Sequence[tuple[str, str]]") -> "BrokerSettings":
    return load_broker_settings(
        given.conf,
        host=given.host,
        port=given.broker_port,
        data=None if data is None else data / "store",
        metrics_port=given.metrics_port,
        sets=sets,
        has_features=True,
    )


def _secured(given: argparse.Namespace, data: Path | None, settings: "BrokerSettings") -> "Security":
    """Certificates and credentials for these settings. Raises ConfigError."""
    from orbitmq.cli.server.secure import make_secure  # noqa: PLC0415
    from orbitmq.platform.settings import ConfigError  # noqa: PLC0415

    if given.brokers != 1 or given.replicas != 1:
        # Each has its own users, and would get its secrets on its command line.
        raise ConfigError("--secure runs one broker: give authenticationEnabled and tls.* in --conf for several")
    config = settings.broker
    names = {config.broker_ip1, config.bind_address} - {"0.0.0.0", "::"}  # noqa: S104
    users_file = Path(settings.store.path("config", "auth.json"))
    return make_secure((data or DATA.expanduser()) / "security", users_file, names)


def _shared_access(settings: "BrokerSettings") -> "AccessControl":
    """Access control of the broker and the name server of this process: they have the same users."""
    from orbitmq.broker.auth_hook import access_of  # noqa: PLC0415
    from orbitmq.store import LocalDisk, SystemClock  # noqa: PLC0415

    return access_of(settings, LocalDisk(), SystemClock())


async def _serve_one(
    settings: "BrokerSettings", names: "NameServer", grpc_port: int | None, security: "Security | None"
) -> None:
    """Run the name server and one broker on one event loop."""
    from orbitmq.broker import Broker  # noqa: PLC0415

    stop = stop_event()
    await names.start()
    try:
        address = _local_address(names)
        settings.broker.namesrv_addr = _name_servers(address, settings)
        broker = Broker(settings, memory=names.memory, access=names.access)
        await broker.start()
        grpc = None
        try:
            grpc = await start_grpc(broker, grpc_port, default=GRPC_PORT)
            enable_gc_after_start()
            # Who reads the banner may use the cluster: clients find the broker at the name server.
            await broker.registration.settled()
            _print_banner(
                names,
                [settings.broker.broker_address],
                settings.store.store_path_root_dir + metrics_line(broker).lower(),
                None if grpc is None else f"{settings.broker.broker_ip1}:{grpc.port}",
                security,
            )
            await stop.wait()
        finally:
            if grpc is not None:
                await grpc.stop()
            await broker.stop()
    finally:
        await names.stop()


async def _serve_many(settings: "BrokerSettings", names: "NameServer", given: argparse.Namespace) -> None:
    """Run the name server here and each broker in a process of its own, restarted if it dies."""
    from orbitmq.cli.server.supervisor import Supervisor  # noqa: PLC0415

    stop = stop_event()
    await names.start()
    try:
        name_servers = _name_servers(_local_address(names), settings)
        first = settings.broker.listen_port
        root = Path(settings.store.store_path_root_dir)
        ip = settings.broker.broker_ip1
        total = given.brokers * given.replicas
        ports = [first and first + PORTS_PER_BROKER * number for number in range(total)]
        common = ["-n", name_servers, "--host", settings.broker.bind_address, "--log-format", given.log_format]
        for key, value in given.set:
            common += ["--set", f"{key}={value}"]
        if given.replicas > 1:
            common += ["--set", f"totalReplicas={given.replicas}"]
        if names.controller is not None:
            common += _failover_options(_local(names.config.bind_address, names.controller.port), given)
        children = [
            _child(
                *(number % given.brokers, settings.broker.broker_name, root, port),
                [*common, *_metrics_option(settings, number)],
                given.conf,
                replica=_Replica(
                    number // given.brokers, ip, ports[number % given.brokers], names.controller is not None
                ),
            )
            for number, port in enumerate(ports)
        ]
        supervisor = Supervisor(children)
        supervisor.start()
        enable_gc_after_start()
        try:
            addresses = [f"{ip}:{port}" if port else f"{ip}, any port" for port in ports]
            if names.controller is None:
                slaves = (f"{address}, slave" for address in addresses[given.brokers :])
                _print_banner(names, [*addresses[: given.brokers], *slaves], str(root.parent))
            else:
                pids = await supervisor.pids()
                described = [f"{address}, pid {pid}" for address, pid in zip(addresses, pids, strict=True)]
                # Who reads the banner may send: each group has a master.
                await _until(lambda: len(_masters(names)) >= given.brokers, stop)
                masters = _masters(names)
                described = [
                    f"{line}, master" if address in masters else line
                    for address, line in zip(addresses, described, strict=True)
                ]
                _print_banner(names, described, str(root.parent), failover=settings.broker.broker_name)
            await stop.wait()
        finally:
            await supervisor.stop()
    finally:
        await names.stop()


def _failover_options(controller: str, given: argparse.Namespace) -> list[str]:
    """Options of brokers that follow a controller; what --set and the settings file say goes before them."""
    ours = {
        "allAckInSyncStateSet": "true",
        "minInSyncReplicas": "2",
        "controllerHeartBeatTimeoutMills": str(HANGS_MS),
    }
    chosen = {key for key, _ in given.set}
    if given.conf is not None:
        from orbitmq.platform.properties_file import read_conf  # noqa: PLC0415
        from orbitmq.store import LocalDisk  # noqa: PLC0415

        chosen |= read_conf(LocalDisk(), str(given.conf)).keys()
    pairs = {"enableControllerMode": "true", "controllerAddr": controller}
    pairs |= {key: value for key, value in ours.items() if key not in chosen}
    return [option for key, value in pairs.items() for option in ("--set", f"{key}={value}")]


def _masters(names: "NameServer") -> set[str]:
    """Addresses of the masters that have a replica in sync, which takes over."""
    assert names.controller is not None, "no controller"
    groups = names.controller.service.groups()
    return {group.master_address for group in groups if group.master_address and len(group.in_sync) > 1}


async def _until(condition: Callable[[], bool], stop: asyncio.Event) -> None:
    """Wait for a condition, ``START_SECONDS`` at most, and not when this process is to stop."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(START_SECONDS):
            while not condition() and not stop.is_set():  # noqa: ASYNC110
                await asyncio.sleep(START_LOOK_SECONDS)


def _metrics_option(settings: "BrokerSettings", number: int) -> list[str]:
    """The option for the metrics of one of several brokers, which would not all get the same port."""
    config = settings.broker
    if config.metrics_exporter != "PROM":
        return []
    first = config.metrics_prom_exporter_port
    return ["--metrics-port", str(first and first + number)]


def _name_servers(address: str, settings: "BrokerSettings") -> str:
    """The name server of this process and those of the settings file.

    A change of settings at run time writes all of them to the file.
    """
    return ";".join([address, *(one for one in settings.broker.name_servers if one != address)])


def _check_stores_are_separate(settings: "BrokerSettings") -> None:
    """Raise ConfigError if the settings file puts a part of every broker's store into one directory."""
    from orbitmq.platform.settings import ConfigError  # noqa: PLC0415

    for key, path in (
        ("storePathCommitLog", settings.store.store_path_commit_log),
        ("readOnlyCommitLogStorePaths", settings.store.read_only_commit_log_store_paths),
    ):
        if path:
            raise ConfigError(
                f"{key}={path}: several brokers cannot share a commit log; remove the setting, or run one broker"
            )


class _Replica(NamedTuple):
    """Place of a broker among those of its name."""

    broker_id: int
    master_host: str
    master_port: int
    has_controller: bool
    """A controller says what it is."""

    @property
    def settings(self) -> list[str]:
        """Options that make it a slave; none for a master, whose id is 0."""
        if not self.broker_id or self.has_controller:
            return []
        pairs = ["brokerRole=SLAVE", f"brokerId={self.broker_id}"]
        if self.master_port:
            # At once; otherwise the name server's answer has the address.
            from orbitmq.broker.config.broker_config import address_text  # noqa: PLC0415

            pairs.append(f"haMasterAddress={address_text(self.master_host, self.master_port + 1)}")
        return [option for pair in pairs for option in ("--set", pair)]


def _child(
    number: int, name: str, root: Path, port: int, common: list[str], conf: Path | None, *, replica: _Replica
) -> "Child":
    """Command of one broker. The first has the name and directory of a broker that runs alone, so that the number
    of brokers can change between starts; the others get a suffix."""
    from orbitmq.cli.server.supervisor import Child  # noqa: PLC0415

    if number:
        name, root = f"{name}-{number}", root.with_name(f"{root.name}-{number}")
    what = name
    if replica.broker_id:
        kind = "replica" if replica.has_controller else "slave"
        what, root = f"{name}, {kind} {replica.broker_id}", root.with_name(f"{root.name}-slave-{replica.broker_id}")
    arguments = ["broker", "--until-eof", *common, "--port", str(port), "--name", name, "--data", str(root)]
    arguments += replica.settings
    return Child(what, arguments if conf is None else [*arguments, "-c", str(conf)])


def name_server_at(
    data: Path | None,
    host: str,
    port: int,
    limits: "AuthSettings | None" = None,
    access: "AccessControl | None" = None,
    *,
    controller_port: int | None = None,
) -> "NameServer":
    """A name server with its files beside the brokers' data, and the brokers' limits, certificates and users.

    With ``controller_port`` it has a controller, with its files there too. Raises ConfigError.
    """
    from orbitmq.auth.settings import server_values  # noqa: PLC0415
    from orbitmq.nameserver import NameServer, NameServerConfig  # noqa: PLC0415

    root = data or DATA.expanduser()
    directory = root / "namesrv"
    config = NameServerConfig(
        **({} if limits is None else server_values(limits)),
        bind_address=host,
        listen_port=port,
        kv_config_path=str(directory / "kvConfig.json"),
        config_store_path=str(directory / "namesrv.properties"),
        enable_controller_in_namesrv=controller_port is not None,
    )
    controller = None if controller_port is None else _controller_at(root, config, controller_port)
    return NameServer(config, access=access, controller=controller)


def _controller_at(root: Path, config: "NameServerConfig", port: int) -> "ControllerConfig":
    """Settings of the controller: those of the name server, and its state beside the brokers' data."""
    import dataclasses  # noqa: PLC0415

    from orbitmq.nameserver.config_file import controller_config  # noqa: PLC0415
    from orbitmq.store import LocalDisk  # noqa: PLC0415

    texts = {"controllerStorePath": str(root / CONTROLLER_DIRECTORY)}
    address = _local(config.bind_address, port) if port else ""
    found = controller_config(LocalDisk(), texts, config)
    return dataclasses.replace(found, listen_port=port, controller_address=address)


def _local(host: str, port: int) -> str:
    """Address for the brokers of this machine."""
    local = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, host)  # noqa: S104
    return f"{local}:{port}"


def _local_address(names: "NameServer") -> str:
    """Address of the name server for the brokers of this machine."""
    return _local(names.config.bind_address, names.port)


def _print_banner(
    names: "NameServer",
    brokers: Sequence[str],
    data: str,
    grpc: str | None = None,
    security: "Security | None" = None,
    failover: str | None = None,
) -> None:
    """``failover`` is a broker name, where a controller elects."""
    from orbitmq.native import status  # noqa: PLC0415

    nameserver = _local_address(names)
    controller = "" if names.controller is None else _local(names.config.bind_address, names.controller.port)
    lines = [
        f"name server  {nameserver}",
        *([f"controller   {controller}"] if controller else []),
        *(f"broker       {address}" for address in brokers),
        *([] if grpc is None else [f"gRPC         {grpc}"]),
        f"reachable    from {reachable_from(names.config.bind_address)}",
        f"data         {data}",
        f"native extension: {status()}",
        "",
        SNIPPET.format(nameserver=nameserver),
        *([] if security is None else security.lines()),
        *([] if failover is None else FAILOVER_HINT.format(controller=controller, name=failover).splitlines()),
        "",
        "Ctrl-C stops it.",
    ]
    print("\n".join(lines), flush=True)
