"""Telemetry: settings of clients, and commands of brokers and tools that go to clients over this stream."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import orjson

from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command.fields import decode_fields
from orbitmq.protocol.command.request_fields import REQUEST_FIELDS
from orbitmq.protocol.message.record import decode_record
from orbitmq.proxy.clients.settings import check_settings, completed
from orbitmq.proxy.clients.stream import CommandStream
from orbitmq.proxy.errors import ok
from orbitmq.proxy.messages.from_stored import delivered
from orbitmq.proxy.proto import definition_pb2 as pb
from orbitmq.proxy.proto import service_pb2 as rpc
from orbitmq.remoting.errors import RemotingError
from orbitmq.remoting.processor import RequestRefusedError, handler_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from orbitmq.protocol.command.command import Command
    from orbitmq.proxy.clients.client import Client
    from orbitmq.proxy.clients.registration import Registration
    from orbitmq.proxy.messaging.runtime import Runtime
    from orbitmq.proxy.messaging.transaction import Transactions
    from orbitmq.remoting import Connection, Handler

log = logging.getLogger("orbitmq.proxy")

_RESULTS = {pb.OK: "CR_SUCCESS", pb.FAILED_TO_CONSUME_MESSAGE: "CR_LATER", pb.MESSAGE_CORRUPTED: "CR_RETURN_NULL"}


class Telemetry:
    """The streams of all clients, and the handlers of what brokers send to them."""

    def __init__(self, runtime: Runtime, registration: Registration, transactions: Transactions) -> None:
        self._runtime = runtime
        self._config = runtime.config
        self._registration = registration
        self._transactions = transactions

    # The stream

    async def serve(
        self,
        client: Client,
        commands: AsyncIterator[rpc.TelemetryCommand],
        write: Callable[[rpc.TelemetryCommand], Awaitable[None]],
    ) -> None:
        """Serve a stream until either side ends it. Raises StatusError for settings that are refused."""
        stream = CommandStream(client.client_id, write, self._config.grpc_max_queued_commands)
        writing = asyncio.create_task(stream.run())
        try:
            async for command in commands:
                client.last_seen = self._runtime.clock.monotonic()
                await self._received(client, stream, command)
        finally:
            stream.close()
            if client.stream is stream:
                client.stream = None
            try:
                await asyncio.wait([writing], timeout=1.0)
            finally:
                writing.cancel()

    async def _received(self, client: Client, stream: CommandStream, command: rpc.TelemetryCommand) -> None:
        kind = command.WhichOneof("command")
        if kind == "settings":
            answer = await self._apply(client, command.settings)
            client.stream = stream
            stream.send(rpc.TelemetryCommand(status=ok(), settings=answer))
        elif kind == "thread_stack_trace":
            stream.replied(command.thread_stack_trace.nonce, command)
        elif kind == "verify_message_result":
            stream.replied(command.verify_message_result.nonce, command)

    async def _apply(self, client: Client, sent: pb.Settings) -> pb.Settings:
        check_settings(sent)
        registration = self._registration.heartbeat_of(client, sent)
        group = None
        if sent.WhichOneof("pub_sub") == "subscription":
            group = await self._runtime.backend.group(
                sent.subscription.group.name, create=self._config.grpc_auto_create_consumer_group
            )
        client.settings = sent
        client.registration = registration
        client.settings_arrived.set()
        await self._registration.register(client)
        return completed(sent, group, self._config)

    # Requests of brokers

    @property
    def handlers(self) -> dict[int, Handler]:
        """For connections to brokers; their ``state`` is the client."""
        return {
            RequestCode.CHECK_TRANSACTION_STATE: handler_of(self._check_transaction),
            RequestCode.GET_CONSUMER_RUNNING_INFO: handler_of(self._running_info),
            RequestCode.CONSUME_MESSAGE_DIRECTLY: handler_of(self._consume_directly),
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: handler_of(_ignored),
            RequestCode.NOTIFY_UNSUBSCRIBE_LITE: handler_of(self._unsubscribe_lite),
        }

    def _check_transaction(self, request: Command, connection: Connection) -> Command:
        client: Client = connection.state
        self._transactions.check(request, client, client.broker_of(connection))
        return request.response(ResponseCode.SUCCESS)

    def _unsubscribe_lite(self, request: Command, connection: Connection) -> Command:
        fields = decode_fields(request.ext_fields, REQUEST_FIELDS[request.code])
        stream = _stream_of(connection)
        command = rpc.TelemetryCommand(status=ok())
        command.notify_unsubscribe_lite_command.lite_topic = str(fields["liteTopic"])
        stream.send(command)
        return request.response(ResponseCode.SUCCESS)

    async def _running_info(self, request: Command, connection: Connection) -> Command:
        """The settings as properties and, on demand, the stack traces of the client."""
        fields = decode_fields(request.ext_fields, REQUEST_FIELDS[request.code])
        client: Client = connection.state
        info: dict[str, Any] = {
            "properties": _properties_of(client),
            "subscriptionSet": [],
            "mqTable": {},
            "mqPopTable": {},
            "statusTable": {},
            "userConsumerInfo": {},
        }
        if fields["jstackEnable"]:
            command = rpc.TelemetryCommand(status=ok(), print_thread_stack_trace_command={})
            reply = await _ask(connection, command, "print_thread_stack_trace_command")
            info["jstack"] = reply.thread_stack_trace.thread_stack_trace
        return request.response(ResponseCode.SUCCESS, body=orjson.dumps(info))

    async def _consume_directly(self, request: Command, connection: Connection) -> Command:
        record = decode_record(request.body or b"")
        command = rpc.TelemetryCommand(status=ok())
        command.verify_message_command.message.CopyFrom(delivered(record, record.topic))
        began = self._runtime.clock.monotonic()
        reply = await _ask(connection, command, "verify_message_command")
        spent = int((self._runtime.clock.monotonic() - began) * 1000)
        result = {
            "order": False,
            "autoCommit": True,
            "consumeResult": _RESULTS.get(reply.status.code, "CR_THROW_EXCEPTION"),
            "remark": reply.status.message,
            "spentTimeMills": spent,
        }
        return request.response(ResponseCode.SUCCESS, body=orjson.dumps(result))


def _ignored(request: Command, _connection: Connection) -> Command:
    return request.response(ResponseCode.SUCCESS)


def _stream_of(connection: Connection) -> CommandStream:
    client: Client = connection.state
    if client.stream is None:
        raise RequestRefusedError(f"client {client.client_id} has no telemetry stream")
    return client.stream


async def _ask(connection: Connection, command: rpc.TelemetryCommand, field: str) -> rpc.TelemetryCommand:
    try:
        return await _stream_of(connection).ask(command, field)
    except RemotingError as error:
        raise RequestRefusedError(str(error), ResponseCode.SYSTEM_BUSY) from error


def _properties_of(client: Client) -> dict[str, str]:
    settings = client.settings
    found = {"PROP_CLIENT_VERSION": "" if settings is None else settings.user_agent.version}
    if settings is not None:
        found["PROP_CONSUME_TYPE"] = (
            "CONSUME_PASSIVELY" if settings.client_type == pb.PUSH_CONSUMER else "CONSUME_ACTIVELY"
        )
        found.update(settings.client_properties)
    return found
