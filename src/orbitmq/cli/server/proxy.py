"""``orbitmq proxy``: serves gRPC clients in front of the brokers of a cluster, until a signal stops it."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from orbitmq.cli.output import complain, plain_errors
from orbitmq.cli.server.arguments import ServerParser, check_known, port
from orbitmq.cli.server.gc_tuning import enable_gc_after_start
from orbitmq.cli.server.listen_address import LOOPBACK, reachable_from
from orbitmq.cli.server.log_setup import set_up_server
from orbitmq.cli.server.signals import stop_event

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.proxy.backend.cluster_config import ClusterConfig
    from orbitmq.proxy.config import GrpcConfig


def parser() -> ServerParser:
    parser = ServerParser(
        "proxy", "Run a proxy: clients of the gRPC protocol reach the brokers of a cluster, OrbitMQ's or Apache's."
    )
    add = parser.add_argument
    add(
        "--conf",
        "-c",
        "-pc",
        type=Path,
        metavar="FILE",
        help="Settings file in the format of RocketMQ's rmq-proxy.json, or lines of key=value. Options override "
        "its values.",
    )
    add(
        "--nameserver",
        "-n",
        metavar="HOST:PORT",
        help="Name servers of the cluster, separated by ';'. [default: namesrvAddr of the settings file]",
    )
    add(
        "--host",
        metavar="ADDRESS",
        help="IP address to listen on; 0.0.0.0 for all network interfaces. [default: bindAddress of the settings "
        f"file, else {LOOPBACK}]",
    )
    add(
        "--port",
        type=port,
        help="Port to listen on; 0 for any free one. [default: grpcServerPort of the settings file, else 8081]",
    )
    parser.add_setting_option()
    parser.add_common_options()
    return parser


def main(arguments: Sequence[str]) -> None:
    """Run the command with these arguments."""
    given = parser().parse_args(arguments)
    with plain_errors():
        overrides = {"namesrvAddr": given.nameserver, "bindAddress": given.host}
        if given.port is not None:
            overrides["grpcServerPort"] = str(given.port)
        chosen = {key: value for key, value in overrides.items() if value is not None}
        config, cluster = load_proxy_settings(given.conf, chosen, given.set)
        set_up_server(given.log_format)
        _run(config, cluster)


def load_proxy_settings(
    conf: Path | None, overrides: "Mapping[str, str]", sets: Sequence[tuple[str, str]] = ()
) -> tuple["GrpcConfig", "ClusterConfig"]:
    """The settings given here, else ``sets``, else those of the file. Raises ConfigError."""
    from orbitmq.platform.settings import ConfigError, settings_of  # noqa: PLC0415
    from orbitmq.proxy.backend.cluster_config import ClusterConfig, parse_proxy_settings  # noqa: PLC0415
    from orbitmq.proxy.config import GrpcConfig, is_grpc_setting  # noqa: PLC0415

    try:
        found = {} if conf is None else parse_proxy_settings(conf.read_text("utf-8"))
    except UnicodeDecodeError:
        raise ConfigError(f"{conf}: the file is not UTF-8 text") from None
    texts = {**found, **dict(sets), **overrides}
    cluster, others = ClusterConfig.of(texts)
    unknown = sorted(key for key in others if not is_grpc_setting(key))
    check_known(sets, unknown, [*settings_of(ClusterConfig), *settings_of(GrpcConfig)])
    if unknown:
        complain(f"{conf}: settings without effect: {', '.join(unknown)}")
    if not cluster.name_servers:
        raise ConfigError("no name server is given: give -n HOST:PORT, or namesrvAddr in the settings file")
    return GrpcConfig.of(texts), cluster


def _run(config: "GrpcConfig", cluster: "ClusterConfig") -> None:
    from orbitmq.remoting import RemotingError, run  # noqa: PLC0415

    try:
        run(_serve(config, cluster))
    except RemotingError as error:
        complain(str(error))
        sys.exit(1)


async def _serve(config: "GrpcConfig", cluster: "ClusterConfig") -> None:
    from orbitmq.cli.server.admin_calls import serve_admin  # noqa: PLC0415
    from orbitmq.platform.clock import SYSTEM_CLOCK  # noqa: PLC0415
    from orbitmq.proxy.auth_hook import from_this_machine  # noqa: PLC0415
    from orbitmq.proxy.backend.cluster import ClusterBackend  # noqa: PLC0415
    from orbitmq.proxy.server import GrpcServer  # noqa: PLC0415

    stop = stop_event()
    server = GrpcServer(
        config,
        lambda handlers: ClusterBackend(cluster, SYSTEM_CLOCK, handlers),
        host=cluster.bind_address,
    )
    if cluster.credentials is None:
        serve_admin(server, cluster.namesrv_addr, from_this_machine())
    else:
        complain(
            "this proxy does not authenticate its clients: all of them act as the user of "
            "innerClientAuthenticationCredentials, so let trusted ones only reach its port"
        )
    await server.start()
    try:
        enable_gc_after_start()
        print(
            f"The proxy listens for gRPC on {cluster.bind_address}:{server.port} and finds brokers through "
            f"{cluster.namesrv_addr}\nReachable from {reachable_from(cluster.bind_address)}",
            flush=True,
        )
        await stop.wait()
    finally:
        await server.stop(config.grpc_shutdown_time_seconds)
