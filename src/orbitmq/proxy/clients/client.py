"""A client of the protocol: its connections to brokers, its settings, and its telemetry stream."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from orbitmq.protocol.codes import LanguageCode, ResponseCode
from orbitmq.protocol.command.header import LANGUAGES_BY_NAME
from orbitmq.proxy.errors import StatusError, broker_status
from orbitmq.proxy.proto import definition_pb2 as pb
from orbitmq.remoting import ConnectionLostError

if TYPE_CHECKING:
    from orbitmq.protocol.bodies import HeartbeatData
    from orbitmq.protocol.command.command import Command
    from orbitmq.proxy.backend.base import Backend
    from orbitmq.proxy.clients.stream import CommandStream
    from orbitmq.remoting import Connection

log = logging.getLogger("orbitmq.proxy")


class Client:
    """One client id. Its connections are its own, so that brokers know its groups, its address and its end."""

    __slots__ = (
        "_backend",
        "_connecting",
        "_connections",
        "address",
        "calls",
        "client_id",
        "is_closed",
        "language",
        "last_seen",
        "registration",
        "settings",
        "settings_arrived",
        "stream",
    )

    def __init__(self, backend: Backend, client_id: str, address: str, language: str) -> None:
        self._backend = backend
        self._connections: dict[str, Connection] = {}
        self._connecting: dict[str, asyncio.Task[Connection]] = {}
        self.client_id = client_id
        self.address = address
        self.language = LANGUAGES_BY_NAME.get(language, LanguageCode.OTHER)
        self.settings: pb.Settings | None = None
        self.settings_arrived = asyncio.Event()
        self.stream: CommandStream | None = None
        self.registration: HeartbeatData | None = None
        """The groups and subscriptions that brokers were sent last."""
        self.calls = 0
        """Calls in progress."""
        self.last_seen = 0.0
        self.is_closed = False

    @property
    def is_consumer(self) -> bool:
        return self.settings is not None and self.settings.WhichOneof("pub_sub") == "subscription"

    @property
    def connected_brokers(self) -> list[str]:
        return [name for name, connection in self._connections.items() if not connection.is_closing]

    async def connection(self, broker_name: str) -> Connection:
        """The connection to a broker, opened on first use. Raises RemotingError and StatusError."""
        connection = self._connections.get(broker_name)
        if connection is not None and not connection.is_closing:
            return connection
        if self.is_closed:
            raise ConnectionLostError(f"client {self.client_id} has terminated")
        attempt = self._connecting.get(broker_name)
        if attempt is None:
            attempt = asyncio.get_running_loop().create_task(self._connect(broker_name))
            self._connecting[broker_name] = attempt
            attempt.add_done_callback(lambda ended: self._connected(broker_name, ended))
        # A cancelled call must not cancel the attempt of the others.
        return await asyncio.shield(attempt)

    def broker_of(self, connection: Connection) -> str:
        """The name of the broker at the other end; empty for a connection that was replaced."""
        return next((name for name, one in self._connections.items() if one is connection), "")

    async def call(self, broker_name: str, command: Command, timeout: float) -> Command:  # noqa: ASYNC109
        """Send a request to a broker and wait for its response, whatever its code. Raises RemotingError."""
        connection = self._connections.get(broker_name)
        if connection is None or connection.is_closing:
            connection = await self.connection(broker_name)
        command.language = self.language
        sign = self._backend.sign
        if sign is not None:
            sign(command)
        return await connection.call(command, timeout)

    async def checked_call(self, broker_name: str, command: Command, timeout: float) -> Command:  # noqa: ASYNC109
        """``call`` that raises StatusError unless the response is a success."""
        response = await self.call(broker_name, command, timeout)
        if response.code != ResponseCode.SUCCESS:
            raise broker_status(response)
        return response

    async def wait_for_settings(self, seconds: float) -> None:
        """Wait until the settings are known, or this time is over."""
        try:
            async with asyncio.timeout(seconds):
                await self.settings_arrived.wait()
        except TimeoutError:
            return

    def require_settings(self) -> pb.Settings:
        """Raises StatusError if the client has not sent its settings."""
        if self.settings is None:
            raise StatusError(
                pb.INTERNAL_SERVER_ERROR,
                f"the settings of client {self.client_id} are not known: send them over Telemetry first",
            )
        return self.settings

    def close(self) -> None:
        """Close all connections, with which brokers drop the client from its groups."""
        self.is_closed = True
        for attempt in self._connecting.values():
            attempt.cancel()
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        if self.stream is not None:
            self.stream.close()

    async def _connect(self, broker_name: str) -> Connection:
        connection = await self._backend.connect(broker_name, self.address)
        if self.is_closed:
            connection.close()
            raise ConnectionLostError(f"client {self.client_id} has terminated")
        connection.state = self
        self._connections[broker_name] = connection
        return connection

    def _connected(self, broker_name: str, attempt: asyncio.Task[Connection]) -> None:
        self._connecting.pop(broker_name, None)
        if not attempt.cancelled():
            # Marks the error as retrieved: the calls that waited raise it, and there may be none left.
            attempt.exception()
