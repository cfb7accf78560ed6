"""Connection of a client that signs its requests. Others pay nothing for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.protocol.message.flags import ONEWAY
from orbitmq.remoting.connection import Connection

if TYPE_CHECKING:
    import asyncio

    from orbitmq.protocol.command.command import Command


class SigningConnection(Connection):
    """A connection of an endpoint with a ``signer``. Responses are not signed."""

    __slots__ = ()

    def call(self, command: Command, timeout: float) -> asyncio.Future[Command]:
        self._check_open()
        command.opaque = opaque = self.next_opaque()
        self._sign(command)
        return super().exchange(opaque, command.encode(), timeout)

    def call_oneway(self, command: Command) -> None:
        # The signature covers neither opaque nor flag, which are set now.
        command.flag |= ONEWAY
        self._sign(command)
        super().call_oneway(command)

    def exchange(self, opaque: int, request: bytes, timeout: float) -> asyncio.Future[Command]:
        signer = self._endpoint.signer
        assert signer is not None
        return super().exchange(opaque, signer.sign_frames(request), timeout)

    def _sign(self, command: Command) -> None:
        signer = self._endpoint.signer
        assert signer is not None
        signer.sign(command)
