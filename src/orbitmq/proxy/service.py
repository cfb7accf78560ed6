"""MessagingService: the table of its calls, and the steps that all of them have in common."""

from __future__ import annotations

import asyncio
import functools
import logging
from typing import TYPE_CHECKING, Any

import grpc

from orbitmq.protocol.errors import ProtocolError
from orbitmq.proxy.context import call_context
from orbitmq.proxy.errors import StatusError, status_of
from orbitmq.proxy.proto import definition_pb2 as pb
from orbitmq.proxy.proto import service_pb2 as rpc
from orbitmq.remoting import RemotingError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from orbitmq.proxy.auth_hook import Authenticate
    from orbitmq.proxy.clients.client import Client
    from orbitmq.proxy.clients.table import ClientTable
    from orbitmq.proxy.clients.telemetry import Telemetry
    from orbitmq.proxy.context import CallContext

    Unary = Callable[[Any, Client, CallContext], Awaitable[Any]]
    Stream = Callable[[Any, Client, CallContext, Callable[[Any], Awaitable[None]]], Awaitable[None]]

log = logging.getLogger("orbitmq.proxy")

NAME = "apache.rocketmq.v2.MessagingService"

_EXPECTED = (StatusError, RemotingError, ProtocolError)


class MessagingService:
    """Adapts the calls to grpcio: metadata, clients, authentication and errors."""

    def __init__(
        self,
        clients: ClientTable,
        unary: dict[str, Unary],
        streams: dict[str, Stream],
        telemetry: Telemetry,
        authenticate: Authenticate,
    ) -> None:
        self._clients = clients
        self._telemetry = telemetry
        self._authenticate = authenticate
        self._handlers: dict[str, Any] = {}
        for name, call in unary.items():
            request, response = getattr(rpc, f"{name}Request"), getattr(rpc, f"{name}Response")
            self._handlers[name] = grpc.unary_unary_rpc_method_handler(
                functools.partial(self._unary, name, call, response), request.FromString, response.SerializeToString
            )
        for name, stream in streams.items():
            request, response = getattr(rpc, f"{name}Request"), getattr(rpc, f"{name}Response")
            self._handlers[name] = grpc.unary_stream_rpc_method_handler(
                functools.partial(self._stream, name, stream, response),
                request.FromString,
                response.SerializeToString,
            )
        self._handlers["Telemetry"] = grpc.stream_stream_rpc_method_handler(
            self._serve_telemetry, rpc.TelemetryCommand.FromString, rpc.TelemetryCommand.SerializeToString
        )

    def handlers(self) -> Any:
        """The generic handler for ``Server.add_generic_rpc_handlers``."""
        return grpc.method_handlers_generic_handler(NAME, self._handlers)

    def _begin(self, name: str, request: object, context: Any) -> tuple[CallContext, Client]:
        metadata = {key: value for key, value in context.invocation_metadata() if isinstance(value, str)}
        call = call_context(context, metadata, "")
        self._authenticate(name, metadata, request, call.remote_address)
        return call, self._clients.of(call)

    async def _unary(self, name: str, handler: Unary, response: Any, request: Any, context: Any) -> Any:
        try:
            call, client = self._begin(name, request, context)
        except StatusError as error:
            return response(status=status_of(error))
        client.calls += 1
        try:
            return await handler(request, client, call)
        except _EXPECTED as error:
            failure = response(status=status_of(error))
            if name == "ChangeInvisibleDuration":
                # Clients take the new handle before they look at the status.
                failure.receipt_handle = request.receipt_handle
            return failure
        except Exception as error:
            log.exception("proxy: %s of %s failed", name, call.client_id)
            return response(status=status_of(error))
        finally:
            client.calls -= 1

    async def _stream(self, name: str, handler: Stream, response: Any, request: Any, context: Any) -> None:
        try:
            call, client = self._begin(name, request, context)
        except StatusError as error:
            await context.write(response(status=status_of(error)))
            return
        client.calls += 1
        try:
            await handler(request, client, call, context.write)
        except _EXPECTED as error:
            await context.write(response(status=status_of(error)))
        except asyncio.CancelledError:
            raise
        except Exception as error:
            if context.cancelled():
                return
            log.exception("proxy: %s of %s failed", name, call.client_id)
            await context.write(response(status=status_of(error)))
        finally:
            client.calls -= 1

    async def _serve_telemetry(self, commands: Any, context: Any) -> None:
        try:
            call, client = self._begin("Telemetry", None, context)
        except StatusError as error:
            await context.write(rpc.TelemetryCommand(status=status_of(error)))
            return
        try:
            await self._telemetry.serve(client, commands, context.write)
        except _EXPECTED as error:
            status = status_of(error)
            is_bad = pb.BAD_REQUEST <= status.code < pb.INTERNAL_ERROR
            code = grpc.StatusCode.INVALID_ARGUMENT if is_bad else grpc.StatusCode.INTERNAL
            log.info("telemetry: stream of %s refused: %s", call.client_id, status.message)
            await context.abort(code, status.message)
