"""Heartbeat and NotifyClientTermination."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.proxy.clients.settings import CONSUMERS
from orbitmq.proxy.errors import StatusError, ok
from orbitmq.proxy.messages.validation import check_group
from orbitmq.proxy.proto import definition_pb2 as pb
from orbitmq.proxy.proto import service_pb2 as rpc

if TYPE_CHECKING:
    from orbitmq.proxy.clients.client import Client
    from orbitmq.proxy.clients.registration import Registration
    from orbitmq.proxy.context import CallContext
    from orbitmq.proxy.messaging.runtime import Runtime


class ClientCalls:
    """Life signs and the end of clients."""

    def __init__(self, runtime: Runtime, registration: Registration) -> None:
        self._clients = runtime.clients
        self._registration = registration

    async def heartbeat(
        self, request: rpc.HeartbeatRequest, client: Client, _call: CallContext
    ) -> rpc.HeartbeatResponse:
        """The type of the client is that of its settings, not of the request."""
        settings = _settings_of(client)
        if settings.client_type in CONSUMERS:
            check_group(request.group)
        await self._registration.register(client)
        return rpc.HeartbeatResponse(status=ok())

    async def notify_client_termination(
        self, _request: rpc.NotifyClientTerminationRequest, client: Client, _call: CallContext
    ) -> rpc.NotifyClientTerminationResponse:
        try:
            _settings_of(client)
        finally:
            self._clients.remove(client)
        return rpc.NotifyClientTerminationResponse(status=ok())


def _settings_of(client: Client) -> pb.Settings:
    settings = client.settings
    if settings is None:
        raise StatusError(
            pb.UNRECOGNIZED_CLIENT_TYPE,
            "cannot find client settings for this client: send them over Telemetry first",
        )
    if settings.client_type != pb.PRODUCER and settings.client_type not in CONSUMERS:
        raise StatusError(
            pb.UNRECOGNIZED_CLIENT_TYPE, f"client type {pb.ClientType.Name(settings.client_type)} is not supported"
        )
    return settings
