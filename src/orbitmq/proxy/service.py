"""MessagingService: the table of its calls, and the steps that all of them have in common."""

from __future__ import annotations

import asyncio
import functools
import logging
from typing import TYPE_CHECKING, Any

from google.protobuf.message import DecodeError

from orbitmq.protocol.errors import ProtocolError
from orbitmq.proxy.context import call_context
from orbitmq.proxy.errors import StatusError, status_of
from orbitmq.proxy.http2.grpc_status import GrpcCode, GrpcError
from orbitmq.proxy.http2.server import Method
from orbitmq.proxy.proto import definition_pb2 as pb
from orbitmq.proxy.proto import service_pb2 as rpc
from orbitmq.remoting import RemotingError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from orbitmq.proxy.auth_hook import Authenticate
    from orbitmq.proxy.clients.client import Client
    from orbitmq.proxy.clients.table import ClientTable
    from orbitmq.proxy.clients.telemetry import Telemetry
    from orbitmq.proxy.context import CallContext
    from orbitmq.proxy.http2.stream import Stream

    Unary = Callable[[Any, Client, CallContext], Awaitable[Any]]
    Streaming = Callable[[Any, Client, CallContext, Callable[..., Awaitable[None]]], Awaitable[None]]

log = logging.getLogger("orbitmq.proxy")

NAME = "apache.rocketmq.v2.MessagingService"

_EXPECTED = (StatusError, RemotingError, ProtocolError)


class MessagingService:
    """Adapts the calls to gRPC: bytes, metadata, clients, authentication and errors."""

    def __init__(
        self,
        clients: ClientTable,
        unary: dict[str, Unary],
        streams: dict[str, Streaming],
        telemetry: Telemetry,
        authenticate: Authenticate,
    ) -> None:
        self._clients = clients
        self._telemetry = telemetry
        self._authenticate = authenticate
        self.methods: dict[str, Method] = {}
        """By path."""
        for name, call in unary.items():
            request, response = getattr(rpc, f"{name}Request"), getattr(rpc, f"{name}Response")
            self.methods[f"/{NAME}/{name}"] = Method(functools.partial(self._unary, name, call, request, response))
        for name, stream in streams.items():
            request, response = getattr(rpc, f"{name}Request"), getattr(rpc, f"{name}Response")
            serve = functools.partial(self._stream, name, stream, request, response)
            self.methods[f"/{NAME}/{name}"] = Method(serve, is_unary=False)
        self.methods[f"/{NAME}/Telemetry"] = Method(self._serve_telemetry, is_unary=False, reads_stream=True)

    def _begin(self, name: str, request: object, stream: Stream) -> tuple[CallContext, Client]:
        call = call_context(stream, "")
        self._authenticate(name, stream.metadata, request, call.remote_address)
        return call, self._clients.of(call)

    async def _unary(
        self, name: str, handler: Unary, request_type: Any, response: Any, message: bytes, stream: Stream
    ) -> bytes:
        request = _parsed(request_type, message)
        try:
            call, client = self._begin(name, request, stream)
        except StatusError as error:
            return _bytes(response(status=status_of(error)))
        client.calls += 1
        try:
            return _bytes(await handler(request, client, call))
        except _EXPECTED as error:
            failure = response(status=status_of(error))
            if name == "ChangeInvisibleDuration":
                # Clients take the new handle before they look at the status.
                failure.receipt_handle = request.receipt_handle
            return _bytes(failure)
        except Exception as error:
            log.exception("proxy: %s of %s failed", name, call.client_id)
            return _bytes(response(status=status_of(error)))
        finally:
            client.calls -= 1

    async def _stream(
        self, name: str, handler: Streaming, request_type: Any, response: Any, message: bytes, stream: Stream
    ) -> None:
        async def write(*messages: Any) -> None:
            await stream.write(*(one.SerializeToString() for one in messages))

        request = _parsed(request_type, message)
        try:
            call, client = self._begin(name, request, stream)
        except StatusError as error:
            await write(response(status=status_of(error)))
            return
        client.calls += 1
        try:
            await handler(request, client, call, write)
        except _EXPECTED as error:
            await write(response(status=status_of(error)))
        except (GrpcError, asyncio.CancelledError):
            raise
        except Exception as error:
            log.exception("proxy: %s of %s failed", name, call.client_id)
            await write(response(status=status_of(error)))
        finally:
            client.calls -= 1

    async def _serve_telemetry(self, _: bytes, stream: Stream) -> None:
        async def write(command: rpc.TelemetryCommand) -> None:
            await stream.write(command.SerializeToString())

        try:
            call, client = self._begin("Telemetry", None, stream)
        except StatusError as error:
            await write(rpc.TelemetryCommand(status=status_of(error)))
            return
        try:
            await self._telemetry.serve(client, _commands(stream), write)
        except _EXPECTED as error:
            status = status_of(error)
            is_bad = pb.BAD_REQUEST <= status.code < pb.INTERNAL_ERROR
            log.info("telemetry: stream of %s refused: %s", call.client_id, status.message)
            code = GrpcCode.INVALID_ARGUMENT if is_bad else GrpcCode.INTERNAL
            raise GrpcError(code, status.message) from None


async def _commands(stream: Stream) -> AsyncIterator[rpc.TelemetryCommand]:
    async for message in stream.messages():
        yield _parsed(rpc.TelemetryCommand, message)


def _parsed(kind: Any, message: bytes) -> Any:
    try:
        return kind.FromString(message)
    except DecodeError:
        raise GrpcError(GrpcCode.INTERNAL, "the message is no valid protobuf") from None


def _bytes(message: Any) -> bytes:
    serialized: bytes = message.SerializeToString()
    return serialized
