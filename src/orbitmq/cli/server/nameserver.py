"""``orbitmq nameserver``: runs a name server in the foreground until a signal stops it."""

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
    from orbitmq.nameserver import NameServerConfig


def parser() -> ServerParser:
    parser = ServerParser(
        "nameserver", "Run a name server: brokers register with it, clients find brokers through it."
    )
    add = parser.add_argument
    add(
        "--conf",
        "-c",
        type=Path,
        metavar="FILE",
        help="Settings file in the format of RocketMQ's namesrv.conf. Options override its values.",
    )
    add("--host", metavar="ADDRESS", help=HOST_HELP)
    add(
        "--port",
        type=port,
        help="Port to listen on; 0 for any free one. [default: listenPort of the settings file, else 9876]",
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
        config, controller = _config(given.conf, given.host, given.port, given.set)
        if given.print_config:
            sys.stdout.write(config.as_properties())
            return
        set_up_server(given.log_format)
        _run(config, controller)


def _config(
    conf: Path | None, host: str | None, port: int | None, sets: Sequence[tuple[str, str]]
) -> "tuple[NameServerConfig, ControllerConfig | None]":
    # The other verbs do not import the name server.
    from orbitmq.nameserver import NameServerConfig, load_config  # noqa: PLC0415
    from orbitmq.nameserver.config_file import controller_config, controller_keys  # noqa: PLC0415
    from orbitmq.platform.properties_file import read_conf  # noqa: PLC0415
    from orbitmq.platform.settings import changed, settings_of  # noqa: PLC0415
    from orbitmq.store import LocalDisk  # noqa: PLC0415

    texts = {} if conf is None else read_conf(LocalDisk(), str(conf))

    if conf is None:
        config = NameServerConfig(bind_address=LOOPBACK)
    else:
        config, unknown = load_config(LocalDisk(), str(conf), defaults=DEFAULTS)
        if unknown and config.enable_controller_in_namesrv:
            unknown = [key for key in unknown if key not in controller_keys(texts)]
        if unknown:
            complain(f"{conf}: unknown settings ignored: {', '.join(unknown)}")
    if sets:
        known = settings_of(NameServerConfig)
        of_controller = controller_keys(dict(sets))
        texts |= of_controller
        check_known(sets, [key for key, _ in sets if key not in known and key not in of_controller], known)
        config = changed(config, dict(sets))
    if host is not None:
        config.bind_address = host
    if port is not None:
        config.listen_port = port
    if not config.enable_controller_in_namesrv:
        return config, None
    return config, controller_config(LocalDisk(), texts, config)


def _run(config: "NameServerConfig", controller: "ControllerConfig | None") -> None:
    from orbitmq.metrics.http_endpoint import MetricsEndpointError  # noqa: PLC0415
    from orbitmq.remoting import RemotingError, run  # noqa: PLC0415

    try:
        run(_serve(config, controller))
    except (RemotingError, MetricsEndpointError) as error:
        complain(str(error))
        sys.exit(1)


async def _serve(config: "NameServerConfig", controller: "ControllerConfig | None") -> None:
    from orbitmq.nameserver import NameServer  # noqa: PLC0415

    stop = stop_event()
    server = NameServer(config, controller=controller)
    await server.start()
    try:
        enable_gc_after_start()
        if server.controller is not None:
            print(f"The controller listens on {server.controller.config.bind_address}:{server.controller.port}")
        print(
            f"The name server listens on {config.bind_address}:{server.port}\n"
            f"Reachable from {reachable_from(config.bind_address)}",
            flush=True,
        )
        await stop.wait()
    finally:
        await server.stop()
