"""The gRPC Admin service of the server commands, which loads the operator's client with its first call."""

from __future__ import annotations

import asyncio
import functools
import socket
from typing import TYPE_CHECKING

from orbitmq.proxy.http2.grpc_status import GrpcCode, GrpcError
from orbitmq.proxy.http2.server import Method

if TYPE_CHECKING:
    from orbitmq.proxy.auth_hook import Authenticate
    from orbitmq.proxy.http2.stream import Stream
    from orbitmq.proxy.server import GrpcServer

SERVICE = "apache.rocketmq.v2.Admin"

CALLS = (
    *("DescribeTopicStatus", "GetTopicRoute", "ListSubscription", "DescribeSubscription", "DeleteSubscription"),
    *("DescribeGroupAccumulation", "ListConsumerConnection", "ResetGroupOffset", "PrintThreadStackTrace"),
    *("VerifyMessage", "AdminSendMessage", "GetConsumerRunningInfo", "QueryTimeSpan", "QueryMessage"),
    *("GetProxyRuntimeStats", "ChangeLogLevel"),
)
"""The calls of ``AdminService``, which is not imported for their names."""


def serve_admin(server: GrpcServer, name_servers: str, authenticate: Authenticate) -> None:
    """Serve the Admin service, over these name servers, on the port of a server that has not started."""
    calls = _AdminCalls(server, name_servers, authenticate)
    for name in CALLS:
        path = f"/{SERVICE}/{name}"
        server.methods[path] = Method(functools.partial(calls.serve, path))


class _AdminCalls:
    """The calls. A server that no operator calls spends neither time nor memory on the operator's client."""

    def __init__(self, server: GrpcServer, name_servers: str, authenticate: Authenticate) -> None:
        self._server = server
        self._name_servers = name_servers
        self._authenticate = authenticate
        self._loading: asyncio.Task[dict[str, Method]] | None = None

    async def serve(self, path: str, message: bytes, stream: Stream) -> bytes | None:
        if self._loading is None:
            self._loading = asyncio.get_running_loop().create_task(self._load())
        method = (await self._loading).get(path)
        if method is None:
            raise GrpcError(GrpcCode.UNIMPLEMENTED, f"{path} is not served")
        return await method.call(message, stream)

    async def _load(self) -> dict[str, Method]:
        from orbitmq.admin.client import AdminClient  # noqa: PLC0415 - with the first call
        from orbitmq.admin.grpc_service.service import AdminService  # noqa: PLC0415

        admin = await AdminClient(self._name_servers).start()
        self._server.on_stop.append(admin.close)
        return AdminService(admin, self._authenticate, socket.gethostname(), self._server.counts).methods
