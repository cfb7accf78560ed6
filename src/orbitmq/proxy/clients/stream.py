"""Telemetry stream of a client: commands that wait to be written, with a limit, and replies by nonce."""

from __future__ import annotations

import asyncio
import itertools
import logging
from typing import TYPE_CHECKING

from orbitmq.remoting.errors import CallTimeoutError, ConnectionLostError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from orbitmq.proxy.proto import service_pb2 as pb

log = logging.getLogger("orbitmq.proxy")

_nonces = itertools.count()

REPLY_SECONDS = 5.0
"""Time for the reply to a command."""


class CommandStream:
    """The server's side of one stream. One task writes, in order."""

    def __init__(self, client_id: str, write: Callable[[pb.TelemetryCommand], Awaitable[None]], limit: int) -> None:
        self._client_id = client_id
        self._write = write
        self._waiting: asyncio.Queue[pb.TelemetryCommand | None] = asyncio.Queue(limit + 1)
        self._limit = limit
        self._replies: dict[str, asyncio.Future[pb.TelemetryCommand]] = {}
        self.is_closed = False

    def send(self, command: pb.TelemetryCommand) -> bool:
        """Queue a command; False if the stream is closed, or too many commands wait."""
        if self.is_closed:
            return False
        if self._waiting.qsize() >= self._limit:
            log.warning("telemetry: command to %s dropped: it does not read its stream", self._client_id)
            return False
        self._waiting.put_nowait(command)
        return True

    async def ask(self, command: pb.TelemetryCommand, field: str) -> pb.TelemetryCommand:
        """Send a command with a new nonce in this field, and wait for the reply. Raises RemotingError."""
        nonce = str(next(_nonces))
        getattr(command, field).nonce = nonce
        reply: asyncio.Future[pb.TelemetryCommand] = asyncio.get_running_loop().create_future()
        self._replies[nonce] = reply
        try:
            if not self.send(command):
                raise ConnectionLostError(f"the telemetry stream of {self._client_id} is closed")
            async with asyncio.timeout(REPLY_SECONDS):
                return await reply
        except TimeoutError:
            raise CallTimeoutError("call remote timeout") from None
        finally:
            del self._replies[nonce]

    def replied(self, nonce: str, command: pb.TelemetryCommand) -> None:
        """Complete the command with this nonce; a reply without a command is dropped."""
        reply = self._replies.get(nonce)
        if reply is not None and not reply.done():
            reply.set_result(command)

    def close(self) -> None:
        """Write nothing more and end ``run``."""
        if not self.is_closed:
            self.is_closed = True
            self._waiting.put_nowait(None)
            for reply in self._replies.values():
                if not reply.done():
                    reply.set_exception(
                        ConnectionLostError(f"the telemetry stream of {self._client_id} was closed")
                    )

    async def run(self) -> None:
        """Write queued commands until ``close``."""
        while (command := await self._waiting.get()) is not None:
            await self._write(command)
