"""gRPC port of the server commands: started beside a broker, if it is wanted and protobuf is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.cli.output import complain

if TYPE_CHECKING:
    from orbitmq.broker import Broker
    from orbitmq.proxy.server import GrpcServer


async def start_grpc(broker: Broker, port: int | None = None, *, default: int = 0) -> GrpcServer | None:
    """The gRPC server in front of a broker of this process; None if there is none.

    ``port`` was given by the user; otherwise it is ``grpcServerPort`` of the settings file, else ``default``, which
    is only taken if it is free. Raises ListenError and ConfigError.
    """
    from orbitmq.proxy.config import GrpcConfig  # noqa: PLC0415 - nothing but servers needs it
    from orbitmq.remoting import ListenError  # noqa: PLC0415

    texts = broker.settings.others
    is_chosen = port is not None or "grpcServerPort" in texts
    if port is None:
        port = GrpcConfig.of(texts).grpc_server_port if is_chosen else default
    if not port:
        return None
    try:
        from orbitmq.cli.server.admin_calls import serve_admin  # noqa: PLC0415
        from orbitmq.proxy.auth_hook import admin_hook_of, hook_of  # noqa: PLC0415
        from orbitmq.proxy.backend.local import LocalBackend  # noqa: PLC0415
        from orbitmq.proxy.server import GrpcServer  # noqa: PLC0415
    except ImportError as error:
        complain(f"no port for gRPC clients: {error.name} is missing; install orbitmq[grpc]")
        return None
    texts = {"maxMessageSize": str(broker.settings.store.max_message_size), **texts}
    config = GrpcConfig.of(texts, grpc_server_port=port)
    server = GrpcServer(
        config,
        lambda handlers: LocalBackend(broker, handlers),
        host=broker.settings.broker.bind_address,
        clock=broker.clock,
        random_source=broker.random,
        authenticate=hook_of(broker.access),
        tls=broker.settings.broker.server_tls,
    )
    if broker.settings.broker.namesrv_addr:
        serve_admin(server, broker.settings.broker.namesrv_addr, admin_hook_of(broker.access))
    try:
        await server.start()
    except ListenError as error:
        if is_chosen:
            raise
        complain(f"no port for gRPC clients: {error}")
        return None
    return server
