"""Interface of backends. Requests themselves go through remoting connections, which are alike for both."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Protocol

from orbitmq.protocol.message.flags import PERM_WRITE

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.protocol.bodies import QueueData, SubscriptionGroupConfig
    from orbitmq.protocol.command.command import Command
    from orbitmq.proxy.proto import definition_pb2 as pb
    from orbitmq.remoting import Connection

MASTER = 0
"""Broker id."""


@dataclasses.dataclass(frozen=True)
class Route:
    """The queues of a topic, by broker, and the brokers' ids."""

    queues: tuple[QueueData, ...]
    broker_ids: dict[str, tuple[int, ...]]

    @functools.cached_property
    def writable(self) -> list[tuple[str, int]]:
        """Broker name and number of every writable queue, in order. A broker without a master takes no messages."""
        return sorted(
            (data.broker_name, number)
            for data in self.queues
            if data.perm & PERM_WRITE and MASTER in self.broker_ids.get(data.broker_name, ())
            for number in range(data.write_queue_nums)
        )


class Backend(Protocol):
    """A broker or a cluster."""

    @property
    def sign(self) -> Callable[[Command], None] | None:
        """Signs a request to a broker with this server's own credentials, if it has some."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def connect(self, broker_name: str, address: str) -> Connection:
        """A new connection for a client with this address. Raises RemotingError and StatusError."""

    async def route(self, topic: str) -> Route:
        """Raises TopicNotFoundError and RemotingError."""

    async def message_type(self, topic: str) -> str:
        """The attribute ``message.type`` of a topic, by default ``NORMAL``; ``UNSPECIFIED`` without a topic."""

    async def group(self, name: str, *, create: bool = False) -> SubscriptionGroupConfig | None:
        """A consumer group, or None. With ``create`` it is made if it does not exist."""

    async def broker_names(self) -> list[str]:
        """The names of all brokers."""

    def endpoints(self, requested: pb.Endpoints, port: int, /) -> pb.Endpoints:
        """The addresses at which clients reach this server; ``requested`` are those that a client used."""
