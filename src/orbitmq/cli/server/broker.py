"""``orbitmq broker``: runs a broker in the foreground until a signal stops it."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from orbitmq.cli.output import complain, plain_errors
from orbitmq.cli.server.arguments import ServerParser, check_known, port
from orbitmq.cli.server.gc_tuning import enable_gc_after_start
from orbitmq.cli.server.grpc_port import start_grpc
from orbitmq.cli.server.listen_address import DEFAULTS, HOST_HELP, LOOPBACK, is_loopback, reachable_from
from orbitmq.cli.server.log_setup import set_up_server
from orbitmq.cli.server.signals import stop_event

if TYPE_CHECKING:
    from orbitmq.broker import Broker, BrokerSettings
    from orbitmq.broker.autoswitch.broker import ControlledBroker


METRICS_HELP = (
    "Serve metrics for Prometheus on this port, 0 for any free one, on 127.0.0.1 unless metricsPromExporterHost of "
    "the settings file is another address. [default: metricsExporterType of the settings file, else none]"
)


def parser() -> ServerParser:
    parser = ServerParser("broker", "Run a broker: it stores messages and serves producers, consumers and tools.")
    add = parser.add_argument
    add(
        "--conf",
        "-c",
        type=Path,
        metavar="FILE",
        help="Settings file in the format of RocketMQ's broker.conf. Options override its values.",
    )
    add(
        "--nameserver",
        "-n",
        metavar="HOST:PORT",
        help="Name servers to register with, separated by ';'. [default: namesrvAddr of the settings file]",
    )
    add("--host", metavar="ADDRESS", help=HOST_HELP)
    add(
        "--port",
        type=port,
        help="Port to listen on; 0 for any free one. The VIP port is two below. [default: listenPort of the "
        "settings file, else 10911]",
    )
    add("--name", help="Name of the broker. [default: brokerName of the settings file, else the host name]")
    add(
        "--data",
        type=Path,
        metavar="DIR",
        help="Directory of the message store. [default: storePathRootDir of the settings file, else ~/store]",
    )
    add("--metrics-port", type=port, metavar="PORT", help=METRICS_HELP)
    parser.add_setting_option()
    parser.add_tls_options()
    add("--print-config", "-p", action="store_true", help="Print all settings and exit.")
    add("--print-important", "-m", action="store_true", help="Print the most important settings and exit.")
    # For ``orbitmq serve --brokers``, whose end ends its brokers.
    add("--until-eof", action="store_true", help=argparse.SUPPRESS)
    parser.add_common_options()
    return parser


def main(arguments: Sequence[str]) -> None:
    """Run the command with these arguments."""
    given = parser().parse_args(arguments)
    with plain_errors():
        settings = load_broker_settings(
            given.conf,
            nameserver=given.nameserver,
            host=given.host,
            port=given.port,
            name=given.name,
            data=given.data,
            metrics_port=given.metrics_port,
            # ``orbitmq serve`` has read the same file and reported the same.
            warns=not given.until_eof,
            sets=given.set,
            has_features=given.until_eof,
        )
        if given.print_config:
            sys.stdout.write(settings.as_properties())
        elif given.print_important:
            sys.stdout.write(settings.important_properties())
        else:
            set_up_server(given.log_format)
            _run(settings, given.until_eof)


def load_broker_settings(
    conf: Path | None,
    *,
    nameserver: str | None = None,
    host: str | None = None,
    port: int | None = None,
    name: str | None = None,
    data: Path | None = None,
    metrics_port: int | None = None,
    warns: bool = True,
    sets: Sequence[tuple[str, str]] = (),
    has_features: bool = False,
) -> "BrokerSettings":
    """Settings of a broker: the values given here, else ``sets``, else those of the file, else the defaults.

    ``has_features``: with OrbitMQ's default features and not RocketMQ's. Warns of keys in the file that are unknown
    or have no effect. Raises ConfigError, also for an unknown key in ``sets``.
    """
    # The other verbs do not import the broker.
    from orbitmq.broker import load_settings  # noqa: PLC0415
    from orbitmq.broker.config.feature_defaults import FEATURES  # noqa: PLC0415
    from orbitmq.proxy.config import is_grpc_setting  # noqa: PLC0415
    from orbitmq.store import LocalDisk  # noqa: PLC0415

    overrides = {
        "namesrvAddr": nameserver,
        "bindAddress": host,
        "listenPort": None if port is None else str(port),
        "brokerName": name,
        "storePathRootDir": None if data is None else str(data),
        "metricsExporterType": None if metrics_port is None else "PROM",
        "metricsPromExporterPort": None if metrics_port is None else str(metrics_port),
    }
    settings, unknown = load_settings(
        LocalDisk(),
        None if conf is None else str(conf),
        {**dict(sets), **{key: value for key, value in overrides.items() if value is not None}},
        defaults={**DEFAULTS, **FEATURES} if has_features else DEFAULTS,
    )
    unknown = [key for key in unknown if not is_grpc_setting(key)]
    check_known(sets, unknown, settings.texts())
    if unknown and warns:
        complain(f"{conf}: unknown settings ignored: {', '.join(sorted(unknown))}")
    if settings.without_effect and warns:
        complain(f"{conf}: settings without effect: {', '.join(settings.without_effect)}")
    if warns and is_loopback(settings.broker.bind_address) and not is_loopback(settings.broker.broker_ip1):
        complain(
            f"brokerIP1={settings.broker.broker_ip1}: clients are sent to this address, but the broker listens on "
            f"{settings.broker.bind_address} only; set bindAddress or give --host, unless a proxy forwards to it"
        )
    return settings


def _run(settings: "BrokerSettings", until_eof: bool) -> None:
    from orbitmq.metrics.http_endpoint import MetricsEndpointError  # noqa: PLC0415
    from orbitmq.remoting import RemotingError, run  # noqa: PLC0415

    try:
        run(_serve(settings, until_eof))
    except (RemotingError, MetricsEndpointError) as error:
        complain(str(error))
        sys.exit(1)


async def _serve(settings: "BrokerSettings", until_eof: bool) -> None:
    from orbitmq.broker import Broker  # noqa: PLC0415
    from orbitmq.broker.autoswitch.broker import ControlledBroker  # noqa: PLC0415

    stop = stop_event(at_end_of_input=until_eof)
    server = ControlledBroker(settings) if settings.broker.enable_controller_mode else Broker(settings)
    await server.start()
    grpc = None
    try:
        if isinstance(server, Broker):
            grpc = await start_grpc(server)
        elif "grpcServerPort" in settings.others:
            complain("grpcServerPort has no effect in controller mode: run `orbitmq proxy` beside the brokers")
        enable_gc_after_start()
        config = settings.broker
        name_servers = config.namesrv_addr or "no name server"
        print(
            f"The broker {config.broker_name} listens on {config.bind_address}:{server.port}, "
            f"is known as {config.broker_address} and registers with {name_servers}\n"
            f"Reachable from {reachable_from(config.bind_address)}{metrics_line(server)}",
            *([] if grpc is None else [f"gRPC clients: {config.broker_ip1}:{grpc.port}"]),
            sep="\n",
            flush=True,
        )
        await stop.wait()
    finally:
        if grpc is not None:
            await grpc.stop()
        await server.stop()


def metrics_line(server: "Broker | ControlledBroker") -> str:
    """The line of a start-up message that names the metrics endpoint, if there is one."""
    port = None if server.metrics is None else server.metrics.port
    if port is None:
        return ""
    return f"\nMetrics      http://{server.settings.broker.metrics_prom_exporter_host or LOOPBACK}:{port}/metrics"
