"""Client table: every client id that made a call or has an open stream, until it terminates or is silent."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from orbitmq.platform.limit_counts import Limit, count_refusal
from orbitmq.proxy.clients.client import Client
from orbitmq.proxy.errors import StatusError
from orbitmq.proxy.proto import definition_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from orbitmq.platform.clock import Clock
    from orbitmq.proxy.backend.base import Backend
    from orbitmq.proxy.config import GrpcConfig
    from orbitmq.proxy.context import CallContext

log = logging.getLogger("orbitmq.proxy")

MAX_CLIENT_ID = 1024
"""Characters of a client id; those of the official clients have fewer than 100."""


class ClientTable:
    """All clients by id. Call ``expire`` periodically."""

    def __init__(self, config: GrpcConfig, clock: Clock, backend: Backend) -> None:
        self._config = config
        self._clock = clock
        self._backend = backend
        self._clients: dict[str, Client] = {}
        self.on_removed: list[Callable[[Client], None]] = []

    def __len__(self) -> int:
        return len(self._clients)

    def __iter__(self) -> Iterator[Client]:
        return iter(tuple(self._clients.values()))

    def find(self, client_id: str) -> Client | None:
        return self._clients.get(client_id)

    def of(self, call: CallContext) -> Client:
        """The client of a call, made known if it is new. Raises StatusError."""
        client_id = call.client_id
        client = self._clients.get(client_id)
        if client is None:
            if not client_id:
                raise StatusError(pb.CLIENT_ID_REQUIRED, "client id cannot be empty: send it as x-mq-client-id")
            if len(client_id) > MAX_CLIENT_ID:
                raise StatusError(pb.BAD_REQUEST, f"the client id has more than {MAX_CLIENT_ID} characters")
            if len(self._clients) >= self._config.grpc_max_clients:
                count_refusal(Limit.GRPC_CLIENTS)
                raise StatusError(
                    pb.TOO_MANY_REQUESTS, f"this server has {len(self._clients)} clients already (grpcMaxClients)"
                )
            client = Client(self._backend, client_id, call.remote_address, call.language)
            self._clients[client_id] = client
        client.last_seen = self._clock.monotonic()
        return client

    def remove(self, client: Client) -> None:
        """Remove a client that terminates; brokers drop it from its groups."""
        if self._clients.get(client.client_id) is client:
            del self._clients[client.client_id]
            for removed in self.on_removed:
                removed(client)
            client.close()

    def expire(self) -> None:
        """Remove clients without a call, a heartbeat or a stream for ``channelExpiredTimeout``."""
        oldest = self._clock.monotonic() - self._config.channel_expired_timeout / 1000
        for client in self:
            if client.last_seen < oldest and not client.calls and client.stream is None:
                log.info("clients: %s (%s) removed: silent", client.client_id, client.address)
                self.remove(client)
