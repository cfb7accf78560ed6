"""``orbitmq controller``: runs a controller in the foreground until a signal stops it."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from orbitmq.cli.output import complain, plain_errors
from orbitmq.cli.server.arguments import ServerParser, check_known, port
from orbitmq.cli.server.gc_tuning import enable_gc_after_start
from orbitmq.cli.server.listen_address import DEFAULTS, HOST_HELP, LOOPBACK, reachable_from
from orbitmq.cli.server.log_setup import set_up_server
from orbitmq.cli.server.signals import stop_event

if TYPE_CHECKING:
    from orbitmq.controller import ControllerConfig
    from orbitmq.controller.metrics import ControllerMetrics


def parser() -> ServerParser:
    parser = ServerParser(
        "controller", "Run a controller: it elects the masters of broker groups when one is gone."
    )
    add = parser.add_argument
    add(
        "--conf",
        "-c",
        type=Path,
        metavar="FILE",
        help="Settings file in the format of RocketMQ's controller.conf. Options override its values.",
    )
    add("--host", metavar="ADDRESS", help=HOST_HELP)
    add(
        "--port",
        type=port,
        help="Port to listen on; 0 for any free one. [default: that of controllerDLegerSelfId among "
        "controllerDLegerPeers, else listenPort, else 19876]",
    )
    add("--data", type=Path, metavar="DIR", help="Directory of the event log. [default: controllerStorePath]")
    add(
        "--metrics-port",
        type=port,
        metavar="PORT",
        help="Serve metrics for Prometheus on this port, 0 for any free one, on 127.0.0.1 unless "
        "metricsPromExporterHost is another address. [default: metricsExporterType, else none]",
    )
    parser.add_setting_option()
    parser.add_tls_options()
    add("--print-config", "-p", action="store_true", help="Print all settings and exit.")
    parser.add_common_options()
    return parser


def main(arguments: Sequence[str]) -> None:
    """Run the command with these arguments."""
    given = parser().parse_args(arguments)
    with plain_errors():
        sets = list(given.set)
        if given.host is not None:
            sets.append(("bindAddress", given.host))
        if given.data is not None:
            sets.append(("controllerStorePath", str(given.data)))
        if given.port is not None:
            sets.append(("listenPort", str(given.port)))
        if given.metrics_port is not None:
            sets += [("metricsExporterType", "PROM"), ("metricsPromExporterPort", str(given.metrics_port))]
        config = _config(given.conf, sets)
        if given.print_config:
            sys.stdout.write(config.as_properties())
            return
        _check_port(config, given.port)
        set_up_server(given.log_format)
        _run(config)


def _config(conf: Path | None, sets: Sequence[tuple[str, str]]) -> "ControllerConfig":
    # The other verbs do not import the controller.
    from orbitmq.controller import ControllerConfig, load_config  # noqa: PLC0415
    from orbitmq.controller.config import IGNORED  # noqa: PLC0415
    from orbitmq.platform.local_disk import LocalDisk  # noqa: PLC0415
    from orbitmq.platform.settings import changed, differing, settings_of  # noqa: PLC0415

    if conf is None:
        config = ControllerConfig(bind_address=LOOPBACK)
    else:
        config, unknown = load_config(LocalDisk(), str(conf), defaults=DEFAULTS)
        if unknown:
            complain(f"{conf}: unknown settings ignored: {', '.join(unknown)}")
    if sets:
        known = settings_of(ControllerConfig)
        check_known(sets, [key for key, _ in sets if key not in known], known)
        config = changed(config, dict(sets))
    ignored = differing(config, IGNORED)
    if ignored:
        complain(f"settings without effect in this controller: {', '.join(ignored)}")
    return config


def _check_port(config: "ControllerConfig", port: int | None) -> None:
    from orbitmq.platform.settings import ConfigError  # noqa: PLC0415

    own = config.own_peer
    if own is not None and port is not None and port != own.port:
        raise ConfigError(f"--port {port}: the peers of the settings name port {own.port} for this controller")


def _run(config: "ControllerConfig") -> None:
    from orbitmq.metrics.http_endpoint import MetricsEndpointError  # noqa: PLC0415
    from orbitmq.remoting import RemotingError, run  # noqa: PLC0415

    try:
        run(_serve(config))
    except (RemotingError, MetricsEndpointError) as error:
        complain(str(error))
        sys.exit(1)


async def _serve(config: "ControllerConfig") -> None:
    from orbitmq.controller import Controller  # noqa: PLC0415

    stop = stop_event()
    server = Controller(config)
    await server.start()
    try:
        enable_gc_after_start()
        keeps = (
            f"keeps its state in {config.store_path}: one controller, no fault tolerance"
            if config.controller_store_type == "file"
            else f"keeps its state in etcd at {config.etcd_endpoints}"
        )
        print(
            f"The controller listens on {config.bind_address}:{server.port} and {keeps}\n"
            f"Reachable from {reachable_from(config.bind_address)}" + _metrics_line(server.metrics),
            flush=True,
        )
        await stop.wait()
    finally:
        await server.stop()


def _metrics_line(metrics: "ControllerMetrics") -> str:
    if metrics.port is None:
        return ""
    return f"\nMetrics for Prometheus are at http://{metrics.host}:{metrics.port}/metrics"
