"""Shared state of all calls: settings, clock, backend, clients, renewals and transactions of one server."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from orbitmq.proxy.errors import StatusError
from orbitmq.proxy.proto import definition_pb2 as pb

if TYPE_CHECKING:
    import random

    from orbitmq.platform.clock import Clock
    from orbitmq.protocol.bodies import SubscriptionGroupConfig
    from orbitmq.proxy.backend.base import Backend
    from orbitmq.proxy.clients.table import ClientTable
    from orbitmq.proxy.config import GrpcConfig


@dataclasses.dataclass(frozen=True, slots=True)
class Runtime:
    config: GrpcConfig
    clock: Clock
    random: random.Random
    backend: Backend
    clients: ClientTable

    async def group(self, name: str) -> SubscriptionGroupConfig:
        """A consumer group that may consume. Raises StatusError if it does not exist."""
        group = await self.backend.group(name, create=self.config.grpc_auto_create_consumer_group)
        if group is None:
            raise StatusError(
                pb.CONSUMER_GROUP_NOT_FOUND,
                f"consumer group {name} does not exist: create it (mqadmin updateSubGroup), or set "
                "grpcAutoCreateConsumerGroup=true",
            )
        return group
