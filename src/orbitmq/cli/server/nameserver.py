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
        config = _config(given.conf, given.host, given.port, given.set)
        if given.print_config:
            sys.stdout.write(config.as_properties())
            return
        set_up_server(given.log_format)
        _run(config)


def _config(
    conf: Path | None, host: str | None, port: int | None, sets: Sequence[tuple[str, str]]
) -> "NameServerConfig":
    # The other verbs do not import the name server.
    from orbitmq.nameserver import NameServerConfig, load_config  # noqa: PLC0415
    from orbitmq.platform.settings import changed, settings_of  # noqa: PLC0415
    from orbitmq.store import LocalDisk  # noqa: PLC0415

    if conf is None:
        config = NameServerConfig(bind_address=LOOPBACK)
    else:
        config, unknown = load_config(LocalDisk(), str(conf), defaults=DEFAULTS)
        if unknown:
            complain(f"{conf}: unknown settings ignored: {', '.join(unknown)}")
    if sets:
        known = settings_of(NameServerConfig)
        check_known(sets, [key for key, _ in sets if key not in known], known)
        config = changed(config, dict(sets))
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
        sys.exit(1)


async def _serve(config: "NameServerConfig") -> None:
    from orbitmq.nameserver import NameServer  # noqa: PLC0415

    stop = stop_event()
    server = NameServer(config)
    await server.start()
    try:
        enable_gc_after_start()
        print(
            f"The name server listens on {config.bind_address}:{server.port}\n"
            f"Reachable from {reachable_from(config.bind_address)}",
            flush=True,
        )
        await stop.wait()
    finally:
        await server.stop()
